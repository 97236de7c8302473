import pytest
import torch
from torch import nn

from acda import AdaptiveConv2d, create_model
from acda.layers import CondConv2d, DynamicConv2d, DynamicFilterConv2d, PixelAdaptiveConv2d
from acda.models import MODELS, DynamicBottleneck

AD_RESNETS = [name for name in MODELS if name.startswith("ad_resnet")]


# With a projection shortcut at the start of stages two, three and four, from 512 to 512 channels too.
@pytest.mark.parametrize(("name", "millions"), [("s", 3.18), ("m", 9.24), ("l", 16.64)])
def test_parameters_follow_from_the_papers_table(name, millions):
    model = create_model(f"ad_resnet_{name}")
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize("name", AD_RESNETS)
def test_the_deep_half_has_the_layer_of_its_name(name):
    with torch.device("meta"):
        model = create_model(name, num_classes=7)
    middles = [(s, m.conv2) for s in (3, 4) for m in getattr(model, f"layer{s}") if isinstance(m, DynamicBottleneck)]
    kind = nn.Conv2d if "conv" in name else AdaptiveConv2d
    sides = {3: 3, 4: 3} if name.endswith("_conv") else {3: 7, 4: 5}
    assert len(middles) == len(model.layer3) + len(model.layer4)
    for stage, conv in middles:
        assert type(conv) is kind
        assert conv.kernel_size == (sides[stage],) * 2
    assert not any(isinstance(m, AdaptiveConv2d) for s in (1, 2) for m in getattr(model, f"layer{s}").modules())


@pytest.mark.parametrize("size", [(224, 224), (65, 97), (33, 1), (64, 64)])
def test_any_size_goes_through(size):
    model, x = create_model("ad_resnet_s", num_classes=5), torch.randn(1, 3, *size)
    assert model(x).shape == (1, 5)
    assert model.forward_features(x).shape == (1, 512, -(-size[0] // 32), -(-size[1] // 32))


def test_a_single_image_too_small_to_normalise_says_what_works():
    model, x = create_model("ad_resnet_s"), torch.randn(1, 3, 32, 32)
    with pytest.raises(ValueError, match=r"at least 33 pixels in one direction.*got \(1, 3, 32, 32\)"):
        model(x)
    assert model.eval()(x).shape == (1, 1000)
    assert model.train()(torch.cat([x, x])).shape == (2, 1000)


@pytest.mark.parametrize("conv", [CondConv2d, DynamicConv2d, PixelAdaptiveConv2d, DynamicFilterConv2d])
def test_a_baseline_is_one_argument(conv):
    with torch.device("meta"):
        model = create_model("ad_resnet_s", conv=conv, num_classes=5)
        assert model(torch.empty(2, 3, 64, 64)).shape == (2, 5)
    assert sum(type(m) is conv for m in model.modules()) == 4


def test_a_baseline_trains():
    model = create_model("ad_resnet_s", conv=CondConv2d, num_classes=5)
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_each_block_starts_as_its_shortcut():
    block = create_model("ad_resnet_s").layer3[1].train()
    x = torch.rand(2, 256, 6, 6)
    torch.testing.assert_close(block(x), x)


def test_checkpointing_changes_nothing_but_memory():
    model, x = create_model("ad_resnet_s", num_classes=5).eval(), torch.randn(2, 3, 64, 64)
    plain = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    model.set_grad_checkpointing()
    for a, b in zip(plain, torch.autograd.grad(model(x).sum(), list(model.parameters())), strict=True):
        torch.testing.assert_close(a, b)


def test_a_network_in_channels_last_gives_the_same():
    model, x = create_model("ad_resnet_s", num_classes=5).eval(), torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        y = model(x)
        torch.testing.assert_close(
            model.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last)),
            y,
            rtol=1e-3,
            atol=1e-4,
        )
