"""Tensors over a shard: no copy, no warning, no writing by accident."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch

from fastloader.errors import FormatError
from fastloader.zc import ShardLoader, ZCWriter, to_torch
from fastloader.zc.tensor import ReadOnlyTensor

VALUES = np.arange(1, 13, dtype=np.float32)


@pytest.fixture
def path(tmp_path):
    with ZCWriter(tmp_path / "a.zc") as writer:
        writer.write_sample(VALUES)
        writer.write_sample(b"")
    return tmp_path / "a.zc"


@pytest.fixture
def sample(path):
    return ShardLoader(path).get_sample(0)


WRITES = {
    "add_": lambda t: t.add_(1),
    "+=": lambda t: t.__iadd__(1),
    "an item": lambda t: t.__setitem__((0, 0), 1),
    "a mask": lambda t: t.__setitem__(t > 3, 1),
    "a row": lambda t: t[0].zero_(),
    "a column": lambda t: t.T[1].mul_(2),
    "a reshaped view": lambda t: t.reshape(-1).fill_(0),
    "a view of other dtype": lambda t: t.view(torch.int32).zero_(),
    "a chunk": lambda t: t.chunk(2)[1].zero_(),
    "each row": lambda t: [row.zero_() for row in t],
    "detached": lambda t: t.detach().zero_(),
    ".data": lambda t: t.data.zero_(),
    "to the same dtype": lambda t: t.to(torch.float32).zero_(),
    "as_tensor": lambda t: torch.as_tensor(t).zero_(),
    "out=": lambda t: torch.add(torch.ones(3, 4), 1, out=t),
    "copy_": lambda t: t.copy_(torch.zeros(3, 4)),
    "resize_": lambda t: t.resize_(100),
    "foreach": lambda t: torch._foreach_add_([torch.ones(1), t], 1.0),
    "relu in place": lambda t: torch.nn.ReLU(inplace=True)(t),
    "dropout in place": lambda t: torch.nn.Dropout(inplace=True)(t),
    "clamp": lambda t: torch.clamp_(t, 0, 1),
    "scatter": lambda t: t.scatter_(0, torch.zeros(1, 1, dtype=torch.int64), 0.0),
    "random": lambda t: t.normal_(),
    "without grad": lambda t: torch.no_grad()(t.add_)(1),
    "in inference mode": lambda t: torch.inference_mode()(t.add_)(1),
}


@pytest.fixture
def tensor(sample):
    return to_torch(sample, torch.float32, (3, 4))


def test_a_tensor_looks_into_the_file_without_a_warning(sample, tensor):
    assert tensor.data_ptr() == np.frombuffer(sample, np.uint8).ctypes.data
    assert torch.equal(tensor, torch.from_numpy(VALUES.reshape(3, 4).copy()))
    assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == ((3, 4), torch.float32, True)
    assert isinstance(tensor, torch.Tensor)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_writes_to_it(tensor, sample, write):
    with pytest.raises(ValueError, match=r"would write to a tensor that is a read-only view of a shard; clone\(\)"):
        write(tensor)
    assert bytes(sample) == VALUES.tobytes()


def test_other_libraries_do_not_get_it_to_write_to(tensor):
    for take in (tensor.numpy, lambda: np.asarray(tensor)):
        with pytest.raises(TypeError, match="use to_numpy"):
            take()
    with pytest.raises(BufferError, match="read-only"):
        np.from_dlpack(tensor)
    with pytest.raises(BufferError, match="read-only"):
        torch.from_dlpack(tensor)


RESULTS = {
    "clone": lambda t: t.clone(),
    "sum": lambda t: t + 0,
    "cast": lambda t: t.double(),
    "stack": lambda t: torch.stack([t, t])[0],
    "stack into": lambda t: torch.stack([t, t], out=torch.empty(2, 3, 4))[1],
    "cat": lambda t: torch.cat([t]),
    "copied into another": lambda t: torch.zeros(3, 4).copy_(t),
    "indexed": lambda t: t[torch.arange(3)],
    "contiguous": lambda t: t.T.contiguous().T,
    "deepcopy": copy.deepcopy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "vmap": torch.vmap(lambda row: row * 1),
}


@pytest.mark.parametrize("make", RESULTS.values(), ids=RESULTS)
def test_results_and_copies_are_ordinary_tensors(tensor, make):
    result = make(tensor)
    assert type(result) is torch.Tensor
    assert torch.equal(result.float(), torch.from_numpy(VALUES.reshape(3, 4).copy()))
    result.zero_()
    assert tensor.tolist() == VALUES.reshape(3, 4).tolist()


def test_it_can_be_trained_on_directly(tensor):
    weight = torch.ones(4, 2, requires_grad=True)
    (tensor @ weight).sum().backward()
    assert weight.grad.tolist() == np.repeat(VALUES.reshape(3, 4).sum(0)[:, None], 2, 1).tolist()


def test_it_saves_and_loads_as_an_ordinary_tensor(tensor):
    file = io.BytesIO()
    torch.save({"x": tensor}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["x"]
    assert type(loaded) is torch.Tensor
    assert loaded.tolist() == tensor.tolist()


def test_it_is_printed_like_any_other(tensor):
    assert repr(tensor) == repr(tensor.clone())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_torchs_loader_collates_it(path, num_workers):
    class Shards(torch.utils.data.Dataset):
        def __init__(self):
            self.loader = ShardLoader(path)

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return to_torch(self.loader.get_sample(0), torch.float32, (3, 4))

    # One that is forked, so that the class need not be importable.
    context = "fork" if num_workers else None
    batches = list(
        torch.utils.data.DataLoader(Shards(), batch_size=2, num_workers=num_workers, multiprocessing_context=context)
    )
    assert [type(batch) for batch in batches] == [torch.Tensor] * 2
    assert batches[1][1].flatten().tolist() == VALUES.tolist()


@pytest.mark.parametrize("dtype", ["int16", np.float64, np.dtype("<u1"), torch.bfloat16, torch.complex64, torch.bool])
def test_dtypes_are_torchs_or_numpys(sample, dtype):
    tensor = to_torch(sample, dtype)
    expected = dtype if isinstance(dtype, torch.dtype) else torch.from_numpy(np.empty(0, dtype)).dtype
    assert tensor.dtype == expected
    assert tensor.untyped_storage().nbytes() == tensor.nbytes == 48


@pytest.mark.parametrize(("dtype", "kind"), [("U3", TypeError), (">f4", ValueError), ("nonsense", TypeError)])
def test_dtypes_torch_does_not_know_are_refused(sample, dtype, kind):
    with pytest.raises(kind):
        to_torch(sample, dtype)


def test_short_misshaped_and_misaligned_samples_are_refused(sample):
    with pytest.raises(FormatError, match=r"a sample of 6 bytes is no whole number of torch\.float32"):
        to_torch(sample[:6], torch.float32)
    for shape in ((5, 2), (5, -1), (-2,), 13):
        with pytest.raises(FormatError, match=r"a sample of 12 torch\.float32 does not fill the shape"):
            to_torch(sample, torch.float32, shape)
    with pytest.raises(FormatError, match="the sample begins 2 bytes behind a multiple of 4"):
        to_torch(sample[2:6], torch.float32)
    with pytest.raises(FormatError, match="the sample begins 4 bytes behind a multiple of 8"):
        to_torch(sample[4:20], torch.complex128)
    assert to_torch(sample[4:12], torch.complex64).tolist() == [2 + 3j]


def test_a_copy_that_can_be_written_to_gives_an_ordinary_tensor(sample):
    copied = bytearray(sample)
    tensor = to_torch(copied, torch.float32, -1)
    assert type(tensor) is torch.Tensor
    tensor.zero_()
    assert copied == bytes(48)


def test_a_sample_of_no_bytes_is_a_tensor_of_no_values(path):
    tensor = to_torch(ShardLoader(path).get_sample(1), torch.float32, (0, 7))
    assert (type(tensor), tensor.shape) == (torch.Tensor, (0, 7))


def test_a_tensor_and_its_views_keep_the_file_mapped(path):
    with ShardLoader(path) as loader:
        row = to_torch(loader.get_sample(0), torch.float32, (3, 4))[1]
    del loader
    path.unlink()
    assert isinstance(row, ReadOnlyTensor)
    assert row.tolist() == VALUES[4:8].tolist()
