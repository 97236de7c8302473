"""Φ, by its own modules (`modules`) and with its steps computed by each backend, as a layer has them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import prune

from acda import AdaptiveConv2d, AtomGenerator
from acda.backends import BACKENDS
from acda.layers.fused import predict
from tests.naive import BY_NAME
from tests.strategies import Case, cases

by_all = pytest.mark.parametrize("by", ["modules", *BY_NAME])


def run(phi: AtomGenerator, x: torch.Tensor, by: str) -> torch.Tensor:
    return phi(x) if by == "modules" else predict(phi, x, BACKENDS[by])


@by_all
@given(cases(), st.sampled_from(["zeros", "reflect", "replicate", "circular"]), st.sampled_from([1, 3]))
def test_output_size_is_conv2ds(by, case: Case, mode: str, first_kernel: int):
    phi = AtomGenerator(case.channels[0], 5, case.side, **case.window, padding_mode=mode, first_kernel=first_kernel)
    y = run(phi.double(), case.input(), by)
    assert y.shape == (case.batch, 5, *case.conv2d_size())


def seen_by(phi: AtomGenerator, size: int, pixel: tuple[int, int], by: str) -> set[tuple[int, int]]:
    """The input pixels on which the prediction for one output pixel depends."""
    # In float64, whose convolutions are direct: Winograd's leave rounding errors where nothing is seen.
    x = torch.randn(1, 2, size, size, dtype=torch.float64, requires_grad=True)
    run(phi.double().eval(), x, by)[0, :, pixel[0], pixel[1]].sum().backward()
    assert x.grad is not None
    return {(int(i), int(j)) for i, j in x.grad.abs().sum((0, 1)).nonzero()}


@by_all
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("first_kernel", [1, 3])
def test_it_looks_at_the_centre_of_the_layers_window(stride, padding, dilation, first_kernel, by):
    """Output pixel (p, q) of the layer is centred on input pixel p·stride - padding + dilation·(k - 1)/2."""
    phi = AtomGenerator(2, 3, 7, stride, padding, dilation, first_kernel=first_kernel)
    for p, q in ((1, 2), (2, 0)):
        centre = [(n * stride - padding + dilation * 3,) for n in (p, q)]
        rows, columns = (spread(spread(n, 1), first_kernel // 2) for n in centre)
        assert seen_by(phi, 20, (p, q), by) == {(i, j) for i in rows for j in columns}


def spread(places, reach: int, size: int = 20) -> set[int]:
    """All positions on the map within reach of these."""
    return {n + i for n in places for i in range(-reach, reach + 1) if 0 <= n + i < size}


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes_extend_as_torch_does(mode):
    phi, x = AtomGenerator(2, 3, 3, padding_mode=mode), torch.randn(1, 2, 5, 6)
    expected = torch.nn.functional.pad(x, (3, 3, 2, 2), mode=mode)
    assert torch.equal(phi._extend(x, (2, 3))[0], expected)
    assert phi._extend(x, (-1, -2)) == (x, (-1, -2)), "left to the convolution"
    extended, left = phi._extend(x, (-1, 2))
    assert torch.equal(extended, expected[:, :, 2:-2, 1:-1])
    assert left == (-1, 0)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("reflect", [0, 1, 0, 1, 0, 1]), ("replicate", [0, 0, 0, 1, 1, 1]), ("circular", [0, 1, 0, 1, 0, 1])],
)
def test_margins_wider_than_the_map_go_on_in_the_same_way(mode, expected):
    phi, x = AtomGenerator(1, 3, 1, padding_mode=mode), torch.arange(2.0)[None, None, None].expand(1, 1, 4, 2)
    assert phi._extend(x, (0, 2))[0][0, 0, 0].tolist() == expected


@by_all
def test_the_border_shows_the_padding_mode(by):
    """A constant image looks constant up to the border, except through zeros."""
    x = torch.ones(1, 2, 8, 8)
    for mode in ("reflect", "replicate", "circular"):
        y = run(AtomGenerator(2, 3, 5, padding=2, padding_mode=mode, first_kernel=3).eval(), x, by)
        torch.testing.assert_close(y, y[:, :, 4:5, 4:5].expand_as(y))
    y = run(AtomGenerator(2, 3, 5, padding=2).eval(), x, by)
    assert not torch.allclose(y[:, :, 0, 0], y[:, :, 4, 4])


@by_all
@pytest.mark.parametrize("batch", [0, 1])
def test_training_on_one_pixel_takes_the_running_statistics(batch, by):
    phi = AtomGenerator(2, 3, 3, padding=1)
    x = torch.randn(batch, 2, 1, 1)
    trained = run(phi, x, by)
    assert phi.squeeze_norm.running_mean is not None
    assert not phi.squeeze_norm.running_mean.any(), "nothing was learnt about a distribution"
    assert torch.equal(trained, run(phi.eval(), x, by))


@by_all
def test_a_backward_hook_on_a_normalisation_sees_its_gradient(by):
    phi, seen = AtomGenerator(4, 7, 5), []
    phi.squeeze_norm.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].shape))
    run(phi, torch.randn(2, 4, 9, 8, requires_grad=True), by).sum().backward()
    assert seen == [(2, 64, 9, 8)]


def test_reset_forgets_everything():
    phi = AtomGenerator(4, 6, 3, padding=1)
    phi(torch.randn(2, 4, 8, 8))
    phi.reset_parameters()
    assert phi.squeeze_norm.running_var is not None
    assert (phi.squeeze_norm.running_var == 1).all()


def test_an_unknown_padding_mode_is_refused():
    with pytest.raises(ValueError, match="zeros, reflect, replicate, circular; got 'mirror'"):
        AtomGenerator(2, 3, 3, padding_mode="mirror")


@by_all
@pytest.mark.parametrize("grad", [True, False])
def test_hooks_on_its_parts_see_what_the_parts_return(grad, by):
    generator, x, seen = AtomGenerator(4, 6, 3, padding=1).eval(), torch.randn(1, 4, 7, 8), {}
    with torch.set_grad_enabled(grad):
        expected = run(generator, x, by)
        for name, part in generator.named_children():
            part.register_forward_hook(lambda _, __, y, name=name: seen.update({name: y}))
        torch.testing.assert_close(run(generator, x, by), expected)
    assert list(seen) == ["squeeze", "squeeze_norm", "predict", "predict_norm"]
    torch.testing.assert_close(seen["predict_norm"].tanh(), expected)


@by_all
def test_pruning_a_part_trains(by):
    generator = AtomGenerator(4, 6, 3, stride=2)
    prune.l1_unstructured(generator.squeeze, "weight", 0.5)
    for _ in range(2):
        run(generator, torch.randn(2, 4, 9, 8), by).sum().backward()
    assert int((generator.squeeze.weight == 0).sum()) == 4 * 64 // 2


@by_all
def test_normalisations_may_adapt_while_the_rest_is_fixed(by):
    """The usual way to adapt to other images: the model in eval mode, its normalisations not, without gradients."""
    generator, x = AtomGenerator(4, 6, 3, padding=1).eval(), 3 * torch.randn(2, 4, 7, 8) + 1
    generator.squeeze_norm.train()
    generator.predict_norm.train()
    expected = run(generator, x, by)
    with torch.no_grad():
        torch.testing.assert_close(run(generator, x, by), expected)
    assert int(generator.predict_norm.num_batches_tracked) == 2


@by_all
@pytest.mark.parametrize("mode", ["train", "eval", "no_grad"])
@pytest.mark.parametrize("part", ["squeeze", "squeeze_norm", "predict_norm"])
def test_parts_that_were_replaced_are_called(part, mode, by):
    torch.manual_seed(0)
    generator, x = AtomGenerator(4, 6, 3, padding=1), torch.randn(2, 4, 7, 7)
    own = nn.Conv2d(4, 64, 1) if part == "squeeze" else nn.GroupNorm(2, 64 if part == "squeeze_norm" else 6)
    setattr(generator, part, own)
    generator.train(mode == "train")
    with torch.set_grad_enabled(mode != "no_grad"):
        hidden = generator.squeeze_norm(generator.squeeze(x)).tanh()
        expected = generator.predict_norm(nn.functional.conv2d(hidden, generator.predict.weight, padding=1)).tanh()
        torch.testing.assert_close(run(generator, x, by), expected)


@by_all
def test_normalisations_may_stay_in_float32(by):
    generator, x = AtomGenerator(4, 6, 3, padding=1).bfloat16().eval(), torch.randn(1, 4, 7, 7).bfloat16()
    for part in generator.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.float()
    with torch.no_grad():
        inference = run(generator, x, by)
    assert inference.dtype == torch.bfloat16
    two_units = 2 * torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(inference.float(), run(generator, x, by).float(), rtol=0, atol=two_units)


@by_all
def test_a_map_that_does_not_fit_is_refused(by):
    generator = AtomGenerator(4, 6, 3)
    with pytest.raises(ValueError, match="needs 4 channels"):
        run(generator, torch.randn(1, 5, 9, 9), by)
    with pytest.raises(ValueError, match="3×3"):
        run(generator, torch.randn(1, 4, 2, 9), by)


@by_all
def test_statistics_can_be_left_alone_for_a_pass(by):
    """As in semi-supervised training."""
    phi = AtomGenerator(4, 6, 3, padding=1)
    norms = (phi.squeeze_norm, phi.predict_norm)
    for norm in norms:
        norm.track_running_stats = False
    run(phi, torch.randn(2, 4, 8, 8), by)
    for norm in norms:
        assert not norm.running_mean.any()
        assert norm.num_batches_tracked == 0


class Doubling(nn.BatchNorm2d):
    def forward(self, x):
        return 2 * super().forward(x)


@by_all
def test_a_kind_of_normalisation_that_is_not_ours_is_called(by):
    phi, x = AtomGenerator(4, 6, 3, padding=1), torch.randn(2, 4, 8, 8)
    phi.squeeze_norm = Doubling(64)
    run(phi.train(), x, by).sum().backward()
    phi.eval()
    with torch.no_grad():
        torch.testing.assert_close(run(phi, x, by), run(phi.requires_grad_(), x, by))
        hidden = (2 * nn.functional.batch_norm(phi.squeeze(x), *running(phi.squeeze_norm))).tanh()
        expected = nn.functional.batch_norm(
            phi.predict(nn.functional.pad(hidden, (1,) * 4)), *running(phi.predict_norm)
        )
        torch.testing.assert_close(run(phi, x, by), expected.tanh())


def running(norm: nn.BatchNorm2d) -> tuple:
    return norm.running_mean, norm.running_var, norm.weight, norm.bias


@by_all
@pytest.mark.parametrize("name", ["squeeze", "predict_norm"])
def test_a_part_whose_forward_was_replaced_is_called(name, by):
    phi, called = AtomGenerator(4, 6, 3, padding=1).eval(), []
    part = getattr(phi, name)
    before = part.forward
    part.forward = lambda x: called.append(x.shape) or before(x)
    with torch.no_grad():
        run(phi, torch.randn(2, 4, 8, 8), by)
    run(phi, torch.randn(2, 4, 8, 8), by)
    assert len(called) == 2


def test_parameters_may_be_columns_of_a_matrix():
    """As another network may provide them."""
    phi, x = AtomGenerator(4, 6, 3, padding=1), torch.randn(2, 4, 8, 8)
    given = {name: torch.stack([t, t], -1)[..., 0] for name, t in phi.named_parameters()}
    assert not given["squeeze_norm.weight"].is_contiguous()
    for mode in (True, False):
        phi.train(mode)
        torch.testing.assert_close(torch.func.functional_call(phi, given, x), phi(x))
        with torch.no_grad():
            torch.testing.assert_close(torch.func.functional_call(phi, given, x), phi(x))


def test_a_normalisation_without_a_shift_is_called_in_every_mode():
    layer, x = AdaptiveConv2d(3, 4, 3), torch.randn(1, 3, 6, 6)
    layer.generator.predict_norm = nn.BatchNorm2d(36, bias=False)
    layer.eval()
    with torch.no_grad():
        alone = layer(x)
    torch.testing.assert_close(layer(x), alone)
