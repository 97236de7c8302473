"""Which images make up each batch: decided by the seed and the epoch, not by how many processes share the work."""

from collections.abc import Iterator

import torch
from torch import Tensor


def generator_for(*numbers: int) -> torch.Generator:
    """Random numbers that depend on these whole numbers, and on nothing that came before.

    >>> int(torch.randint(1000, (), generator=generator_for(0, 3))) == int(
    ...     torch.randint(1000, (), generator=generator_for(0, 3)))
    True
    """
    mixed = 0
    for number in numbers:
        mixed = (mixed * 6_364_136_223_846_793_005 + number + 1_442_695_040_888_963_407) % 2**63
    return torch.Generator().manual_seed(mixed)


class TrainBatches:
    """One epoch's batches of this process: its part of each batch that all processes take together.

    Two processes with batches of n see what one process with batches of 2n sees. Images that do not fill a last batch
    are left out of the epoch; the next one shuffles all images again.

    >>> [batch.tolist() for batch in TrainBatches(7, 2, seed=0, rank=1, world=2)]
    [[3, 1]]
    """

    def __init__(self, count: int, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        if count < batch_size * world:
            raise ValueError(
                f"there are {count} images for training, fewer than one batch of {batch_size} in each of {world} "
                "processes. Lower --batch-size."
            )
        self.count, self.batch_size, self.seed, self.rank, self.world = count, batch_size, seed, rank, world
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count // (self.batch_size * self.world)

    def __iter__(self) -> Iterator[Tensor]:
        order = torch.randperm(self.count, generator=generator_for(self.seed, self.epoch))
        together = self.batch_size * self.world
        for first in range(0, len(self) * together, together):
            yield order[first : first + together].chunk(self.world)[self.rank]


class TestBatches:
    """This process's part of a test set: every image in exactly one process, whatever the numbers.

    >>> [batch.tolist() for batch in TestBatches(7, 2, rank=1, world=2)]
    [[1, 3], [5]]
    """

    __test__ = False  # pytest collects classes whose names begin with Test

    def __init__(self, count: int, batch_size: int, rank: int = 0, world: int = 1) -> None:
        self.mine, self.batch_size = torch.arange(count)[rank::world], batch_size

    def __len__(self) -> int:
        return -(-len(self.mine) // self.batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.mine.split(self.batch_size) if len(self.mine) else ()
