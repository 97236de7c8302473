import copy
import warnings

import pytest
import torch
from torch import nn

from acda import AdaptiveConv2d, ConversionWarning, tune
from acda.layers import AtomConv2d


class Small(nn.Module):
    """3×3, a depthwise 5×5 with a stride, 1×1 and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.deep = nn.Conv2d(16, 16, 5, 2, padding=2, groups=16, bias=False)
        self.point = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.point(self.deep(self.norm(self.stem(x)).relu())).mean((2, 3)))


def quiet(function, *arguments, **options):
    """Without the warning about layers that stay as they are, and with the report."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*arguments, **options)
    return result, caught[0].message.report if caught else None


def decomposed(model, **options):
    return quiet(tune.decompose, model, **{"num_atoms": None, **options})[0]


def perturbed(model):
    """The model as if it had been tuned."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture
def model():
    return Small().eval()


@pytest.fixture
def x():
    return torch.randn(2, 3, 12, 11)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("atoms_per_atom", [1, 2])
def test_the_output_is_unchanged_and_only_atoms_learn(model, x, atoms_per_atom):
    tuned = decomposed(model, atoms_per_atom=atoms_per_atom)
    close(tuned(x), model(x))
    kinds = {"atoms"} if atoms_per_atom == 1 else {"atoms", "blend"}
    expected = {f"{layer}.{kind}" for layer in ("stem", "deep") for kind in kinds}
    assert {name for name, p in tuned.named_parameters() if p.requires_grad} == expected
    assert type(model.stem) is nn.Conv2d
    assert all(p.requires_grad for p in model.parameters())


def test_the_report_has_every_layer(model):
    with pytest.warns(ConversionWarning, match=r"1 of 3 layers stay as they were:\n  point: it is 1×1") as caught:
        tune.decompose(model, 9)
    report = caught[0].message.report
    assert caught[0].filename == __file__
    assert set(report.left) == {"point"}
    assert report.errors["stem"] < 1e-6
    assert report.errors["deep"] == pytest.approx(AtomConv2d(model.deep, 9).relative_error)
    assert "1 layers start near" in str(caught[0].message)
    assert "num_atoms=None would" in str(caught[0].message)


def test_nothing_to_say_is_no_warning(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned = tune.decompose(model, None, lambda name, conv: conv.kernel_size != (1, 1))
        assert isinstance(tune.decompose(model, names=["st*"]).stem, AtomConv2d)
    assert isinstance(tuned.deep, AtomConv2d)


def test_what_cannot_be_is_named_or_refused(model):
    with pytest.raises(ValueError, match="chose no Conv2d layer"):
        tune.decompose(model, names="nothing")
    with pytest.raises(ValueError, match=r"1 of 1 layers stay[^$]*1×1"):
        tune.decompose(model, names="point")
    with pytest.raises(ValueError, match=r"no parameter whose name is like 'fc\.\*'; it has stem.weight"):
        tune.decompose(model, trainable="fc.*")
    with pytest.raises(ValueError, match=r"call acda\.tune\.decompose first"):
        tune.merge(model)
    hooked = copy.deepcopy(model)
    hooked.stem.register_forward_hook(lambda *_: None)
    assert "hooks" in quiet(tune.decompose, hooked)[1].left["stem"]


def test_the_head_stays_trainable_and_atoms_learn(model, x):
    tuned = decomposed(model, trainable=["head.*", "norm.*"])
    trainable = [p for p in tuned.parameters() if p.requires_grad]
    assert {"head.weight", "norm.bias", "stem.atoms"} <= {n for n, p in tuned.named_parameters() if p.requires_grad}
    labels, optimizer = torch.tensor([0, 1]), torch.optim.Adam(trainable, 1e-2)
    frozen = tuned.stem.mixing.clone()
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(tuned(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert torch.equal(tuned.stem.mixing, frozen)
    assert not torch.equal(tuned.stem.atoms, tuned.stem.start)


def test_merged_layers_compute_the_same(model, x):
    tuned = perturbed(decomposed(model))
    merged = tune.merge(tuned)
    assert torch.equal(merged(x), tuned(x))
    assert type(merged.stem) is type(merged.deep) is nn.Conv2d
    assert merged.state_dict().keys() == model.state_dict().keys()
    assert isinstance(tuned.stem, AtomConv2d)
    assert tune.merge(tuned, inplace=True) is tuned
    assert type(tuned.stem) is nn.Conv2d


@pytest.mark.parametrize("options", [{}, {"num_atoms": 4}, {"atoms_per_atom": 2}])
def test_adaptive_layers_start_as_the_same_function(model, x, options):
    tuned = perturbed(decomposed(model, trainable="head.*", **options))
    adaptive, report = quiet(tune.adapt, tuned, hidden=8)
    assert report is None
    assert isinstance(adaptive.deep, AdaptiveConv2d)
    close(adaptive(x), tuned(x))
    trainable = {name for name, p in adaptive.named_parameters() if p.requires_grad}
    assert {name for name in trainable if "generator" not in name} == {"head.weight", "head.bias"}
    assert any("deep.generator" in name for name in trainable)
    if options.get("num_atoms"):
        assert adaptive.deep.bases.shape == (4, 5, 5)


def test_adaptive_layers_learn_to_differ_between_pixels(model, x):
    adaptive = tune.adapt(decomposed(model), hidden=8).train()
    optimizer = torch.optim.Adam([p for p in adaptive.parameters() if p.requires_grad], 1e-2)
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(adaptive(x), torch.tensor([0, 1])).backward()
        optimizer.step()
    assert adaptive.stem.coefficients(x).std((0, 3, 4)).max() > 1e-3


def test_kernels_without_a_centre_are_tuned_but_not_adapted(x):
    tuned = perturbed(tune.decompose(nn.Sequential(nn.Conv2d(3, 4, 2), nn.Conv2d(4, 4, 3)), None))
    adaptive, report = quiet(tune.adapt, tuned)
    assert "odd" in report.left["0"]
    assert type(adaptive[0]) is nn.Conv2d
    close(adaptive.eval()(x), tuned(x))


def test_a_layer_that_is_used_twice_stays_shared(x):
    conv = nn.Conv2d(3, 3, 3, padding=1)
    tuned = tune.decompose(nn.Sequential(conv, nn.ReLU(), conv))
    assert tuned[0] is tuned[2]
    for other in (tune.merge(tuned), tune.adapt(tuned)):
        assert other[0] is other[2]
        close(other.eval()(x), tuned(x))
    assert set(tune.atoms(tuned)) == {"0.atoms", "0.start", "0.norm"}


def test_the_model_itself_may_be_a_convolution(x):
    conv = nn.Conv2d(3, 4, 3)
    tuned = tune.decompose(conv)
    assert isinstance(tuned, AtomConv2d)
    tune.load_atoms(tuned, tune.atoms(perturbed(copy.deepcopy(tuned))))
    assert torch.equal(tune.merge(tuned)(x), tuned(x))
    close(tune.adapt(tuned)(x), tuned(x))
    for function, given in ((tune.decompose, conv), (tune.merge, tuned), (tune.adapt, tuned)):
        with pytest.raises(ValueError, match="cannot be swapped in place"):
            function(given, inplace=True)


@pytest.mark.parametrize("atoms_per_atom", [1, 2])
def test_files_of_atoms_are_small_and_swap_on_one_model(model, x, tmp_path, atoms_per_atom):
    base = decomposed(model, trainable="head.*", atoms_per_atom=atoms_per_atom)
    first, second = perturbed(copy.deepcopy(base)), perturbed(copy.deepcopy(base))
    for name, tuned in (("a", first), ("b", second)):
        tune.save_atoms(tuned, tmp_path / f"{name}.safetensors", also="head.*")
        assert (tmp_path / f"{name}.safetensors").stat().st_size < 16_000
    for name, tuned in (("a", first), ("b", second), ("a", first)):
        tune.load_atoms(base, tmp_path / f"{name}.safetensors")
        assert torch.equal(base(x), tuned(x))
    assert not torch.equal(first(x), second(x))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("options", [{}, {"num_atoms": 4}, {"atoms_per_atom": 2}])
def test_atoms_fit_a_decomposition_with_other_singular_vectors(model, x, options):
    """As another machine may find them: with other signs, or rotated among equal singular values."""
    base = decomposed(model, **options)
    tuned = perturbed(copy.deepcopy(base))
    before = base(x)
    for layer in (base.stem, base.deep):
        rotation = torch.linalg.qr(torch.randn(len(layer.start), len(layer.start))).Q
        with torch.no_grad():
            layer.start.copy_(torch.einsum("mn,nij->mij", rotation, layer.start))
            layer.mixing.copy_(layer.mixing @ rotation.T)
            layer.atoms.copy_(layer.start if layer.blend is None else layer.atoms)
    if not options.get("atoms_per_atom"):
        close(base(x), before)
    tune.load_atoms(base, tune.atoms(tuned))
    close(base(x), tuned(x))


def test_what_does_not_fit_is_refused_and_changes_nothing(model, x, tmp_path):
    base = decomposed(model)
    before = copy.deepcopy(base.state_dict())
    good = tune.atoms(perturbed(copy.deepcopy(base)))
    other = tune.atoms(decomposed(Small()))
    few = tune.atoms(decomposed(model, num_atoms=4))
    for given, message in [
        ({}, "lacks deep.atoms, deep.norm, deep.start, stem.atoms, stem.norm and 1 more"),
        ({**good, "fc.weight": torch.zeros(1)}, "has fc.weight, which the model lacks"),
        ({**good, "head.bias": torch.zeros(5)}, r"head.bias needs \(4,\) for this model; got \(5,\)"),
        (few, r"stem.atoms needs \(9, 3, 3\) for this model; got \(4, 3, 3\)"),
        ({**good, "stem.norm": 2 * good["stem.norm"]}, "is for another base model: the mixing of stem"),
        (other, "is for another base model"),
    ]:
        with pytest.raises(ValueError, match=message):
            tune.load_atoms(base, given)
        assert all(torch.equal(t, before[name]) for name, t in base.state_dict().items())
    with pytest.raises(ValueError, match=r"ends with \.safetensors; got"):
        tune.load_atoms(base, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        tune.load_atoms(base, tmp_path / "missing.safetensors")
    with pytest.raises(ValueError, match=r"needs to end with \.safetensors"):
        tune.save_atoms(base, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="no tensor whose name is like"):
        tune.save_atoms(base, tmp_path / "a.safetensors", also="fc.*")
    assert not list(tmp_path.iterdir())


def test_other_spans_are_another_base_model(model):
    base = decomposed(model, num_atoms=4)
    given = tune.atoms(base)
    given["deep.start"] = torch.linalg.qr(torch.randn(25, 4)).Q.T.reshape(4, 5, 5).contiguous()
    with pytest.raises(ValueError, match="starting atoms of deep do not span the same"):
        tune.load_atoms(base, given)


def test_a_file_of_something_else_is_refused(model, tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=r"was not written by acda\.tune\.save_atoms"):
        tune.load_atoms(decomposed(model), tmp_path / "a.safetensors")


def test_weights_that_are_no_numbers_are_named(model):
    with torch.no_grad():
        model.stem.weight[0, 0, 0, 0] = torch.nan
    _, report = quiet(tune.decompose, model)
    assert "stem" in report.left
