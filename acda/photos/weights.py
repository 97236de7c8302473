"""Weights in files of safetensors, which hold tensors and text and nothing that could run; and those in the package."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from acda.models import create_model
from acda.support.extras import need
from acda.support.files import written_whole
from acda.support.names import unknown

PACKAGED = Path(__file__).parent / "packaged"
# Mean and standard deviation of ImageNet's pixels, 0–255, by channel: (2, 3).
IMAGENET_STATISTICS = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]) * 255


@dataclass(frozen=True)
class Trained:
    """A network ready for use. statistics: (2, 3), mean and deviation of its training images in steps of eight bits"""

    model: nn.Module
    statistics: Tensor
    facts: dict[str, str]

    def normalised(self, pixels: Tensor) -> Tensor:
        """Pixels of eight bits, (B, 3, H, W), as the network knows them."""
        mean, deviation = self.statistics[:, :, None, None]
        return (pixels.float() - mean) / deviation


def load(name: str | Path) -> Trained:
    """A trained network: the name of a packaged one, a run's folder, or a file of weights that a run wrote."""
    path = find_weights(name)
    tensors, facts = read_weights(path)
    if "model" not in facts:
        raise ValueError(f"{path} does not tell its network: it was not written by `acda train`.")
    try:
        model = fresh(facts)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} tells of no network that can be made here ({error}).") from error
    state = {key.removeprefix("model."): t.float() for key, t in tensors.items() if key.startswith("model.")}
    fill(model, state, path, facts["model"])
    for key, t in tensors.items():
        if not bool(t.isfinite().all()):
            raise ValueError(f"{path} has numbers in {key} that are not finite: its training came to nothing.")
    statistics = tensors.get("statistics", torch.empty(0)).float()
    if statistics.shape != (2, 3) or not bool((statistics[1] > 0).all()):
        raise ValueError(f"{path} has no mean and deviation of its training images: `acda train` did not write it.")
    return Trained(model.eval(), statistics, facts)


def find_weights(name: str | Path) -> Path:
    """The file that a name means; a packaged one comes first, and ./NAME or a Path is the folder or file itself."""
    path = Path(name)
    packaged = {file.stem: file for file in sorted(PACKAGED.glob("*.safetensors"))}
    if isinstance(name, str) and name in packaged:
        return packaged[name]
    if path.is_dir():
        if not (path / "weights.safetensors").exists():
            raise ValueError(f"{path} has no weights.safetensors: a run has it when it is complete.")
        return path / "weights.safetensors"
    if path.exists():
        return path
    what = ", ".join(packaged) or "none in this installation"
    raise unknown("weights file", str(name), packaged, f"Packaged are: {what}; or give a run or its weights.")


def fresh(facts: dict[str, str]) -> nn.Module:
    """The network that a file of weights was written for, with none of its weights."""
    classes = {"num_classes": len(json.loads(facts["classes"]))} if "classes" in facts else {}
    return create_model(facts["model"], **json.loads(facts.get("options", "{}")), **classes)


def fill(model: nn.Module, state: dict[str, Tensor], path: Path, name: str) -> None:
    """Load these tensors, all of them and no others."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"{path} are not the weights of {name}: {str(error).splitlines()[-1].strip()}") from error


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and facts of a file."""
    safetensors = need("safetensors", "photos")
    try:
        with safetensors.safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as safetensors ({error}).") from error


def write_weights(path: Path, tensors: dict[str, Tensor], facts: dict[str, str]) -> None:
    """Whole or not at all."""
    with written_whole(path) as file:
        need("safetensors.torch", "photos").save_file(
            {name: t.detach().contiguous().cpu() for name, t in tensors.items()}, file, metadata=facts
        )
