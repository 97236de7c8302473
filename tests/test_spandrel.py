"""spandrel itself loads our files: it recognises them among its own architectures, and computes what acda computes."""

import pytest
import spandrel
import torch
from spandrel import ImageModelDescriptor, ModelLoader, ModelTiling

import acda.spandrel
from acda import create_model
from acda.photos.weight_folders import CHECKOUT, PACKAGED
from acda.photos.weights import load, read_weights, write_weights

RESEARCH = CHECKOUT / "weights" / "research"
STATISTICS = torch.tensor([[100.0, 110, 120], [50, 60, 70]])
needs_weights = pytest.mark.skipif(not RESEARCH.exists(), reason="acda is installed without weights/research")


def write(path, name, facts=None, **options):
    model = create_model(name, **options)
    tensors = {f"model.{key}": t for key, t in model.state_dict().items()} | {"statistics": STATISTICS}
    said = str(options).replace("'", '"')
    write_weights(path, tensors, {"model": name, "options": said, **(facts or {})})
    return path


@needs_weights
@pytest.mark.parametrize("name", ["camera_denoiser", "super_resolver"])
def test_a_packaged_file_is_loaded_and_computes_the_same(name):
    found = ModelLoader().load_from_file(RESEARCH / f"{name}.safetensors")
    assert isinstance(found, ImageModelDescriptor)
    assert found.architecture.id == "acda"
    assert (found.purpose, found.scale, found.input_channels, found.output_channels) == ("Restoration", 1, 3, 3)
    assert found.tiling is ModelTiling.SUPPORTED
    assert found.tags == ["restorer"]
    x = torch.rand(1, 3, 37, 50)
    torch.testing.assert_close(found(x), load(name)(x))


def test_the_denoiser_in_the_package_is_loaded_and_computes_the_same():
    found = ModelLoader().load_from_file(PACKAGED / "denoiser.safetensors")
    assert (found.architecture.id, found.purpose, found.scale) == ("acda", "Restoration", 1)
    assert found.tags == ["photo_denoiser"]
    x = torch.rand(1, 3, 37, 50)
    torch.testing.assert_close(found(x), load("denoiser")(x))


def test_options_follow_from_the_shapes(tmp_path):
    path = write(tmp_path / "w.safetensors", "restorer", kernel_size=5, num_atoms=3, num_bases=4)
    found = ModelLoader().load_from_file(path)
    assert found.tags == ["restorer", "5 kernel_size", "3 num_atoms", "4 num_bases"]
    x = torch.rand(1, 3, 21, 18)
    torch.testing.assert_close(found(x), load(path)(x))


def test_a_file_that_says_its_scale_enlarges(tmp_path):
    path = write(tmp_path / "w.safetensors", "dncnn", {"scale": "3"}, depth=3, width=8)
    found = ModelLoader().load_from_file(path)
    assert (found.purpose, found.scale) == ("SR", 3)
    x = torch.rand(1, 3, 20, 31)
    torch.testing.assert_close(found(x), load(path)(x), rtol=1e-3, atol=1e-4)


def test_bfloat16_is_near_and_half_is_refused(tmp_path):
    found = ModelLoader().load_from_file(write(tmp_path / "w.safetensors", "restorer"))
    x = torch.rand(1, 3, 24, 24)
    expected = found(x)
    torch.testing.assert_close(found.to(torch.bfloat16)(x.bfloat16()).float(), expected, rtol=0, atol=0.02)
    with pytest.raises(spandrel.UnsupportedDtypeError):
        found.half()


def test_every_restorer_is_recognised_as_itself():
    """Networks whose tensors have the same names and shapes are the same: kpn and lp_kpn differ in no tensor."""
    for name in acda.spandrel.NAMES:
        with torch.device("meta"):
            state = {f"model.{key}": t for key, t in create_model(name).state_dict().items()}
        found = acda.spandrel.recognised({"statistics": STATISTICS, **state})
        assert found is not None
        assert found[0] == name


def test_other_files_are_left_to_others(tmp_path):
    state = {f"model.{key}": t for key, t in create_model("dncnn", depth=3).state_dict().items()}
    assert acda.spandrel.recognised(state) is None, "no statistics: not written by acda"
    classifier = {f"model.{key}": t for key, t in create_model("lenet").state_dict().items()}
    assert acda.spandrel.recognised({"statistics": STATISTICS, **classifier}) is None
    with pytest.raises(spandrel.UnsupportedModelError):
        ModelLoader().load_from_file(write(tmp_path / "w.safetensors", "lenet"))
    with pytest.raises(ValueError, match="not the weights of an acda restorer"):
        acda.spandrel.Restorers().load(state)


def test_the_scale_in_a_file_is_no_part_of_the_network(tmp_path):
    tensors, facts = read_weights(write(tmp_path / "w.safetensors", "dncnn", {"scale": "2"}, depth=3))
    assert float(tensors["scale"]) == 2
    assert facts["scale"] == "2"
    assert load(tmp_path / "w.safetensors").own_scale == 2
