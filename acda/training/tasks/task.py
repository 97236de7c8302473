"""The base of all tasks: optimiser and schedule, seeding, exact sums over test images in any number of processes."""

import json
import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from acda.photos.tiles import LooksAtEverything, apply_in_tiles
from acda.support.extras import need
from acda.training.checkpoint_form import check_form, check_optimiser
from acda.training.recipe import Recipe

need("pytorch_lightning", "train")
import pytorch_lightning  # noqa: E402  after need, which names the extra where it is missing

# Side of the tiles of large test photos.
TILE = 1536


class Task(pytorch_lightning.LightningModule):
    """A network and a recipe; a subclass says what the loss is, what is summed in testing, where data come from."""

    # What test_sums returns, which of it decides the best checkpoint, and whether that is the lowest or the highest.
    metrics: tuple[str, ...]
    monitored: str
    best = "min"
    statistics: Tensor
    # Images for training and for testing.
    counts: tuple[int, int]

    def __init__(self, recipe: Recipe, model: nn.Module) -> None:
        super().__init__()
        self.recipe = recipe
        self.model = model
        # Mean and standard deviation of the training images, which the network needs for its inputs.
        self.register_buffer("statistics", torch.tensor([[0.0] * 3, [1.0] * 3]))
        # What a reader of the weights needs to know besides the recipe.
        self.facts: dict[str, str] = {}
        self._sums: dict[str, Tensor] = {}
        self._losses: list[Tensor] = []
        self._position: dict[str, int] | None = None
        self._frozen_from = math.inf
        if recipe.norm_momentum is not None:
            for norm in self._norms():
                norm.momentum = recipe.norm_momentum
        self.train()

    def loss(self, batch: Any) -> Tensor:
        """Of a training batch, averaged over its images."""
        raise NotImplementedError

    def test_sums(self, batch: Any) -> dict[str, Tensor]:
        """Metrics summed over the images of a test batch."""
        raise NotImplementedError

    def scores(self, means: dict[str, float]) -> dict[str, float]:
        """What is reported, from the means over all test images; by default they themselves."""
        return means

    def train_loader(self, rank: int, world: int) -> Any:
        raise NotImplementedError

    def test_loader(self, rank: int, world: int) -> Any:
        raise NotImplementedError

    def train_dataloader(self) -> Any:
        loader = self.train_loader(self.trainer.global_rank, self.trainer.world_size)
        if self._position is not None:
            loader.load_state_dict(self._position)
        return loader

    def val_dataloader(self) -> Any:
        return self.test_loader(self.trainer.global_rank, self.trainer.world_size)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.recipe.frozen_norm:
            self._freeze_norms()
        return self

    def _norms(self) -> list[nn.modules.batchnorm._BatchNorm]:
        return [part for part in self.model.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]

    def _freeze_norms(self) -> None:
        for norm in self._norms():
            norm.eval()

    def on_train_epoch_start(self) -> None:
        loader: Any = self.trainer.train_dataloader
        loader.batches.set_epoch(self.current_epoch)

    def on_train_batch_start(self, batch: Any, index: int) -> None:
        # Everything random in a step follows from its number, so that a resumed run gives the same weights.
        torch.manual_seed(hash((self.recipe.seed, self.global_step, self.trainer.global_rank)) % 2**63)
        if self.global_step >= self._frozen_from:
            self._freeze_norms()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        losses = [loss.cpu() for loss in self._losses]
        checkpoint["losses of the epoch"] = torch.stack(losses) if losses else torch.empty(0)

        checkpoint["facts"] = self.described()

    def described(self) -> dict[str, str]:
        """What a reader of the weights needs: network, options, recipe and facts."""
        recipe = self.recipe
        named = {"model": recipe.model, "options": json.dumps(recipe.options), "recipe": recipe.to_json()}
        return {**named, **self.facts}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # Lightning calls this before it uses anything of the checkpoint.
        self._check(checkpoint)
        self._losses = list(checkpoint["losses of the epoch"].unbind())
        # Lightning saves the position of the loader, but makes the loader before it restores the position.
        (self._position,) = checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"]

    def _check(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint that is not one of this run: types, shapes, numbers that are not finite."""
        expected: dict[str, Any] = {"epoch": 0, "global_step": 0, "state_dict": dict(self.state_dict())}
        check_form(
            checkpoint, {**expected, "loops": {"fit_loop": self.trainer.fit_loop.state_dict()}}, "the checkpoint"
        )
        for name, value in checkpoint["state_dict"].items():
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"it has non-finite values in {name}")
        states = [c.state_key for c in self.trainer.callbacks if c.state_dict()]  # type: ignore[attr-defined]
        check_form(checkpoint["callbacks"], {}, "the callbacks")
        if missing := [key.partition("{")[0] for key in states if key not in checkpoint["callbacks"]]:
            raise ValueError(f"it lacks the state of {' and '.join(missing)}")
        optimiser = self._optimiser()
        (state,), (schedule,) = checkpoint["optimizer_states"], checkpoint["lr_schedulers"]
        check_optimiser(state, optimiser.state_dict(), [p for group in optimiser.param_groups for p in group["params"]])
        check_form(schedule, self._schedule(optimiser, 1).state_dict(), "the schedule")
        (position,) = checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        check_form(position, dict.fromkeys(("epoch", "taken", "batches", "fingerprint"), 0), "the data's position")
        losses = checkpoint["losses of the epoch"]
        if not isinstance(losses, Tensor) or losses.ndim != 1:
            raise ValueError("its losses of the epoch are not a row of numbers")

    def training_step(self, batch: Any, index: int) -> Tensor:
        loss = self.loss(batch)
        # A copy: F.mse_loss returns one number that holds the memory of all its squares.
        self._losses.append(loss.detach().clone())
        self.log("loss now", loss, prog_bar=True, batch_size=1)
        return loss

    def on_validation_epoch_start(self) -> None:
        # A process without test images takes part in the sum too. On the CPU, because Apple's GPUs have no float64.
        self._sums = {name: torch.zeros((), dtype=torch.float64) for name in ("images", *self.metrics)}

    def validation_step(self, batch: Any, index: int) -> None:
        for name, value in {"images": torch.tensor(len(batch[0])), **self.test_sums(batch)}.items():
            self._sums[name] += value.cpu()

    def on_validation_epoch_end(self) -> None:
        # Sums, not averages: the images of a process that has fewer do not count more.
        total = self._over_all_processes(self._sums)
        images = total.pop("images")
        if self._losses:
            losses = torch.stack([loss.cpu() for loss in self._losses]).double()
            trained = self._over_all_processes({"loss": losses.sum(), "steps": torch.tensor(float(len(losses)))})
            self.log("train loss", trained["loss"] / trained["steps"])
        for name, value in self.scores({name: value / images for name, value in total.items()}).items():
            self.log(name, value, prog_bar=name == self.monitored)
        self.log("images", images)
        self._sums, self._losses = {}, []

    def _over_all_processes(self, sums: dict[str, Tensor]) -> dict[str, float]:
        names, values = sorted(sums), torch.stack([sums[name].double() for name in sorted(sums)])
        if self.trainer.world_size > 1:
            values = values.to(self.device)
            torch.distributed.all_reduce(values)
        return dict(zip(names, values.tolist(), strict=True))

    def configure_optimizers(self) -> Any:
        steps = int(self.trainer.estimated_stepping_batches)
        if self.recipe.freeze_norm_at < 1:
            self._frozen_from = self.recipe.freeze_norm_at * steps
        optimiser = self._optimiser()
        schedule = self._schedule(optimiser, steps)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _optimiser(self) -> torch.optim.Optimizer:
        decayed = [p for p in self.model.parameters() if p.ndim > 1]
        rest = [p for p in self.model.parameters() if p.ndim <= 1]
        groups: list[dict[str, Any]] = [{"params": decayed}, {"params": rest, "weight_decay": 0.0}]
        rate, decay = self.recipe.learning_rate, self.recipe.weight_decay
        if self.recipe.optimiser == "sgd":
            return torch.optim.SGD(groups, rate, momentum=0.9, nesterov=True, weight_decay=decay)
        # The mean square error over pixels has small gradients and rare large ones: a small eps, a short memory.
        return torch.optim.AdamW(groups, rate, betas=(0.9, 0.99), eps=1e-12, weight_decay=decay)

    def _schedule(self, optimiser: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
        warmup = self.recipe.warmup_steps
        return torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_at(step, steps, warmup))


def rate_at(step: int, steps: int, warmup: int) -> float:
    """The learning rate at a step, relative to the highest: a linear warm-up, then a cosine down to zero.

    >>> [round(rate_at(step, 10, 2), 3) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = min(warmup, steps // 2)
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def tested_in_tiles(model: nn.Module, photo: Tensor) -> Tensor:
    """model(photo), in tiles where it is large; a model that sees the whole photo at once gets it whole."""
    try:
        return apply_in_tiles(model, photo, TILE)
    except LooksAtEverything:
        result: Tensor = model(photo)
        return result
