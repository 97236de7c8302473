"""Networks as the Hugging Face Hub keeps them: a folder with config.json, model.safetensors and a card.

    from acda.hub import HubNetwork

    HubNetwork.of(acda.load("denoiser")).save_pretrained("folder")       # or push_to_hub("user/name")
    denoise = HubNetwork.from_pretrained("folder").ready()               # what acda.load returns

Nothing is downloaded or sent unless one of the mixin's methods is called with a name on the Hub.
"""

import json
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError
from torch import Tensor, nn

from acda.photos.ready import ready
from acda.photos.trained import Trained
from acda.photos.weights import IMAGENET_STATISTICS, fresh
from acda.support.extras import need

hub = need("huggingface_hub", "hub")
# Of a network that comes without a card of its own. Its licence is for its owner to add.
CARD = """---
library_name: acda
tags: [acda, adaptive-convolution]
---

# {model}

A network of [acda](https://arxiv.org/abs/2108.07895): `HubNetwork.from_pretrained` of `acda.hub` loads it.
"""


class HubNetwork(nn.Module, hub.PyTorchModelHubMixin, library_name="acda", tags=["acda"]):  # type: ignore[misc, name-defined, call-arg]
    """A network with what is needed to make it again, and save_pretrained, from_pretrained and push_to_hub.

    facts: the metadata of a weights file: "model", a name for create_model, "options", as JSON, and others
    Its tensors have the names of a file of weights: `model.…`, and `statistics`, (2, 3), of the training images.

    >>> import torch
    >>> HubNetwork({"model": "lenet", "options": '{"num_classes": 7}'})(torch.rand(1, 3, 32, 32)).shape
    torch.Size([1, 7])
    """

    statistics: Tensor

    def __init__(self, facts: dict[str, str]) -> None:
        super().__init__()
        try:
            self.model = fresh(facts)
        except Exception as error:  # untrusted arguments of whatever a network is made of
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise ValueError(f"the configuration names a network that cannot be made here ({reason}).") from error
        self.register_buffer("statistics", IMAGENET_STATISTICS.clone())
        self.facts, self.card = facts, CARD.format(model=facts["model"])

    def forward(self, x: Tensor) -> Any:
        return self.model(x)

    @classmethod
    def of(cls, trained: Trained) -> Self:
        """A network that acda.load has loaded, with its card."""
        made = cls(trained.facts)
        made.load_state_dict(trained.state_dict())
        made.card = trained.card or made.card
        return made.eval()

    def ready(self) -> Trained:
        """The network ready for photos, as acda.load returns it."""
        return ready(self.model, self.statistics, self.facts, self.card)

    def generate_model_card(self, *args: Any, **fields: Any) -> Any:
        """The card of the weights, with its header; called by save_pretrained and push_to_hub."""
        return hub.ModelCard(self.card)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """The network in a folder that save_pretrained wrote, or on the Hub by its name; options are the mixin's."""
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            return super().from_pretrained(pretrained_model_name_or_path, **options)
        _check(folder)
        try:
            made: Self = super().from_pretrained(str(folder), **options)
        except (RuntimeError, SafetensorError) as error:
            reason = str(error).splitlines()[-1].strip()
            raise ValueError(f"{folder} does not have the weights of its network: {reason}") from error
        card = folder / "README.md"
        made.card = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else made.card
        return made


def _check(folder: Path) -> None:
    """Refuse a folder that save_pretrained did not write."""
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}: it needs to be a folder that save_pretrained wrote.")
    try:
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))["facts"]
        sound = all(isinstance(x, str) for pair in facts.items() for x in pair) and "model" in facts
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise ValueError(f"{folder / 'config.json'} does not describe a network of acda: it needs facts with a model.")
