"""The kernels in Triton's interpreter, in values and all gradients against the reference in float64.

test_kernels.py runs this file in a process of its own, because Triton chooses the interpreter when it is imported:

    TRITON_INTERPRET=1 python -m pytest tests/backends/triton/interpreted.py

The interpreter does not round to TF32, so that float32 is compared with the native kernel's own tolerance.
"""

import warnings
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from acda import AdaptiveConv2d
from acda.backends import triton
from acda.backends.triton import driver, kernels, trial
from acda.functional import adaptive_conv2d, per_pixel_conv2d
from acda.window import Pair, Window
from tests.backends import comparing

# Half precision rounds D, z and the result, or dz, dD and the gradient: with the inputs' products, four roundings.
TOLERANCE = {
    torch.float32: comparing.TOLERANCE[torch.float32],
    torch.float16: 4 * torch.finfo(torch.float16).eps / 2,
    torch.bfloat16: 4 * torch.finfo(torch.bfloat16).eps / 2,
}


@dataclass(frozen=True)
class Case:
    size: tuple[int, int] = (5, 7)
    side: int = 3
    stride: Pair = 1
    padding: Pair = 1
    dilation: Pair = 1
    batch: int = 1
    channels: int = 3
    outputs: int = 4
    groups: int = 1
    atoms: int = 6
    bases: bool = True
    bias: bool = True
    dtype: torch.dtype = torch.float32
    chunk_bytes: int = driver.CHUNK_BYTES

    @property
    def window(self) -> tuple[Pair, Pair, Pair]:
        return self.stride, self.padding, self.dilation

    def operands(self) -> list[Tensor | None]:
        """x, coefficients, bases, mixing, bias"""
        P, Q = Window.of(self.side, *self.window).output_size(*self.size)
        L = 4 if self.bases else self.side**2
        shapes = [
            (self.batch, self.channels, *self.size),
            (self.batch, self.atoms, L, P, Q),
            (L, self.side, self.side) if self.bases else None,
            (self.outputs, self.channels // self.groups, self.atoms),
            (self.outputs,) if self.bias else None,
        ]
        return [None if shape is None else torch.randn(*shape).to(self.dtype) for shape in shapes]


CASES = {
    "odd sizes": Case((7, 11), batch=2, outputs=7),
    "a channel more than a block, unpadded": Case((7, 9), side=7, padding=0, channels=129),
    "a single output pixel": Case((3, 3), padding=0),
    "windows that see only padding": Case((3, 4), padding=4),
    "stride": Case((9, 8), side=7, stride=2, padding=3),
    "stride beyond the window": Case((9, 14), stride=5, padding=2),
    "dilation": Case((9, 9), side=5, dilation=2, padding=3),
    "stride and dilation of each axis": Case((13, 14), side=5, stride=(2, 3), padding=(1, 2), dilation=(3, 2)),
    "groups": Case(channels=4, outputs=6, groups=2),
    "depthwise": Case(channels=3, outputs=6, groups=3),
    "one atom": Case((5, 18), atoms=1),
    "fifteen atoms": Case(atoms=15),
    "more atoms than a product has rows": Case((2, 3), atoms=65),
    "1×1": Case(side=1, padding=0, bases=False),
    "5×5": Case(side=5, padding=2),
    "9×9": Case((4, 6), side=9, padding=4),
    "11×11": Case((3, 6), side=11, padding=5),
    "no bases": Case(side=5, padding=2, bases=False),
    "no bias": Case((3, 4), bias=False),
    "no bias, groups": Case((3, 4), channels=4, groups=2, bias=False),
    "chunks of one line, across images": Case((3, 5), batch=2, chunk_bytes=1),
    "chunks of four lines, across images": Case((3, 5), batch=3, stride=(2, 1), padding=2, chunk_bytes=18_000),
    "chunks without bases, groups": Case((3, 5), channels=4, groups=2, bases=False, chunk_bytes=1),
    "empty batch": Case(batch=0),
    "float16": Case(side=7, padding=3, channels=20, dtype=torch.float16),
    "bfloat16": Case(side=7, padding=3, channels=20, dtype=torch.bfloat16),
    "bfloat16 in chunks": Case((3, 5), groups=3, outputs=3, dtype=torch.bfloat16, chunk_bytes=1),
}


@pytest.fixture(autouse=True, scope="module")
def _interpreter():
    triton.interpret()


@pytest.fixture(autouse=True)
def _uninitialised_memory_is_nan():
    assert torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    assert torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(False)


def assert_like_reference(run, operands: list[Tensor | None], dtype: torch.dtype, frozen: tuple[int, ...] = ()) -> None:
    """Compare values, and the gradients of all operands except the frozen ones."""
    ours, truth = ([None if t is None else t.to(d) for t in operands] for d in (dtype, torch.float64))
    wanted = [i for i, t in enumerate(operands) if t is not None and i not in frozen]
    for tensors in (ours, truth):
        for i in wanted:
            tensors[i].requires_grad_()
    y, expected = run(*ours, backend="triton"), run(*truth, backend="reference")
    assert y.dtype == dtype
    assert_near(y, expected, dtype)
    upstream = torch.randn_like(expected).to(dtype)
    grads = torch.autograd.grad(y, [ours[i] for i in wanted], upstream)
    for grad, right in zip(grads, torch.autograd.grad(expected, [truth[i] for i in wanted], upstream), strict=True):
        assert_near(grad, right, dtype)


def assert_near(ours: Tensor, truth: Tensor, dtype: torch.dtype) -> None:
    assert ours.shape == truth.shape
    error = (ours.double() - truth).norm()
    assert error <= TOLERANCE[dtype] * truth.norm(), f"relative error {error / truth.norm():.1e}"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_and_all_gradients_are_the_references(case: Case, monkeypatch):
    monkeypatch.setattr(driver, "CHUNK_BYTES", case.chunk_bytes)

    def run(*operands: Tensor | None, backend: str) -> Tensor:
        return adaptive_conv2d(*operands, *case.window, case.groups, backend)

    assert_like_reference(run, case.operands(), case.dtype)


def test_the_chunks_of_the_cases_are_what_their_names_say(monkeypatch):
    def counts(case: Case) -> list[int]:
        monkeypatch.setattr(driver, "CHUNK_BYTES", case.chunk_bytes)
        x, alpha, *_ = case.operands()
        stride, padding = ((n, n) if isinstance(n, int) else n for n in (case.stride, case.padding))
        x, alpha = x.permute(0, 2, 3, 1), alpha.permute(0, 3, 4, 1, 2)
        call = driver._Call.of(x, alpha, None, None, (case.side, *stride, *padding, 1, 1, 1))
        return [lines.number for lines in call.chunks(copies=2)]

    assert counts(CASES["chunks of one line, across images"]) == [1] * 6
    assert counts(CASES["chunks of four lines, across images"]) == [4, 4, 1]


def test_fixed_bases_have_the_same_gradients():
    case = Case(side=5, padding=2)

    def run(*operands: Tensor | None, backend: str) -> Tensor:
        return adaptive_conv2d(*operands, *case.window, backend=backend)

    assert_like_reference(run, case.operands(), case.dtype, frozen=(2,))


@pytest.mark.parametrize(
    "case",
    [Case((5, 8), batch=2), Case((7, 9), side=5, stride=2, padding=3, atoms=2, channels=17), Case(chunk_bytes=1)],
    ids=["plain", "strided", "chunks"],
)
def test_per_pixel_filters_are_the_references(case: Case, monkeypatch):
    monkeypatch.setattr(driver, "CHUNK_BYTES", case.chunk_bytes)
    x, filters, *_ = replace(case, bases=False).operands()

    def run(x: Tensor, filters: Tensor, backend: str) -> Tensor:
        return per_pixel_conv2d(x, filters.unflatten(2, (case.side, case.side)), *case.window, backend=backend)

    assert_like_reference(run, [x, filters], case.dtype)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_the_layer_pads_in_every_mode(mode):
    layer, x = AdaptiveConv2d(2, 3, 5, padding=2, padding_mode=mode), torch.randn(1, 2, 4, 5, requires_grad=True)
    parameters = [x, *layer.parameters()]
    results = {}
    for backend in ("triton", "reference"):
        layer.backend = backend
        y = layer(x)
        results[backend] = [y, *torch.autograd.grad(y.square().sum(), parameters)]
    for ours, truth in zip(*results.values(), strict=True):
        # Both are float32: the error of each of them, and of Φ's normalisation, which magnifies both.
        torch.testing.assert_close(ours, truth, rtol=1e-3, atol=1e-4 * float(truth.detach().abs().max()))


def test_autocast_computes_in_its_own_dtype():
    x, alpha, bases, mixing, bias = Case().operands()
    with torch.autocast("cpu", torch.bfloat16):
        y = adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1, backend="triton")
    assert y.dtype == torch.bfloat16
    halves = (t.bfloat16() for t in (x, alpha, bases, mixing, bias))
    assert torch.equal(y, adaptive_conv2d(*halves, padding=1, backend="triton"))


@pytest.mark.parametrize("layout", comparing.LAYOUTS)
def test_the_memory_layout_of_the_input_does_not_matter(layout):
    x, alpha, bases, mixing, bias = Case((3, 4)).operands()
    expected = adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1, backend="triton")
    x = comparing.LAYOUTS[layout](x)
    assert torch.equal(adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1, backend="triton"), expected)


@pytest.mark.parametrize("learnable", [False, True], ids=["fixed bases", "learnable bases"])
def test_it_compiles_as_one_graph(learnable):
    x, alpha, bases, mixing, bias = (t.requires_grad_() for t in Case((3, 4)).operands())
    bases.requires_grad_(learnable)

    def run(x: Tensor) -> Tensor:
        return adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1, backend="triton").relu()

    wanted = [x, alpha, mixing, bias, *([bases] if learnable else [])]
    results = []
    for function in (torch.compile(run, fullgraph=True, backend="aot_eager"), run):
        y = function(x)
        results.append([y, *torch.autograd.grad(y.sum(), wanted)])
    for ours, eager in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager)


def test_torchs_own_checks_of_the_operators_pass():
    x, alpha, bases, mixing, bias = Case((3, 4), channels=2, outputs=2, atoms=2).operands()
    pixel_major = x.permute(0, 2, 3, 1).contiguous(), alpha.permute(0, 3, 4, 1, 2).contiguous()
    numbers = (3, 1, 1, 1, 1, 1, 1, 1)
    leaves = [t.requires_grad_() for t in (*pixel_major, mixing, bias)]
    torch.library.opcheck(torch.ops.acda.adaptive_conv2d.default, (*leaves[:2], bases, *leaves[2:], *numbers))
    given = (torch.randn(1, 3, 4, 2), *(t.detach() for t in (*pixel_major, bases, mixing)), *numbers)
    torch.library.opcheck(torch.ops.acda.adaptive_conv2d_backward_with_bases.default, given)


@pytest.mark.parametrize("learnable", [False, True], ids=["fixed bases", "learnable bases"])
def test_second_derivatives_are_refused(learnable):
    x, alpha, bases, mixing, bias = (t.requires_grad_() for t in Case((3, 4)).operands())
    bases.requires_grad_(learnable)
    y = adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1, backend="triton")
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        dx.sum().backward()


@pytest.fixture
def _tried_afresh():
    triton._ask_once.cache_clear()
    yield
    triton._ask_once.cache_clear()


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_trial_before_the_first_call_passes(dtype):
    before = torch.get_rng_state()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert trial.disagreement(torch.device("cpu"), dtype) is None
    assert torch.equal(torch.get_rng_state(), before)


class Broken:
    """A kernel that reads one column too far to the right, or that cannot be launched."""

    def __init__(self, kernel, launches: bool) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid):
        def run(px: int, **arguments) -> None:
            if not self.launches:
                raise RuntimeError("out of resource: shared memory\nand more")
            self.kernel[grid](px=px + 1, **arguments)

        return run


@pytest.mark.usefixtures("_tried_afresh")
@pytest.mark.parametrize("launches", [True, False], ids=["wrong", "not launched"])
@pytest.mark.parametrize("name", ["z_kernel", "dD_kernel", "dx_kernel"])
def test_a_broken_kernel_is_found_once_and_plain_torch_runs(name, launches, monkeypatch):
    monkeypatch.setattr(kernels, name, Broken(getattr(kernels, name), launches))
    operands = Case().operands()
    reason = "differed from plain torch there, by" if launches else r"failed there \(RuntimeError: out of resource"
    with pytest.warns(RuntimeWarning, match=f"not used on cpu.*: a trial call {reason}.*Plain torch runs instead"):
        y = adaptive_conv2d(*operands, padding=1)
    with warnings.catch_warnings(action="error"):  # the second call does not warn again
        assert torch.equal(y, adaptive_conv2d(*operands, padding=1))
    torch.testing.assert_close(y, adaptive_conv2d(*operands, padding=1, backend="reference"))
    with pytest.raises(ValueError, match=f'backend="triton" cannot run: a trial call {reason}'):
        adaptive_conv2d(*operands, padding=1, backend="triton")
