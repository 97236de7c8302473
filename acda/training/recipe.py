"""A recipe: all that decides the result of a training run, as one value."""

import dataclasses
import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from acda.models import checked_options
from acda.support.arguments import Count, Digest, MaybeCount, MaybeNumber, Name, NamedOptions, Number
from acda.training.settings import MOST_TEXT, check_range, check_types, read_object, shown

# Settings of earlier versions that decided nothing: paths, which belong to a run, and the strength of no noise.
PATHS = ("data", "initial")
NO_NOISE = ("noise", 0)
# Sides of images and crops in pixels, at most.
LARGEST_SIDE = 16384


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What every recipe has; a task adds what it needs. A variant is dataclasses.replace(recipe, …)."""

    model: Name
    """name of the network, as in acda.create_model"""
    options: NamedOptions = field(default_factory=dict)
    """arguments of the network, such as num_atoms 9; on the command line they are added to those of the recipe"""
    epochs: Count
    """passes over the training set"""
    batch_size: Count = 128
    """images per step, in each process"""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """SGD with Nesterov momentum 0.9, or AdamW"""
    learning_rate: Number = 0.05
    """highest learning rate: it rises over the warm-up, then falls along a cosine to zero"""
    weight_decay: Number = 5e-4
    """weight decay of all parameters with more than one dimension"""
    warmup_steps: Count = 200
    """steps until the learning rate is at its highest"""
    frozen_norm: bool = False
    """use the running statistics of batch normalisation in training too"""
    freeze_norm_at: Number = 1.0
    """fraction of the steps after which batch normalisation uses its running statistics, as in testing"""
    norm_momentum: MaybeNumber = None
    """momentum of the running statistics; that of the network unless given"""
    test_every: Count = 1
    """epochs between tests; reduced to a divisor of the number of epochs, so that the last epoch is tested"""
    seed: Count = 0
    """seed of the initial weights, the order of the images and their augmentation"""

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, 1, 2**31, "epochs", "batch_size", "test_every")
        check_range(self, 0, 1, "freeze_norm_at", "norm_momentum")
        check_range(self, 0, math.inf, "weight_decay", "warmup_steps")
        check_range(self, 0, 2**32 - 1, "seed")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate needs to be positive; got {self.learning_rate}.")
        object.__setattr__(self, "options", checked_options(self.model, self.options))

    def to_json(self) -> str:
        """As text that from_json reads back."""
        return json.dumps({"task": type(self).__name__, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The recipe that to_json wrote, here or in an earlier version; anything else is refused."""
        found = read_object(text)
        values = {name: found[name] for name in found if name not in PATHS and (name, found[name]) != NO_NOISE}
        if values.pop("task", None) != cls.__name__:
            raise ValueError(f"this is not a recipe of the task {cls.__name__}.")
        known = {field.name for field in dataclasses.fields(cls)}
        if set(values) - known:
            raise ValueError(f"the recipe has settings that this version does not know: {sorted(set(values) - known)}.")
        missing = {"model", "epochs"} - set(values)
        if missing:
            raise ValueError(f"the recipe lacks {' and '.join(sorted(missing))}.")
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Classification(Recipe):
    """Classify images: small ones of one size from memory, others from their files."""

    image_size: MaybeCount = None
    """side of the crops that are read from files; none: images of one size, all in memory"""
    margin: Count = 4
    """for images in memory: the largest random shift in pixels; 0 also turns mirroring off"""
    label_smoothing: Number = 0.0
    """fraction of the target that is spread over all classes"""
    dataset: Literal["CIFAR10", "CIFAR100"] | None = None
    """dataset that --download fetches into the data folder"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, 1, LARGEST_SIDE, "image_size")
        check_range(self, 0, 1024, "margin")
        check_range(self, 0, 1, "label_smoothing")


@dataclass(frozen=True, kw_only=True)
class Counting(Recipe):
    """Count heads by their density: mean square error on crops, absolute errors on whole photos."""

    crop: Count = 256
    """side of the training crops in pixels, a multiple of 16; photos that are smaller are extended"""
    sigma: Number = 8.0
    """spread of a head in the density map, in pixels of the photo"""
    initial_sha256: Digest = None
    """SHA-256 of the file of initial weights; none: random weights"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crop < 16 or self.crop % 16:
            raise ValueError(f"crop needs to be a multiple of 16; got {self.crop}.")
        check_range(self, 16, LARGEST_SIDE, "crop")
        if not 0 < self.sigma <= LARGEST_SIDE:
            raise ValueError(f"sigma needs to be positive and at most {LARGEST_SIDE}; got {shown(self.sigma)}.")
        _check_digest(self.initial_sha256)


@dataclass(frozen=True, kw_only=True)
class Restoration(Recipe):
    """Restore photos: from pairs of a degraded and a clean photo, or from clean photos with synthetic degradation."""

    crop: Count = 96
    """side of the training crops in pixels"""
    crops: Count = 4800
    """training crops per epoch, equally many of each photo"""
    objective: Literal["mse", "relative_mse", "psnr", "variational"] = "mse"
    """mean square error, the same relative to the input's, PSNR, or VDNet's for networks with variances"""
    channels: Literal["y", "rgb"] = "rgb"
    """what PSNR and SSIM are measured on: the Y channel of YCbCr, or RGB"""
    scale: Literal[2, 3, 4] | None = None
    """which of RealSR's scales; the ratio that the network is trained at"""
    degradation: Literal["noise", "size"] | None = None
    """for folders of clean photos: add noise, or halve and double the size, as they are read"""
    initial_sha256: Digest = None
    """SHA-256 of the file of initial weights; none: random weights"""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_digest(self.initial_sha256)
        check_range(self, 1, LARGEST_SIDE, "crop")
        check_range(self, 1, 10**8, "crops")


def _check_digest(digest: str | None) -> None:
    if digest is not None and not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"initial_sha256 needs to be 64 hexadecimal digits; got {shown(digest)}.")


def recipe_from_json(text: str, source: str) -> Recipe:
    """The recipe of any task that to_json wrote. source: its name in errors, such as its file."""
    kinds: dict[str, type[Recipe]] = {kind.__name__: kind for kind in (Classification, Counting, Restoration)}
    try:
        task = read_object(text).get("task")
        if not isinstance(task, str) or task not in kinds:
            raise ValueError(f"its task is {shown(task)}, and {', '.join(kinds)} are known")
        return kinds[task].from_json(text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{source} is not a recipe that can be used: {str(error).rstrip('.')}.") from error


def read_recipe(path: Path) -> Recipe:
    """The recipe in a file."""
    try:
        text = path.read_bytes()[: MOST_TEXT + 1].decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a recipe that can be used: it is not text.") from error
    return recipe_from_json(text, str(path))
