"""Several loaders in one process, several passes of one loader: none disturbs another. DLPack on what they give."""

from __future__ import annotations

import json
import random
import threading
from itertools import zip_longest

import numpy as np
import pytest
import torch

import fastloader as fl
from fastloader import ops
from fastloader.torch import TorchIterableDataset, TorchLoader, TorchMapDataset

COUNT = 60


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("together") / "x.fld"
    fields = {
        "n": fl.IntField(), "score": fl.FloatField(), "image": fl.JPEGImageField(),
        "x": fl.NDArrayField("float32", (3,)), "flags": fl.NDArrayField("bool", (2,)),
        "tokens": fl.NDArrayField("int32", (None,)), "sound": fl.AudioWaveformField(8000),
        "at_times": fl.NDArrayField("int16", (2,)),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            writer.write_sample({
                "n": i, "score": i / 2, "image": rng.integers(0, 256, (20 + i % 5, 24, 3), np.uint8),
                "x": np.full(3, i, np.float32), "tokens": np.arange(i % 7, dtype=np.int32),
                "sound": rng.uniform(-1, 1, 10 + i % 4).astype(np.float32), "flags": np.array([i % 2, 1], bool),
                "at_times": np.full(2, i, np.int16) if i % 3 else None,
            })  # fmt: skip
    return path


TRAIN = {"pipelines": {"image": [ops.RandomResizedCrop(8), ops.HorizontalFlip()]}, "fields": ["n", "image"], "seed": 3}
EVAL = {"pipelines": {"image": [ops.CenterCrop(16)]}, "fields": ["n", "image"], "shuffle": False}


def same(one, other):
    return len(one) == len(other) and all(
        list(a) == list(b) and all(torch.equal(a[name], b[name]) for name in a) for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_two_loaders_take_turns_as_if_each_were_alone(path, workers):
    with TorchLoader(path, 8, num_workers=workers, **TRAIN) as alone, TorchLoader(path, 20, **EVAL) as looked:
        epochs, whole = [list(alone) for _ in range(2)], list(looked)
    with TorchLoader(path, 8, num_workers=workers, **TRAIN) as train, TorchLoader(path, 20, **EVAL) as test:
        got, tested = [], 0
        for batch in train:  # a look at the other in the middle of the epoch, as training programs do
            got.append(batch)
            if len(got) in (2, 5, 7):
                assert same(list(test), whole)
                tested += 1
        assert tested == 3
        assert same(got, epochs[0])
        turns = list(zip_longest(train, test))
        assert same([batch for batch, _ in turns if batch], epochs[1])
        assert same([batch for _, batch in turns if batch], whole)


def test_passes_of_one_loader_go_on_side_by_side(path):
    """In an order that is drawn; each pass is an epoch, whoever is ahead."""
    with TorchLoader(path, 8, num_workers=2, **TRAIN) as loader:
        epochs = [list(loader) for _ in range(4)]
        loader.set_epoch(0)
        running = {number: iter(loader) for number in range(4)}
        got = {number: [next(running[number])] for number in range(4)}
        rng = random.Random(0)
        while running:
            number = rng.choice(list(running))
            batch = next(running[number], None)
            if batch is None:
                del running[number]
            else:
                got[number].append(batch)
        assert all(same(got[number], epochs[number]) for number in range(4))


def test_a_pass_given_up_leaves_others_alone(path):
    with TorchLoader(path, 8, num_workers=2, **TRAIN) as loader, TorchLoader(path, 8, **EVAL) as other:
        whole = list(other)
        beside = iter(other)
        for _ in range(5):
            held = next(iter(loader))
            kept = held["image"].clone()
            next(beside)
            assert torch.equal(held["image"], kept)
        assert same(list(beside), whole[5:])


def test_loaders_in_threads_of_their_own(path):
    made: dict[int, list[torch.Tensor]] = {}

    def load(number):
        with TorchLoader(path, 8, num_workers=1, **{**TRAIN, "seed": number}) as loader:
            made[number] = [batch["n"].tolist() for _ in range(3) for batch in loader]

    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        with TorchLoader(path, 8, num_workers=1, **{**TRAIN, "seed": number}) as loader:
            assert made[number] == [batch["n"].tolist() for _ in range(3) for batch in loader]


def test_states_of_loaders_that_take_turns_are_their_own(path):
    with TorchLoader(path, 8, **TRAIN) as train, TorchLoader(path, 20, **EVAL) as test:
        first, second = iter(train), iter(test)
        for _ in range(2):
            next(first), next(second)
        states = json.loads(json.dumps([train.state_dict(), test.state_dict()]))
        rest = [list(first), list(second)]
    with TorchLoader(path, 8, **TRAIN) as train, TorchLoader(path, 20, **EVAL) as test:
        train.load_state_dict(states[0])
        test.load_state_dict(states[1])
        assert same(list(train), rest[0])
        assert same(list(test), rest[1])


BATCHES = {
    "as they are": {"fields": ["n", "score", "x", "flags"]},
    "padded": {"pad": {"tokens": fl.Pad(attention_mask=True), "sound": 16}, "fields": ["tokens", "sound"]},
    "ragged": {"pad": "ragged", "fields": ["tokens", "sound"]},
    "missing": {"fields": ["at_times"]},
    "lists": {"fields": ["tokens", "image"]},
    "images": {"fields": ["image"], "pipelines": {"image": [ops.RandomResizedCrop(8), ops.Layout("CHW")]}},
    "float16": {"fields": ["image"], "pipelines": {"image": [ops.CenterCrop(8), ops.Cast("float16")]}},
}


def arrays_of(batch):
    for name, value in batch.items():
        for one in value if isinstance(value, list) else [value]:
            yield name, one


@pytest.mark.parametrize("options", BATCHES.values(), ids=BATCHES)
def test_every_array_speaks_dlpack_without_a_copy(path, options):
    with fl.open(path) as reader, fl.DataLoader(reader, 8, seed=1, **options) as loader:
        for batch in loader:
            for name, array in arrays_of(batch):
                address = array.__array_interface__["data"][0]
                for taken in (np.from_dlpack(array), torch.from_dlpack(array).numpy()):
                    assert np.array_equal(taken, np.asarray(array)), name
                    assert not array.size or taken.__array_interface__["data"][0] == address, name


@pytest.mark.parametrize("options", BATCHES.values(), ids=BATCHES)
def test_every_tensor_speaks_dlpack_without_a_copy(path, options):
    with TorchLoader(path, 8, seed=1, **options) as loader:
        for batch in loader:
            for name, tensor in arrays_of(batch):
                taken = np.from_dlpack(tensor)
                assert np.array_equal(taken, tensor.numpy()), name
                assert not tensor.numel() or taken.__array_interface__["data"][0] == tensor.data_ptr(), name


def test_datasets_for_torchs_loader_speak_it_too(path):
    """What comes from workers lies in memory that processes share; it is lent on all the same."""
    fields = ["n", "x"]
    made = [
        torch.utils.data.DataLoader(TorchMapDataset(path, fields), batch_size=8, num_workers=1),
        torch.utils.data.DataLoader(TorchIterableDataset(path, 8, fields=fields), batch_size=None, num_workers=1),
    ]
    for loader in made:
        for batch in loader:
            for tensor in batch.values():
                taken = np.from_dlpack(tensor)
                assert taken.__array_interface__["data"][0] == tensor.data_ptr()


def test_bfloat16_speaks_dlpack_as_a_tensor(path):
    """Of numpy's own there is no bfloat16, and so no DLPack for it; torch has both."""
    pipelines = {"image": [ops.CenterCrop(8), ops.Cast("bfloat16")]}
    with TorchLoader(path, 8, fields=["image"], pipelines=pipelines) as loader:
        image = next(iter(loader))["image"]
    assert image.dtype == torch.bfloat16
    assert torch.from_dlpack(image).data_ptr() == image.data_ptr()
