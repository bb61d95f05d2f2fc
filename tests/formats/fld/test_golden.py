"""The golden files: today's writer gives them again, today's reader reads them, and so does a reader by hand."""

from __future__ import annotations

import io
import itertools

import fld_by_hand as hand
import numpy as np
import pytest
from PIL import Image, ImageOps

import fastloader as fl

MAKE = hand.vectors()
FILES = [make.__name__ for make in MAKE["VECTORS"] if make.__name__ not in ("shards", "living")]


def read(name: str) -> bytes:
    return (hand.VECTORS / f"{name}.fld").read_bytes()


@pytest.mark.parametrize("make", MAKE["REPRODUCED"], ids=lambda make: make.__name__)
def test_the_writer_gives_the_same_bytes_again(make, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    make(tmp_path / "made.fld")
    golden = hand.VECTORS / f"{make.__name__}.fld"
    pairs = [(golden, tmp_path / "made.fld")]
    if golden.is_dir():
        names = sorted(p.relative_to(golden) for p in golden.rglob("*.*"))
        assert names == sorted(p.relative_to(tmp_path / "made.fld") for p in (tmp_path / "made.fld").rglob("*.*"))
        pairs = [(golden / name, tmp_path / "made.fld" / name) for name in names]
    for before, now in pairs:
        assert now.read_bytes() == before.read_bytes(), before.name


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_the_bytes_do_not_depend_on_the_number_of_workers(num_workers, tmp_path, monkeypatch):
    monkeypatch.setattr(fl.DatasetWriter.__init__, "__defaults__", (2 << 20, num_workers))
    MAKE["basic"](tmp_path / "made.fld")
    assert (tmp_path / "made.fld").read_bytes() == read("basic")


@pytest.mark.parametrize("name", ["tiny", "basic", "pages", "compressed", "shards", "living"])
def test_the_reader_gives_the_expected_values(name):
    reader = fl.open(hand.VECTORS / f"{name}.fld")
    assert MAKE["expected"](list(reader)) == hand.expected(name)
    assert fl.verify(hand.VECTORS / f"{name}.fld", decode=True).ok


@pytest.mark.parametrize("name", ["tiny", "basic", "pages", "compressed"])
def test_batches_give_the_expected_values(name):
    reader = fl.open(hand.VECTORS / f"{name}.fld")
    batch = reader.read_batch(np.arange(len(reader)))
    for i, sample in enumerate(hand.expected(name)):
        for field, value in sample.items():
            found = batch[field][i]
            if value is None:
                assert found is None or np.ma.getmaskarray(found).all()
                continue
            if isinstance(found, np.ndarray):
                found = np.asarray(found)
            assert MAKE["plain"](found.item() if isinstance(found, np.generic) else found) == value


@pytest.mark.parametrize("name", FILES)
def test_reading_by_hand_gives_the_expected_values(name):
    data = read(name)
    names = [d.name for d in hand.descriptors(data)]
    for sample, values in enumerate(hand.expected(name)):
        assert list(values) == names
        for field, value in enumerate(values.values()):
            found = hand.value(data, field, sample)
            if isinstance(found, tuple):
                found = found[1]
            assert MAKE["plain"](found) == value, (names[field], sample)


def test_masks_are_the_labels_that_pillow_sees():
    reader = fl.open(hand.VECTORS / "masks.fld")
    assert fl.verify(reader.path, decode=True).ok
    for sample, values in enumerate(reader):
        labels = hand.value(read("masks"), 0, sample)
        assert (values["runs"] is None) == (labels is None)
        np.testing.assert_array_equal(values["runs"], labels)
        if values["png"] is not None:
            _, encoded = hand.value(read("masks"), 1, sample)
            np.testing.assert_array_equal(values["png"], np.asarray(Image.open(io.BytesIO(encoded))))


def test_images_have_their_shape_and_the_pixels_pillow_sees():
    data = read("images")
    reader = fl.open(hand.VECTORS / "images.fld")
    for sample, values in enumerate(reader):
        for field, name in enumerate(("jpeg", "png")):
            stored = hand.value(data, field, sample)
            if stored is None:
                assert values[name] is None
                continue
            (height, width, channels, bits), encoded = stored
            image = Image.open(io.BytesIO(encoded))
            pixels = np.asarray(image.convert("RGB") if image.mode == "P" else image).reshape(height, width, -1)
            assert values[name].shape == (height, width, channels) == pixels.shape
            assert values[name].dtype == (np.uint16 if bits == 16 else np.uint8)
            tolerance = 2 if name == "jpeg" else 0
            assert np.abs(values[name].astype(int) - pixels).max() <= tolerance


def test_compressed_payloads_are_kept_only_where_they_are_smaller():
    data = read("compressed")
    assert hand.header(data).flags == 1 | 2 | 4
    assert [(d.codec, d.level) for d in hand.descriptors(data)] == [(1, 1), (2, 9), (0, 0)]
    for field, codec in enumerate((1, 2, 0)):
        for sample, extent in enumerate(hand.extents(data, field)):
            assert extent.codec == (codec if sample % 2 else 0), "the odd samples repeat themselves, the others do not"
            assert (extent.size < extent.raw_size) == bool(extent.codec)
    assert all(hand.header(read(name)).flags == 1 | 4 for name in FILES if name != "compressed")


def test_turned_images_have_the_shape_and_the_pixels_of_pillows_upright_ones():
    data = read("upright")
    reader = fl.open(hand.VECTORS / "upright.fld")
    for sample, name in itertools.product(range(2), reader.field_names):
        found = hand.value(data, reader.field_names.index(name), sample)
        if found is None:
            assert reader[sample][name] is None
            continue
        shape, encoded = found
        with Image.open(io.BytesIO(encoded)) as image:
            wanted = np.asarray(image if name == "lying" else ImageOps.exif_transpose(image))
        got = reader[sample][name]
        assert shape == (*got.shape, 8) == (*wanted.shape, 8)
        assert got.shape[:2] == ((7, 9) if name in ("lying", "alpha") else (9, 7))
        if name == "jpeg":  # another libjpeg may round otherwise
            assert abs(got.astype(int) - wanted).max() <= 2
        else:
            np.testing.assert_array_equal(got, wanted)
