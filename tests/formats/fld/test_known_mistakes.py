"""Mistakes that formats like this one have made; each has a test here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import fld_by_hand as hand
import numpy as np
import pytest

import fastloader as fl
from fastloader.errors import FormatError, UnknownTypeError
from fastloader.fields import BY_TYPE_ID
from fastloader.formats.fld import FldBuilder


def test_pointers_of_raw_images_are_filled_in(tmp_path):
    images = np.arange(4 * 24, dtype=np.uint8).reshape(4, 2, 4, 3)
    with fl.DatasetWriter(tmp_path / "raw.fld", {"image": fl.RawImageField(2, 4)}) as writer:
        writer.write_many([[image] for image in images])
    data = (tmp_path / "raw.fld").read_bytes()
    for image, extent in zip(images, hand.extents(data, 0), strict=True):
        assert data[extent.pointer : extent.pointer + extent.size] == image.tobytes()


def test_empty_payloads_keep_their_metadata(tmp_path):
    arrays = [np.zeros((0, 3), np.float32), np.zeros((2, 0), np.float32), np.ones((1, 3), np.float32)]
    with fl.DatasetWriter(tmp_path / "empty.fld", {"a": fl.NDArrayField("float32", (None, None))}) as writer:
        writer.write_many([[array] for array in arrays])
    reader = fl.open(tmp_path / "empty.fld")
    assert [sample["a"].shape for sample in reader] == [(0, 3), (2, 0), (1, 3)]
    assert [array.shape for array in reader.read_batch([0, 1, 2])["a"]] == [(0, 3), (2, 0), (1, 3)]


@pytest.mark.parametrize(
    "field",
    [
        fl.RawImageField(5, 6, 1, "float32"),
        fl.JPEGImageField(quality=31, max_height=99, max_width=77, subsampling="444"),
        fl.PNGImageField(level=2, max_height=3, max_width=4),
        fl.NDArrayField("<M8[ns]", (3, None, 2)),
        fl.NDArrayField([("x", "<i2"), ("inner", [("y", ">f4", (2, 2))])], None),
        fl.NDArrayField("<U7", ()),
    ],
    ids=repr,
)
def test_arguments_come_back_as_they_were_not_as_defaults(tmp_path, field):
    with fl.DatasetWriter(tmp_path / "options.fld", {"f": field}) as writer:
        writer.write_sample([None])
    assert fl.open(tmp_path / "options.fld").fields == {"f": field}


@dataclass(frozen=True)
class WideField(fl.Field):
    """A user's type with both metadata of an odd size and a payload."""

    base: int = 10

    @property
    def metadata_type(self) -> np.dtype[Any]:
        return np.dtype([("length", "<u2"), ("tag", "u1")])

    def encode(self, value: int) -> fl.Encoded:
        text = str(value * self.base).encode()
        return fl.Encoded((len(text), 255), text)

    def get_decoder_class(self) -> type[fl.Decoder]:
        return WideDecoder


class WideDecoder(fl.Decoder):
    def __call__(self, metadata: Any, read: Any) -> int:
        assert int(metadata["length"]) == len(read())
        return int(bytes(read())) // self.field.base


def test_an_unknown_type_id_does_not_shift_the_other_fields(tmp_path, monkeypatch):
    monkeypatch.setitem(BY_TYPE_ID, 1234, WideField)
    monkeypatch.setattr(WideField, "type_id", 1234)
    fields = {"before": fl.BytesField(), "wide": WideField(base=100), "after": fl.IntField(), "last": fl.BytesField()}
    samples = [{"before": b"b" * i, "wide": i, "after": -i, "last": b"l" * (7 * i)} for i in range(20)]
    with fl.DatasetWriter(tmp_path / "user.fld", fields) as writer:
        writer.write_many(samples)
    known = fl.open(tmp_path / "user.fld")
    assert list(known) == samples
    assert known.fields["wide"] == WideField(base=100)

    monkeypatch.delitem(BY_TYPE_ID, 1234)
    reader = fl.open(tmp_path / "user.fld")
    assert reader.field_names == ["before", "wide", "after", "last"]
    for i, sample in enumerate(samples):
        assert reader.read_sample(i, ["before", "after", "last"]) == {k: v for k, v in sample.items() if k != "wide"}
    batch = reader.read_batch(np.arange(20), ["before", "after", "last"])
    assert batch["after"].tolist() == [-i for i in range(20)]
    assert batch["last"] == [s["last"] for s in samples]
    with pytest.raises(UnknownTypeError, match=r"type id 1234.*register_type"):
        reader.read_sample(0, ["wide"])
    assert fl.verify(tmp_path / "user.fld").ok


def unfinished(tmp_path, monkeypatch) -> bytes:
    """What lies on disk just before the header is written."""
    seen: list[bytes] = []
    publish = FldBuilder.finish

    def look_first(self: FldBuilder) -> tuple[int, int]:
        seen.extend(p.read_bytes() for p in tmp_path.iterdir() if ".writing-" in p.name)
        return publish(self)

    monkeypatch.setattr(FldBuilder, "finish", look_first)
    with fl.DatasetWriter(tmp_path / "whole.fld", {"b": fl.BytesField()}, num_workers=0) as writer:
        writer.write_many([[os.urandom(1 << 20)] for _ in range(30)])
    assert len(seen) == 1
    return seen[0]


def test_an_unfinished_file_does_not_open(tmp_path, monkeypatch):
    data = unfinished(tmp_path, monkeypatch)
    assert len(data) > 1 << 20, "some data is there already"
    assert data[:80] == bytes(80)
    (tmp_path / "half.fld").write_bytes(data)
    with pytest.raises(FormatError, match="never finished"):
        fl.open(tmp_path / "half.fld")


def test_a_finished_file_without_its_header_does_not_open(tmp_path):
    data = (hand.VECTORS / "basic.fld").read_bytes()
    (tmp_path / "headless.fld").write_bytes(bytes(80) + data[80:])
    with pytest.raises(FormatError, match="never finished"):
        fl.open(tmp_path / "headless.fld")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 40, 79, 80, 128, 500, 5000, -1])
def test_a_truncated_file_does_not_open(tmp_path, keep):
    (tmp_path / "cut.fld").write_bytes((hand.VECTORS / "basic.fld").read_bytes()[:keep])
    with pytest.raises(FormatError):
        fl.open(tmp_path / "cut.fld")


@pytest.mark.parametrize("name", ["", "x" * 65, "ä" * 33, "a\0b"])
def test_a_name_that_does_not_fit_is_an_error_and_never_cut(tmp_path, name):
    with pytest.raises(ValueError, match="1 to 64 bytes of UTF-8"):
        fl.DatasetWriter(tmp_path / "names.fld", {name: fl.IntField()})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 64, "ä" * 32])
def test_a_name_of_64_bytes_comes_back_whole(tmp_path, name):
    with fl.DatasetWriter(tmp_path / "names.fld", {name: fl.IntField()}) as writer:
        writer.write_sample([5])
    assert fl.open(tmp_path / "names.fld")[0] == {name: 5}


def test_big_endian_pixels_are_stored_little_endian(tmp_path):
    pixels = np.arange(8, dtype=">u2").reshape(2, 4, 1)
    with fl.DatasetWriter(
        tmp_path / "order.fld", {"raw": fl.RawImageField(2, 4, 1, "uint16"), "png": fl.PNGImageField()}
    ) as writer:
        writer.write_sample([pixels, pixels])
    sample = fl.open(tmp_path / "order.fld")[0]
    np.testing.assert_array_equal(sample["raw"], pixels)
    np.testing.assert_array_equal(sample["png"], pixels)


@pytest.mark.parametrize(
    ("name", "reason"), [(b"", "is empty"), (b"a\0b", "holds a zero byte"), (b"\0a", "holds a zero byte")]
)
def test_a_field_name_that_the_format_forbids_is_refused(tmp_path, name, reason):
    data = bytearray((hand.VECTORS / "tiny.fld").read_bytes())
    at = hand.header(data).descriptors
    data[at : at + 64] = name.ljust(64, b"\0")
    (tmp_path / "x.fld").write_bytes(hand.reseal_all(data))
    with pytest.raises(FormatError, match=f"has a name of field 0 that {reason}"):
        fl.open(tmp_path / "x.fld").field_names  # noqa: B018
