"""fastloader in torch's own DataLoader: any number of workers, started any way, every sample once."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler

import fastloader as fl
from fastloader.formats.entries import Entry
from fastloader.torch import TorchIterableDataset, TorchMapDataset

COUNT = 103


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("torch") / "x.fld"
    fields = {"n": fl.IntField(), "x": fl.NDArrayField("float32", (3,)), "words": fl.TextField()}
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            writer.write_sample({"n": i, "x": np.full(3, i, np.float32), "words": f"word {i}"})
    return path


def numbers(loader):
    found = []
    for batch in loader:
        assert torch.equal(batch["x"][:, 0].long(), batch["n"])
        found += batch["n"].tolist()
    return found


def doubled(sample):
    return {**sample, "x": sample["x"] * 1, "twice": sample["n"] * 2}


@pytest.mark.parametrize("method", ["fork", "spawn", None])
def test_samples_by_number_in_workers(path, method):
    dataset = TorchMapDataset(path, transform=doubled)
    options = {} if method is None else {"num_workers": 2, "multiprocessing_context": method}
    loader = DataLoader(dataset, batch_size=7, shuffle=True, **options)
    assert sorted(numbers(loader)) == list(range(COUNT))
    batch = next(iter(loader))
    assert batch["words"] == [f"word {n}" for n in batch["n"].tolist()]
    assert torch.equal(batch["twice"], batch["n"] * 2)


def test_samples_one_by_one_and_together_are_the_same(path):
    dataset = TorchMapDataset(path)
    together = dataset.__getitems__([5, 0, -1])
    for sample, number in zip(together, (5, 0, COUNT - 1), strict=True):
        alone = dataset[number]
        assert alone["n"] == sample["n"] == number
        assert np.array_equal(alone["x"], sample["x"])
        assert alone["words"] == sample["words"]
    assert len(dataset) == COUNT
    with pytest.raises(IndexError, match=f"sample {COUNT} of {COUNT}"):
        dataset[COUNT]


def test_samplers_of_torch_work(path):
    dataset = TorchMapDataset(path, fields=["n", "x"])
    given = [
        numbers(DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, 4, rank, drop_last=False)))
        for rank in range(4)
    ]
    assert {number for one in given for number in one} == set(range(COUNT))
    weights = torch.zeros(COUNT)
    weights[7] = 1
    assert set(numbers(DataLoader(dataset, batch_size=8, sampler=WeightedRandomSampler(weights, 20)))) == {7}


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator")
def test_everything_at_once_that_torchs_loader_has(path):
    """Workers that stay, memory that is pinned where there is a GPU, samples dealt to ranks anew each epoch."""
    dataset = TorchMapDataset(path, fields=["n", "x"])
    samplers = [DistributedSampler(dataset, 2, rank, seed=4) for rank in range(2)]
    loaders = [
        DataLoader(
            dataset, batch_size=8, sampler=sampler, num_workers=2, persistent_workers=True, pin_memory=True,
            prefetch_factor=3, multiprocessing_context="fork",
        )
        for sampler in samplers
    ]  # fmt: skip
    epochs = []
    for epoch in range(2):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        epochs.append([numbers(loader) for loader in loaders])
        assert epochs[-1] == [list(sampler) for sampler in samplers]
        assert set(epochs[-1][0]) | set(epochs[-1][1]) == set(range(COUNT))
    assert epochs[0] != epochs[1]
    assert next(iter(loaders[0]))["x"].is_pinned() == torch.cuda.is_available()


def test_workers_get_no_copy_of_the_index(path):
    assert len(pickle.dumps(TorchMapDataset(path))) < 2000
    shared = TorchIterableDataset(path)
    shared.__dict__.pop("_epochs")  # lies in shared memory, whoever has it
    assert len(pickle.dumps(shared.__dict__)) < 2000


def test_archives_are_taken_too(tmp_path):
    with fl.ArchiveWriter(tmp_path / "x.fld") as writer:
        for i in range(10):
            writer.add(Entry.of(f"{i}.txt", b"%d" % i))
    dataset = TorchMapDataset(fl.Archive(tmp_path / "x.fld"), ["data", "size"])
    loader = DataLoader(dataset, batch_size=4, num_workers=2, collate_fn=list)
    assert [sample["data"] for batch in loader for sample in batch] == [b"%d" % i for i in range(10)]


def test_map_style_expressions_are_taken_too(path):
    dataset = TorchMapDataset(fl.open(path).shuffle(seed=1).map(doubled))
    assert sorted(numbers(DataLoader(dataset, batch_size=9))) == list(range(COUNT))


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((3,), TypeError, "a path, a reader or a map-style dataset, not a int"),
        ((fl.Dataset.range(5), ["n"]), ValueError, "fields= is for readers"),
        ((fl.Dataset.from_iterable([1]),), TypeError, "random access"),
    ],
)
def test_wrong_sources_are_refused(arguments, error, said):
    with pytest.raises(error, match=said):
        TorchMapDataset(*arguments)


def test_unknown_fields_are_refused(path):
    with pytest.raises(ValueError, match="unknown y; there are n, x, words"):
        TorchMapDataset(path, fields=["y"])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("batch_size", [None, 8])
def test_iterables_deal_themselves_to_ranks_and_workers(path, workers, batch_size):
    given = []
    for rank in range(2):
        dataset = TorchIterableDataset(path, batch_size, rank=rank, world_size=2, seed=5)
        loader = DataLoader(dataset, batch_size=None if batch_size else 8, num_workers=workers)
        given += numbers(loader)
    assert sorted(given) == list(range(COUNT))
    assert given != sorted(given)


@pytest.mark.parametrize(("method", "persistent"), [("fork", False), ("fork", True), ("spawn", True)])
def test_passes_are_epochs_in_workers_that_stay_and_in_new_ones(path, method, persistent):
    dataset = TorchIterableDataset(path, 8, seed=5)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=persistent, multiprocessing_context=method
    )
    passes = [numbers(loader) for _ in range(3)]
    assert all(sorted(one) == list(range(COUNT)) for one in passes)
    assert passes[0] != passes[1] != passes[2]
    dataset.set_epoch(1)
    assert numbers(loader) == passes[1]
    assert numbers(loader) == passes[2]


def test_epochs_are_those_of_the_loader(path):
    dataset = TorchIterableDataset(path, 8, seed=5)
    with fl.open(path) as reader, fl.DataLoader(reader, 8, seed=5) as loader:
        for _ in range(2):
            assert numbers(DataLoader(dataset, batch_size=None)) == [n for batch in loader for n in batch["n"].tolist()]


@pytest.mark.parametrize("batch_size", [None, 8])
def test_a_state_at_every_step_gives_the_rest(path, batch_size):
    def first(element):
        return int(element["n"]) if batch_size is None else element["n"].tolist()

    whole = [first(one) for one in TorchIterableDataset(path, batch_size, seed=5)]
    for step in range(0, len(whole) + 1, 1 if batch_size else 5):
        dataset = TorchIterableDataset(path, batch_size, seed=5)
        running = iter(dataset)
        for _ in range(step):
            next(running)
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = TorchIterableDataset(path, batch_size, seed=5)
        resumed.load_state_dict(state)
        assert [first(one) for one in resumed] == whole[step:]
        assert [first(one) for one in resumed] != whole  # the next pass is the next epoch


def test_wrong_options_are_told_where_they_are_given(path):
    with pytest.raises(ValueError, match="order='none'"):
        TorchIterableDataset(path, order="none")
    with pytest.raises(TypeError, match="nonsense"):
        TorchIterableDataset(path, nonsense=1)
