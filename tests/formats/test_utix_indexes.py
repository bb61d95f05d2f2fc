"""``.utix`` indexes, as other programs write and read them."""

from __future__ import annotations

import io
import json

import msgpack
import pytest
from tar_files import all_samples, members, sample, tar, write_tars

import fastloader as fl
from fastloader.formats import tar as tars
from fastloader.formats.objects import open_object
from fastloader.formats.utix import packed, rows_of
from fastloader.testing import FormatContract, identical


def index(path, jsonl=False):
    """Write the index of a tar beside it."""
    rows = rows_of(tars.scan(open_object(str(path))))
    made = path.with_name(path.name + ".utix")
    made.write_bytes(packed(rows, jsonl, str(path)))
    return made


class TestUtix(FormatContract):
    jsonl = False

    def write(self, folder):
        return [index(path, self.jsonl) for path in write_tars(folder)]

    def samples(self):
        return all_samples()

    def bad_files(self, folder):
        (folder / "a.tar").write_bytes(tar([("a.txt", b"one")]))
        good = {"iidx": 0, "offset": 512, "str_idx": "a", "keys": [".txt"], "offsets": [0], "sizes": [3]}
        for number, (change, said) in enumerate((
            ({"sizes": [50000]}, r"row 0: 'a\.txt' has 50000 bytes at offset 512, the tar \d+; is it of another tar\?"),
            ({"offsets": [2**61]}, r"row 0: 'a\.txt' has 3 bytes at offset"),
            ({"offset": -1}, "row 0: offsets and sizes are whole numbers that are not negative"),
            ({"sizes": [1, 2]}, "row 0: 1 keys, 1 offsets, 2 sizes"),
            ({"keys": [7]}, "row 0: str_idx and keys are texts"),
            ({"sizes": "abc"}, "row 0: offsets and sizes are whole numbers"),
            ({"keys": 5}, "row 0: 'int' object is not iterable"),
        )):  # fmt: skip
            row = {**good, **change}
            (folder / f"{number}.utix").write_bytes(json.dumps(row).encode() if self.jsonl else msgpack.packb(row))
            (folder / f"{number}.tar").write_bytes((folder / "a.tar").read_bytes())
            yield folder / f"{number}.utix", said
        del good["offset"]
        (folder / "less.utix").write_bytes(json.dumps(good).encode() if self.jsonl else msgpack.packb(good))
        (folder / "less.tar").write_bytes((folder / "a.tar").read_bytes())
        yield folder / "less.utix", "row 0: there is no 'offset'"
        (folder / "gone.utix").write_bytes(msgpack.packb(good))
        yield folder / "gone.utix", r"gone\.tar: there is no such file"


class TestJsonLines(TestUtix):
    jsonl = True
    finds_cuts = False  # between two lines


def test_rows_are_what_other_programs_expect(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([("x/a.TXT", b"12345"), ("x/a.seg.png", b"123"), ("x/b.txt", b"")]))
    wanted = [
        {
            "iidx": 0,
            "offset": 512,
            "str_idx": "x/a",
            "keys": [".TXT", ".seg.png"],
            "offsets": [0, 1024],
            "sizes": [5, 3],
        },
        {"iidx": 1, "offset": 2560, "str_idx": "x/b", "keys": [".txt"], "offsets": [0], "sizes": [0]},
    ]
    assert list(msgpack.Unpacker(io.BytesIO(index(tmp_path / "a.tar").read_bytes()))) == wanted
    assert [json.loads(line) for line in index(tmp_path / "a.tar", jsonl=True).read_text().splitlines()] == wanted


def test_metadata_and_folders(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([("a.txt", b"one"), ("b.txt", b"two")]))
    rows = [
        {"iidx": 0, "offset": 512, "str_idx": "a", "keys": ["", ".txt"], "offsets": [0, 0], "sizes": [0, 3]},
        {"iidx": 1, "offset": 1536, "str_idx": "b", "keys": [".txt"], "offsets": [0], "sizes": [3],
         "metadata": {".label": 7}},
    ]  # fmt: skip
    (tmp_path / "a.utix").write_bytes(b"".join(map(msgpack.packb, rows)))
    dataset = fl.open(tmp_path / "a.utix")
    assert list(dataset) == [
        {"__key__": "a", "txt": b"one", "metadata": None}, {"__key__": "b", "txt": b"two", "metadata": {".label": 7}},
    ]  # fmt: skip
    assert next(iter(fl.DataLoader(dataset, 2, shuffle=False)))["metadata"] == [None, {".label": 7}]


def test_an_index_beside_a_tar_is_no_sample_of_a_folder(tmp_path):
    for path in write_tars(tmp_path):
        index(path)
    assert identical(list(fl.open(tmp_path)), all_samples())


def test_an_index_beside_is_used_and_one_of_another_tar_is_not(tmp_path, monkeypatch):
    path = tmp_path / "a.tar"
    path.write_bytes(tar(members(map(sample, range(4)))))
    source = open_object(str(path))
    (tmp_path / "a.tar.index").write_bytes(tars.packed_beside(source, tars.scan(source)))
    with monkeypatch.context() as patch:
        patch.setattr(tars, "scan", lambda source: pytest.fail("it was gone through again"))
        assert identical(list(fl.open(path)), [sample(i) for i in range(4)])
    other = tar(members(map(sample, [3, 2, 1, 0])))
    assert len(other) == path.stat().st_size
    path.write_bytes(other)
    assert [one["__key__"] for one in fl.open(path)] == [sample(i)["__key__"] for i in (3, 2, 1, 0)]
    (tmp_path / "a.tar.index").write_bytes(b"FLDTARX1 and nothing that fits")
    assert len(fl.open(path)) == 4
