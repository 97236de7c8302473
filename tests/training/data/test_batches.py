import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from acda.training.data.batches import TestBatches, TrainBatches, generator_for


@given(st.integers(1, 50), st.integers(1, 6), st.integers(1, 4), st.integers(0, 3))
def test_processes_share_what_one_would_take(count, batch_size, world, epoch):
    if count < batch_size * world:
        with pytest.raises(ValueError, match="fewer than one batch"):
            TrainBatches(count, batch_size, 0, world=world)
        return
    shares = [TrainBatches(count, batch_size, 5, rank, world) for rank in range(world)]
    alone = TrainBatches(count, batch_size * world, 5)
    for batches in (*shares, alone):
        batches.set_epoch(epoch)
        assert len(list(batches)) == len(batches)
    for parts, whole in zip(zip(*shares, strict=True), alone, strict=True):
        assert torch.equal(torch.cat(parts), whole)
    seen = torch.cat(list(alone))
    assert len(seen.unique()) == len(seen)


def test_epochs_and_seeds_differ():
    first, second, other = (TrainBatches(100, 100, seed) for seed in (0, 0, 1))
    second.set_epoch(1)
    orders = [next(iter(b)) for b in (first, second, other)]
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0], orders[2])
    assert torch.equal(orders[0], next(iter(first)))


@given(st.integers(0, 50), st.integers(1, 6), st.integers(1, 4))
def test_every_test_image_is_in_one_process(count, batch_size, world):
    parts = [TestBatches(count, batch_size, rank, world) for rank in range(world)]
    for part in parts:
        assert len(list(part)) == len(part)
    seen = [i for part in parts for batch in part for i in batch.tolist()]
    assert sorted(seen) == list(range(count))


def test_random_numbers_follow_from_all_their_numbers():
    draws = {int(torch.randint(2**40, (), generator=generator_for(a, b))) for a in range(30) for b in range(30)}
    assert len(draws) == 900
