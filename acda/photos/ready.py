"""The module that people call with their photos, chosen by the network."""

from torch import Tensor, nn

from acda.models import COUNTERS, AdResNet, LeNet
from acda.photos.classify import PhotoClassifier
from acda.photos.count import PeopleCounter
from acda.photos.restore import PhotoRestorer
from acda.photos.trained import Trained


def ready(model: nn.Module, statistics: Tensor, facts: dict[str, str], card: str = "") -> Trained:
    """A restorer, counter or classifier of photos, depending on the network; the arguments are those of Trained."""
    kind = Trained
    if isinstance(model, COUNTERS):
        kind = PeopleCounter
    elif isinstance(model, (LeNet, AdResNet)):
        kind = PhotoClassifier
    elif getattr(model, "cell", None) == 1:  # one pixel for each pixel
        kind = PhotoRestorer
    return kind(model, statistics, facts, card)
