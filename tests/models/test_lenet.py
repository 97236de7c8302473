import pytest
import torch
from torch import nn

from acda import AdaptiveConv2d, create_model
from acda.cost import count


def test_it_is_lenet():
    model = create_model("lenet")
    assert sum(p.numel() for p in model.parameters()) == 62_006
    kinds = [type(m) for m in model.modules() if not list(m.children())]
    assert kinds.count(nn.Conv2d) == 2
    assert kinds.count(nn.MaxPool2d) == 2
    assert kinds.count(nn.Linear) == 3


def test_both_convolutions_are_swapped():
    model = create_model("lenet_acda", num_classes=100)
    assert [m.kernel_size for m in model.modules() if isinstance(m, AdaptiveConv2d)] == [(5, 5), (5, 5)]
    # Φ makes it some 60 times the multiply-adds, which the paper does not say.
    ratio = count(model, (1, 3, 32, 32)).multiply_adds / count(create_model("lenet"), (1, 3, 32, 32)).multiply_adds
    assert ratio == pytest.approx(62.8, abs=0.1)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 100)


@pytest.mark.parametrize("size", [(28, 28), (32, 31), (64, 64)])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match="needs images of 32×32"):
        create_model("lenet")(torch.randn(1, 3, *size))


def test_unknown_names_list_the_near_ones():
    with pytest.raises(ValueError, match=r"no model 'lenet_adca'. Did you mean lenet_acda"):
        create_model("lenet_adca")
    with pytest.raises(ValueError, match="There are: lenet, lenet_acda, lenet_wide, ad_resnet_s"):
        create_model("vgg")
