"""HDF5, as h5py writes it."""

from __future__ import annotations

import sys

import h5py
import numpy as np
import pytest

import fastloader as fl
from fastloader.formats import hdf5
from fastloader.stores import MemoryStore
from fastloader.testing import FormatContract

SAMPLES = [
    {
        "image/pixels": np.full((4, 5, 3), i, np.uint8),
        "label": np.int64(i - 3),
        "text": f"näme {i}",
        "vector": np.arange(3, dtype=np.float32) * i,
    }
    for i in range(11)
]


def write(path, samples, **options):
    with h5py.File(path, "w") as file:
        for name in samples[0]:
            values = [sample[name] for sample in samples]
            if isinstance(values[0], str):
                file[name] = values
            else:
                chunks = (3, *np.shape(values[0]))
                file.create_dataset(name, data=np.stack(values), chunks=chunks, **options)
        file["version"] = 3
        file.attrs["made"] = "by hand"


class TestHdf5(FormatContract):
    def write(self, folder):
        write(folder / "a.h5", SAMPLES[:7], compression="gzip")
        write(folder / "b.h5", SAMPLES[7:])
        return folder

    def samples(self):
        return SAMPLES

    def bad_files(self, folder):
        with h5py.File(folder / "c.h5", "w") as file:
            file["x"], file["y"] = np.zeros(3), np.zeros(4)
        yield folder / "c.h5", r"c\.h5: the first axes differ in length: 'x' 3, 'y' 4; choose with fields="
        with h5py.File(folder / "d.h5", "w") as file:
            file["x"] = 1
        yield folder / "d.h5", r"d\.h5: holds no dataset with a first axis"
        yield [folder / "a.h5" if (folder / "a.h5").exists() else self.write(folder) / "a.h5", folder / "d.h5"], "d.h5"

    def test_a_damaged_chunk_names_dataset_and_rows(self, tmp_path):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("x", data=np.arange(4000).reshape(40, 100), chunks=(10, 100), fletcher32=True)
            offset = file["x"].id.get_chunk_info(2).byte_offset
        data = bytearray((tmp_path / "a.h5").read_bytes())
        data[offset + 50] ^= 1
        (tmp_path / "a.h5").write_bytes(data)
        dataset = fl.open(tmp_path / "a.h5")
        with pytest.raises(fl.FormatError, match=r"a\.h5: sample 20: dataset 'x': rows 20 to 29 can't be read"):
            list(dataset)
        assert [int(s["x"][0]) // 100 for s in dataset.options(on_error="skip")] == [*range(20), *range(30, 40)]


class TestContiguousHdf5(FormatContract):
    finds_cuts = False  # HDF5 gives zeros for what was never written at the end of a file

    def write(self, folder):
        with h5py.File(folder / "a.hdf5", "w", userblock_size=512) as file:
            file["x"] = np.arange(40, dtype=np.int16).reshape(20, 2)
        return folder / "a.hdf5"

    def samples(self):
        return [{"x": row} for row in np.arange(40, dtype=np.int16).reshape(20, 2)]


def test_a_chunk_is_read_once_for_its_rows(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", SAMPLES, compression="gzip")
    reads = []
    read = hdf5.Column.read
    monkeypatch.setattr(hdf5.Column, "read", lambda self, first, stop: reads.append((first, stop)) or read(
        self, first, stop))  # fmt: skip
    dataset = fl.open(tmp_path / "a.h5", fields=["label"])
    assert [int(dataset[i]["label"]) for i in (4, 3, 5, 10)] == [1, 0, 2, 7]
    assert reads == [(3, 6), (9, 11)]


def test_chosen_datasets_may_be_those_that_agree(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train/x"], file["train/y"], file["test/x"] = np.arange(5), np.arange(5), np.arange(9)
    dataset = fl.open(tmp_path / "a.h5", fields=["train/y", "train/x"])
    assert dataset[4] == {"train/y": 4, "train/x": 4}


def linked(path):
    """A file whose datasets have several names, and whose links lead in circles, nowhere and away."""
    with h5py.File(path.with_name("other.h5"), "w") as file:
        file["x"] = np.arange(5)
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(5)
        file["y"] = file["x"]
        file["group/data"] = np.arange(5) * 2
        file["group/top"], file["twin"] = file["/"], file["group"]
        for name, target in [
            ("soft", "/x"), ("group/soft", "data"), ("through", "group/top/y"), ("nowhere", "/none"),
            ("round", "about"), ("about", "round"), ("folder", "/group"), ("away", "/elsewhere"),
        ]:  # fmt: skip
            file[name] = h5py.SoftLink(target)
        file["elsewhere"] = h5py.ExternalLink("other.h5", "/x")
        file["abroad"] = h5py.ExternalLink("other.h5", "/")
        file["abroad-x"] = h5py.SoftLink("/abroad/x")


def test_a_dataset_is_a_field_by_each_of_its_names(tmp_path):
    linked(tmp_path / "a.h5")
    dataset = fl.open(tmp_path / "a.h5")
    assert dataset.field_names == ["group/data", "group/soft", "soft", "through", "x", "y"]
    assert dataset[3] == {"group/data": 6, "group/soft": 6, "soft": 3, "through": 3, "x": 3, "y": 3}
    by_name = fl.open(tmp_path / "a.h5", fields=["twin/data", "folder/soft", "group/top/group/top/x"])
    assert list(by_name[3].values()) == [6, 6, 3]


def test_no_other_file_is_opened(tmp_path):
    linked(tmp_path / "a.h5")
    for name in ("away", "elsewhere", "abroad-x", "abroad/x"):
        with pytest.raises(fl.FormatError, match=f"no dataset '{name}'; .*; links to other files are not followed"):
            fl.open(tmp_path / "a.h5", fields=[name])


def test_names_that_lead_nowhere_are_told_with_those_there_are(tmp_path):
    linked(tmp_path / "a.h5")
    for name in ("none", "nowhere", "round", "x/below", "group", ""):
        with pytest.raises(fl.FormatError) as caught:
            fl.open(tmp_path / "a.h5", fields=[name])
        there = "group/data, group/soft, soft, through, x, y"
        assert str(caught.value) == f"{tmp_path}/a.h5: has no dataset {name!r}; there are {there}"


def test_many_ways_through_groups_are_not_all_gone(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(5)
        group = file
        for _ in range(40):
            inner = group.create_group("a")
            group["b"], group["c"] = inner, h5py.SoftLink("a/../a")
            group = inner
        for i in range(1, 20):
            file[f"s{i}"] = h5py.SoftLink("/".join([f"s{i - 1}"] * 9))
        file["s0"] = h5py.SoftLink(".")
    assert fl.open(tmp_path / "a.h5").field_names == ["x"]


def test_what_can_not_be_read_is_named_and_may_be_left_out(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(5)
        kinds = {
            "one": h5py.ref_dtype, "region": h5py.regionref_dtype, "several": h5py.vlen_dtype(h5py.ref_dtype),
            "part": np.dtype([("a", int), ("b", h5py.ref_dtype, (2,))]),
        }  # fmt: skip
        for name, kind in kinds.items():
            file.create_dataset(name, (5,), kind)
        h5py.h5d.create(file.id, b"bits", h5py.h5t.STD_B8LE, h5py.h5s.create_simple((5,)))
    for name in (*kinds, None):
        with pytest.raises(fl.FormatError, match=rf"a\.h5: dataset '{name or '.*'}' .*; choose others with fields="):
            fl.open(tmp_path / "a.h5", fields=name and [name])
    assert fl.open(tmp_path / "a.h5", fields=["x"])[4] == {"x": 4}


def test_links_in_a_store_are_those_of_a_file(tmp_path):
    linked(tmp_path / "a.h5")
    bucket = MemoryStore(tmp_path.name)
    bucket.put("a.h5", (tmp_path / "a.h5").read_bytes())
    dataset = fl.open(f"{bucket.url}/a.h5")
    assert list(dataset) == list(fl.open(tmp_path / "a.h5"))
    with pytest.raises(fl.FormatError, match="links to other files are not followed"):
        fl.open(f"{bucket.url}/a.h5", fields=["away"])


def test_rows_of_different_lengths_are_arrays(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("v", (3,), h5py.vlen_dtype(np.int32))
        for i in range(3):
            data[i] = np.arange(i)
    assert [sample["v"].tolist() for sample in fl.open(tmp_path / "a.h5")] == [[], [0], [0, 1]]


def test_without_h5py_the_cure_is_named(tmp_path, monkeypatch):
    write(tmp_path / "a.h5", SAMPLES)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r'a\.h5: HDF5 is .*pip install "fastloader\[formats\]"'):
        fl.open(tmp_path / "a.h5")
