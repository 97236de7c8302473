"""The operator's kernel against the reference, in values and gradients."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from acda import AdaptiveConv2d, fourier_bessel, multiscale_fourier_bessel
from acda.backends import native
from acda.backends.native import library
from acda.functional import adaptive_conv2d, per_pixel_conv2d
from tests.backends.comparing import DTYPES, LAYOUTS, compare, compare_without_gradients, threads
from tests.strategies import Case, cases

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))


@given(
    cases(),
    st.sampled_from(DTYPES),
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(1, 3),
    st.sampled_from([None, 0.0, 0.6, 1.0]),
    st.integers(1, 7),
)
def test_adaptive_conv2d_equals_the_reference(case: Case, dtype, layout, count, holes, wider):
    """Channels beyond one vector, maps beyond one chunk, more threads than cores, bases with holes, no bases (None)."""
    groups, side = case.groups, min(case.side, 9)
    C, O = (n * wider for n in case.channels)  # noqa: E741
    H, W = case.size[0] + 20, case.size[1] + 25 * wider
    case = Case(**{**vars(case), "side": side, "size": (H, W), "channels": (C, O)})
    L = side**2 if holes is None else case.elements
    inputs = [
        case.input(),
        case.randn(case.batch, case.atoms, L, *case.conv2d_size()),
        None if holes is None else case.randn(L, side, side) * (case.rand(side, side) >= holes),
        case.randn(O, C // groups, case.atoms),
        case.randn(O) if case.seed % 2 else None,
    ]
    with threads(count):
        compare(
            lambda *t, backend: adaptive_conv2d(*t, **case.window, groups=groups, backend=backend),
            inputs,
            dtype,
            LAYOUTS[layout],
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize(("groups", "before", "after"), [(64, 1, 1), (32, 1, 2), (13, 1, 1), (12, 3, 2), (6, 5, 3)])
def test_narrow_groups(groups, before, after, dtype, layout):
    """The kernel merges several into one: 8 and 16 channels wide, a prime number of groups, or hardly worth merging."""
    for side in (3, 7):
        x, mixing = torch.randn(2, groups * before, 9, 15), torch.randn(groups * after, before, 6)
        inputs = [
            x,
            torch.randn(2, 6, 6 * (side // 2), 9, 15),
            multiscale_fourier_bessel(side),
            mixing,
            torch.randn(len(mixing)),
        ]
        run = partial(adaptive_conv2d, padding=side // 2, groups=groups)
        compare(run, inputs, dtype, LAYOUTS[layout])
        compare_without_gradients(run, inputs, dtype, LAYOUTS[layout])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("groups", "before", "atoms", "after"), [(1, 11, 5, 37), (1, 8, 4, 32), (2, 16, 3, 21)])
def test_parameters_packed_in_vectors_and_one_by_one(groups, before, atoms, after, dtype):
    """Whole vectors of outputs and whole blocks of their parameters are turned in the registers, the rest is not."""
    mixing = torch.randn(groups * after, before, atoms)
    inputs = [torch.randn(1, groups * before, 5, 6), torch.randn(1, atoms, 6, 5, 6), fourier_bessel(3), mixing, None]
    run = partial(adaptive_conv2d, padding=1, groups=groups)
    compare_without_gradients(run, inputs, dtype, LAYOUTS["contiguous"])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"stride": (1, 3), "dilation": 2}, {"groups": 5}])
@pytest.mark.parametrize(("channels", "side"), [(10, 5), (40, 3), (90, 7), (110, 7)])
def test_the_gradient_of_the_atoms_with_pixels_and_with_channels_in_the_lanes(channels, side, options, dtype):
    """Which of the two depends on channels, taps and the length of a row."""
    for with_bases in (True, False):
        window = {"padding": side // 2, "stride": 1, "dilation": 1, "groups": 1, **options}
        x, weight = torch.randn(2, channels, 14, 21), torch.empty(10, channels, side, side)
        settings = {name: window[name] for name in ("padding", "stride", "dilation")}
        size = F.conv2d(x.to("meta"), weight.to("meta"), **settings).shape[2:]
        bases = multiscale_fourier_bessel(side) if with_bases else None
        elements = 6 * (side // 2) if with_bases else side**2
        mixing = torch.randn(10, channels // window["groups"], 7)
        inputs = [x, torch.randn(2, 7, elements, *size), bases, mixing, torch.randn(10)]
        compare(partial(adaptive_conv2d, **window), inputs, dtype, LAYOUTS["channels_last"])


@given(cases(largest_side=7), st.sampled_from(DTYPES), st.sampled_from(sorted(LAYOUTS)))
def test_per_pixel_conv2d_equals_the_reference(case: Case, dtype, layout):
    filters = case.randn(case.batch, case.atoms, case.side, case.side, *case.conv2d_size())
    compare(
        lambda *t, backend: per_pixel_conv2d(*t, **case.window, backend=backend),
        [case.input(), filters],
        dtype,
        LAYOUTS[layout],
    )


def operands(channels=20, size=30, side=7, dtype=torch.float32) -> list[Tensor]:
    shapes = [(2, channels, size, size), (2, 6, 6 * (side // 2), size, size), (9, channels, 6), (9,)]
    x, alpha, mixing, bias = (torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in shapes)
    return [x, alpha, multiscale_fourier_bessel(side, dtype=dtype), mixing, bias]


def run_with_gradients(tensors: list[Tensor]) -> list[Tensor]:
    y = adaptive_conv2d(*tensors, padding=3, backend="native")
    return [y, *torch.autograd.grad(y.square().sum(), [t for t in tensors if t.requires_grad])]


def test_the_same_bits_on_every_run():
    tensors = operands()
    first = run_with_gradients(tensors)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, run_with_gradients(tensors), strict=True))


def test_several_python_threads_at_once():
    jobs = [operands(channels=c) for c in (3, 8, 17, 20)]
    alone = [run_with_gradients(job) for job in jobs]
    together: dict[int, list[list[Tensor]]] = {i: [] for i in range(len(jobs))}

    def work(i: int) -> None:
        for _ in range(5):
            together[i].append(run_with_gradients(jobs[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, results in together.items():
        assert len(results) == 5
        for tensors in results:
            assert all(torch.equal(a, b) for a, b in zip(alone[i], tensors, strict=True))


@pytest.mark.parametrize("with_bases", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_torchs_own_checks_of_an_operator(with_bases):
    x, alpha, bases, mixing, bias = operands(channels=4, size=6, side=3)
    if not with_bases:
        alpha, bases = torch.randn(2, 6, 9, 6, 6, requires_grad=True), None
    pixel_major = [t.movedim((-2, -1), (1, 2)).contiguous().detach().requires_grad_() for t in (x, alpha)]
    arguments = (*pixel_major, bases, mixing, bias, 3, 1, 1, 1, 1, 1, 1, 1)
    torch.library.opcheck(torch.ops.acda.adaptive_conv2d, arguments)


def test_second_derivatives_are_refused_by_name():
    x, *rest = operands(channels=2, size=8, side=3)
    (grad,) = torch.autograd.grad(adaptive_conv2d(x, *rest, padding=1).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match='backend="reference"'):
        grad.sum().backward()
    layer = AdaptiveConv2d(2, 3, 3)
    layer.backend = "reference"
    (grad,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    grad.sum().backward()


def test_learnable_bases_take_the_reference():
    x, alpha, bases, mixing, bias = operands(channels=2, size=8, side=3)
    bases.requires_grad_()
    adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1).sum().backward()
    assert bases.grad is not None
    with pytest.raises(ValueError, match='"native" cannot run: it has no gradient for learnable bases'):
        adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1, backend="native")
    with torch.no_grad():
        adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1, backend="native")


def test_other_devices_say_why_not():
    elsewhere = SimpleNamespace(is_meta=False, device=torch.device("cuda"))  # there is no other device here
    assert native.why_not(elsewhere) == "it runs on the CPU; the input is on cuda"


@pytest.mark.parametrize("missing", [None, "it was not compiled"])
def test_meta_tensors_get_shapes_and_gradients_with_and_without_a_kernel(monkeypatch, missing):
    monkeypatch.setattr(native, "MISSING", missing)
    layer, x = AdaptiveConv2d(4, 6, 5, stride=2, device="meta"), torch.empty(2, 4, 9, 8, device="meta")
    y = layer(x.requires_grad_())
    assert y.is_meta
    assert y.shape == (2, 6, 3, 2)
    y.sum().backward()
    assert x.grad is not None
    with torch.no_grad():
        assert layer.eval()(x).shape == y.shape


def test_half_precision_is_accumulated_in_float32():
    tensors = [t.detach().bfloat16() for t in operands()]
    y = adaptive_conv2d(*tensors, padding=3, backend="native")
    assert torch.equal(y, adaptive_conv2d(*(t.float() for t in tensors), padding=3, backend="native").bfloat16())


@pytest.mark.parametrize(("training", "batch"), list(itertools.product([True, False], [1, 2])))
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_the_whole_layers_gradients_survive_the_layouts(training, batch, layout):
    """torch's BatchNorm is wrong for some strides of a batch of one; ours must not produce them."""
    layer, x = AdaptiveConv2d(3, 4, 5, padding=2).train(training).double(), torch.randn(batch, 3, 9, 8).double()
    results = {}
    for backend in ("native", "reference"):
        layer.backend = backend
        inputs = LAYOUTS[layout](x).detach().requires_grad_()
        y = layer(inputs)
        results[backend] = torch.autograd.grad(y.square().sum(), [inputs, *layer.parameters()])
    for ours, truth in zip(results["native"], results["reference"], strict=True):
        torch.testing.assert_close(ours, truth)


@pytest.mark.slow
def test_more_than_two_gigabytes():
    """Offsets beyond 2³¹ bytes, at both ends of the tensor."""
    x = torch.zeros(1, 64, 3000, 3000).contiguous(memory_format=torch.channels_last)
    assert x.nbytes > 2**31
    x[:, :, :8] = torch.randn(8, 3000)
    x[:, :, -8:] = torch.randn(8, 3000)
    alpha, mixing = torch.randn(1, 1, 1, 1, 1), torch.randn(1, 64, 1)
    bases = torch.randn(1, 3, 3)
    with torch.no_grad():
        y = adaptive_conv2d(x, alpha.expand(1, 1, 1, 3000, 3000), bases, mixing, padding=1, backend="native")
        for rows in (slice(0, 9), slice(-9, None)):
            part = adaptive_conv2d(
                x[:, :, rows].contiguous(),
                alpha.expand(1, 1, 1, 9, 3000),
                bases,
                mixing,
                padding=1,
                backend="reference",
            )
            inner = slice(0, 8) if rows.start == 0 else slice(1, 9)
            torch.testing.assert_close(y[:, :, rows][:, :, inner], part[:, :, inner], rtol=1e-4, atol=1e-4)


def test_multiply_adds_are_counted():
    layer, x = AdaptiveConv2d(8, 16, 7, padding=3, bias=False), torch.randn(2, 8, 10, 10)
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    counts = counter.get_flop_counts()["Global"]
    compose, apply, mix = 6 * 18 * 49, 8 * 6 * 49, 16 * 8 * 6
    phi, squeeze = 8 * 64 + 9 * 64 * 108, 8 * 64
    assert counts[torch.ops.acda.adaptive_layer_training] == 2 * 200 * (phi + compose + apply + mix)
    # The input needs no gradient, and so none through Φ's first convolution.
    expected = 4 * 200 * (phi + compose + apply + mix) - 2 * 200 * squeeze
    assert counts[torch.ops.acda.adaptive_layer_training_backward] == expected
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer.eval()(x)
    counts = counter.get_flop_counts()["Global"]
    assert counts[torch.ops.acda.adaptive_layer] == 2 * 200 * (8 * 64 + 9 * 64 * 108 + compose + apply + mix)


def test_sums_over_a_million_pixels_keep_their_digits():
    """A constant gradient, as that of a mean: a single running sum in float32 would be off by one percent."""
    x, alpha = torch.ones(1, 1, 1000, 1000), torch.ones(1, 1, 1, 1000, 1000)
    parameters = [torch.ones(shape, requires_grad=True) for shape in ((1, 1, 1), (1,), (1, 1, 1, 1))]
    mixing, bias, weight = parameters
    with threads(1):
        y = adaptive_conv2d(x, alpha, None, mixing, bias, backend="native") + native.conv2d(x, weight, (1, 1), (0, 0))
        gradients = torch.autograd.grad(y.mean(), parameters)
    for gradient in gradients:
        assert float(gradient) == pytest.approx(1, abs=2e-4)


def test_groups_without_mixing_are_refused():
    x, filters = torch.randn(1, 5, 5, 4), torch.randn(1, 3, 3, 1, 9)
    with pytest.raises(RuntimeError, match="without mixing there are no groups"):
        torch.ops.acda.adaptive_conv2d(x, filters, None, None, None, 3, 1, 1, 0, 0, 1, 1, 2)


def test_a_kernel_from_other_sources_is_noticed(tmp_path):
    sources = library.FOLDER / "csrc"
    assert library.is_made_from(sources)
    changed = shutil.copytree(sources, tmp_path / "csrc")
    with (changed / "walk.inc").open("a") as file:
        file.write("// changed\n")
    assert not library.is_made_from(changed)


def test_a_missing_kernel_is_said_once_and_the_results_are_right(monkeypatch):
    monkeypatch.setattr(native, "MISSING", "it was not compiled")
    monkeypatch.setattr(native, "_said", False)
    tensors = [t.detach() for t in operands(size=10)]
    with pytest.warns(UserWarning, match="slower than its CPU kernel: it was not compiled") as caught:
        y, _ = (adaptive_conv2d(*tensors, padding=3) for _ in range(2))
    assert len(caught) == 1
    torch.testing.assert_close(y, adaptive_conv2d(*tensors, padding=3, backend="reference"))
    with pytest.raises(ValueError, match='"native" cannot run: it was not compiled'):
        adaptive_conv2d(*tensors, padding=3, backend="native")


@given(cases(largest_side=9), st.sampled_from(sorted(LAYOUTS)), st.integers(1, 9), st.integers(1, 3))
def test_inference_reads_every_layout(case: Case, layout, wider, count):
    C, O = (n * wider for n in case.channels)  # noqa: E741
    case = Case(**{**vars(case), "channels": (C, O), "size": (case.size[0] + 9, case.size[1] + 70)})
    inputs = [
        case.input(),
        case.randn(case.batch, case.atoms, case.elements, *case.conv2d_size()),
        case.randn(case.elements, case.side, case.side),
        case.randn(O, C // case.groups, case.atoms),
        case.randn(O),
    ]
    run = partial(adaptive_conv2d, **case.window, groups=case.groups)
    with threads(count):
        compare_without_gradients(run, inputs, torch.float64, LAYOUTS[layout])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
def test_a_large_image_needs_little_more_than_its_result(layout):
    """Beyond the input: the result and 64 MB. The coefficients alone would be 108 maps, Φ's hidden map 64."""
    code = f"""
import torch, acda
from acda.support.environment import peak_megabytes as peak
torch.set_num_threads(2)
layer = acda.AdaptiveConv2d(64, 64, 7, padding=3).eval()
x = torch.empty(1, 64, 1024, 1024, memory_format=torch.{layout}).fill_(1.0)
with torch.no_grad():
    layer(x[:, :, :64, :64])
    before = peak()
    layer(x)
print((peak() - before) * 2**20 / (1024 * 1024 * 4))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    maps = float(result.stdout)
    assert maps > 60, "nearly all of the result at least"
    assert maps <= 64 + 64 * 2**20 / (1024 * 1024 * 4)


def test_training_keeps_the_input_the_coefficients_and_the_parameters():
    x, alpha, bases, mixing, bias = operands(channels=20, size=30)
    x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        adaptive_conv2d(x, alpha, bases, mixing, bias, padding=3, backend="native")
    assert sum(t.numel() for t in kept) <= x.numel() + alpha.numel() + bases.numel() + mixing.numel()


@pytest.mark.slow
def test_all_of_it_without_the_processors_vectors():
    """The code for processors without x86's wide vectors, such as ARM, in a process of its own."""
    script = """
import copy, torch
from acda import AdaptiveConv2d
print(torch.ops.acda.vector_bytes())
torch.ops.acda.poison_scratch(True)
torch.manual_seed(0)
for dtype, most in ((torch.float32, 1e-5), (torch.float64, 1e-11)):
    for side, stride, groups in ((3, 1, 1), (5, 2, 2), (7, 1, 1)):
        layer = AdaptiveConv2d(6, 10, side, stride, side // 2, groups=groups).double()
        x = torch.randn(2, 6, 17, 19, dtype=torch.float64)
        found = []
        for backend, kind in (("native", dtype), ("reference", torch.float64)):
            one, seen = copy.deepcopy(layer).to(kind), x.to(kind).requires_grad_()
            one.backend = backend
            y = one(seen)
            grads = torch.autograd.grad(y.square().sum(), [seen, *one.parameters()])
            found.append([y.detach(), *grads, one.eval()(x.to(kind)).detach()])
        for ours, truth in zip(*found):
            error = (ours.double() - truth).norm() / truth.norm().clamp_min(1e-30)
            assert error < 2 * most, (dtype, side, float(error))
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "ACDA_VECTORS": "baseline"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert int(result.stdout) < torch.ops.acda.vector_bytes() or torch.ops.acda.vector_bytes() <= 16
