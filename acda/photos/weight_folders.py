"""Where weights are found by name: in a folder of the user's choice, in the package, or in a checkout.

The package has those that were trained on free data. The others are in a checkout of the repository only, because the
data that they were trained on permit research only.
"""

import os
from pathlib import Path

from acda.support.names import unknown

# Names that every installation knows, so that an error can say where their files are.
RESEARCH = (
    "camera_denoiser",
    "crowd_counter",
    "lenet_acda_cifar10",
    "lenet_acda_cifar100",
    "lite_counter",
    "super_resolver",
)
VARIABLE = "ACDA_WEIGHTS"
CHECKOUT = Path(__file__).parents[2]
PACKAGED = Path(__file__).parent / "pretrained"


def named_weights() -> dict[str, Path]:
    """The files of weights that can be loaded by name, in the order of their names; the user's folder comes first."""
    found: dict[str, Path] = {}
    for folder in _folders():
        for file in folder.glob("*.safetensors"):
            found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def _folders() -> list[Path]:
    folders = []
    if chosen := os.environ.get(VARIABLE):
        folders.append(Path(chosen).expanduser())
        if not folders[0].is_dir():
            raise ValueError(f"{VARIABLE} needs to name a folder with files of weights; there is no folder {chosen}.")
    folders.append(PACKAGED)
    # Without pyproject.toml it is not a checkout, but a folder of installed packages.
    if (CHECKOUT / "pyproject.toml").exists():
        folders.append(CHECKOUT / "weights" / "research")
    return folders


def missing_weights(name: str) -> ValueError:
    """The error for a name without a file: where its weights are, or which names are near."""
    if name in RESEARCH:
        return ValueError(
            f"the weights {name!r} are for research only and not installed with acda. They are in weights/research of "
            f"its repository: set {VARIABLE} to that folder, or give the path of {name}.safetensors."
        )
    found = named_weights()
    hint = f"There are: {', '.join(found)}. Or give the folder of a run, or its weights."
    return unknown("weights file", name, {*found, *RESEARCH}, hint)
