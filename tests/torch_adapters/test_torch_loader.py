"""Tensors over the engine's batches: the same values, the same memory, states behind what was given."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
import torch

import fastloader as fl
from fastloader import ops
from fastloader.torch import TorchLoader, to_tensor, to_tensors
from fastloader.torch.finishing import has_images, split

COUNT = 50


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("torch") / "x.fld"
    fields = {
        "image": fl.JPEGImageField(), "label": fl.IntField(), "score": fl.FloatField(),
        "words": fl.TextField(), "tokens": fl.NDArrayField("int32", (None,)),
    }  # fmt: skip
    rng = np.random.default_rng(0)
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            writer.write_sample({
                "image": rng.integers(0, 256, (40 + i, 50, 3), np.uint8), "label": i, "score": i / 2,
                "words": f"word {i}", "tokens": np.arange(i, dtype=np.int32),
            })  # fmt: skip
    return path


PIPELINE = [ops.RandomResizedCrop(16), ops.HorizontalFlip()]
NORMAL = [ops.Normalize((123.0, 116.0, 103.0), (58.0, 57.0, 57.0)), ops.Cast("float16"), ops.Layout("CHW")]


def loader_of(path, **options):
    return TorchLoader(
        path, 8, **{"pipelines": {"image": PIPELINE}, "pad": {"tokens": "longest"}, "seed": 3, **options}
    )


def test_batches_are_those_of_the_loader(path):
    with loader_of(path) as loader, fl.open(path) as reader:
        plain = fl.DataLoader(reader, 8, pipelines={"image": PIPELINE}, pad={"tokens": "longest"}, seed=3)
        for ours, theirs in zip(loader, plain, strict=True):
            assert list(ours) == list(theirs)
            for name, value in theirs.items():
                if name == "words":
                    assert ours[name] == value
                else:
                    assert isinstance(ours[name], torch.Tensor)
                    assert np.array_equal(ours[name].numpy(), value)
        assert len(loader) == len(plain) == 7


def test_tensors_share_the_slots_memory(path):
    addresses = set()
    with loader_of(path, num_workers=1, prefetch_factor=1) as loader:
        for _ in range(3):
            for batch in loader:
                addresses.add(batch["image"].data_ptr())
                assert batch["image"].data_ptr() % 4096 == 0
                del batch
        assert len(addresses) < 3 * len(loader)  # slots come back
        assert loader.loader.stats()["slots"] < 3 * len(loader)


def test_held_batches_stay_what_they_are(path):
    with loader_of(path) as loader:
        held = [(batch["label"].clone(), batch) for batch in loader]
        list(loader)
        assert all(torch.equal(label, batch["label"]) for label, batch in held)


def test_channels_last_costs_no_copy(path):
    with loader_of(path, channels_last=True) as loader:
        image = next(iter(loader))["image"]
    assert image.shape == (8, 3, 16, 16)
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert image.data_ptr() % 4096 == 0


def test_a_state_at_every_step_gives_the_rest(path):
    with loader_of(path) as loader:
        whole = [batch["label"].tolist() for batch in loader]
    for step in range(len(whole) + 1):
        with loader_of(path) as loader:
            running = iter(loader)
            for _ in range(step):
                next(running)
            state = json.loads(json.dumps(loader.state_dict()))
        with loader_of(path) as loader:
            loader.load_state_dict(state)
            rest = [batch["label"].tolist() for batch in loader]
            assert rest == whole[step:] or (step == len(whole) and len(rest) == len(whole))


class NoCopies:
    """In the place of those to a GPU: batches stay where they are. What there is to see on one is in bench/gpu."""

    def __init__(self, device, images=()):
        self.begun = self.given = 0

    def begin(self, batch, finish):
        self.begun += 1
        return finish(batch), self.begun

    def give(self, batch, ready):
        self.given += 1
        assert ready == self.given
        return batch

    def end(self):
        pass


@pytest.mark.parametrize("ahead", [1, 3, 9])
def test_states_are_behind_what_was_given_whatever_is_under_way(path, monkeypatch, ahead):
    monkeypatch.setattr("fastloader.torch.cuda.Copies", NoCopies)

    def make():
        loader = loader_of(path, ahead=ahead, fields=["label"], pipelines={}, pad=None)
        loader.device = torch.device("cuda")
        return loader

    with loader_of(path) as plain:
        epochs = [[batch["label"].tolist() for batch in plain] for _ in range(3)]
    for stop in range(len(epochs[0]) + 2):
        with make() as loader, make() as resumed:
            for _ in zip(range(stop), running := iter(loader), strict=False):
                pass
            over = stop > len(epochs[0])
            if over:
                assert next(running, None) is None
            resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
            rest, behind = ([batch["label"].tolist() for batch in resumed] for _ in range(2))
        assert [rest, behind] == ([epochs[1], epochs[2]] if over else [epochs[0][stop:], epochs[1]])


def test_set_epoch(path):
    with loader_of(path) as loader:
        passes = [[batch["label"].tolist() for batch in loader] for _ in range(2)]
        loader.set_epoch(0)
        assert [batch["label"].tolist() for batch in loader] == passes[0] != passes[1]


def test_every_array_becomes_a_tensor_over_its_memory():
    for dtype in (
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "bool",
        "uint16",
        "uint32",
    ):
        array = np.arange(6).reshape(2, 3).astype(dtype)
        tensor = to_tensor(array)
        assert str(tensor.dtype).removeprefix("torch.") == dtype
        assert tensor.data_ptr() == array.__array_interface__["data"][0]
    half = np.array([1.5, -2], ml_dtypes.bfloat16)
    assert to_tensor(half).dtype == torch.bfloat16
    assert to_tensor(half).tolist() == [1.5, -2]
    assert to_tensor(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert to_tensor(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    assert to_tensor(np.int64(3)).item() == 3
    assert to_tensor("text") == "text"
    assert to_tensor(np.array(["a"])).tolist() == ["a"]


def test_missing_values_come_beside_theirs():
    made = to_tensors({"x": np.ma.masked_array([1, 2, 3], [False, True, False]), "y": [np.zeros(2), None]})
    assert made["x"].tolist() == [1, 0, 3]
    assert made["x_missing"].tolist() == [False, True, False]
    assert isinstance(made["y"][0], torch.Tensor)
    assert made["y"][1] is None


HALVES = [NORMAL[0], ops.Cast("bfloat16"), ops.Layout("CHW")]


@pytest.mark.parametrize(
    "tail", [NORMAL, HALVES, NORMAL[:1], NORMAL[:2], HALVES[:2], [NORMAL[2], NORMAL[0]], [ops.Cast("float32")]]
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_what_a_gpu_finishes_is_what_the_engine_would(path, tail, channels_last):
    kept, finishes = split({"image": PIPELINE + tail}, ["image"])
    assert kept["image"] == PIPELINE
    with loader_of(path, pipelines={"image": PIPELINE + tail}, channels_last=channels_last) as loader:
        wanted = next(iter(loader))["image"]
    with loader_of(path, pipelines=kept) as loader:
        got = finishes["image"](next(iter(loader))["image"], channels_last)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    near = torch.finfo(got.dtype).eps * 2 if got.dtype != torch.float32 else 1e-5
    assert torch.allclose(got.float(), wanted.float(), rtol=near, atol=near)


def test_pipelines_that_end_otherwise_are_left_alone():
    for pipeline in ([*PIPELINE], [ops.Cast("float16"), NORMAL[0]], [*PIPELINE, ops.Layout("CHW")]):
        kept, finishes = split({"image": pipeline}, ["image"])
        assert kept["image"] == pipeline
        assert not finishes
    kept, finishes = split({"image": PIPELINE + NORMAL, "vector": NORMAL}, ["image"])
    assert kept["vector"] == NORMAL
    assert set(finishes) == {"image"}
    assert has_images(fl.JPEGImageField())
    assert not any(map(has_images, (fl.EmbeddingField(3), fl.VideoFramesField("jpeg"), fl.OpticalFlowField())))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "meta"}, "'cpu' or 'cuda'"),
        ({"device": "cuda"}, "finds no GPU"),
        ({"finish_on_gpu": True}, "without device='cuda'"),
        ({"finish_on_gpu": "perhaps"}, "True, False or 'auto'"),
        ({"ahead": 0}, "ahead=0: at least 1"),
    ],
)
def test_wrong_options_are_refused(path, options, said):
    if options.get("device") == "cuda" and torch.cuda.is_available():
        options = {"device": "cuda:99"}
        said = "99|invalid"
    with pytest.raises((ValueError, RuntimeError), match=said):
        loader_of(path, **options)


def test_slots_are_pinned_by_the_functions_given(path):
    """The engine's side of pinning, with two functions of the C library in the place of CUDA's."""
    import ctypes

    from fastloader import kernels

    libc = ctypes.CDLL(None)
    lock = ctypes.cast(libc.mlock, ctypes.c_void_p).value  # mlock(memory, size), as cudaHostRegister takes them
    abs_ = ctypes.cast(libc.abs, ctypes.c_void_p).value  # does nothing to memory
    pinning = kernels.Pinning(lock, abs_)
    with fl.open(path) as reader:
        loader = fl.DataLoader(reader, 8, fields=["label"])
        loader.pinning = pinning
        batch = next(iter(loader))
        assert pinning.pinned >= 4096
        assert pinning.refused == 0
        loader.close()
        del batch, loader
    assert pinning.pinned == 0
