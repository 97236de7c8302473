"""Weights as safetensors files, which hold tensors and text and no code."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from acda.models import checked_options, create_model
from acda.photos.checkpoint_files import read_checkpoint_weights
from acda.photos.ready import ready
from acda.photos.trained import Trained
from acda.photos.weight_folders import missing_weights, named_weights
from acda.support.extras import need
from acda.support.files import written_whole

# Mean and standard deviation of ImageNet's pixels, 0–255, by channel: (2, 3).
IMAGENET_STATISTICS = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]) * 255
# Types of the tensors in files of weights; whole numbers count steps.
NUMBERS = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8}


@dataclass(frozen=True)
class Weights:
    """The content of a file of weights, whose numbers have been checked."""

    path: Path
    tensors: dict[str, Tensor]
    facts: dict[str, str]


def load(name: str | Path) -> Trained:
    """A trained network that is ready for photos, by the name of its weights, a run's folder or a file of weights.

    Returns a PhotoRestorer, PeopleCounter or PhotoClassifier, depending on the network: a module that takes PIL images,
    arrays and tensors. For a run that is not complete, its best checkpoint so far is used.

    >>> denoise = load("denoiser")
    >>> denoise(torch.zeros(1, 3, 20, 31, dtype=torch.uint8)).shape
    torch.Size([1, 3, 20, 31])
    >>> "# denoiser" in denoise.card
    True
    """
    weights = open_weights(name)
    path, facts = weights.path, weights.facts
    if "model" not in facts:
        raise ValueError(f"{path} does not name its network: it was not written by `acda train`.")
    state = {key.removeprefix("model."): t.float() for key, t in weights.tensors.items() if key.startswith("model.")}
    card = path.with_suffix(".md")
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    return ready(filled(facts, state, path), weights.tensors["statistics"].float(), facts, text)


def open_weights(name: str | Path) -> Weights:
    """The weights that a name stands for, checked: finite numbers, with the statistics of their training images."""
    path = find_weights(name)
    tensors, facts = read_weights(path)
    statistics = tensors.get("statistics", torch.empty(0)).float()
    if statistics.shape != (2, 3) or not bool((statistics[1] > 0).all()):
        raise ValueError(
            f"{path} needs mean and standard deviation of its training images, (2, 3), with positive standard "
            "deviations. `acda train` writes them."
            + ("" if "model" in facts else " This file does not name a network of acda either.")
        )
    return Weights(path, {name: t for name, t in tensors.items() if name != "scale"}, facts)


def find_weights(name: str | Path, own: str | None = None) -> Path:
    """The file that a name stands for. Named weights come first; ./NAME or a Path is the folder or file itself.

    own: which weights to use of several in one folder, such as weights/research
    """
    path = Path(name)
    if isinstance(name, str) and (named := named_weights().get(name)):
        return named
    if path.is_dir():
        candidates = [path / "weights.safetensors", path / "checkpoints" / "best.ckpt"]
        candidates += [path / f"{own}.safetensors"] if own else []
        found = next((file for file in candidates if file.exists()), None)
        if found is None:
            raise ValueError(
                f"{path} has no weights.safetensors: a run has it when it is complete. It has no checkpoints/best.ckpt "
                "either, which a run has after its first test."
            )
        return found
    if path.exists():
        return path
    raise missing_weights(str(name))


def fresh(facts: dict[str, str]) -> nn.Module:
    """The network that a file of weights was written for, with none of its weights."""
    classes = {"num_classes": len(json.loads(facts["classes"]))} if "classes" in facts else {}
    options = json.loads(facts.get("options", "{}"))
    if not isinstance(options, dict):
        raise ValueError(f"its options need to be names with values; got {type(options).__name__}.")
    return create_model(facts["model"], **checked_options(facts["model"], options), **classes)


def filled(facts: dict[str, str], state: dict[str, Tensor], path: Path) -> nn.Module:
    """The same with these tensors. It is made without memory first, because facts may name any size."""
    shapes = {name: t.shape for name, t in state.items()}
    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                model = fresh(facts)
        except Exception as error:  # options are arguments of whatever the network is made of
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise ValueError(f"{path} names a network that cannot be made here ({reason}).") from error
        if device == "cpu" or shapes != {name: t.shape for name, t in model.state_dict().items()}:
            fill(model, state, path, facts["model"])
    return model


def fill(model: nn.Module, state: dict[str, Tensor], path: Path, name: str) -> None:
    """Load these tensors, all of them and no others."""
    in_memory = not any(parameter.is_meta for parameter in model.parameters())
    try:
        model.load_state_dict(state, assign=not in_memory)
    except RuntimeError as error:
        raise ValueError(f"{path} are not the weights of {name}: {str(error).splitlines()[-1].strip()}") from error


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and facts of a file of safetensors or a checkpoint; numbers that are not finite are refused."""
    tensors, facts = read_checkpoint_weights(path) if path.suffix == ".ckpt" else _read_safetensors(path)
    for name, t in tensors.items():
        if t.dtype not in NUMBERS:
            raise ValueError(f"{path} has numbers in {name} of the type {t.dtype}, which no network of acda uses.")
        # In float32, as networks are used: what is finite in float64 need not be.
        if not bool(t.float().isfinite().all()):
            raise ValueError(f"{path} has non-finite values in {name}: its training diverged, or it is damaged.")
    return tensors, facts


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    safetensors = need("safetensors", "photos")
    try:
        with safetensors.safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except Exception as error:  # besides its own errors, those of torch for types and shapes that it does not have
        raise ValueError(f"{path} cannot be read as safetensors ({error}).") from error


def write_weights(path: Path, tensors: dict[str, Tensor], facts: dict[str, str]) -> None:
    """Whole or not at all. The scale is among the tensors too, for loaders that see nothing else, such as spandrel."""
    scale = {"scale": torch.tensor(float(facts["scale"]))} if "scale" in facts else {}
    with written_whole(path) as file:
        need("safetensors.torch", "photos").save_file(
            {name: t.detach().contiguous().cpu() for name, t in {**tensors, **scale}.items()}, file, metadata=facts
        )
