"""NPY and NPZ: rows of one file, or each file a sample."""

from __future__ import annotations

import numpy as np
import pytest

import fastloader as fl
from fastloader.stores import MemoryStore
from fastloader.testing import FormatContract


def arrays(count=7):
    return {
        "x": np.arange(count * 6, dtype=np.float32).reshape(count, 2, 3),
        "y": np.arange(count, dtype=np.uint8) * 3,
        "empty": np.zeros((count, 0), np.int16),
    }


def rows(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class TestRowsOfNpz(FormatContract):
    def write(self, folder):
        np.savez(folder / "a.npz", **arrays())
        return folder / "a.npz"

    def samples(self):
        return rows(arrays())

    def bad_files(self, folder):
        np.savez(folder / "b.npz", x=np.zeros(3), y=np.zeros(4))
        yield folder / "b.npz", r"b\.npz: the first axes differ in length: 'x' 3, 'y' 4; choose with fields="
        np.savez(folder / "c.npz", x=np.zeros(3), y=np.float64(1))
        yield folder / "c.npz", r"c\.npz: 'y' has no axis that could count samples"
        np.savez(folder / "d.npz", x=np.array([{}, {}], object))
        yield folder / "d.npz", r"d\.npz: array 'x' holds Python objects, .* never read: .*; choose others with fields="


class TestRowsOfPackedNpz(TestRowsOfNpz):
    def write(self, folder):
        np.savez_compressed(folder / "a.npz", **arrays())
        return folder / "a.npz"


class TestRowsOfNpy(FormatContract):
    def write(self, folder):
        np.save(folder / "a.npy", arrays()["x"])
        return folder / "a.npy"

    def samples(self):
        return [{"data": row} for row in arrays()["x"]]

    def bad_files(self, folder):
        (folder / "b.npy").write_bytes(b"\x93NUMPY\x09\x00" + bytes(100))
        yield folder / "b.npy", r"b\.npy: .*version"
        (folder / "c.npy").write_bytes((folder / self.write(folder)).read_bytes()[:-1])
        yield folder / "c.npy", r"c\.npy: at offset 128: 168 bytes of float32 \(7, 2, 3\) should follow, and 167 do"


class TestRowsOfFortranNpy(TestRowsOfNpy):
    def write(self, folder):
        np.save(folder / "a.npy", np.asfortranarray(arrays()["x"]))
        return folder / "a.npy"


class TestFilesOfNpz(FormatContract):
    def write(self, folder):
        for i, sample in enumerate(self.samples()):
            (np.savez if i % 2 else np.savez_compressed)(folder / f"{i}.npz", **sample)
        return folder

    def samples(self):
        return [{"x": np.full((2, i), i, np.float32), "y": np.array(i)} for i in range(6)]

    def test_a_file_that_lacks_an_array_is_named(self, tmp_path):
        path = self.write(tmp_path)
        np.savez(path / "3.npz", x=np.zeros(2))
        with pytest.raises(fl.FormatError, match=r"3\.npz: sample 3: has no array 'y'; there are x"):
            list(fl.open(path))


class TestShardsOfNpy(FormatContract):
    options = {"rows": True}  # noqa: RUF012

    def write(self, folder):
        np.save(folder / "0.npy", arrays()["x"][:3])
        np.save(folder / "1.npy", arrays()["x"][3:])
        return folder

    def samples(self):
        return [{"data": row} for row in arrays()["x"]]


def test_rows_say_whether_the_first_axis_counts_samples(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(4))
    assert len(fl.open(tmp_path / "a.npz")) == 4
    assert len(fl.open(tmp_path / "a.npz", rows=False)) == 1
    assert len(fl.open([tmp_path / "a.npz"])) == 1
    assert len(fl.open([tmp_path / "a.npz"], rows=True)) == 4


def test_chosen_fields_may_be_those_that_agree(tmp_path):
    np.savez(tmp_path / "a.npz", train=np.arange(4), labels=np.arange(4), test=np.arange(9))
    assert fl.open(tmp_path / "a.npz", fields=["labels", "train"])[2] == {"labels": 2, "train": 2}


class Trap:
    """Unpickling it fails the test."""

    def __reduce__(self):
        return pytest.fail, ("a pickle was read",)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("in_store", [True, False])
def test_arrays_of_objects_may_be_left_out(save, rows, in_store, tmp_path):
    save(tmp_path / "a.npz", x=np.arange(4), objects=np.array([Trap()] * 4, object))
    path = tmp_path / "a.npz"
    if in_store:
        bucket = MemoryStore(f"{tmp_path.name}-{rows}")
        bucket.put("a.npz", path.read_bytes())
        path = f"{bucket.url}/a.npz"
    found = fl.open(path, rows=rows, fields=["x"])[0]["x"]
    assert found == 0 if rows else found.tolist() == [0, 1, 2, 3]
    for fields in (None, ["objects"], ["x", "objects"]):
        with pytest.raises(fl.FormatError, match=r"a\.npz: array 'objects' holds Python objects.*fields="):
            fl.open(path, rows=rows, fields=fields)
    with pytest.raises(fl.KeyNotFoundError, match=r"a\.npz: has no array 'y'; there are x, objects"):
        fl.open(path, rows=rows, fields=["y"])


def test_arrays_of_objects_in_a_later_file_are_named(tmp_path):
    np.savez(tmp_path / "0.npz", x=np.arange(4), y=np.arange(4))
    np.savez(tmp_path / "1.npz", x=np.arange(4), y=np.array([Trap()] * 4, object))
    for rows in (True, False):
        with pytest.raises(fl.FormatError, match=r"1\.npz: .*array 'y' holds Python objects"):
            list(fl.open(tmp_path, rows=rows))
        assert len(list(fl.open(tmp_path, rows=rows, fields=["x"]))) == (8 if rows else 2)


def test_a_later_file_that_lacks_an_array_is_named(tmp_path):
    np.savez(tmp_path / "0.npz", x=np.arange(4), y=np.arange(4))
    np.savez(tmp_path / "1.npz", y=np.arange(4))
    for fields in (None, ["x"]):
        with pytest.raises(fl.KeyNotFoundError, match=r"1\.npz: has no array 'x'; there are y"):
            list(fl.open(tmp_path, rows=True, fields=fields))


def test_a_damaged_member_of_a_packed_file_is_found(tmp_path):
    path = tmp_path / "0.npz"
    np.savez(path, x=np.arange(100))
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(fl.FormatError, match=r"0\.npz: sample 0: can't be read as arrays: Bad CRC"):
        list(fl.open([path]))


def test_a_hundred_files_in_batches(tmp_path):
    for i in range(100):
        np.savez(tmp_path / f"{i:03d}.npz", x=np.full((4, 4), i, np.float32), y=np.int64(i))
    batches = list(fl.open(tmp_path).shuffle(seed=2).batch(16).prefetch(2))
    assert sorted(int(y) for batch in batches for y in batch["y"]) == list(range(100))
    assert all((batch["x"][:, 0, 0] == batch["y"]).all() for batch in batches)
