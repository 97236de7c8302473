"""What code written for nn.Conv2d does with the layer: initialisation loops, loading, folding, averaging, wrapping."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.optim.swa_utils import AveragedModel, update_bn

from acda import AdaptiveConv2d, convert


def as_torchvision(module: nn.Module) -> None:
    """The loop of torchvision's ResNet."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(part, nn.BatchNorm2d | nn.GroupNorm):
            nn.init.constant_(part.weight, 1)
            nn.init.constant_(part.bias, 0)


def as_dcgan(module: nn.Module) -> None:
    """The function that DCGAN applies, by class name."""
    if "Conv" in type(module).__name__:
        nn.init.normal_(module.weight.data, 0.0, 0.02)
    elif "BatchNorm" in type(module).__name__:
        nn.init.normal_(module.weight.data, 1.0, 0.02)
        nn.init.constant_(module.bias.data, 0)


def variance(layer: nn.Module) -> float:
    with torch.no_grad():
        return float(layer(torch.randn(4, layer.in_channels, 20, 20)).var())


@pytest.mark.parametrize("side", [3, 5, 7])
def test_torchvisions_loop_leaves_the_layer_as_fresh_as_it_was(side):
    layer = AdaptiveConv2d(64, 64, side, padding=side // 2)
    mixing = layer.mixing.detach().clone()
    as_torchvision(layer)
    assert torch.equal(layer.mixing, mixing)
    # The loop changes the energy of the atoms, because it sets the scale of Φ's normalisations to 1 and the shift to 0.
    assert variance(layer) == pytest.approx(variance(nn.Conv2d(64, 64, side, padding=side // 2)), rel=0.5)


@pytest.mark.parametrize("side", [3, 5, 7])
def test_dcgans_loop_gives_about_the_variance_that_it_gives_conv2d(side):
    ours, theirs = (kind(64, 64, side, padding=side // 2) for kind in (AdaptiveConv2d, nn.Conv2d))
    ours.apply(as_dcgan)
    as_dcgan(theirs)
    assert float(ours.mixing.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert 1 / 2 < variance(ours) / variance(theirs) < 2


@pytest.mark.filterwarnings("ignore::acda.ConversionWarning")
def test_timms_own_loop_runs_on_a_converted_network():
    model = convert(pytest.importorskip("timm").create_model("resnet18"), names="layer1.*")
    model.init_weights()
    assert all(isinstance(block.conv1, AdaptiveConv2d) for block in model.layer1)
    model(torch.randn(2, 3, 64, 64)).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("gain", [0.1, 1.0, 10.0, 1000.0])
def test_the_scale_of_the_generators_weights_does_not_matter(gain):
    """In train mode a normalisation follows each of its convolutions, so that loops may set them as they like."""
    layer = AdaptiveConv2d(64, 64, 3, padding=1)
    for conv in (layer.generator.squeeze, layer.generator.predict):
        nn.init.normal_(conv.weight, std=gain / math.sqrt(conv.weight[0].numel()))
    assert variance(layer) == pytest.approx(variance(nn.Conv2d(64, 64, 3, padding=1)), rel=0.5)


def test_weight_is_mixing_and_in_no_state_dict():
    layer = AdaptiveConv2d(3, 4, 3)
    assert layer.weight is layer.mixing
    assert "weight" not in layer.state_dict()
    assert "weight" not in dict(layer.named_parameters())
    layer.weight = nn.Parameter(torch.zeros_like(layer.mixing))
    assert layer.mixing.abs().sum() == 0


def test_a_batch_normalisation_folds_into_the_layer():
    layer, norm, x = AdaptiveConv2d(3, 8, 3, groups=1), nn.BatchNorm2d(8), torch.randn(4, 3, 9, 9)
    norm(layer(x))
    nn.init.uniform_(norm.weight)
    folded = fuse_conv_bn_eval(layer.eval(), norm.eval())
    torch.testing.assert_close(folded(x), norm(layer(x)), rtol=1e-4, atol=1e-5)
    assert set(folded.state_dict()) == set(layer.state_dict())


@pytest.mark.parametrize("strict", [True, False])
def test_loading_a_convolutions_state_dict_says_what_to_do(strict):
    model = nn.Sequential(AdaptiveConv2d(3, 4, 3), AdaptiveConv2d(4, 4, 3))
    trained = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)).state_dict()
    with pytest.raises(RuntimeError, match=r"then call acda.convert\(model\), or AdaptiveConv2d.from_conv2d") as error:
        model.load_state_dict(trained, strict=strict)
    assert str(error.value).count("acda.convert") == 1
    with pytest.raises(RuntimeError) as error:
        model.load_state_dict({})
    assert "acda.convert" not in str(error.value)


def network() -> nn.Sequential:
    return nn.Sequential(AdaptiveConv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), AdaptiveConv2d(8, 4, 3))


def test_averages_of_the_weights_compute():
    model, x = network(), torch.randn(2, 3, 9, 9)
    average = AveragedModel(model, use_buffers=True)
    model(x)
    average.update_parameters(model)
    update_bn([x], average)
    assert torch.equal(average.module[0].mixing, model[0].mixing)
    assert average.eval()(x).isfinite().all()


def test_timms_average_of_the_weights_computes():
    model, x = network(), torch.randn(2, 3, 9, 9)
    average = pytest.importorskip("timm.utils").ModelEmaV3(model, decay=0.5)
    before = copy.deepcopy(model[0].mixing.data)
    nn.init.zeros_(model[0].mixing)
    average.update(model)
    torch.testing.assert_close(average.module[0].mixing.data, before / 2)
    assert average(x).isfinite().all()


def test_weight_decay_by_dimension_takes_mixing_and_no_bias():
    decayed = {name for name, parameter in AdaptiveConv2d(3, 8, 3).named_parameters() if parameter.ndim > 1}
    assert decayed == {"mixing", "generator.squeeze.weight", "generator.predict.weight"}


def test_data_parallel_wrapping_trains(tmp_path):
    """One process of gloo: every parameter takes part, and the statistics of Φ are buffers like any other."""
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("torch was built without torch.distributed")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(network())
        for _ in range(2):  # the second pass fails where a parameter was left out of the first
            model(torch.randn(2, 3, 9, 9)).sum().backward()
    finally:
        distributed.destroy_process_group()
    assert all(p.grad is not None for p in model.parameters())
