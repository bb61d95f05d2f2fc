"""LitData's chunks, as its own writer wrote them."""

from __future__ import annotations

import shutil
import sys

import numpy as np
import pytest
from tests.formats.test_mds_folders import VECTORS, changed

import fastloader as fl
from fastloader import kernels
from fastloader.formats.litdata_values import decoder_of
from fastloader.formats.unpacked import unzstd, zstd_size
from fastloader.testing import FormatContract

sys.path.insert(0, str(VECTORS))

from make_formats import LIT_PACKED, LIT_SAMPLES, lit_row, lit_sample, lit_tokens


class TestLitData(FormatContract):
    kind = "plain"
    names = tuple(lit_sample(0))
    damages = 20

    def write(self, folder):
        shutil.copytree(VECTORS / "formats" / f"lit-{self.kind}", folder / "lit")
        return folder / "lit"

    def samples(self):
        return [{name: lit_sample(i)[name] for name in self.names} for i in range(LIT_SAMPLES)]

    def last_file(self, folder):
        return max(folder.rglob("chunk*"))

    def bad_files(self, folder):
        path = self.write(folder)
        (path / "chunk-0-2.bin").write_bytes((path / "chunk-0-2.bin").read_bytes() + b"!")
        yield path, r"chunk-0-2\.bin: sample 8: has 2083 bytes, and the index says 2082"
        yield changed(path, lambda index: index["chunks"][0].update(chunk_size=3)), "the index says 3"
        shutil.rmtree(path)
        for change, said in (
            (lambda index: index["chunks"][0].update(filename="../../x"), r"index\.json: .* lies outside"),
            (lambda index: index["config"].update(encryption={"algorithm": "fernet"}), "are encrypted"),
            (lambda index: index["config"].update(item_loader="ParquetLoader"), "are Parquet files"),
            (lambda index: index["config"].update(item_loader="Mine"), "are for a Mine"),
            (lambda index: index["config"]["data_format"].__setitem__(0, "mine"), "by a serializer 'mine'"),
            (lambda index: index["config"]["data_format"].__setitem__(8, "no_header_numpy:99"), "told by 99"),
            (lambda index: index["config"]["data_format"].pop(), "20 leaves, of which 19"),
            (lambda index: index["config"].update(data_spec='[2, {}]'), "in version 2"),
            (lambda index: index.update(chunks=[]), "names no chunks"),
            (lambda index: index.update(chunks=3), "is no index of LitData's chunks: TypeError"),
        ):  # fmt: skip
            yield changed(self.write(folder), change), said
            shutil.rmtree(path)


class TestLitPacked(TestLitData):
    kind = "chunk"
    names = LIT_PACKED

    def bad_files(self, folder):
        path = self.write(folder)
        for chunk in path.glob("*.bin"):
            chunk.write_bytes(chunk.read_bytes()[:-3] + b"abc")
        yield path, r"chunk-0-0\.zstd\.bin: .*can't be unpacked"


class TestLitFrames(TestLitPacked):
    kind = "batch"

    def bad_files(self, folder):
        path = self.write(folder)
        data = (path / "chunk-0-0.bin").read_bytes()
        frames, broken = 24 + 20, "table of frames is broken"
        for at, said in ((24 + 4, "table of samples is broken"), (frames + 4, broken), (frames + 16, broken)):
            (path / "chunk-0-0.bin").write_bytes(data[:at] + b"\xff\xff" + data[at + 2 :])
            yield path, rf"chunk-0-0\.bin: .*{said}"
        (path / "chunk-0-0.bin").write_bytes(data[:-3] + b"abc")
        yield path, r"chunk-0-0\.bin: .*frame 1 at offset \d+: "


class TestLitSamples(TestLitPacked):
    kind = "sample"

    def bad_files(self, folder):
        path = self.write(folder)
        data = (path / "chunk-0-0.bin").read_bytes()
        (path / "chunk-0-0.bin").write_bytes(data.replace(b"\x28\xb5\x2f\xfd", b"nope", 1))
        yield path, r"chunk-0-0\.bin: sample 0: record 0 at offset 24: no frame of zstd is there"


class TestLitOld(TestLitPacked):
    """Of LitData 0.2.30: another header of tensors, and sizes of chunks without their headers."""

    kind = "old"
    names = ("number", "tensor", "grid")

    def bad_files(self, folder):
        return ()


class TestLitRows(TestLitOld):
    """Texts and numbers alone, which LitData keeps in a table behind a chunk that is empty."""

    kind = "rows"

    def samples(self):
        return [lit_row(i) for i in range(LIT_SAMPLES)]


class TestLitPackedRows(TestLitRows):
    kind = "rows-zstd"


class TestLitLists(TestLitOld):
    """Samples that are lists: their parts are numbered."""

    kind = "list"

    def samples(self):
        return [{"0": np.full((2, 2), i), "1": {"label": i}} for i in range(LIT_SAMPLES)]


class TestLitTokens(TestLitOld):
    kind = "tokens"

    def samples(self):
        return [{"tokens": lit_tokens(i)} for i in range(LIT_SAMPLES)]


def test_a_broken_leaf_names_record_offset_and_field(tmp_path):
    path = TestLitData().write(tmp_path)
    data = bytearray((path / "chunk-0-0.bin").read_bytes())
    begin = int(np.frombuffer(data, "<u4", 1, 4 + 4 * 2)[0])
    name = begin + 4 * 20 + 8 + 8 + 1
    data[name] = 0xFF
    (path / "chunk-0-0.bin").write_bytes(data)
    with pytest.raises(
        fl.FormatError, match=rf"chunk-0-0\.bin: sample 2: record 2 at offset {begin}: field 'name' is no"
    ):
        fl.open(path)[2]
    assert fl.open(path, fields=["number"])[2] == {"number": 4}
    data[begin] += 1
    (path / "chunk-0-0.bin").write_bytes(data)
    with pytest.raises(
        fl.FormatError, match=rf"record 2 at offset {begin}: its parts end at \d+, and it has \d+ bytes"
    ):
        fl.open(path, fields=["number"])[2]
    assert len(list(fl.open(path).options(on_error="skip"))) == LIT_SAMPLES - 1


def test_pickles_are_not_read_and_can_be_left_out(tmp_path):
    shutil.copytree(VECTORS / "formats" / "lit-pickle", tmp_path / "lit")
    with pytest.raises(fl.FormatError, match=r"field 'any' is a pickle, which is not read.*fields= leaves it out"):
        fl.open(tmp_path / "lit")
    assert [sample["number"] for sample in fl.open(tmp_path / "lit", fields=["number"])] == list(range(LIT_SAMPLES))


def test_chunks_that_litdata_has_unpacked_are_read_as_they_are(tmp_path):
    path = TestLitPacked().write(tmp_path)
    import zstandard

    for packed in path.glob("*.bin"):
        (path / packed.name.replace(".zstd", "")).write_bytes(zstandard.decompress(packed.read_bytes()))
        packed.unlink()
    assert [sample["number"] for sample in fl.open(path)] == [lit_sample(i)["number"] for i in range(LIT_SAMPLES)]


def test_several_folders_are_one_dataset_and_two_kinds_are_none(tmp_path):
    TestLitData().write(tmp_path)
    shutil.copytree(tmp_path / "lit", tmp_path / "other")
    assert len(fl.open(tmp_path)) == 2 * LIT_SAMPLES
    shutil.copytree(VECTORS / "formats" / "mds-plain", tmp_path / "mds")
    with pytest.raises(fl.FormatError, match=r"folders of several kinds: MDS .* and LitData's chunks"):
        fl.open(tmp_path)
    assert len(fl.open(tmp_path, format="litdata")) == 2 * LIT_SAMPLES


def test_values_of_every_nested_kind():
    read = decoder_of("json")
    text = b"\x02\0\0\0\xc3\xa4"
    assert read(memoryview(b"\x01\x01\0\0\0" + text)) == ["ä"]
    assert read(memoryview(b"\x07" + text)) == "ä"
    assert read(memoryview(b"\x05\x01\0\0\0" + text + b"\x0b")) == {"ä": None}
    assert read(memoryview(b"\x00\x04\0\0\0null")) is None
    assert read(memoryview(b'{"a": [1]}')) == {"a": [1]}
    for bad in (b"\x01\xff\xff\xff\xff", b"\x02\x02\0\0\0abc", b"\x0d\0\0\0\0", b"\x0b\x0b", b"\x05" * 9, b""):
        with pytest.raises(ValueError, match=r".+"):
            read(memoryview(bad))


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 70_000])
def test_a_frame_of_zstd_tells_its_size(size):
    packed = kernels.compress(bytes(size), kernels.ZSTD, 3)
    assert zstd_size(bytes(packed)[:18]) == size
    assert unzstd(bytes(packed), size) == bytes(size)


@pytest.mark.parametrize(
    "head", [b"", b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\0\0", b"\x28\xb5\x2f\xfd" + b"\xff" * 14, b"x" * 18]
)
def test_a_frame_of_zstd_that_does_not_tell_its_size_is_an_error(head):
    with pytest.raises(ValueError, match="zstd"):
        zstd_size(head)
