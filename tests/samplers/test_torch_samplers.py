"""torch's own samplers in the loader: epochs, states, generators, ranks."""

import json
import pickle
from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

import fastloader as fl
from fastloader.samplers import StateError

SAMPLES = 50


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


WITH_GENERATOR = {
    "RandomSampler": lambda: RandomSampler(range(SAMPLES), generator=seeded()),
    "RandomSampler with replacement": lambda: RandomSampler(
        range(SAMPLES), replacement=True, num_samples=70, generator=seeded()
    ),
    "SubsetRandomSampler": lambda: SubsetRandomSampler(range(7, 40), generator=seeded()),
    "WeightedRandomSampler": lambda: WeightedRandomSampler(
        [1 + i % 4 for i in range(SAMPLES)], num_samples=60, generator=seeded()
    ),
    "BatchSampler": lambda: BatchSampler(RandomSampler(range(SAMPLES), generator=seeded()), 7, drop_last=False),
}
REPRODUCIBLE = WITH_GENERATOR | {
    "SequentialSampler": lambda: SequentialSampler(range(SAMPLES)),
    "DistributedSampler": lambda: DistributedSampler(range(SAMPLES), num_replicas=3, rank=1, seed=3),
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = tmp_path_factory.mktemp("samplers") / "a.fld"
    with fl.DatasetWriter(path, {"number": fl.IntField()}) as writer:
        for i in range(SAMPLES):
            writer.write_sample({"number": i})
    return fl.open(path)


def loader(reader, sampler, **options):
    return fl.DataLoader(reader, 8, num_workers=1, sampler=sampler, **options)


def numbers(batches):
    return [batch["number"].tolist() for batch in batches]


def flat(batches):
    return list(chain.from_iterable(batches))


@pytest.mark.parametrize("make", REPRODUCIBLE.values(), ids=REPRODUCIBLE)
def test_the_first_epoch_is_what_the_sampler_gives_to_torch(reader, make):
    drawn = list(make())
    expected = drawn if isinstance(drawn[0], list) else [drawn[i : i + 8] for i in range(0, len(drawn), 8)]
    mine = loader(reader, make())
    assert len(mine) == len(expected)
    assert numbers(mine) == expected


@pytest.mark.parametrize("make", REPRODUCIBLE.values(), ids=REPRODUCIBLE)
def test_an_epoch_is_the_same_whatever_was_gone_through_before(reader, make):
    through = loader(reader, make())
    epochs = [numbers(through) for _ in range(4)]
    straight = loader(reader, make())
    for epoch in (3, 0, 2):
        straight.set_epoch(epoch)
        assert numbers(straight) == epochs[epoch]
    assert len({str(epoch) for epoch in epochs}) == (1 if make is REPRODUCIBLE["SequentialSampler"] else 4)


@pytest.mark.parametrize("make", REPRODUCIBLE.values(), ids=REPRODUCIBLE)
def test_a_state_restored_at_every_step_gives_the_identical_rest(reader, make):
    first = loader(reader, make())
    numbers(first)
    expected = numbers(first)
    for stop in range(len(expected) + 1):
        interrupted = loader(reader, make())
        interrupted.set_epoch(1)
        for _, _batch in zip(range(stop), interrupted, strict=False):
            pass
        again = loader(reader, make())
        again.load_state_dict(json.loads(json.dumps(interrupted.state_dict())))
        rest = numbers(again)
        assert rest == expected[stop:]


def test_a_generator_with_another_seed_gives_another_order_and_refuses_the_state(reader):
    mine = loader(reader, RandomSampler(range(SAMPLES), generator=seeded(3)))
    other = loader(reader, RandomSampler(range(SAMPLES), generator=seeded(4)))
    next(iter(mine))
    with pytest.raises(StateError, match=r"order is [0-9a-f]{16} in the state"):
        other.load_state_dict(mine.state_dict())
    mine.set_epoch(0)
    assert numbers(mine) != numbers(other)


@pytest.mark.parametrize("make", WITH_GENERATOR.values(), ids=WITH_GENERATOR)
def test_the_generator_is_left_as_it_was(reader, make):
    sampler = make()
    generator = getattr(sampler, "sampler", sampler).generator
    torch.rand(5, generator=generator)
    before = generator.get_state()
    mine = loader(reader, sampler)
    epochs = [numbers(mine), numbers(mine)]
    assert torch.equal(generator.get_state(), before)
    assert generator.initial_seed() == 3
    another = loader(reader, sampler)
    assert [numbers(another), numbers(another)] == epochs


def test_a_sampler_that_fails_leaves_its_generator_as_it_was(reader):
    generator = seeded()
    before = generator.get_state()
    mine = loader(reader, RandomSampler(range(SAMPLES + 1), generator=generator))
    with pytest.raises(ValueError, match="the dataset has samples 0 to 49"):
        numbers(mine)
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("seed", [0, 2**63 - 1, 2**64 - 1])
def test_any_seed_of_torch_goes_with_any_epoch(reader, seed):
    mine = loader(reader, RandomSampler(range(SAMPLES), generator=seeded(seed)))
    mine.set_epoch(5)
    again = loader(reader, RandomSampler(range(SAMPLES), generator=seeded((seed + 5) % 2**64)))
    assert numbers(mine) == numbers(again)


WITHOUT_GENERATOR = {
    "RandomSampler": lambda: RandomSampler(range(SAMPLES)),
    "SubsetRandomSampler": lambda: SubsetRandomSampler(range(7, 40)),
    "WeightedRandomSampler": lambda: WeightedRandomSampler([1.0] * SAMPLES, num_samples=60),
}


@pytest.mark.parametrize("make", WITHOUT_GENERATOR.values(), ids=WITHOUT_GENERATOR)
def test_without_a_generator_the_same_loader_resumes_and_another_one_refuses(reader, make):
    mine = loader(reader, make())
    epoch = iter(mine)
    given = numbers([next(epoch), next(epoch)])
    state = mine.state_dict()
    rest = numbers(epoch)
    mine.load_state_dict(state)
    assert numbers(mine) == rest
    assert sorted(flat(given + rest)) == sorted(mine.plan.order.samples(0, 0, len(mine.plan.order)).tolist())
    with pytest.raises(StateError, match="the state is of another order"):
        loader(reader, make()).load_state_dict(state)


def test_without_a_generator_the_start_of_an_epoch_can_be_resumed(reader):
    mine = loader(reader, RandomSampler(range(SAMPLES)))
    numbers(mine)
    another = loader(reader, RandomSampler(range(SAMPLES)))
    another.load_state_dict(mine.state_dict())
    assert sorted(flat(numbers(another))) == list(range(SAMPLES))
    assert another.state_dict()["epoch"] == 2


def test_a_sampler_of_torch_is_dealt_to_ranks_and_goes_on_with_more_of_them(reader):
    def ranks(world_size):
        make = WITH_GENERATOR["RandomSampler"]
        return [loader(reader, make(), rank=rank, world_size=world_size) for rank in range(world_size)]

    two = ranks(2)
    seen = [next(iter(mine))["number"].tolist() for mine in two]
    state = two[0].state_dict()
    assert two[1].state_dict() == state
    for mine in ranks(3):
        mine.load_state_dict(state)
        seen += numbers(mine)
    assert sorted(flat(seen)) == list(range(SAMPLES))


@pytest.mark.parametrize("batched", [False, True])
def test_a_distributed_sampler_deals_by_itself_also_under_a_launcher(reader, monkeypatch, batched):
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        sampler = DistributedSampler(range(SAMPLES), num_replicas=2, rank=rank, seed=1)
        mine = loader(reader, BatchSampler(sampler, 8, drop_last=False) if batched else sampler)
        assert len(mine) == 4
        seen += numbers(mine)
    assert sorted(flat(seen)) == list(range(SAMPLES))


@pytest.mark.parametrize("world", [{"rank": 1, "world_size": 2}, {"rank": 0, "world_size": 2}, {"rank": 1}])
def test_a_distributed_sampler_is_not_dealt_once_more(reader, world):
    sampler = DistributedSampler(range(SAMPLES), num_replicas=2, rank=1)
    with pytest.raises(ValueError, match="a DistributedSampler gives each rank its own samples already"):
        loader(reader, sampler, **world)


def test_a_distributed_state_of_another_rank_is_refused(reader):
    ranks = [loader(reader, DistributedSampler(range(SAMPLES), num_replicas=2, rank=rank)) for rank in range(2)]
    next(iter(ranks[0]))
    with pytest.raises(StateError, match="the state is of another order"):
        ranks[1].load_state_dict(ranks[0].state_dict())


def test_batches_are_those_of_the_batch_sampler(reader):
    sampler = BatchSampler(SequentialSampler(range(SAMPLES)), 7, drop_last=True)
    mine = loader(reader, sampler)
    assert len(mine) == 7
    assert numbers(mine) == [list(range(i * 7, i * 7 + 7)) for i in range(7)]
    ranks = [loader(reader, sampler, rank=rank, world_size=2) for rank in range(2)]
    assert [numbers(one) for one in ranks] == [numbers(mine)[0::2], numbers(mine)[1::2]]


def test_a_loader_with_a_sampler_can_be_pickled(reader):
    mine = loader(reader, WITH_GENERATOR["RandomSampler"]())
    copied = pickle.loads(pickle.dumps(mine))
    assert numbers(copied) == numbers(mine)


def test_samples_drawn_by_weight_follow_the_weights(reader):
    weights = np.arange(SAMPLES) % 2
    mine = loader(reader, WeightedRandomSampler(weights.tolist(), num_samples=200, generator=seeded()))
    drawn = flat(numbers(mine))
    assert len(drawn) == 200
    assert set(drawn) <= set(range(1, SAMPLES, 2))


UNREPEATABLE = {
    "RandomSampler": lambda: RandomSampler(range(SAMPLES)),
    "SubsetRandomSampler": lambda: SubsetRandomSampler(range(SAMPLES)),
    "BatchSampler": lambda: BatchSampler(RandomSampler(range(SAMPLES)), 8, drop_last=False),
}


@pytest.mark.parametrize("make", UNREPEATABLE.values(), ids=UNREPEATABLE)
@pytest.mark.parametrize("passes", [1, 2, 3, 5])
def test_each_of_several_passes_at_once_gives_every_sample_once(reader, make, passes):
    """Though the sampler draws from torch's global generator, and can't be asked for an epoch again."""
    mine = loader(reader, make())
    running = [iter(mine) for _ in range(passes)]
    given = [[] for _ in running]
    orders = [set() for _ in running]
    for _ in range(len(mine)):
        for number, one in enumerate(running):
            given[number] += next(one)["number"].tolist()
            assert len(mine) == -(-SAMPLES // 8)  # it may ask for the order of an epoch to come
            orders[number].add(mine.state_dict()["order"].get("order"))
    assert [len(one - {None}) for one in orders] == [1] * passes  # a state names the order that was drawn
    assert [sorted(one) for one in given] == [list(range(SAMPLES))] * passes
    assert len({tuple(one) for one in given}) == passes


def test_the_order_of_a_pass_is_let_go_of_behind_it(reader):
    sampler = RandomSampler(range(SAMPLES))
    mine = loader(reader, sampler)
    for _ in range(5):
        flat(numbers(mine))
    assert len(mine.plan.order._orders._alive) == 2
