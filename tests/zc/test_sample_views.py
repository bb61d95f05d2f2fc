"""Samples as arrays, and as tensors as far as that needs no torch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fastloader.errors import FormatError
from fastloader.zc import ShardLoader, ZCWriter, to_numpy, to_torch


@pytest.fixture
def loader(tmp_path):
    with ZCWriter(tmp_path / "a.zc") as writer:
        writer.write_sample(np.arange(12, dtype=np.float32))
        writer.write_sample(b"0123456789")
        writer.write_sample(b"")
    return ShardLoader(tmp_path / "a.zc")


@pytest.mark.parametrize("shape", [None, 12, (12,), (3, 4), [2, -1], (1, 2, 3, 2)])
def test_an_array_looks_into_the_file(loader, shape):
    sample = loader.get_sample(0)
    array = to_numpy(sample, np.float32, shape)
    assert np.array_equal(array, np.arange(12, dtype=np.float32).reshape(12 if shape is None else shape))
    assert np.shares_memory(array, np.frombuffer(sample, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        array[...] = 0


@pytest.mark.parametrize("dtype", ["<i8", ">f4", "S6", np.bool_, "V2", [("a", "u1"), ("b", "<u2")], np.complex64])
def test_any_dtype_of_plain_bytes_will_do(loader, dtype):
    sample = loader.get_sample(0)
    assert np.array_equal(to_numpy(sample, dtype), np.frombuffer(bytes(sample), dtype))
    assert to_numpy(sample, dtype).dtype == np.dtype(dtype)


def test_a_sample_of_no_bytes_is_an_array_of_no_values(loader):
    assert to_numpy(loader.get_sample(2), np.float64).shape == (0,)
    assert to_numpy(loader.get_sample(2), np.float64, (3, 0)).shape == (3, 0)
    with pytest.raises(FormatError, match="does not fill"):
        to_numpy(loader.get_sample(2), np.float64, (1,))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 9])
def test_a_size_that_is_no_whole_number_of_values_is_refused(loader, size):
    with pytest.raises(FormatError, match=f"a sample of {size} bytes is no whole number of float32, 4 bytes each"):
        to_numpy(loader.get_sample(1)[:size], np.float32)


@pytest.mark.parametrize("shape", [(11,), 13, (3, 5), (5, -1), (-1, -1), (-12,), (), (0, -1), (-2, -6)])
def test_a_shape_that_does_not_fit_is_refused(loader, shape):
    with pytest.raises(FormatError, match="a sample of 12 float32 does not fill the shape"):
        to_numpy(loader.get_sample(0), np.float32, shape)


@pytest.mark.parametrize(("shift", "dtype"), [(1, "<f4"), (2, "<f4"), (4, "<f8"), (4, "<c16"), (1, "<u2")])
def test_values_that_do_not_lie_where_they_must_are_refused(loader, shift, dtype):
    sample = loader.get_sample(0)[shift : shift + 16]
    with pytest.raises(FormatError, match=f"the sample begins {shift} bytes behind a multiple .*ZCWriter"):
        to_numpy(sample, dtype)
    copy = to_numpy(bytearray(sample), dtype)  # as the error says
    assert copy.tobytes() == bytes(sample)
    copy[...] = 0


def test_packed_samples_can_be_misaligned_and_aligned_ones_never_are(tmp_path):
    for alignment, aligned in ((1, False), (8, True), (64, True)):
        path = tmp_path / f"{alignment}.zc"
        with ZCWriter(path, alignment=alignment) as writer:
            writer.write_sample(b"abc")
            writer.write_sample(np.arange(4.0))
        sample = ShardLoader(path).get_sample(1)
        if aligned:
            assert to_numpy(sample, np.float64).tolist() == [0, 1, 2, 3]
        else:
            with pytest.raises(FormatError, match="begins 1 bytes behind a multiple of 8"):
                to_numpy(sample, np.float64)


@pytest.mark.parametrize("dtype", [object, "U", "V0", [("a", "O")], "S"])
def test_dtypes_that_are_not_plain_bytes_are_refused(loader, dtype):
    with pytest.raises(TypeError, match="bytes can't be seen as"):
        to_numpy(loader.get_sample(0), dtype)


def test_without_torch_the_error_says_how_to_get_it(loader, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "fastloader.zc.tensor", raising=False)
    monkeypatch.delattr("fastloader.zc.tensor", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"to_torch needs torch; run \"pip install torch\"") as caught:
        to_torch(loader.get_sample(0), "float32")
    assert caught.value.name == "torch"


def test_torch_is_imported_by_nobody_else():
    seen = subprocess.run(
        [sys.executable, "-c", "import sys, fastloader.zc; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert seen.stdout == "False\n", seen.stderr
