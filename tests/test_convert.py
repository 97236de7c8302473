import copy
import re
import warnings

import pytest
import torch
from torch import nn

import acda
from acda import AdaptiveConv2d, ConversionWarning, convert
from acda.layers import DynamicFilterConv2d


@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 5, "stride": 2, "padding": (1, 2), "dilation": 2, "groups": 2},
        {"kernel_size": 3, "padding": "same", "padding_mode": "circular", "bias": False},
        {"kernel_size": 1},
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_a_pixel_basis_with_all_atoms_starts_exactly_as_the_convolution(arguments, training):
    conv, x = nn.Conv2d(4, 6, **arguments).train(training), torch.randn(2, 4, 16, 15)
    layer = AdaptiveConv2d.from_conv2d(conv, bases=None, num_atoms=conv.kernel_size[0] ** 2)
    assert layer.training == training
    with torch.no_grad():
        assert (layer(x) - conv(x)).norm() / conv(x).norm() < 1e-5


def test_filters_that_the_bases_span_are_exact():
    conv, bases = nn.Conv2d(4, 6, 7), acda.multiscale_fourier_bessel(7)
    with torch.no_grad():
        conv.weight.copy_(torch.einsum("ocm,ml,lij->ocij", torch.randn(6, 4, 6), torch.randn(6, 18), bases))
    x = torch.randn(1, 4, 12, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = AdaptiveConv2d.from_conv2d(conv)
    with torch.no_grad():
        assert (layer(x) - conv(x)).norm() / conv(x).norm() < 1e-5


def test_an_approximation_tells_its_error():
    conv = nn.Conv2d(4, 6, 3)
    with pytest.warns(ConversionWarning, match=r"relative error of 0\.\d+ in its filters"):
        layer = AdaptiveConv2d.from_conv2d(conv)
    K = layer.filters(torch.randn(1, 4, 3, 3))[0, ..., 0, 0]
    error = ((K - conv.weight).norm() / conv.weight.norm()).item()
    assert error == pytest.approx(acda.decompose_filters(conv.weight, layer.bases, 6).relative_error, rel=1e-4)


def test_a_converted_layer_learns_to_differ_between_pixels():
    conv = nn.Conv2d(3, 4, 3, padding=1)
    layer = AdaptiveConv2d.from_conv2d(conv, bases=None, num_atoms=9)
    x, target = torch.randn(2, 3, 12, 12), torch.randn(2, 4, 12, 12)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = (layer(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert layer.coefficients(x).std((0, 3, 4)).max() > 1e-3


def test_surplus_atoms_are_silent_but_can_learn():
    conv, x = nn.Conv2d(1, 2, 3), torch.randn(2, 1, 8, 8)
    layer = AdaptiveConv2d.from_conv2d(conv, bases=None, num_atoms=12)
    y = layer(x)
    torch.testing.assert_close(y, conv(x), rtol=1e-4, atol=1e-5)
    y.square().sum().backward()
    grad = layer.generator.predict_norm.bias.grad.unflatten(0, (12, 9))
    assert (grad.abs().sum(1) > 0).all()


def test_imitation_needs_a_generator_that_it_knows():
    layer = AdaptiveConv2d(2, 3, 3, bases=None, generator=nn.Conv2d(2, 54, 3))
    with pytest.raises(TypeError, match=r"AtomGenerator.* got Conv2d"):
        layer.imitate(torch.zeros(3, 2, 3, 3), None)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 4, 3, padding=1))
    )


def types(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if type(module) is AdaptiveConv2d]


def test_every_convolution_is_swapped_and_the_original_is_untouched():
    model, x = network().eval(), torch.randn(1, 3, 9, 9)
    before = copy.deepcopy(model.state_dict())
    converted = convert(model, bases=None, num_atoms=9)
    assert types(converted) == ["0", "2.0", "2.1"]
    assert types(model) == []
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    torch.testing.assert_close(converted(x), model(x), rtol=1e-4, atol=1e-5)
    assert not any(module.training for module in converted.modules())


def test_in_place():
    model = network()
    assert convert(model, inplace=True, bases=None, num_atoms=9) is model
    assert types(model) == ["0", "2.0", "2.1"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("2.*", ["2.0", "2.1"]),
        (["0", "2.1"], ["0", "2.1"]),
        (lambda name: name.endswith(".0"), ["2.0"]),
        (lambda name, conv: conv.in_channels == 3, ["0"]),
        (lambda name, module=None: module is None, ["0", "2.0", "2.1"]),
        (re.compile("2.").match, ["2.0", "2.1"]),
        (iter(["0", "2.1"]), ["0", "2.1"]),
    ],
)
def test_names_choose(names, expected):
    assert types(convert(network(), names=names, bases=None, num_atoms=9)) == expected


def test_from_scratch_draws_new_weights():
    model, x = network().eval(), torch.randn(1, 3, 9, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = convert(model, keep_weights=False, names=["0", "2.0"])
    assert converted[0].mixing.std() > 0
    assert converted[0].generator.predict_norm.weight.min() > 0, "a layer that imitates begins with zeros here"
    assert not torch.allclose(converted(x), model(x), atol=1e-2)


def test_a_module_used_twice_stays_shared():
    conv = nn.Conv2d(4, 4, 3, padding=1)
    converted = convert(nn.Sequential(conv, nn.Sequential(conv)), bases=None, num_atoms=9)
    assert converted[0] is converted[1][0]
    assert type(converted[0]) is AdaptiveConv2d


def test_a_module_of_which_one_place_is_chosen_stays_shared_too():
    conv = nn.Conv2d(4, 4, 3, padding=1)
    model = nn.Sequential(conv, nn.Sequential(conv), nn.Conv2d(4, 4, 3))
    with pytest.warns(ConversionWarning, match="1 of 2 layers stay as they were:\n  0: it is also 1.0, which was not"):
        converted = convert(model, names=["0", "2"], bases=None, num_atoms=9)
    assert converted[0] is converted[1][0]
    assert types(converted) == ["2"]


def test_layers_with_one_weight_stay_as_they_are():
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3) for _ in range(3)))
    model[2].weight = model[0].weight
    with pytest.warns(
        ConversionWarning, match="2 of 3 layers stay as they were:\n  0, 2: its weight or bias is another"
    ):
        converted = convert(model, bases=None, num_atoms=9)
    assert types(converted) == ["1"]
    assert converted[0].weight is converted[2].weight


def test_what_cannot_be_swapped_stays_and_is_named():
    class Special(nn.Conv2d):
        pass

    hooked = nn.Conv2d(4, 4, 3)
    hooked.register_forward_hook(lambda *_: None)
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 2), nn.Conv2d(4, 4, (3, 5)), nn.Conv2d(4, 4, 1), hooked)
    model.append(Special(4, 4, 3))
    model.append(nn.Conv2d(4, 4, 3))
    model[6].forward = lambda x: x
    with pytest.warns(ConversionWarning) as caught:
        converted = convert(model)
    assert types(converted) == ["0"]
    assert type(converted[5]) is Special
    (message,) = (str(w.message) for w in caught)
    assert "5 of 6 layers stay" in message
    for line in (
        "1: kernel_size needs an odd",
        "2: kernel_size needs a square",
        "4: it carries hooks",
        "5: it is a Special, a subclass that may compute something else",
        "6: its forward was replaced",
    ):
        assert f"\n  {line}" in message


def test_frozen_layers_stay_frozen_and_dtype_stays():
    model = network().double()
    model[0].requires_grad_(False)
    converted = convert(model, bases=None, num_atoms=9)
    assert not any(p.requires_grad for p in converted[0].parameters())
    assert all(p.requires_grad for p in converted[2].parameters())
    assert {t.dtype for t in converted.state_dict().values() if t.is_floating_point()} == {torch.float64}


def test_converting_again_leaves_generators_alone():
    converted = convert(network(), names="0", bases=None, num_atoms=9)
    again = convert(converted, bases=None, num_atoms=9)
    assert types(again) == ["0", "2.0", "2.1"]


def test_a_lone_convolution():
    assert type(convert(nn.Conv2d(2, 2, 3), bases=None, num_atoms=9)) is AdaptiveConv2d


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: convert(network(), names="body.*"), r"chose no Conv2d layer; the model's are: 0, 2.0, 2.1"),
        (lambda: convert(nn.ReLU()), "the model's are: none"),
        (lambda: convert(nn.Conv2d(2, 2, 3), inplace=True), "inplace=False"),
        (lambda: convert(nn.Conv2d(2, 2, 1)), "all 1 Conv2d layers chosen are 1×1. Pass pointwise=True"),
        (lambda: convert(network(), exact=True, keep_weights=False), "exact=True keeps the weights"),
        (lambda: convert(network(), exact=True, num_atoms=9), "exact=True chooses num_atoms itself"),
        (lambda: convert(network(), bases="wavelets"), "3 of 3 layers stay .*\n.*got 'wavelets'"),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_torchvisions_resnet18():
    model = pytest.importorskip("torchvision").models.resnet18().eval()
    x = torch.randn(1, 3, 64, 64)
    converted = convert(model, names="layer[12].*.conv?", bases=None, num_atoms=9)
    assert len(types(converted)) == 8
    with torch.no_grad():
        assert (converted(x) - model(x)).norm() / model(x).norm() < 1e-5
    fresh = convert(model, keep_weights=False)
    assert len(types(fresh)) == 17, "the three 1×1 stay"
    fresh.train()(torch.randn(2, 3, 64, 64)).sum().backward()


@pytest.mark.parametrize("make", ["torchvision.models", pytest.param("timm.models.resnet", marks=pytest.mark.slow)])
def test_exact_starts_a_whole_trained_network_as_itself(make):
    model = pytest.importorskip(make).resnet18().eval()
    for norm in (part for part in model.modules() if isinstance(part, nn.BatchNorm2d)):
        nn.init.uniform_(norm.running_var, 0.5, 2)  # as after training: not the identity
        nn.init.normal_(norm.running_mean)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = convert(model, exact=True)
    assert len(types(converted)) == 17
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert (converted(x) - model(x)).norm() / model(x).norm() < 1e-5


def test_pointwise_convolutions_stay_unless_asked_for():
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 1)).eval(), torch.randn(1, 3, 9, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert types(convert(model, exact=True)) == ["0"]
        converted = convert(model, exact=True, pointwise=True)
    assert types(converted) == ["0", "1"]
    assert converted[1].num_atoms == 1
    torch.testing.assert_close(converted(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_deep_network_gets_a_short_warning_and_a_whole_report():
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3) for _ in range(40)), *(nn.Conv2d(4, 4, 2) for _ in range(40)))
    with pytest.warns(ConversionWarning) as caught:
        convert(model)
    warning = caught[0].message
    assert len(str(warning)) < 1000
    assert "40 layers start near their convolutions" in str(warning)
    assert "… and 35 more, in this warning's report.errors" in str(warning)
    assert "\n  40, 41, 42, 43, 44 and 35 more: kernel_size needs an odd number" in str(warning)
    assert list(warning.report.errors) == [str(i) for i in range(40)]
    assert f"\n  {max(warning.report.errors.values()):.2g}  " in str(warning)
    assert list(warning.report.left) == [str(i) for i in range(40, 80)]


def test_parametrized_convolutions_stay_and_are_named():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3)))
    with pytest.warns(ConversionWarning, match=r"1 of 2 layers stay as they were:\n  1: .* by a parametrization"):
        converted = convert(model, exact=True)
    assert types(converted) == ["0"]


def test_the_shape_of_the_generator_reaches_every_layer():
    converted = convert(network(), keep_weights=False, hidden=8, first_kernel=3)
    assert [tuple(converted.get_submodule(n).generator.squeeze.weight.shape) for n in types(converted)] == [
        (8, 3, 3, 3),
        (8, 8, 3, 3),
        (8, 8, 3, 3),
    ]


def test_a_function_makes_the_generators():
    def blind(conv):
        return nn.Conv2d(conv.in_channels, 36, 3, padding=conv.padding)

    converted = convert(network(), keep_weights=False, generator=blind)
    assert {type(converted.get_submodule(name).generator) for name in types(converted)} == {nn.Conv2d}
    assert converted(torch.randn(1, 3, 8, 8)).shape == (1, 4, 6, 6)
    with pytest.raises(ValueError, match=r"3 of 3 layers stay .*\n.*AtomGenerator.* got Conv2d"):
        convert(network(), generator=blind)
    with pytest.raises(TypeError, match=r"a function \(conv\) → module.* got a Conv2d"):
        convert(network(), generator=nn.Conv2d(3, 36, 3))


def test_layers_that_predict_filters_are_left_whole():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), DynamicFilterConv2d(4, 4, 3, padding=1))
    converted = convert(model, keep_weights=False)
    assert type(converted[0]) is AdaptiveConv2d
    assert converted(torch.randn(1, 3, 8, 8)).shape == (1, 4, 8, 8)


def test_what_has_no_numbers_stays_and_is_told():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    model[1].weight.data[0, 0, 0, 0] = torch.nan
    with pytest.warns(ConversionWarning, match="1 of 2 layers stay as they were"):
        converted = convert(model, num_atoms=9, bases=None)
    assert [type(part) for part in converted] == [AdaptiveConv2d, nn.Conv2d]


def test_a_bias_may_train_alone():
    conv = nn.Conv2d(3, 4, 3)
    conv.weight.requires_grad_(False)
    layer = convert(conv, keep_weights=False)
    assert layer.bias.requires_grad
    assert not layer.mixing.requires_grad


def test_learnable_bases_stay_learnable_when_a_layer_is_frozen():
    own = nn.Parameter(torch.randn(9, 3, 3))
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    model[1].requires_grad_(False)
    converted = convert(model, bases=own, num_atoms=9)
    assert own.requires_grad
    assert converted[0].mixing.requires_grad
    assert not any(p.requires_grad for name, p in converted[1].named_parameters() if name != "bases")


def test_a_convolution_without_numbers_or_bias():
    meta = AdaptiveConv2d.from_conv2d(nn.Conv2d(3, 4, 3, device="meta"))
    assert meta.mixing.is_meta
    layer, weight, x = (
        AdaptiveConv2d(3, 4, 3, bases=None, num_atoms=9),
        torch.randn(4, 3, 3, 3),
        torch.randn(1, 3, 6, 6),
    )
    layer.imitate(weight, None)
    torch.testing.assert_close(layer(x), nn.functional.conv2d(x, weight), rtol=1e-4, atol=1e-5)


def test_the_error_that_is_told_is_that_of_the_layer():
    """Nine elements of which two are nearly equal: in float64 they span all filters, in the layer they do not."""
    bases = torch.eye(9).view(9, 3, 3)
    bases[8] = bases[0] + 1e-5 * torch.randn(3, 3)
    conv, x = nn.Conv2d(8, 8, 3, padding=1), torch.randn(1, 8, 12, 12)
    with pytest.warns(ConversionWarning, match="relative error"):
        layer = AdaptiveConv2d.from_conv2d(conv, bases=bases, num_atoms=9)
    told = layer.imitate(conv.weight, conv.bias)
    with torch.no_grad():
        found = layer.eval().filters(x[:, :, :3, :3])[0, ..., 1, 1]
        true = float((found - conv.weight).norm() / conv.weight.norm())
    assert true > 1e-4
    # Both are rounding errors of Tanh in float32, a hundred thousand times enlarged: alike in size, not in value.
    assert 0.1 < told / true < 10
