"""Registers the restorers with spandrel, the loader of chaiNNer and of nodes for ComfyUI, when imported.

    import acda.spandrel, spandrel

    denoise = spandrel.ModelLoader().load_from_file("denoiser.safetensors")
    clean = denoise(photo)  # (1, 3, H, W), from 0 to 1

spandrel sees the tensors of a file and nothing else: which network they are follows from their names and shapes.
"""

from typing import Any

import torch
from torch import Tensor

from acda.models import create_model
from acda.models.photo_unet import PHOTO_UNETS
from acda.models.restorer import RESTORERS
from acda.models.variational import VARIATIONAL
from acda.photos.on_tensors import OnTensors
from acda.photos.ready import ready
from acda.support.extras import need

spandrel = need("spandrel", "spandrel")

NAMES = (*RESTORERS, *VARIATIONAL, *PHOTO_UNETS)
Shapes = dict[str, tuple[int, ...]]


class Restorers(spandrel.Architecture):  # type: ignore[misc, name-defined]
    """Every network of acda that turns a photo into a photo."""

    def __init__(self) -> None:
        super().__init__(id="acda", name="acda", detect=lambda state: recognised(state) is not None)

    def load(self, state_dict: dict[str, Tensor]) -> Any:
        """spandrel's descriptor of a network, with normalisation and, where the file says so, enlargement inside."""
        found = recognised(state_dict)
        if found is None:
            raise ValueError(
                "these are not the weights of an acda restorer: the names or shapes of the tensors differ."
            )
        name, options = found
        scale = round(float(state_dict.get("scale", torch.ones(()))))
        statistics = state_dict["statistics"].float()
        return spandrel.ImageModelDescriptor(
            OnTensors(ready(create_model(name, **options), statistics, {}), scale),
            {key: value for key, value in state_dict.items() if key != "scale"},
            architecture=self,
            purpose="SR" if scale > 1 else "Restoration",
            tags=[name, *(f"{value} {option}" for option, value in options.items())],
            supports_half=False,
            supports_bfloat16=True,
            scale=scale,
            input_channels=3,
            output_channels=3,
            # Any size; a pixel depends on its surroundings only.
            size_requirements=spandrel.SizeRequirements(),
            tiling=spandrel.ModelTiling.SUPPORTED,
        )


def recognised(state: dict[str, Any]) -> tuple[str, dict[str, int]] | None:
    """The name of the network and its options that tensors with these names and shapes belong to, or None.

    >>> model = create_model("dncnn", depth=4)
    >>> tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    >>> recognised({"statistics": torch.ones(2, 3), **tensors})
    ('dncnn', {'width': 64, 'depth': 4})
    """
    statistics = state.get("statistics")
    if not isinstance(statistics, Tensor) or statistics.shape != (2, 3):
        return None
    shapes = {key.removeprefix("model."): tuple(t.shape) for key, t in state.items() if key.startswith("model.")}
    for name in NAMES:
        for options in ({}, *_options(shapes)):
            if shapes == _shapes(name, options):
                return name, options
    return None


def _shapes(name: str, options: dict[str, int]) -> Shapes:
    """Shapes of a fresh network's tensors, which are not allocated; empty if it does not take these options."""
    try:
        with torch.device("meta"):
            return {key: tuple(t.shape) for key, t in create_model(name, **options).state_dict().items()}
    except (TypeError, ValueError):
        return {}


def _options(shapes: Shapes) -> list[dict[str, int]]:
    """Options with which a network may have been made, inferred from its shapes."""
    found = []
    if first := shapes.get("layers.0.weight"):
        convolutions = [shape for shape in shapes.values() if len(shape) == 4]
        found.append({"width": first[0], "depth": len(convolutions)})
    mixing = next((shape for key, shape in shapes.items() if key.endswith(".conv2.mixing")), None)
    bases = next((shape for key, shape in shapes.items() if key.endswith(".conv2.bases")), None)
    if mixing and bases and bases[1] > 1:
        scales = (bases[1] - 1) // 2
        found.append({"kernel_size": bases[1], "num_atoms": mixing[2], "num_bases": bases[0] // scales})
    return found


# Importing it twice, or again after a failure, does no harm.
spandrel.MAIN_REGISTRY.add(spandrel.ArchSupport.from_architecture(Restorers()), ignore_duplicates=True)
