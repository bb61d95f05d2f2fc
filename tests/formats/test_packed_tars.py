"""Tars packed with gzip and zstd, by other programs and by this one."""

from __future__ import annotations

import gzip
import io
import subprocess

import numpy as np
import pytest
import zstandard
from tar_files import all_samples, members, sample, tar

import fastloader as fl
from fastloader.formats import tar_packed
from fastloader.formats.entries import Entry
from fastloader.formats.objects import Reading, open_object
from fastloader.formats.tar_entries import TarSink
from fastloader.testing import FormatContract, identical


def gzipped(data):
    return gzip.compress(data, mtime=0)


def framed(data, frame=1500):
    """As the seekable format of zstd has it, by another library than ours."""
    frames, table = [], b""
    for at in range(0, len(data), frame):
        part = data[at : at + frame]
        frames.append(zstandard.ZstdCompressor(write_content_size=True).compress(part))
        table += len(frames[-1]).to_bytes(4, "little") + len(part).to_bytes(4, "little")
    foot = len(frames).to_bytes(4, "little") + b"\0" + (0x8F92EAB1).to_bytes(4, "little")
    head = (0x184D2A5E).to_bytes(4, "little") + (len(table) + len(foot)).to_bytes(4, "little")
    return b"".join(frames) + head + table + foot


class Packed(FormatContract):
    pack = staticmethod(gzipped)
    ending = "tar.gz"

    def write(self, folder):
        for number in range(2):
            some = members(map(sample, range(number * 6, number * 6 + 6)))
            (folder / f"{number}.{self.ending}").write_bytes(self.pack(tar(some)))
        return folder

    def samples(self):
        return [sample(i) for i in range(12)]

    def bad_files(self, folder):
        good = tar([("a.txt", b"one"), ("b.txt", b"two")])
        bad = bytearray(good)
        bad[1024 + 3] ^= 1
        (folder / f"sum.{self.ending}").write_bytes(self.pack(bytes(bad)))
        yield folder / f"sum.{self.ending}", r"sum\.tar\.\w+: what is packed: offset 1024: no header of a member"
        (folder / f"cut.{self.ending}").write_bytes(self.pack(good[:2048]))
        yield folder / f"cut.{self.ending}", r"cut\.tar\.\w+: what is packed: offset 2048: the tar ends without"


class TestGzippedTars(Packed):
    pass


class TestFramedTars(Packed):
    pack = staticmethod(framed)
    ending = "tar.zst"


class TestStreamedTars(Packed):
    pack = staticmethod(lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data))
    ending = "tar.zst"
    random_access = False
    own_fields = True

    def samples(self):
        return [{name: value for name, value in sample(i).items() if value is not None} for i in range(12)]


class TestDecodedGzippedTars(Packed):
    options = {"decode": {"txt": True, "cls": int}}  # noqa: RUF012

    def samples(self):
        whole = super().samples()
        return [
            {**one, "txt": one["txt"].decode(), "cls": None if one["cls"] is None else int(one["cls"])} for one in whole
        ]


del Packed


def test_any_byte_of_a_long_gzip_file_can_be_reached(tmp_path, monkeypatch):
    monkeypatch.setattr(tar_packed, "SPACING", 64 << 10)
    draw = np.random.default_rng(3)
    data = {f"{i}.bin": draw.integers(0, 4, 5000, np.uint8).tobytes() for i in range(200)}
    plain = tar(data.items())
    parts = gzipped(plain[:300_000]) + gzipped(plain[300_000:])  # as two members, one behind the other
    (tmp_path / "a.tar.gz").write_bytes(parts)
    dataset = fl.open(tmp_path / "a.tar.gz")
    for i in draw.permutation(200).tolist():
        assert dataset[i]["bin"] == data[f"{i}.bin"]
    again = fl.open(tmp_path / "a.tar.gz")
    assert again[150]["bin"] == data["150.bin"]


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), fl.StoreError("the store does not answer")])
def test_what_ends_a_read_of_a_gzip_file_is_no_damage(tmp_path, monkeypatch, raised):
    path = tmp_path / "a.tar.gz"
    noise = np.random.default_rng(0).bytes(3 << 20)
    path.write_bytes(gzipped(tar([("a.bin", noise), ("b.bin", noise[::-1])])))
    ds = fl.open(path)
    read = Reading.readinto

    def fails(self, buffer):
        monkeypatch.setattr(Reading, "readinto", read)
        raise raised

    monkeypatch.setattr(Reading, "readinto", fails)
    with pytest.raises(type(raised)) as caught:
        ds[1]
    assert caught.value is raised
    assert ds[1]["bin"] == noise[::-1]
    monkeypatch.setattr(Reading, "readinto", fails)
    with pytest.raises(type(raised)):
        tar_packed.Gzipped(open_object(str(path))).read(0, 100)


def test_an_index_of_a_gzip_file_is_kept(tmp_path, cache, monkeypatch):
    (tmp_path / "a.tar.gz").write_bytes(gzipped(tar(members(all_samples()))))
    wanted = list(fl.open(tmp_path / "a.tar.gz"))
    monkeypatch.setattr(tar_packed, "scanned", lambda *_: pytest.fail("it was gone through again"))
    assert identical(list(fl.open(tmp_path / "a.tar.gz")), wanted)


def test_what_is_written_in_frames_is_read_by_zstd_and_by_parts(tmp_path, monkeypatch):
    from fastloader.formats import tar_entries

    monkeypatch.setattr(tar_entries, "FRAME_BYTES", 3000)
    with TarSink(tmp_path / "a.tar.zst") as sink:
        for name, data in members(all_samples()):
            sink.add(Entry.of(name, data))
    packed = (tmp_path / "a.tar.zst").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True) as reader:
        plain = reader.read()
    (tmp_path / "a.tar").write_bytes(plain)
    assert len(tar_packed.seek_table(open_object(str(tmp_path / "a.tar.zst")))) > 3
    dataset = fl.open(tmp_path / "a.tar.zst")
    assert identical(list(dataset), list(fl.open(tmp_path / "a.tar")))
    assert subprocess.run(["tar", "-tf", tmp_path / "a.tar"], capture_output=True, check=True).stdout.count(b"\n") > 30


def test_a_hard_link_in_a_stream_is_told(tmp_path):
    subprocess.run("echo 1 > a.txt; ln a.txt b.txt; tar -cf l.tar a.txt b.txt", shell=True, cwd=tmp_path, check=True)
    (tmp_path / "l.tar.zst").write_bytes(zstandard.compress((tmp_path / "l.tar").read_bytes()))
    with pytest.raises(fl.FormatError, match=r"'b\.txt' is a hard link, which a stream can't follow back"):
        list(fl.open(tmp_path / "l.tar.zst"))


def test_a_loader_says_what_to_do_with_a_packed_one(tmp_path):
    import tarfile

    (tmp_path / "a.txt").write_text("one")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as made:
        made.add(tmp_path / "a.txt", "a.txt")
    packed = fl.open(tmp_path / "x.tar.gz")
    with pytest.raises(TypeError, match=r"write it as \.fld first, or use \.shuffle\(\)\.batch\(\) of it"):
        fl.DataLoader(packed, batch_size=1)
    assert [len(batch["__key__"]) for batch in packed.shuffle(seed=1).batch(1)] == [1]
