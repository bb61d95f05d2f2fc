"""Tars, as Python's tarfile and GNU tar write them: the scanner and its slow twin, samples, hostile headers."""

from __future__ import annotations

import gc
import io
import os
import pickle
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tar_files import FORMATS, all_samples, members, sample, tar, write_tars

import fastloader as fl
from fastloader import kernels
from fastloader.formats import tar as tars
from fastloader.formats.objects import open_object
from fastloader.testing import FormatContract, identical


class TestTars(FormatContract):
    def write(self, folder):
        write_tars(folder)
        return folder

    def samples(self):
        return all_samples()

    def bad_files(self, folder):
        good = tar([("a.txt", b"one"), ("b.txt", b"two")])
        bad = bytearray(good)
        bad[1024 + 3] ^= 1
        (folder / "sum.tar").write_bytes(bad)
        yield folder / "sum.tar", r"sum\.tar: offset 1024: no header of a member: its checksum is \d+, and that of"
        (folder / "none.tar").write_bytes(good[:2048])
        yield folder / "none.tar", r"none\.tar: offset 2048: the tar ends without the blocks of zeros"
        for at, value, what in (
            (1024, b"\xff" * 12, "offset 1024: a negative size"),
            (1024, b"\x80" + b"\x7f" * 11, "offset 1024: a size that no file has"),
            (1024, b"%011o\0" % 10**6, r"offset 1024: 'b.txt' has 1000000 bytes, and \d+ follow: the tar was cut"),
            (1024, b"9" * 12, "offset 1024: a size that is no octal number"),
        ):  # fmt: skip
            (folder / "size.tar").write_bytes(forged(good, at, 124, value))
            yield folder / "size.tar", rf"size\.tar: {what}"
        (folder / "sparse.tar").write_bytes(forged(good, 1024, 156, b"S"))
        yield folder / "sparse.tar", r"sparse\.tar: offset 1024: 'b.txt' is a sparse file, which is not read"
        (folder / "volume.tar").write_bytes(forged(good, 0, 156, b"M"))
        yield folder / "volume.tar", r"volume\.tar: offset 0: 'a.txt' is of type 'M'"
        (folder / "twice.tar").write_bytes(tar([("a.txt", b"one"), ("a.txt", b"two")]))
        yield folder / "twice.tar", r"twice\.tar: offset 1024: 'a\.txt' comes twice in one sample"


class TestMembers(FormatContract):
    options = {"group": False}  # noqa: RUF012

    def write(self, folder):
        write_tars(folder)
        return folder

    def samples(self):
        return [
            {"path": name, "data": data, "label": int(name.startswith("train/"))}
            for name, data in members(all_samples())
        ]


class TestDecoded(FormatContract):
    options = {"decode": True}  # noqa: RUF012

    def write(self, folder):
        write_tars(folder)
        return folder

    def samples(self):
        return [
            {**one, "txt": one["txt"].decode(), "cls": None if one["cls"] is None else int(one["cls"])}
            for one in all_samples()
        ]


def forged(data, at, field, value):
    """A tar with another value in the header at an offset, its checksum made right again."""
    out = bytearray(data)
    out[at + field : at + field + len(value)] = value
    out[at + 148 : at + 156] = b" " * 8
    out[at + 148 : at + 156] = b"%06o\0 " % sum(out[at : at + 512])
    return bytes(out)


def seconds(time):
    """Nanoseconds, as tarfile would give them."""
    return time // 10**9 if time % 10**9 == 0 else time / 1e9


def found(path):
    """What the native scanner says of members, times in seconds."""
    index = tars.scan(open_object(str(path)))
    return [
        (os.fsdecode(index.name(i)), chr(index.types[i]), int(index.offsets[i]), int(index.sizes[i]),
         seconds(int(index.times[i])), int(index.modes[i]), os.fsdecode(index.link(i)))
        for i in range(len(index))
    ]  # fmt: skip


def by_tarfile(path):
    """The same by the slow twin; hard links are resolved."""
    told = []
    with tarfile.open(path) as file:
        for info in file:
            real = info
            while real.islnk():
                real = file._find_link_target(real)
            kind = info.type.decode() if info.type in b"123456" else "0"
            told.append(
                (info.name, kind,
                 real.offset_data if real.isreg() else -1, real.size if real.isreg() else 0, float(info.mtime),
                 info.mode & 0o7777, info.linkname if info.islnk() or info.issym() else "")
            )  # fmt: skip
    return told


names = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..")
)
paths = st.lists(names, min_size=1, max_size=6).map("/".join)
entries = st.lists(st.tuples(paths, st.sampled_from("fds"), st.integers(0, 1500), st.integers(0, 2**33)), max_size=8)


@settings(max_examples=120, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(entries, st.sampled_from(FORMATS), st.booleans())
def test_the_scanner_agrees_with_tarfile(tmp_path_factory, entries, format, in_pieces):
    path = tmp_path_factory.mktemp("tars") / "a.tar"
    with tarfile.open(path, "w", format=format, encoding="utf-8", errors="surrogateescape") as file:
        for name, kind, size, mtime in entries:
            info = tarfile.TarInfo(name)
            info.mtime, info.mode = mtime if format != tarfile.USTAR_FORMAT else mtime % 2**33, size % 0o1000
            info.type = {"f": tarfile.REGTYPE, "d": tarfile.DIRTYPE, "s": tarfile.SYMTYPE}[kind]
            info.linkname = name[::-1] if kind == "s" else ""
            info.size = size if kind == "f" else 0
            try:
                file.addfile(info, io.BytesIO(bytes(size)) if kind == "f" else None)
            except ValueError:  # ustar has no room for it
                continue
    wanted = by_tarfile(path)
    if not in_pieces:
        assert found(path) == wanted
        return
    data = path.read_bytes()
    scanner = kernels.TarScanner(len(data))
    while not scanner.done:
        begin = scanner.next
        scanner.feed(data[begin : begin + scanner.needed], begin)
    index = tars.TarIndex.of(scanner.finish(len(data)))
    assert [os.fsdecode(index.name(i)) for i in range(len(index))] == [one[0] for one in wanted]
    assert index.offsets.tolist() == [one[2] for one in wanted]


@settings(max_examples=400, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_headers_are_refused_or_read_within_the_file(tmp_path_factory, data):
    good = bytearray(tar(members(map(sample, range(3))), data.draw(st.sampled_from(FORMATS))))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):  # as one that knows how to add would do it
        at = data.draw(st.integers(0, len(good) // 512 - 1)) * 512
        good[at + 148 : at + 156] = b" " * 8
        good[at + 148 : at + 156] = b"%06o\0 " % sum(good[at : at + 512])
    size = data.draw(st.integers(0, len(good)))
    scanner = kernels.TarScanner(size)
    said = ("format", "offset")
    try:
        scanner.feed(bytes(good[:size]), 0)
        index = tars.TarIndex.of(scanner.finish(size))
    except kernels.Failure as failure:
        said = failure.args[:2]
    else:
        assert index.within(size)
    assert said[0] == "format"
    assert "offset" in said[1]


def test_what_gnu_tar_writes(tmp_path):
    folder = tmp_path / "in"
    (folder / "deep" / ("x" * 120)).mkdir(parents=True)
    (folder / "deep" / ("x" * 120) / ("y" * 150 + ".txt")).write_bytes(b"long")
    (folder / "a.txt").write_bytes(b"a" * 1000)
    os.link(folder / "a.txt", folder / "b.txt")
    os.symlink("a.txt", folder / "c.txt")
    os.symlink("z" * 180, folder / "long")
    (folder / os.fsdecode(b"odd \xff\n name.bin")).write_bytes(b"odd")
    for format in ("ustar", "gnu", "pax", "oldgnu", "v7"):
        path = tmp_path / f"{format}.tar"
        run = subprocess.run(["tar", f"--format={format}", "-cf", path, "--sort=name", "-C", folder, "."], check=False,
                             capture_output=True)  # fmt: skip
        mine, theirs = found(path), by_tarfile(path)
        assert len(mine) >= 6, run.stderr
        if format == "pax":  # times in parts of a second
            assert [one[:4] + one[5:] for one in mine] == [one[:4] + one[5:] for one in theirs]
            assert np.allclose([one[4] for one in mine], [one[4] for one in theirs])
        else:
            assert mine == theirs
        dataset = fl.open(path, group=False)
        read = {one["path"].removeprefix("./"): one["data"] for one in dataset}
        assert read["a.txt"] == read["b.txt"] == b"a" * 1000
        assert read[os.fsdecode(b"odd \xff\n name.bin")] == b"odd"


def test_sparse_files_of_gnu_tar_are_refused(tmp_path):
    with (tmp_path / "holes.bin").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"x")
    for format in ("gnu", "pax"):
        path = tmp_path / f"{format}.tar"
        subprocess.run(["tar", f"--format={format}", "--sparse", "-cf", path, "-C", tmp_path, "holes.bin"], check=True)
        with pytest.raises(fl.FormatError, match=r"holes\.bin' is a sparse file, which is not read; tar without"):
            fl.open(path)


def test_a_global_header_holds_for_all_behind_it(tmp_path):
    data = tar([("a.txt", b"one"), ("b.txt", b"two")], pax_headers={"mtime": "77.5", "comment": "x"})
    (tmp_path / "a.tar").write_bytes(data)
    assert [one[4] for one in found(tmp_path / "a.tar")] == [77.5, 77.5]


def test_sizes_in_pax_headers_and_base_256(tmp_path):
    plain = tar([("a.bin", b"x" * 700), ("b.bin", b"y" * 10)], tarfile.GNU_FORMAT)
    (tmp_path / "binary.tar").write_bytes(forged(plain, 0, 124, b"\x80" + (700).to_bytes(11, "big")))
    record = b"12 size=700\n"
    head = bytearray(tar([("pax", record)], tarfile.USTAR_FORMAT)[:1024])
    extended = forged(bytes(head), 0, 156, b"x") + forged(plain, 0, 124, b"%011o\0" % 5)
    (tmp_path / "pax.tar").write_bytes(extended)
    for name in ("binary", "pax"):
        assert [one["data"] for one in fl.open(tmp_path / f"{name}.tar", group=False)] == [b"x" * 700, b"y" * 10]


def test_keys_are_cut_at_the_first_dot_of_the_last_part(tmp_path):
    entries = [
        ("v1.0/a.JPG", b"1"), ("v1.0/a.seg.png", b"2"), ("plain", b"3"), (".hidden.txt", b"4"), ("__about__", b"5"),
        ("v1.0/b.jpg", b"6"), ("v1.0/a.txt", b"7"), ("v1.0/b.JPG.x", b"8"), ("__notes.txt__", b"9"),
    ]  # fmt: skip
    (tmp_path / "a.tar").write_bytes(tar(entries))
    assert list(fl.open(tmp_path / "a.tar")) == [
        {"__key__": "v1.0/a", "jpg": b"1", "seg.png": b"2", "txt": b"7", "jpg.x": None},
        {"__key__": "v1.0/b", "jpg": b"6", "seg.png": None, "txt": None, "jpg.x": b"8"},
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves files open
def test_samples_as_webdataset_groups_them(tmp_path):
    import webdataset

    write_tars(tmp_path)
    paths = sorted(map(str, tmp_path.glob("*.tar")))
    theirs = [
        {name: value for name, value in one.items() if name not in ("__url__", "__local_path__")}
        for one in webdataset.WebDataset(paths, shardshuffle=False, empty_check=False)
    ]
    gc.collect()
    mine = [{name: value for name, value in one.items() if value is not None} for one in fl.open(paths)]
    assert mine == theirs


def test_samples_by_key(tmp_path):
    write_tars(tmp_path)
    dataset = fl.open(tmp_path)
    assert dataset["train/0003"] == sample(3)
    assert "train/0003" in dataset
    assert dataset.key_of(0) == "train/0000"
    with pytest.raises(KeyError, match="no sample has the key 'nowhere'"):
        dataset["nowhere"]


@pytest.mark.parametrize("io", ["mmap", "pread", "uring"])
def test_a_loader_gives_the_same_batches_however_it_reads(tmp_path, io):
    write_tars(tmp_path, 40)
    dataset = fl.open(tmp_path, decode=True)
    wanted = [dataset.read_batch(range(at, min(at + 7, 40))) for at in range(0, 40, 7)]
    got = list(fl.DataLoader(dataset, 7, shuffle=False, io=io))
    assert identical(got, wanted)
    loader = fl.DataLoader(dataset, 7, seed=3, io=io)
    keys = [key for batch in loader for key in batch["__key__"]]
    assert sorted(keys) == sorted(one["__key__"] for one in all_samples(40))
    again = fl.DataLoader(pickle.loads(pickle.dumps(dataset)), 7, seed=3, order="quasi_random", io=io)
    assert sorted(key for batch in again for key in batch["__key__"]) == sorted(keys)


def test_images_go_through_pipelines_as_those_of_fld_files(tmp_path):
    from make_pictures import pictures

    entries, samples = [], []
    for number, (jpeg, png) in enumerate(pictures(6)):
        entries += [(f"{number}.jpg", jpeg), (f"{number}.seg.png", png)]
        samples.append({"jpg": jpeg, "seg.png": png})
    (tmp_path / "a.tar").write_bytes(tar(entries))
    fields = {"jpg": fl.JPEGImageField(seekable=False, verbatim=True), "seg.png": fl.PNGImageField()}
    fl.Dataset.from_sequence(samples).write(tmp_path / "a.fld", fields)
    mine, stored = fl.open(tmp_path / "a.tar", decode=True), fl.open(tmp_path / "a.fld")
    for number in range(6):
        assert identical(mine.read_sample(number, ["jpg", "seg.png"]), stored[number])
    assert identical(mine.read_batch(range(6), ["jpg", "seg.png"]), stored.read_batch(range(6)))
    pipelines = {"jpg": [fl.ops.RandomResizedCrop(24), fl.ops.HorizontalFlip()]}
    for options in ({}, {"pipelines": pipelines}):
        batches = [list(fl.DataLoader(one, 4, seed=5, fields=["jpg", "seg.png"], **options)) for one in (mine, stored)]
        assert identical(*batches)


@pytest.mark.parametrize("field", [fl.JPEGImageField(orient=True), fl.JPEGImageField(seekable=False, orient=True)])
def test_images_stand_upright_where_the_field_says_so(tmp_path, field):
    jpeg = (Path(__file__).parents[1] / "vectors" / "images" / "upright" / "turn-right.jpeg").read_bytes()
    (tmp_path / "a.tar").write_bytes(tar([("a.jpg", jpeg)]))
    fl.Dataset.from_sequence([{"jpg": jpeg}]).write(tmp_path / "a.fld", {"jpg": field})
    mine, stored = fl.open(tmp_path / "a.tar", decode={"jpg": field}), fl.open(tmp_path / "a.fld")
    assert identical(mine.read_sample(0, ["jpg"]), stored[0])
    for options in ({}, {"pipelines": {"jpg": [fl.ops.RandomResizedCrop(16)]}}):
        batches = [list(fl.DataLoader(one, 1, seed=5, fields=["jpg"], **options)) for one in (mine, stored)]
        assert identical(*batches)


def test_bytes_that_are_no_image_are_told_with_their_sample(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar([("a.jpg", b"no image"), ("b.jpg", b"\xff\xd8\xff")]))
    dataset = fl.open(tmp_path / "a.tar", decode=True)
    for read in (lambda: dataset[0], lambda: dataset.read_batch([0, 1]), lambda: list(fl.DataLoader(dataset, 2))):
        with pytest.raises(fl.DecodeError, match=r"a\.tar: sample \d, field 'jpg': .*restore it from a copy"):
            read()


def test_an_index_is_kept_and_made_anew_when_the_tar_changes(tmp_path, cache, monkeypatch):
    write_tars(tmp_path)
    assert len(fl.open(tmp_path)) == 12
    assert len(list(cache.iterdir())) == 3
    with monkeypatch.context() as patch:
        patch.setattr(tars, "scan", lambda source: pytest.fail("it was gone through again"))
        assert identical(list(fl.open(tmp_path)), all_samples())
    (tmp_path / "shard-0.tar").write_bytes(tar([("new.txt", b"1")]))
    assert next(iter(fl.open(tmp_path)))["__key__"] == "new"


def test_a_tar_that_changes_is_an_error(tmp_path):
    write_tars(tmp_path)
    dataset = fl.open(tmp_path)
    pickled = pickle.dumps(dataset)
    path = tmp_path / "shard-0.tar"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:512] + bytes(512) + data[1024:])
    with pytest.raises(OSError, match="changed since it was opened"):
        list(dataset)
    with pytest.raises(OSError, match="changed since it was opened"):
        list(pickle.loads(pickled))


def test_options_are_checked(tmp_path):
    write_tars(tmp_path)
    with pytest.raises(ValueError, match=r"decode: no field is called or ends with 'jpg'; there are __key__, txt"):
        fl.open(tmp_path, decode={"jpg": True})
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.jsonl").write_text('{"n": 1}\n')
    for option in ({"decode": True}, {"group": True}):
        with pytest.raises(ValueError, match=r"(decode|group)= has no meaning for JSONL"):
            fl.open(tmp_path / "x", **option)
    own = fl.open(f"{tmp_path}/*.tar", decode={"cls": float, "bin": lambda data: len(data), "txt": fl.TextField()})
    assert own[1] == {"__key__": "train/0003", "txt": "größe 3" * 3, "left.bin": 53, "cls": 3.0}
