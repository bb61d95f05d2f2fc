"""Masks: labels come back as they were given, whatever they were given as, whole or in part."""

import io
import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pictures import encoded
from PIL import Image

import fastloader as fl
from fastloader import kernels, ops
from fastloader.fields.mask import from_coco
from fastloader.pipeline import PipelineError
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write

ENCODINGS = ("runs", "png")


def blocks(shape, seed=0, labels=(0, 1, 2, 128, 255)):
    """Labels in patches, as masks have them."""
    height, width = shape
    small = np.random.default_rng(seed).choice(np.array(labels, np.uint8), (height // 7 + 1, width // 9 + 1))
    return np.ascontiguousarray(np.kron(small, np.ones((7, 9), np.uint8))[:height, :width])


def coloured(labels):
    """A PIL image whose palette has other numbers than the labels."""
    image = Image.fromarray(labels, "P") if labels.dtype == np.uint8 else labels
    image.putpalette([(255 - i) % 256 for i in range(768)])
    return image


def counts_of(mask):
    """COCO's counts: runs of 0 and 1 in turn, column after column, beginning with 0."""
    flat = mask.T.reshape(-1)
    edges = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    return counts if flat[0] == 0 else [0, *counts]


def text_of(counts):
    """COCO's text of counts."""
    out = bytearray()
    for i, count in enumerate(counts):
        number = count - counts[i - 2] if i > 2 else count
        more = True
        while more:
            bits = number & 31
            number >>= 5
            more = number != (-1 if bits & 16 else 0)
            out.append(48 + bits + (32 if more else 0))
    return bytes(out)


def seen(given):
    """The labels of whatever a field takes."""
    if isinstance(given, dict):
        return from_coco(given)
    if isinstance(given, bytes | bytearray):
        given = Image.open(io.BytesIO(given))
    return np.asarray(given).astype(np.uint8).reshape(np.asarray(given).shape[:2])


class TestMaskField(FieldContract):
    def fields(self):
        return [fl.MaskField(), fl.MaskField("png")]

    def values(self, field):
        binary = blocks((20, 30), labels=(0, 1))
        return [
            blocks((40, 60)),
            blocks((40, 60), 1)[::-1, ::2],
            blocks((13, 17))[:, :, None],
            blocks((13, 17)).astype(np.int64),
            blocks((9, 8), labels=(0, 1)).astype(bool),
            np.full((300, 400), 255, np.uint8),
            np.array([[7]], np.uint8),
            Image.fromarray(blocks((12, 9))),
            coloured(blocks((12, 9), 3)),
            Image.fromarray(blocks((12, 9), labels=(0, 1)).astype(bool)),
            encoded(Image.fromarray(blocks((21, 22))), "PNG"),
            bytearray(encoded(coloured(blocks((21, 22), 5)), "PNG", transparency=1)),
            {"size": [20, 30], "counts": counts_of(binary)},
            {"size": [20, 30], "counts": text_of(counts_of(binary))},
            {"size": (20, 30), "counts": text_of(counts_of(binary)).decode()},
        ]

    def bad_values(self, field):
        ready = encoded(Image.fromarray(blocks((21, 22))), "PNG")
        return [
            np.zeros((8, 8, 3), np.uint8), np.zeros(8, np.uint8), np.zeros((0, 8), np.uint8), np.full((2, 2), 256),
            np.full((2, 2), -1), np.full((2, 2), -1, np.int8), np.zeros((2, 2)), b"", b"no picture", ready[:60],
            ready[: len(ready) - 20], encoded(Image.new("RGB", (4, 4)), "PNG"), encoded(Image.new("LA", (4, 4)), "PNG"),
            encoded(Image.fromarray(np.zeros((4, 4), np.uint16)), "PNG"), encoded(Image.new("L", (4, 4)), "JPEG"),
            kernels.runs_encode(bytes(4), 2, 2), Image.new("RGB", (4, 4)), Image.new("F", (4, 4)), "path.png", 5,
            {}, {"size": [2, 2]}, {"size": [2, 2], "counts": [3]}, {"size": [2, 2], "counts": [-1, 5]},
            {"size": [2], "counts": [2]}, {"size": [0, 0], "counts": []}, {"size": [2, 2], "counts": [2.0, 2.0]},
            {"size": [2, 2], "counts": "~"}, {"size": [2, 2], "counts": b"P"}, {"size": [2, 2], "counts": [2**70]},
            {"size": [2, 2], "counts": "ä"},
        ]  # fmt: skip

    def equal(self, given, got):
        return identical(np.ascontiguousarray(seen(given)), got)


def test_coco_text_is_that_of_its_own_tools():
    """A mask of 6x7 pixels with a block of 3x2, and what pycocotools makes of it."""
    mask = np.zeros((6, 7), np.uint8)
    mask[1:4, 2:4] = 1
    assert counts_of(mask) == [13, 3, 3, 3, 20]
    assert text_of([13, 3, 3, 3, 20]) == b"=330a0"
    assert identical(from_coco({"size": [6, 7], "counts": b"=330a0"}), mask)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_samples_of_few_bits_are_labels_as_they_are(bits, encoding, tmp_path):
    labels = blocks((10, 13), labels=range(1 << bits))
    file = encoded(coloured(labels), "PNG", bits=bits)
    assert Image.open(io.BytesIO(file)).mode in "1P"
    reader = write(tmp_path / "x.fld", fl.MaskField(encoding), [file])
    assert identical(reader[0]["it"], labels)


def test_png_files_are_stored_as_they_are(tmp_path):
    file = encoded(coloured(blocks((10, 13))), "PNG") + b"trailing"
    reader = write(tmp_path / "x.fld", fl.MaskField("png"), [file])
    assert bytes(reader.read_payload(0, "it")) == file


def test_runs_are_smaller_than_labels(tmp_path):
    reader = write(tmp_path / "x.fld", fl.MaskField(), [blocks((700, 900)), np.zeros((4096, 4096), np.uint8)])
    assert len(reader.read_payload(0, "it")) < 700 * 900 / 3
    assert len(reader.read_payload(1, "it")) == 12 + 256 * 4


masks = st.tuples(st.integers(1, 40), st.integers(1, 40)).flatmap(
    lambda shape: arrays.arrays(
        np.uint8, shape, elements=st.sampled_from([0, 1, 127, 128, 255]), fill=st.integers(0, 9)
    )
)


@settings(max_examples=80, deadline=None)
@given(masks)
def test_runs_decode_to_what_was_encoded(mask):
    data = kernels.runs_encode(mask, *mask.shape)
    shape = kernels.image_info(kernels.RUNS, data)
    assert shape == (*mask.shape, 1, 8)
    assert identical(kernels.decode_image(kernels.RUNS, data, shape)[..., 0], mask)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 127, 128, 129, 16384, 16385, 65535, 65536, 65537, 200_000])
def test_runs_of_any_length(length):
    mask = np.concatenate([np.full(length, 200, np.uint8), np.arange(5, dtype=np.uint8), np.full(length, 3, np.uint8)])
    data = kernels.runs_encode(mask, 1, len(mask))
    got = kernels.decode_image(kernels.RUNS, data, (1, len(mask), 1, 8))
    assert identical(got.reshape(-1), mask)


HEADER = b"FLMR" + np.array([2, 3], "<u4").tobytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no runs"),
        (b"FLMX" + HEADER[4:] + b"\1\5", "no runs"),
        (HEADER[:11], "no runs"),
        (HEADER, "truncated"),
        (HEADER + b"\1", "truncated"),
        (HEADER + b"\1\4", "truncated"),
        (HEADER + b"\1\x85", "truncated"),
        (HEADER + b"\1\6", "more labels than pixels"),
        (HEADER + b"\1\5\1\0", "more labels than pixels"),
        (HEADER + b"\1\5\0", "more labels than pixels"),
        (HEADER + b"\1\x80\x80\x04", "a run that is too long"),
        (HEADER + b"\1\x80\x80\x80\0", "a run that is too long"),
        (b"FLMR" + bytes(8) + b"\1\5", "no pixels"),
    ],
)
def test_runs_that_are_none_are_refused(data, message):
    with pytest.raises(kernels.Failure, match=message):
        kernels.decode_image(kernels.RUNS, data, (2, 3, 1, 8) if data[4:8] != bytes(4) else (0, 0, 1, 8))


def test_a_claim_of_many_pixels_is_refused_before_any_is_allocated():
    for sides in ([2**15, 2**15], [2**32 - 1, 2**32 - 1], [1, 2**31], [1, 17 * 2**14]):
        data = b"FLMR" + np.array(sides, "<u4").tobytes() + b"\0\xff\xff\3"
        with pytest.raises(kernels.Failure, match="claims more pixels than its bytes could hold"):
            kernels.image_info(kernels.RUNS, data)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_damage_names_the_sample(encoding, tmp_path, monkeypatch):
    path = tmp_path / "x.fld"
    shape, payload = fl.MaskField(encoding).encode(blocks((20, 30)))
    monkeypatch.setattr(fl.MaskField, "encode", lambda self, value: fl.Encoded(shape, value))
    write(path, fl.MaskField(encoding), [payload, payload[:-9]])
    for pipelines in ({}, {"it": [ops.CenterCrop(20)]}):
        with pytest.raises(fl.DecodeError) as caught:
            list(fl.DataLoader(fl.open(path), 2, shuffle=False, pipelines=pipelines))
        assert caught.value.sample == 1
    with pytest.raises(fl.DecodeError, match="sample 1"):
        fl.open(path)[1]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Masks in both encodings, beside the same as gray images."""
    path = tmp_path_factory.mktemp("masks") / "x.fld"
    fields = {name: fl.MaskField(name) for name in ENCODINGS} | {"gray": fl.PNGImageField()}
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(12):
            mask = blocks((50 + i, 70 - i), i)
            writer.write_sample({"runs": mask, "png": mask, "gray": mask})
    return path


def load(path, name, pipeline, **options):
    loader = fl.DataLoader(fl.open(path), 5, shuffle=False, fields=[name], pipelines={name: pipeline}, **options)
    return np.concatenate([batch[name] for batch in loader])


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 50), st.integers(1, 58), st.integers(0, 99))
def test_a_crop_is_that_of_the_labels(encoding, scenes, height, width, seed):
    pipelines = {encoding: [ops.RandomCrop((height, width)).returning("box")]}
    reader = fl.open(scenes)
    (batch,) = fl.DataLoader(reader, 12, shuffle=False, fields=[encoding], pipelines=pipelines, seed=seed)
    assert batch[encoding].shape == (12, height, width, 1)
    for i, sample in enumerate(reader):
        left, top = batch["box"][i, :2].astype(int)
        assert (batch[encoding][i, ..., 0] == sample[encoding][top : top + height, left : left + width]).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "pipeline",
    [
        [ops.RandomResizedCrop(32, filter="nearest").shared("a"), ops.HorizontalFlip().shared("b")],
        [ops.RandomCrop(40, 3).shared("a"), ops.VerticalFlip().shared("b"), ops.RandomRotation(90).shared("c")],
        [ops.Resize((31, 33), "nearest"), ops.RandomAffine(30, (0.2, 0.1), (0.7, 1.3), 10).shared("a")],
        [ops.Resize((90, 40), "nearest"), ops.RandomTranslate(15).shared("a"), ops.Cast("float32")],
    ],
)
def test_pipelines_do_with_masks_what_they_do_with_gray_images(encoding, pipeline, scenes):
    got = load(scenes, encoding, pipeline, seed=3)
    assert identical(got, load(scenes, "gray", [ops.Grayscale(), *pipeline], seed=3))
    assert set(np.unique(got)) <= {0, 1, 2, 128, 255}


@pytest.mark.parametrize("op", [ops.RandomResizedCrop(32), ops.Resize((9, 9), "lanczos"),
                                ops.RandomRotation(10, filter="bilinear").shared("turn")])  # fmt: skip
def test_what_would_mix_labels_is_refused(op, scenes):
    with pytest.raises(PipelineError, match='would mix the labels of a mask: give it filter="nearest"'):
        load(scenes, "runs", [op])


def test_masks_are_not_turned_by_exif_data(scenes):
    with pytest.raises(PipelineError, match="masks have none"):
        load(scenes, "png", [ops.Orient(), ops.CenterCrop(9)])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_views_of_a_mask(encoding, scenes):
    views = ops.Views(2, [ops.RandomResizedCrop(16, filter="nearest")])
    assert load(scenes, encoding, views).shape == (12, 2, 16, 16, 1)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_exports_hold_png_files(encoding, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"mask": fl.MaskField(encoding)}) as writer:
        writer.write_sample({"mask": blocks((9, 11))})
    fl.open(tmp_path / "x.fld").write(tmp_path / "x.tar")
    with tarfile.open(tmp_path / "x.tar") as tar:
        (member,) = tar.getmembers()
        assert member.name.endswith(".mask.png")
        assert (np.asarray(Image.open(io.BytesIO(tar.extractfile(member).read()))) == blocks((9, 11))).all()


def test_an_encoding_that_is_none_is_refused():
    with pytest.raises(ValueError, match="encoding='rle': 'runs' or 'png'"):
        fl.MaskField("rle")
