"""The variants of Φ's normalisation: what each computes, and that it stands where it should."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from acda import AdaptiveConv2d
from acda.layers.batch_norm import ForgivingBatchNorm2d
from acda.training.data.patterns import pattern_map
from paper import normalisation, start
from paper.normalisation import METHODS, BatchRenorm2d, EarlyRunning2d, PixelNorm2d

STEPS = 20


@pytest.fixture
def x():
    return 2 + 3 * torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network(method, steps=STEPS):
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(3), AdaptiveConv2d(3, 4, 3, padding=1))
    METHODS[method].built(model, steps)
    return model


@pytest.mark.parametrize("method", METHODS)
def test_every_variant_trains_both_steps_of_the_generator_and_keeps_its_start(method, x):
    ordinary, model = network("batch_norm"), network(method)
    phi = model[1].generator
    assert torch.equal(phi.predict_norm.bias, ordinary[1].generator.predict_norm.bias)
    assert torch.equal(phi.predict_norm.weight, ordinary[1].generator.predict_norm.weight)
    model(x).square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    assert bool(phi.squeeze.weight.grad.any())
    changed = {type(phi.squeeze_norm), type(phi.predict_norm)} != {ForgivingBatchNorm2d}
    assert changed == (method not in ("batch_norm", "momentum_001", "momentum_05", "recomputed"))
    assert type(model[0]) is nn.BatchNorm2d


def test_renormalisation_begins_as_batch_normalisation(x):
    torch.testing.assert_close(BatchRenorm2d(3, STEPS)(x), nn.BatchNorm2d(3)(x))


def test_within_its_limits_renormalisation_trains_as_it_tests(x):
    norm = BatchRenorm2d(3, STEPS)
    norm.num_batches_tracked.fill_(STEPS)
    norm.running_mean.copy_(torch.tensor([2.0, 1.5, 2.5]))
    norm.running_var.fill_(6.0)
    nn.init.normal_(norm.weight)
    tested = norm.eval()(x)
    torch.testing.assert_close(norm.train()(x), tested)
    # Outside them it does not: here the batch is five deviations away, and three times as strong.
    far = BatchRenorm2d(3, STEPS)
    far.num_batches_tracked.fill_(STEPS)
    y = far(20 + 9 * torch.randn(4, 3, 8, 8))
    assert y.mean().item() == pytest.approx(5, abs=0.01)
    assert y.std().item() == pytest.approx(3, abs=0.02)


def test_renormalisation_does_not_differentiate_its_corrections(x):
    """As constants they leave what holds for batch normalisation: neither a shift nor a scaling of the input counts."""
    norm = BatchRenorm2d(3, STEPS)
    norm.num_batches_tracked.fill_(STEPS)
    norm.running_var.fill_(6.0)
    leaf = x.clone().requires_grad_()
    (norm(leaf) * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
    torch.testing.assert_close(leaf.grad.sum((0, 2, 3)), torch.zeros(3), atol=1e-3, rtol=0)
    torch.testing.assert_close((leaf.grad * x).sum((0, 2, 3)), torch.zeros(3), atol=1e-3, rtol=0)


def test_early_running_statistics_stop_after_a_fifth_of_the_steps(x):
    norm, ordinary = EarlyRunning2d(3, STEPS), nn.BatchNorm2d(3)
    for _ in range(STEPS // 5):
        torch.testing.assert_close(norm(x), ordinary(x))
    torch.testing.assert_close(norm(x), ordinary.eval()(x))
    norm(x + 1)
    torch.testing.assert_close(norm.running_mean, ordinary.running_mean)


def test_a_pixel_is_normalised_by_itself(x):
    norm = PixelNorm2d(3, STEPS)
    y = norm(x)
    torch.testing.assert_close(norm(x[:1, :, 2:3, 5:6]), y[:1, :, 2:3, 5:6])
    torch.testing.assert_close(y.mean(1), torch.zeros(4, 8, 8), atol=1e-5, rtol=0)


def test_recomputed_statistics_are_the_means_over_batches_and_are_left_behind(x):
    model = network("recomputed").eval()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    phi, parts = model[1].generator, x.split(2)
    with normalisation.recomputed(model, parts):
        maps = [phi.squeeze(model[0](part)) for part in parts]
        torch.testing.assert_close(
            phi.squeeze_norm.running_mean, torch.stack([m.mean((0, 2, 3)) for m in maps]).mean(0)
        )
        assert not any(part.training for part in model.modules())
        torch.testing.assert_close(model[0].running_mean, before["0.running_mean"])
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert phi.squeeze_norm.momentum == 0.1


def test_only_the_generator_is_put_in_train_mode(x):
    model = network("batch_norm").eval()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with normalisation.phi_in_train_mode(model):
        assert {name for name, part in model.named_children() if part.training} == set()
        assert model[1].generator.predict_norm.training
        model(x)
    assert not any(part.training for part in model.modules())
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


@pytest.fixture
def short(monkeypatch):
    """A toy problem of fewer pixels and steps."""
    monkeypatch.setattr(start, "TOY_STEPS", 102)
    monkeypatch.setattr(start, "pattern_map", partial(pattern_map, size=32, count=2, margin=8))


@pytest.mark.parametrize("method", METHODS)
def test_the_toy_problem_runs_with_every_variant(method, short, tmp_path):
    found = normalisation.run("toy_adam", method, 0, tmp_path)
    assert len(found["curve"]) == 4
    assert all(map(math.isfinite, found["scores"].values()))
    assert set(found["scores"]) == {"mse_millionths", "mse_millionths_batch", "mse_millionths_gap"}


def test_batch_normalisation_as_it_is_trains_as_without_a_change(short, tmp_path):
    given = start.toy_adam("scale 0.2", 0, tmp_path)
    curve = normalisation.run("toy_adam", "batch_norm", 0, tmp_path)["curve"]
    assert [row[:3] for row in curve] == given["curve"]


def test_a_variant_that_diverged_once_has_no_mean():
    scores = {"psnr": 30.0, "psnr_batch": 30.1, "psnr_gap": 0.2}
    runs = [
        {"problem": "patches", "method": "batch_norm", "seed": 0, "scores": scores},
        {"problem": "patches", "method": "no_norm", "seed": 0, "scores": scores},
        {"problem": "patches", "method": "no_norm", "seed": 1, "scores": None},
    ]
    assert {row["model"] for row in normalisation.summary(runs)} == {"batch_norm"}
