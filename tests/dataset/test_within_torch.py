"""Expressions in the worker processes of torch's DataLoader: map-style ones as they are, passes sharded by worker."""

from __future__ import annotations

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import fastloader as fl

COUNT = 60


class Sharded(IterableDataset):
    """Each worker's part of an expression."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        worker = get_worker_info()
        return iter(self.dataset.shard(worker.num_workers, worker.id))


def doubled(sample):
    return {"n": sample["n"], "x": sample["x"] * 2}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = tmp_path_factory.mktemp("torch") / "x.fld"
    with fl.DatasetWriter(path, {"n": fl.IntField(), "x": fl.NDArrayField("float32", (3,))}) as writer:
        writer.write_many({"n": i, "x": np.full(3, i, np.float32)} for i in range(COUNT))
    return fl.open(path)


def numbers(loader):
    found = []
    for batch in loader:
        assert np.array_equal(batch["x"][:, 0], batch["n"] * 2)
        found += batch["n"].tolist()
    return sorted(found)


def test_forked_workers_give_every_sample_once(reader):
    samples, native = reader.shuffle(seed=1).map(doubled), reader.shuffle(seed=1).batch(4).map(doubled)
    options = {"num_workers": 2, "multiprocessing_context": "fork"}
    with iter(reader.batch(5)) as running:  # its threads are not in the children
        next(running)
        assert numbers(DataLoader(samples, batch_size=7, shuffle=True, **options)) == list(range(COUNT))
        assert numbers(DataLoader(Sharded(samples), batch_size=7, **options)) == list(range(COUNT))
        assert numbers(DataLoader(Sharded(native), batch_size=None, **options)) == list(range(COUNT))
        assert next(running)["n"].tolist() == [5, 6, 7, 8, 9]


def test_spawned_workers_do_so_too(reader):
    native = reader.shuffle(seed=1).batch(4).map(doubled)
    loader = DataLoader(Sharded(native), batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert numbers(loader) == list(range(COUNT))
