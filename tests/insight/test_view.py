"""Numbers about adaptive layers against their definitions, written out; the models are not changed."""

import threading

import pytest
import torch
from torch import nn

import acda
from acda import AdaptiveConv2d, AtomGenerator, create_model
from acda.insight import capture, diversity


@pytest.fixture
def view(monkeypatch):
    monkeypatch.setattr("acda.insight.view.PLACES", 40)  # of 99: some places at a time
    torch.manual_seed(0)
    layer = AdaptiveConv2d(4, 5, 7, padding=3, dilation=1).eval()
    return capture(layer, torch.randn(2, 4, 9, 11)).layers[""]


def test_alpha_is_what_the_layer_used():
    layer, x = AdaptiveConv2d(4, 5, 5, stride=2).eval(), torch.randn(1, 4, 13, 12)
    with torch.no_grad():
        expected, output = layer.coefficients(x), layer(x)
    captured = capture(layer, x)
    torch.testing.assert_close(captured.layers[""].alpha, expected)
    assert torch.equal(captured.output, output)


def test_weights_of_the_scales(view):
    weights = view.scale_weights()
    assert weights.shape == (2, 3, 9, 11)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, 9, 11))
    alpha, bases = view.alpha[1, :, :, 4, 7], view.layer.bases
    energy = torch.stack(
        [
            torch.einsum("ml,lij->mij", alpha[:, 6 * s : 6 * s + 6], bases[6 * s : 6 * s + 6]).square().sum()
            for s in range(3)
        ]
    )
    torch.testing.assert_close(weights[1, :, 4, 7], energy / energy.sum())


@pytest.mark.parametrize("bases", ["fourier_bessel", None])
def test_the_receptive_field_is_the_spread_of_the_full_filter(bases):
    torch.manual_seed(0)
    layer = AdaptiveConv2d(4, 6, 5, padding=4, dilation=2, bases=bases, groups=2).eval()
    x = torch.randn(1, 4, 8, 9)
    with torch.no_grad():
        energy = layer.filters(x).square().sum((1, 2))[0]
    at = 2.0 * (torch.arange(5) - 2)
    squared = at[:, None] ** 2 + at[None, :] ** 2
    expected = ((energy * squared[:, :, None, None]).sum((0, 1)) / energy.sum((0, 1))).sqrt()
    torch.testing.assert_close(capture(layer, x).layers[""].receptive_field()[0], expected, rtol=1e-4, atol=1e-5)


def test_atoms_and_filters_of_a_place(view):
    x = torch.randn(2, 4, 9, 11)
    view = capture(view.layer, x).layers[""]
    with torch.no_grad():
        atoms, filters = view.layer.atoms(x), view.layer.filters(x)
    torch.testing.assert_close(view.atoms_at(3, 8, image=1).float(), atoms[1, :, :, :, 3, 8])
    torch.testing.assert_close(view.filter_at(3, 8, 2, 1, image=1).float(), filters[1, 2, 1, :, :, 3, 8])


def test_diversity_is_the_mean_over_all_pairs():
    vectors = torch.randn(2, 5, 4, 6, dtype=torch.float64)
    flat = nn.functional.normalize(vectors.flatten(2), dim=1)
    alike = torch.einsum("bci,bcj->bij", flat, flat)
    n = 24
    expected = 1 - (alike.sum((1, 2)) - n) / (n * (n - 1))
    torch.testing.assert_close(diversity(vectors), expected)
    assert float(diversity(torch.ones(1, 3, 5, 5))) == pytest.approx(0, abs=1e-7)
    with_nothing = torch.cat([vectors, torch.zeros(2, 5, 4, 1, dtype=torch.float64)], 3)
    torch.testing.assert_close(diversity(with_nothing), expected)
    assert diversity(torch.zeros(1, 3, 5, 5)).isnan().all(), "no directions, no distance"
    assert diversity(torch.ones(1, 3, 1, 1)).isnan().all()


def test_diversity_of_a_large_map_is_quick():
    """Not timed: over all pairs, this would need memory for 10¹² numbers."""
    vectors = torch.randn(1, 36, 1000, 1000) + 0.1
    part = diversity(vectors[:, :, :100, :100].double())
    torch.testing.assert_close(diversity(vectors).double(), part, rtol=0.01, atol=0)


def test_the_most_different_places_differ(view):
    places = view.most_different(4)
    assert len(set(places)) == 4
    vectors = torch.stack([nn.functional.normalize(view.alpha[0, :, :, y, x].flatten(), dim=0) for y, x in places])
    chosen = (vectors @ vectors.T).triu(1).sum() / 6
    assert float(chosen) < 1 - float(diversity(view.alpha.flatten(1, 2))[0])


def test_places_of_a_flat_photo_are_different_places_too():
    layer = AdaptiveConv2d(3, 4, 3, padding=1).eval()
    assert len(set(capture(layer, torch.zeros(1, 3, 8, 8)).layers[""].most_different(5))) == 5


def test_bases_of_ones_own_are_one_scale():
    layer = AdaptiveConv2d(3, 4, 7, bases=torch.randn(18, 7, 7)).eval()
    assert capture(layer, torch.randn(1, 3, 9, 9)).layers[""].scales == [7]


def test_half_precision_is_looked_at_in_single():
    layer = AdaptiveConv2d(3, 4, 5).eval().bfloat16()
    assert capture(layer, torch.randn(1, 3, 9, 9).bfloat16()).layers[""].receptive_field().dtype == torch.float32


def test_two_at_once_do_not_mix():
    """Both run one model; the wider input waits inside it until the other has looked."""
    layer, inside, looked = AdaptiveConv2d(3, 4, 3, padding=1).eval(), threading.Event(), threading.Event()

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            if x.shape[3] == 40:
                inside.set()
                assert looked.wait(30)
            return self.layer(x)

    model, sizes = Slow(), {}
    other = threading.Thread(
        target=lambda: sizes.update(wide=capture(model, torch.randn(1, 3, 8, 40)).layers["layer"].size)
    )
    other.start()
    assert inside.wait(30)
    sizes["narrow"] = capture(model, torch.randn(1, 3, 8, 8)).layers["layer"].size
    looked.set()
    other.join()
    assert sizes == {"narrow": (8, 8), "wide": (8, 40)}


def test_random_numbers_go_on_as_if_nobody_had_looked():
    model = nn.Sequential(nn.Dropout(0.5), AdaptiveConv2d(3, 4, 3))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    capture(model, torch.zeros(1, 3, 8, 8))
    assert torch.equal(torch.rand(3), expected)


def test_a_network_is_left_as_it_was():
    model = create_model("lenet_acda")
    model.train()
    state = {name: t.clone() for name, t in model.state_dict().items()}
    captured = capture(model, torch.randn(2, 3, 32, 32))
    assert list(captured.layers) == ["features.0", "features.3"]
    assert model.training
    for name, t in model.state_dict().items():
        assert torch.equal(t, state[name]), name
    assert not any(part._forward_hooks for part in model.modules())
    with pytest.raises(ValueError, match="32×32"):
        capture(model, torch.randn(2, 3, 30, 32))
    assert not any(part._forward_hooks for part in model.modules())
    for name, t in model.state_dict().items():
        assert torch.equal(t, state[name]), name


def test_wrappers_are_looked_through():
    layer, x = AdaptiveConv2d(3, 4, 3, padding=1).eval(), torch.randn(1, 3, 8, 8)
    expected = capture(layer, x).layers[""].alpha
    compiled = torch.compile(layer, backend="eager")
    with torch.no_grad():
        before = compiled(x)
    torch.testing.assert_close(capture(compiled, x).layers[""].alpha, expected)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), before)
    torch.testing.assert_close(capture(nn.DataParallel(layer), x).layers[""].alpha, expected)
    inside = nn.Sequential(compiled, nn.ReLU())
    torch.testing.assert_close(next(iter(capture(inside, x).layers.values())).alpha, expected)
    layer.compile(backend="eager")
    with torch.no_grad():
        layer(x)
    torch.testing.assert_close(capture(layer, x).layers[""].alpha, expected)


def test_inside_ddp(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        layer = AdaptiveConv2d(3, 4, 3, padding=1)
        wrapped = nn.parallel.DistributedDataParallel(layer)
        assert capture(wrapped, torch.randn(1, 3, 8, 8)).layers[""].size == (8, 8)
    finally:
        torch.distributed.destroy_process_group()


def test_a_model_that_does_not_use_its_layers_is_refused():
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = AdaptiveConv2d(3, 4, 3)

        def forward(self, x):
            return x

    with pytest.raises(ValueError, match="none of the adaptive layers of Idle was used: layer"):
        capture(Idle(), torch.randn(1, 3, 8, 8))


def test_a_model_without_adaptive_layers_is_refused():
    with pytest.raises(ValueError, match="Sequential has no AdaptiveConv2d"):
        capture(nn.Sequential(nn.Conv2d(3, 4, 3)), torch.randn(1, 3, 8, 8))


def test_layers_that_share_one_generator_are_told_apart():
    generator = AtomGenerator(3, 6 * 6, 3, padding=1)
    first, second = (AdaptiveConv2d(3, 3, 3, padding=1, generator=generator) for _ in range(2))
    model, x = nn.Sequential(first, nn.Upsample(scale_factor=2), second).eval(), torch.randn(1, 3, 8, 8)
    views = capture(model, x).layers
    assert {name: view.size for name, view in views.items()} == {"0": (8, 8), "2": (16, 16)}
    with torch.no_grad():
        torch.testing.assert_close(views["0"].alpha, first.coefficients(x))


def test_a_buffer_that_a_model_replaces_is_put_back():
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = AdaptiveConv2d(3, 4, 3, padding=1)
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            self.steps = self.steps + 1
            return self.layer(x)

    model = Counting().train()
    acda.insight.capture(model, torch.randn(1, 3, 8, 8))
    assert int(model.steps) == 0
