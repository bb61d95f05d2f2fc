"""What can be asked of an editor, what it refuses and how it says so, and manifests made to do harm."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastloader as fl
from fastloader.errors import FormatError, KeyNotFoundError, SampleError
from fastloader.formats.fld import Manifest
from fastloader.kernels import crc32c


@pytest.fixture
def where(tmp_path: Path) -> Path:
    path = tmp_path / "x.fld"
    fields = {"n": fl.IntField(), "text": fl.TextField(), "box": fl.NDArrayField("f4", (2,))}
    with fl.DatasetWriter(path, fields, shard_size=90, keys=True) as writer:
        for i in range(20):
            writer.write_sample({"n": i, "text": f"text {i}", "box": np.full(2, i, "f4")}, f"k{i}")
    assert len(fl.open(path).dataset.shards) > 2
    return path


def numbers(where: Path, **options: Any) -> list[int]:
    reader = fl.open(where, **options)
    return [reader.read_sample(i, ["n"])["n"] for i in range(len(reader))]


def test_samples_are_deleted_by_key_number_condition_and_function(where: Path) -> None:
    editor = fl.edit(where)
    assert editor.delete(keys=["k0", b"k1"], indices=[-1, 5]).num_samples == 16
    assert editor.delete(where=[("n", ">=", 6), ("n", "<", 8)]).num_samples == 14
    assert editor.delete(where=("text", "==", "text 9")).num_samples == 13
    assert editor.delete(where=lambda sample: sample["n"] % 2 == 1, fields=["n"]).num_samples == 8
    assert numbers(where) == [2, 4, 8, 10, 12, 14, 16, 18]
    assert [one.number for one in editor.snapshots()] == [5, 4, 3, 2, 1]
    assert editor.delete(where=("n", "==", 1000)).number == 5  # nothing to do, nothing done
    assert numbers(where, snapshot=3) == [n for n in range(2, 19) if n not in (5, 6, 7)]


def test_all_samples_get_new_values_of_a_function(where: Path) -> None:
    editor = fl.edit(where)
    editor.update(values=lambda sample: {"n": sample["n"] + 100} if sample["n"] % 2 else {}, fields=["n"])
    assert numbers(where) == [n + 100 * (n % 2) for n in range(20)]
    editor.update(values={"n": 0})
    assert numbers(where) == [0] * 20
    assert len(fl.open(where).dataset.manifest.beside) == len(fl.open(where).dataset.shards)  # what is hidden is gone


def test_all_samples_may_go_and_others_come(where: Path) -> None:
    editor = fl.edit(where)
    assert editor.delete(where=lambda sample: True).num_samples == 0
    assert len(fl.open(where)) == 0
    assert list(fl.DataLoader(fl.open(where), 4)) == []
    editor.compact()
    assert len(fl.open(where).dataset.shards) == 1
    with fl.DatasetWriter(where, None, mode="a") as writer:
        writer.write_sample({"n": 7, "text": "x", "box": np.zeros(2, "f4")}, "k0")  # a key that is free again
    assert numbers(where) == [7]
    assert fl.open(where).index_of("k0") == 0


def test_a_column_of_a_name_that_was_there_before_has_its_own_values(where: Path) -> None:
    editor = fl.edit(where)
    editor.rename_column("n", "old")
    editor.add_column("n", fl.TextField(), [f"new {i}" for i in range(20)])
    editor.drop_column("text")
    editor.add_column("passing", fl.IntField(), range(20))
    editor.update({0: {"passing": 7, "box": None}})
    editor.drop_column("passing")
    beside = fl.open(where).dataset.manifest.beside  # nobody looks into files that are there for nothing
    assert {name for one in beside for name in one.names} == {"n.3", "box"}
    editor.update({0: {"box": np.zeros(2, "f4")}})
    editor.add_column("text", fl.IntField(), np.arange(20) * 3)
    assert fl.open(where)["k4"]["text"] == 12
    with fl.DatasetWriter(where, None, mode="a") as writer:
        writer.write_sample({"old": 50, "n": "fifty", "text": 150, "box": np.ones(2, "f4")}, "k50")
    sample = fl.open(where)["k50"]
    assert (sample["old"], sample["n"], sample["text"]) == (50, "fifty", 150)
    editor.delete(keys=["k3"])
    editor.compact()
    reader = fl.open(where)
    assert reader.field_names == ["old", "box", "n", "text"]
    assert [reader.read_sample(i, ["old", "n", "text"]) for i in (3, 18)] == [
        {"old": 4, "n": "new 4", "text": 12}, {"old": 19, "n": "new 19", "text": 57},
    ]  # fmt: skip
    assert reader.read_sample(-1)["n"] == "fifty"
    assert fl.verify(where, decode=True).ok


def test_old_readers_refuse_what_they_do_not_know(where: Path) -> None:
    """The manifest says 1.0 for as long as a reader of 1.0 reads it rightly or refuses it by what is removed."""

    def version() -> list[int]:
        found: list[int] = json.loads((where / "manifest.json").read_bytes())["version"]
        return found

    editor = fl.edit(where)
    editor.delete(keys=["k1"])
    assert version() == [1, 0]
    editor.rename_column("n", "m")
    assert version() == [2, 0]
    editor.compact(shard_size="1KB")
    assert version() == [1, 0]
    editor.update({"k2": {"m": 4}})
    assert version() == [2, 0]


def test_shards_are_never_touched(where: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_ino) for path in where.glob("shard-*.fld")}
    editor = fl.edit(where)
    editor.add_column("c", fl.BytesField(), [b"x"] * 20, compression="zstd")
    editor.update({0: {"text": "other"}})
    editor.delete(indices=[1])
    editor.compact()
    assert {path: (path.read_bytes(), path.stat().st_ino) for path in before} == before


def test_texts_compressed_with_dictionaries_are_compacted(tmp_path: Path) -> None:
    path = tmp_path / "x.fld"
    texts = [f"the quick brown fox number {i} jumps over the lazy dog, said {i * 7} times" for i in range(3000)]
    with fl.DatasetWriter(path, {"text": fl.TextField(dictionary=1024)}, shard_size="60KB") as writer:
        writer.write_many({"text": texts})
    with fl.DatasetWriter(path, None, mode="a") as writer:
        writer.write_many({"text": texts[:100]})
    assert fl.open(path).dataset.file(0).dictionary(0) is not None
    editor = fl.edit(path)
    editor.update({i: {"text": texts[i].upper()} for i in range(0, 3000, 50)})
    editor.add_column("again", fl.TextField(dictionary=512), texts + texts[:100])
    assert fl.open(path).dataset.file(0).dictionary(1) not in (None, fl.open(path).dataset.file(0).dictionary(0))
    editor.delete(indices=range(10, 3000, 3))
    expected = [dict(sample) for sample in fl.open(path)]
    editor.compact()
    assert list(fl.open(path)) == expected
    editor.compact(shard_size="20KB")
    reader = fl.open(path)
    assert list(reader) == expected
    assert len(reader.dataset.shards) > 2
    assert fl.verify(path, decode=True).ok


def test_shards_with_other_dictionaries_become_one(tmp_path: Path) -> None:
    parts = []
    for word in ("fox", "dog"):
        parts.append(tmp_path / f"{word}.fld")
        with fl.DatasetWriter(parts[-1], {"text": fl.TextField(dictionary=512)}) as writer:
            writer.write_many({"text": [f"a {word} said {word * 3} {i} times to the {word}" for i in range(1500)]})
    whole = tmp_path / "both.fld"
    fl.concatenate(whole, parts)
    expected = list(fl.open(whole))
    before = [part.read_bytes() for part in parts]
    fl.edit(whole).compact(shard_size="10MB")
    assert list(fl.open(whole)) == expected
    assert len(fl.open(whole).dataset.shards) == 1
    fl.edit(whole).drop_snapshots()
    assert [part.read_bytes() for part in parts] == before  # files of others are nobody's to remove


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda e: e.delete(), ValueError, "say which samples"),
        (lambda e: e.delete(keys="k1"), TypeError, "one key"),
        (lambda e: e.delete(keys=["nobody"]), KeyNotFoundError, "no sample has the key 'nobody'"),
        (lambda e: e.delete(indices=[20]), IndexError, "sample 20 of a dataset of 20"),
        (lambda e: e.delete(where=("n", "~", 1)), ValueError, "one of == !="),
        (lambda e: e.delete(where=("nobody", "==", 1)), KeyNotFoundError, "no field 'nobody'"),
        (lambda e: e.delete(where=("text", "<", 1)), TypeError, "where, field 'text'"),
        (lambda e: e.update({"k1": {"x": 1}}), SampleError, "sample 1: has no fields 'x'"),
        (lambda e: e.update({"k1": 7}), SampleError, "a mapping from field to value"),
        (lambda e: e.update({"k19": {"n": "text"}}), SampleError, "sample 19, field 'n'"),
        (lambda e: e.update({"k1": {"n": 1}}, where=("n", "==", 1)), ValueError, "give either changes"),
        (lambda e: e.update(), ValueError, "give either changes"),
        (lambda e: e.update({1.5: {"n": 1}}), TypeError, "named by a number or a key"),
        (lambda e: e.add_column("n", fl.IntField(), range(20)), ValueError, "there is a field 'n' already"),
        (lambda e: e.add_column("c", fl.IntField(), range(19)), ValueError, "19 values for the 20 samples"),
        (lambda e: e.add_column("c", fl.IntField(), range(22)), ValueError, "there are 2 values more than the 20"),
        (lambda e: e.add_column("c", fl.IntField(), "text"), TypeError, "one for each sample"),
        (lambda e: e.add_column("c", fl.IntField(), ["x"] * 20), SampleError, "sample 0, field 'c'"),
        (lambda e: e.add_column("c", fl.IntField(), {"nobody": 1}), KeyNotFoundError, "no sample has the key"),
        (lambda e: e.add_column("", fl.IntField(), range(20)), ValueError, "1 to 64 bytes"),
        (lambda e: e.rename_column("n", "text"), ValueError, "there is a field 'text' already"),
        (lambda e: e.rename_column("nobody", "x"), KeyNotFoundError, "no field 'nobody'"),
        (lambda e: e.rename_column("n", "x" * 65), ValueError, "1 to 64 bytes"),
        (lambda e: e.drop_column("nobody"), KeyNotFoundError, "no field 'nobody'"),
        (lambda e: e.compact(shard_size=0), ValueError, "at least one byte"),
        (lambda e: e.drop_snapshots(0), ValueError, "the newest snapshot stays"),
    ],
)  # fmt: skip
def test_what_can_not_be_done_is_said_and_nothing_is_changed(where: Path, call: Any, error: Any, match: str) -> None:
    before = {path: path.read_bytes() for path in where.rglob("*.*")}
    with pytest.raises(error, match=match):
        call(fl.edit(where))
    assert {path: path.read_bytes() for path in where.rglob("*.*")} == before
    assert os.listdir(where.parent) == ["x.fld"]


def test_a_single_file_becomes_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "x.fld"
    with fl.DatasetWriter(path, {"n": fl.IntField()}, keys=True) as writer:
        writer.write_many({"n": [1, 2, 3]}, ["a", "b", "c"])
    reader = fl.open(path)
    assert [one.id for one in fl.edit(path).snapshots()] == [reader.snapshot]
    assert fl.edit(path).compact().number == 1
    assert fl.edit(path).drop_snapshots() == ([], 0)
    fl.edit(path).delete(keys=["b"])
    assert path.is_dir()
    assert numbers(path) == [1, 3]
    assert fl.open(path, snapshot=reader.snapshot)[1] == {"n": 2}
    assert [sample["n"] for sample in reader] == [1, 2, 3]  # who had it open
    with pytest.raises(ValueError, match="its only field"):
        fl.edit(path).drop_column("n")


def test_snapshots_that_are_not_there(where: Path, tmp_path: Path) -> None:
    fl.edit(where).delete(keys=["k1"])
    for snapshot in (3, 0, "1-00000000", "2"):
        if snapshot == "2":
            assert len(fl.open(where, snapshot=snapshot)) == 19
            continue
        with pytest.raises(fl.NotFoundError, match="has no snapshot"):
            fl.open(where, snapshot=snapshot)
    for snapshot in ("../x", "1.5", True, -1):
        with pytest.raises(ValueError, match="fastloader log"):
            fl.open(where, snapshot=snapshot)
    shutil.copy(where / "manifest.json", where / "snapshots" / "00000001.json")
    with pytest.raises(FormatError, match="is snapshot 2"):
        fl.open(where, snapshot=1)
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"snapshot=1 is for folders of \.fld shards"):
        fl.open(tmp_path / "a.npy", snapshot=1)


def test_archives_and_streams_are_left_to_others(tmp_path: Path) -> None:
    with fl.ArchiveWriter(tmp_path / "a.fld") as writer:
        assert writer.num_files == 0
    with pytest.raises(fl.StoreError, match="fastloader rm"):
        fl.edit(tmp_path / "a.fld")
    with fl.TokenStreamWriter(tmp_path / "t.fld", vocab_size=100) as stream:
        stream.write(np.arange(9))
    with pytest.raises(fl.StoreError, match="stream of tokens"):
        fl.edit(tmp_path / "t.fld")


def test_what_replaces_a_dataset_takes_its_history_along(where: Path) -> None:
    fl.edit(where).add_column("c", fl.IntField(), range(20))
    with fl.DatasetWriter(where, {"n": fl.IntField()}, shard_size=100) as writer:
        writer.write_sample([1])
    assert sorted(os.listdir(where)) == ["manifest.json", "shard-00000.fld"]
    url = f"memory://{where.parent.name}/x.fld"
    for _ in range(2):
        with fl.DatasetWriter(url, {"n": fl.IntField()}, shard_size=20) as writer:
            writer.write_many({"n": list(range(8))})
        fl.edit(url).add_column("c", fl.IntField(), range(8))
        fl.edit(url).delete(indices=[0])
        fl.edit(url).compact()
    with fl.DatasetWriter(url, {"n": fl.IntField()}, shard_size=20) as writer:
        writer.write_many({"n": [1]})
    store = fl.open(url).path.store
    assert {found.key for found in store.list("x.fld")} == {
        "x.fld/manifest.json", f"x.fld/{fl.open(url).dataset.shards[0].path}",
    }  # fmt: skip


# Manifests made to do harm


def sealed(folder: Path, **members: Any) -> None:
    content = json.loads((folder / "manifest.json").read_bytes())
    del content["crc32c"]
    content |= members
    content = {name: value for name, value in content.items() if value is not None}
    content["crc32c"] = crc32c(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    (folder / "manifest.json").write_text(json.dumps(content))


GOOD = ["beside.fld", 1, 2, ["c"], None]


@pytest.mark.parametrize(
    "members",
    [
        {"removed": [[0, 0, -1, 1]]}, {"removed": [[0, 0, 0, 0]]}, {"removed": [[0, 0, 0, 100]]},
        {"removed": [[0, 0, 2, 2], [0, 0, 3, 1]]}, {"removed": [[0, 0, 2, 1], [0, 0, 0, 1]]},
        {"removed": [[9, 0, 0, 1]]}, {"removed": [[0, 0, 1 << 62, 1 << 62]]}, {"removed": [[0, 2, 0, 1]]},
        {"removed": [[0, 0, 0]]}, {"removed": [["0", 0, 0, 1]]}, {"removed": 7},
        {"columns": []}, {"columns": [["a", "n"], ["a", "text"]]}, {"columns": [["a", "n"], ["b", "n"]]},
        {"columns": [["", "n"]]}, {"columns": [["a\0", "n"]]}, {"columns": [["a" * 65, "n"]]}, {"columns": [["n"]]},
        {"columns": [[1, "n"]]}, {"columns": None},
        {"beside": [[9, *GOOD]]}, {"beside": [[-1, *GOOD]]}, {"beside": [[0, *GOOD[:4]]]},
        {"beside": [[0, "b.fld", 1, 2, [], None]]}, {"beside": [[0, "b.fld", 1, 2, ["c"], [[0, 1], [0, 1]]]]},
        {"beside": [[0, "b.fld", 1, 2, ["c"], [[0, 1000]]]]}, {"beside": [[0, "b.fld", 1, 2, ["c"], [[-1, 1]]]]},
        {"beside": [[0, "b.fld", 1, 2, ["c"], [[0, 0]]]]}, {"beside": [[0, "b\0.fld", 1, 2, ["c"], None]]},
        {"beside": [[0, "b.fld", 1, 2, "c", [[5, 1], [2, 1]]]]}, {"beside": {}},
        {"change": ["1-0", "now", "x", "y"]}, {"change": [1, 2, "x", "y"]}, {"change": 7},
    ],
    ids=str,
)  # fmt: skip
def test_a_hostile_manifest_is_a_format_error(where: Path, members: dict[str, Any]) -> None:
    fl.edit(where).add_column("c", fl.IntField(), range(20))
    sealed(where, **members)
    if members == {"beside": {}}:  # no rows are no files beside, and then a column is nowhere
        with pytest.raises(FormatError, match="has no field 'c', nor has a file beside it"):
            fl.open(where)[0]
        return
    with pytest.raises(FormatError, match="is damaged"):
        fl.open(where)


def test_files_beside_that_are_not_what_the_manifest_says(where: Path) -> None:
    fl.edit(where).add_column("c", fl.IntField(), range(20))
    manifest = Manifest.load(where)
    first, second = (where / one.path for one in manifest.beside[:2])
    content = first.read_bytes()
    shutil.copy(second, first)
    with pytest.raises(FormatError, match="is not the file it was"):
        fl.open(where)["k0"]
    first.unlink()
    with pytest.raises(FileNotFoundError):
        fl.open(where)["k0"]["c"]
    report = fl.verify(where)
    assert not report.ok
    assert "are lost" in str(report.problems[0])
    broken = bytearray(content)
    broken[content.index(np.arange(1, 3).tobytes())] ^= 4
    first.write_bytes(bytes(broken))
    found = fl.verify(where)
    assert not found.ok
    first.write_bytes(content)
    named = [[one.shard, one.path, one.size, one.identity, ["other"], None] for one in manifest.beside]
    sealed(where, beside=named, columns=[["n", "n"], ["other", "other"]])
    with pytest.raises(FormatError, match="has no field 'other', which the manifest says it has"):
        fl.open(where)[0]


def test_damage_in_a_row_that_is_removed_names_no_sample(where: Path) -> None:
    fl.edit(where).delete(keys=["k0"])
    shard = where / "shard-00000.fld"
    content = bytearray(shard.read_bytes())
    content[content.index(b"text 0") + 1] ^= 255
    shard.write_bytes(bytes(content))
    (problem,) = fl.verify(where).problems
    assert problem.sample is None
    assert "in a row that is removed" in problem.message
    with pytest.raises(fl.ChecksumError):
        fl.open(where, snapshot=1)[0]
    assert numbers(where)[0] == 1
