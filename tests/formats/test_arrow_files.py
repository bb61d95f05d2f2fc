"""Parquet, Arrow IPC, Feather."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import fastloader as fl
from fastloader.formats import arrow
from fastloader.testing import FormatContract

SAMPLES = [
    {
        "id": i,
        "score": None if i == 3 else i / 8,
        "name": f"näme {i}",
        "blob": bytes([i]) * i,
        "flag": i % 2 == 0,
        "vector": np.arange(i % 4, dtype=np.float32),
        "matrix": np.full((2, 2), i, np.int64),
        "nested": {"a": i, "b": [str(i)]},
    }
    for i in range(10)
]
SCHEMA = pa.schema(
    {
        "id": pa.int64(), "score": pa.float64(), "name": pa.string(), "blob": pa.binary(), "flag": pa.bool_(),
        "vector": pa.list_(pa.float32()), "matrix": pa.list_(pa.list_(pa.int64())),
        "nested": pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}),
    }
)  # fmt: skip


def table(samples):
    plain = [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in sample.items()} for sample in samples]
    return pa.Table.from_pylist(plain, SCHEMA)


class TestParquet(FormatContract):
    def write(self, folder):
        pq.write_table(table(SAMPLES[:7]), folder / "a.parquet", row_group_size=3)
        pq.write_table(table(SAMPLES[7:]), folder / "b.parquet", compression="zstd")
        return folder

    def samples(self):
        return SAMPLES

    def bad_files(self, folder):
        pq.write_table(pa.table({"id": [1]}), folder / "c.parquet")
        pq.write_table(pa.table({"other": [1]}), folder / "d.parquet")
        yield (
            [folder / "c.parquet", folder / "d.parquet"],
            r"d\.parquet: has the columns other, and .* has id",
        )

    def test_a_damaged_page_names_the_row_group(self, tmp_path):
        pq.write_table(pa.table({"x": [bytes([i]) * 500 for i in range(40)]}), tmp_path / "a.parquet",
                       row_group_size=10, use_dictionary=False, write_page_checksum=True)  # fmt: skip
        data = bytearray((tmp_path / "a.parquet").read_bytes())
        about = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(2).column(0)
        data[about.data_page_offset + about.total_compressed_size - 20] ^= 1
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(fl.FormatError, match=r"a\.parquet: sample 2\d: piece 2: "):
            list(fl.open(tmp_path / "a.parquet"))


class TestArrowFiles(FormatContract):
    def write(self, folder):
        for name, part in (("a", SAMPLES[:7]), ("b", SAMPLES[7:])):
            with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
                writer.write_table(table(part), max_chunksize=3)
        return folder

    def samples(self):
        return SAMPLES


class TestFeather(TestArrowFiles):
    def write(self, folder):
        pyarrow.feather.write_feather(table(SAMPLES), folder / "a.feather", compression="zstd", chunksize=4)
        return folder / "a.feather"


class TestArrowStreams(FormatContract):
    random_access = False

    def write(self, folder):
        for name, part in (("a", SAMPLES[:7]), ("b", SAMPLES[7:])):
            with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
                writer.write_table(table(part), max_chunksize=3)
        return folder

    def samples(self):
        return SAMPLES


@pytest.mark.parametrize("contract", [TestParquet, TestArrowFiles])
@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ([("id", "==", 4)], [4]),
        ([("id", "!=", 4), ("id", "<", 6)], [0, 1, 2, 3, 5]),
        ([("id", "<=", 1)], [0, 1]),
        ([("id", ">", 7)], [8, 9]),
        ([("id", ">=", 9)], [9]),
        ([("id", "in", [2, 8, 77])], [2, 8]),
        ([("id", "not in", list(range(9)))], [9]),
        ([("score", ">=", 0.25)], [2, 4, 5, 6, 7, 8, 9]),
        ([("score", "not in", [0.0])], [1, 2, 4, 5, 6, 7, 8, 9]),
        ([("name", "==", "näme 6")], [6]),
        ([("id", ">", 100)], []),
    ],
)
def test_where_gives_what_a_filter_would(contract, where, wanted, tmp_path):
    path = contract().write(tmp_path)
    dataset = fl.open(path, where=where)
    assert [sample["id"] for sample in dataset] == wanted
    assert len(dataset) == len(wanted)
    assert [sample["id"] for sample in fl.open(path, where=where, fields=["id"]).shuffle(seed=1).iterate()] != [0]


def test_row_groups_that_cannot_match_are_not_read(tmp_path, monkeypatch):
    path = TestParquet().write(tmp_path)
    loads = []
    load = arrow.RowGroups.load
    monkeypatch.setattr(arrow.RowGroups, "load", lambda self, piece, names: loads.append((piece, names)) or load(
        self, piece, names))  # fmt: skip
    assert [sample["id"] for sample in fl.open(path / "a.parquet", where=[("id", "==", 4)], fields=["id", "name"])]
    assert loads == [(1, ["id"]), (1, ["id", "name"])]


def test_a_row_group_is_read_once_for_its_neighbours(tmp_path, monkeypatch):
    path = TestParquet().write(tmp_path)
    loads = []
    load = arrow.RowGroups.load
    monkeypatch.setattr(arrow.RowGroups, "load", lambda self, piece, names: loads.append(piece) or load(
        self, piece, names))  # fmt: skip
    dataset = fl.open(path / "a.parquet", fields=["id"])
    assert [dataset[i]["id"] for i in range(7)] == list(range(7))
    assert loads == [0, 1, 2]


def test_where_is_checked(tmp_path):
    path = TestParquet().write(tmp_path)
    with pytest.raises(fl.FormatError, match="where: no column 'x'; there are id, score"):
        fl.open(path, where=[("x", "==", 1)])
    with pytest.raises(ValueError, match="the comparison is one of == !="):
        fl.open(path, where=[("id", "like", 1)])
    with pytest.raises(TypeError, match="a comparison is"):
        fl.open(path, where=["id"])
    assert len(fl.open(path, where=("id", "==", 1))) == 1
    with pytest.raises(fl.FormatError, match=r"a\.parquet: "):
        list(fl.open(path, where=[("id", "==", "text")]))


def test_feather_of_the_first_version_is_told(tmp_path):
    (tmp_path / "a.feather").write_bytes(b"FEA1" + bytes(100))
    with pytest.raises(fl.FormatError, match=r"is Feather version 1, .*write_feather"):
        fl.open(tmp_path / "a.feather")


def test_without_pyarrow_the_cure_is_named(tmp_path, monkeypatch):
    path = TestParquet().write(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r'a\.parquet: .*pip install "fastloader\[formats\]"'):
        fl.open(path)
