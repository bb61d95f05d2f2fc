"""Files are recognised by what is in them, whatever they are called; what is unclear is asked, not guessed."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastloader as fl
from fastloader.formats.barecat_entries import BarecatSink
from fastloader.formats.entries import Entry
from fastloader.formats.objects import open_object
from fastloader.formats.opening import FORMATS
from fastloader.formats.recognise import format_of
from fastloader.formats.records import Opened
from fastloader.formats.tar_entries import TarSink
from fastloader.formats.zip_entries import ZipSink
from fastloader.stores import open_store
from fastloader.testing import identical

VECTORS = Path(__file__).parents[1] / "vectors"


def files(folder):
    """A file of every format, by the format's name."""
    folder.mkdir(exist_ok=True)
    fl.DatasetWriter(folder / "fld", {"x": fl.IntField()}).close()
    np.save(folder / "npy.npy", np.arange(3))
    (folder / "npy.npy").rename(folder / "npy")
    np.savez(folder / "npz.npz", x=np.arange(3))
    (folder / "npz.npz").rename(folder / "npz")
    pq.write_table(pa.table({"x": [1, 2]}), folder / "parquet")
    with pa.OSFile(str(folder / "arrow"), "wb") as file, pa.ipc.new_file(file, pa.schema({"x": pa.int64()})) as writer:
        writer.write_table(pa.table({"x": [1, 2]}))
    with pa.OSFile(str(folder / "arrow stream"), "wb") as file:
        writer = pa.ipc.new_stream(file, pa.schema({"x": pa.int64()}))
        writer.write_table(pa.table({"x": [1, 2]}))
        writer.close()
    with h5py.File(folder / "hdf5", "w") as file:
        file["x"] = np.arange(3)
    text = {"jsonl": b'{"x": 1}\n{"x": 2}\n', "csv": b"x,y\n1,2\n3,4\n"}
    (folder / "beton").write_bytes(gzip.decompress((VECTORS / "formats" / "numbers.beton.gz").read_bytes()))
    text["tfrecord"] = (VECTORS / "formats" / "examples.tfrecord").read_bytes()
    for name, data in text.items():
        (folder / name).write_bytes(data)
        (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        (folder / f"{name}.gz").rename(folder / f"{name}.gz_")
        (folder / f"{name}.gz_").rename(folder / f"packed {name}")
    entries = [Entry.of(f"{name}.txt", b"text") for name in "abc"]
    for name, make in {"tar": TarSink, "tar.gz": TarSink, "tar.zst": TarSink, "zip": ZipSink, "b": BarecatSink}.items():
        with make(folder / name) as sink:
            for entry in entries:
                sink.add(entry)
    for name in ("tar.gz", "tar.zst"):
        (folder / name).rename(folder / f"{name}_")
    (folder / "b").rename(folder / "barecat")
    (folder / "b-shard-00000").rename(folder / "barecat-shard-00000")
    return {
        path.name.rstrip("_") if not path.name.startswith("packed ") else f"{path.name[7:]}.gz": path
        for path in folder.iterdir()
        if "shard" not in path.name
    }


def test_every_file_format_is_recognised_without_a_name(tmp_path):
    found = files(tmp_path / "a")
    assert set(found) == {*FORMATS, "fld"} - {"raw", "folder", "mds", "litdata", "utix"}
    for name, path in found.items():
        dataset = fl.open(path)
        if name == "fld":
            assert isinstance(dataset, fl.DatasetReader)
        else:
            assert dataset.format == ("npy" if name == "npz" else name)
            assert len(list(dataset)) >= 2


def test_a_name_that_promises_another_format_is_an_error(tmp_path):
    found = files(tmp_path / "a")
    os.rename(found["parquet"], tmp_path / "x.csv")
    with pytest.raises(fl.FormatError, match=r"x\.csv: is named like CSV and holds Parquet; rename it, or"):
        fl.open(tmp_path / "x.csv")
    assert len(fl.open(tmp_path / "x.csv", format="parquet")) == 2
    (tmp_path / "y.parquet").write_bytes(b"nothing like it")
    with pytest.raises(fl.FormatError, match=r"y\.parquet: is named like Parquet and is none: it begins with b'"):
        fl.open(tmp_path / "y.parquet")


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x02", b"some words\nin lines\n", b"a, b and c\nd, e and f\n" * 3])
def test_a_file_that_is_nothing_known_is_not_guessed(data, tmp_path):
    (tmp_path / "notes").write_bytes(data)
    with pytest.raises(fl.FormatError, match=r"notes: is no dataset that is known here: .*format='raw'"):
        fl.open(tmp_path / "notes")
    assert list(fl.open(tmp_path / "notes", format="raw")) == [{"data": data, "path": str(tmp_path / "notes")}]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_only_ends_of_lines_end_a_line(mark, tmp_path):
    for pack in (bytes, gzip.compress):
        (tmp_path / "a").write_bytes(pack(f'{{"x": "one{mark}two"}}\n{{"x": "three"}}\n'.encode()))
        assert [sample["x"] for sample in fl.open(tmp_path / "a")] == [f"one{mark}two", "three"]
    (tmp_path / "b").write_bytes(f"x,y\r\n1,one{mark}two\r\n2,three\r\n".encode())
    assert [sample["y"] for sample in fl.open(tmp_path / "b")] == [f"one{mark}two", "three"]


def test_a_first_line_longer_than_what_is_looked_at_is_one(tmp_path):
    samples = [{"x": "y" * 70_000}, {"x": "z"}]
    data = "".join(json.dumps(sample) + "\n" for sample in samples).encode()
    for name, pack in (("a", bytes), ("a.jsonl", bytes), ("a.jsonl.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(data))
        assert list(fl.open(tmp_path / name)) == samples
    (tmp_path / "b").write_bytes(b"{" + b"y" * 70_000)
    with pytest.raises(fl.FormatError, match="is no dataset that is known here"):
        fl.open(tmp_path / "b")


SHARDS = {
    "jsonl": (b'{"x": 1}\n', b'{"x": 2}\n{"x": 3}\n'),
    "csv": (b"x,y\n1,2\n3,4\n", b"x,y\n5,6\n"),
    "tfrecord": ((VECTORS / "formats" / "examples.tfrecord").read_bytes(),) * 2,
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("name", SHARDS)
@pytest.mark.parametrize("called", ["part-{}", "x.{name}-{}-of-00004", "{}.{name}{packed}"])
@pytest.mark.parametrize("explicit", [False, True])
def test_empty_shards_are_no_samples_and_tell_nothing(name, pack, called, explicit, tmp_path):
    store, at = open_store(f"memory://empty-shards/{tmp_path.name}")
    (tmp_path / "a").mkdir()
    filled = []
    for number, data in enumerate((b"", SHARDS[name][0], b"", SHARDS[name][1])):
        packed = pack(data)
        path = tmp_path / "a" / called.format(f"{number:05d}", name=name, packed="" if pack is bytes else ".gz")
        path.write_bytes(packed)
        store.put(f"{at}/{path.name}", packed)
        filled += [path] if data else []
    options = {"format": f"{name}{'' if pack is bytes else '.gz'}"} if explicit else {}
    wanted = list(fl.open(filled, **options))
    assert len(wanted) >= 3
    for folder in (tmp_path / "a", f"memory://empty-shards/{tmp_path.name}"):
        dataset = fl.open(folder, **options)
        assert identical(list(dataset), wanted)
        if pack is bytes:
            assert len(dataset) == len(wanted)


def test_where_all_files_are_empty_nothing_is_made_up(tmp_path):
    for number in range(2):
        (tmp_path / f"part-{number}").write_bytes(b"")
    assert [sample["data"] for sample in fl.open(tmp_path)] == [b"", b""]
    assert len(fl.open(tmp_path, format="tfrecord")) == len(fl.open(tmp_path, format="jsonl")) == 0
    with pytest.raises(fl.FormatError, match="part-0: is empty, where a line of column names is expected"):
        fl.open(tmp_path, format="csv")
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(".jsonl"))
    with pytest.raises(fl.FormatError, match=r"part-0\.jsonl: is named like JSONL and is none: it is empty"):
        fl.open(tmp_path)


def test_a_zip_of_other_things_is_no_npz(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x.txt", "text")
    assert list(fl.open(tmp_path / "a.zip")) == [{"path": "x.txt", "data": b"text"}]
    (tmp_path / "a.zip").rename(tmp_path / "a.npz")
    with pytest.raises(fl.FormatError, match="is named like NPZ and holds zip"):
        fl.open(tmp_path / "a.npz")


def test_wrong_paths_are_told(tmp_path):
    with pytest.raises(fl.NotFoundError, match=r"nowhere: there is no such file or folder; check the path"):
        fl.open(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        fl.open(tmp_path / "nowhere.parquet")
    with pytest.raises(fl.FormatError, match="is an empty folder"):
        fl.open(tmp_path)
    with pytest.raises(ValueError, match="an empty list"):
        fl.open([])
    with pytest.raises(TypeError, match="a path, a pattern or a list of paths is needed, not a int"):
        fl.open(3)
    with pytest.raises(ValueError, match="no store for ftp://"):
        fl.open("ftp://host/x")
    with pytest.raises(ValueError, match="format='xml': one of fld, raw, folder, npy"):
        fl.open(tmp_path, format="xml")


def test_files_of_several_kinds_are_not_mixed(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_bytes(b'{"x": 1}\n')
    with pytest.raises(
        fl.FormatError,
        match=r"files of several kinds: Parquet \(a\.parquet\), JSONL \(b\.jsonl\); choose with",
    ):
        fl.open(tmp_path)
    assert len(fl.open(tmp_path / "*.parquet")) == 2
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "c.bin").write_bytes(b"\0")
    with pytest.raises(fl.FormatError, match=r"Parquet \(a\.parquet\), plain files \(c\.bin\)"):
        fl.open(tmp_path)
    (tmp_path / "c.bin").rename(tmp_path / "README.md")
    assert len(fl.open(tmp_path)) == 2


def test_options_without_effect_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"x": 1}\n')
    for options in ({"where": [("x", "==", 1)]}, {"rows": True}, {"types": {"x": "int"}}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}= has no meaning for JSONL"):
            fl.open(tmp_path / "a.jsonl", **options)
    fl.DatasetWriter(tmp_path / "a.fld", {"x": fl.IntField()}).close()
    with pytest.raises(ValueError, match=r"where= has no meaning for a \.fld dataset"):
        fl.open(tmp_path / "a.fld", where=[("x", "==", 1)])


def test_fields_of_a_fld_can_be_chosen(tmp_path):
    with fl.DatasetWriter(tmp_path / "a.fld", {"x": fl.IntField(), "y": fl.IntField()}) as writer:
        writer.write_sample([1, 2])
    assert list(fl.open(tmp_path / "a.fld", fields=["y"])) == [{"y": 2}]


def test_a_loader_says_what_to_do_with_other_formats(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"x": 1}\n')
    with pytest.raises(TypeError, match=r"write it as \.fld first, or use .*\.batch\(\) of it"):
        fl.DataLoader(fl.open(tmp_path / "a.jsonl"))


def read_all(dataset, out):
    out.put([sample["x"] for sample in dataset])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("name", ["parquet", "hdf5", "arrow", "jsonl", "npz"])
def test_a_forked_child_reads_what_the_parent_has_open(name, tmp_path):
    dataset = fl.open(files(tmp_path / "a")[name])
    wanted = [int(sample["x"]) for sample in dataset]
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=read_all, args=(dataset, out))
    child.start()
    assert [int(x) for x in out.get(timeout=300)] == wanted
    child.join()
    assert child.exitcode == 0
    assert [int(sample["x"]) for sample in dataset] == wanted


def tell(opened, out):
    out.put(opened.get("it", os.getpid))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_a_library_holds_open_is_opened_anew_in_a_forked_child():
    opened = Opened()
    assert opened.get("it", os.getpid) == opened.get("it", lambda: pytest.fail("made twice")) == os.getpid()
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    child = context.Process(target=tell, args=(opened, out))
    child.start()
    assert out.get(timeout=300) == child.pid
    child.join()


def test_a_packed_tar_is_known_whatever_its_first_file_is(tmp_path: Path) -> None:
    for name in ("x.tar.gz", "x.tar.zst"):
        with TarSink(tmp_path / name) as sink:  # of the first block of zstd nothing is known before its last byte
            sink.add_file("noise", np.random.default_rng(0).integers(0, 100, 300_000, np.uint8).tobytes())
        assert format_of(open_object(str(tmp_path / name))) == name[2:]


def test_beside_a_manifest_of_somebody_else_files_are_read_as_one_says(tmp_path: Path) -> None:
    store, at = open_store("memory://beside-a-manifest/web")
    (tmp_path / "web").mkdir()
    for name, data in (("manifest.json", b'{"name": "an app"}'), ("page.bin", b"text")):
        store.put(f"{at}/{name}", data)
        (tmp_path / "web" / name).write_bytes(data)
    for folder in ("memory://beside-a-manifest/web", tmp_path / "web"):
        assert [sample["data"] for sample in fl.open(folder, format="raw")] == [b'{"name": "an app"}', b"text"]
        with pytest.raises(fl.FormatError, match="this JSON is no manifest"):
            fl.open(folder)
