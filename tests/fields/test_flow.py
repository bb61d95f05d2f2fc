"""Optical flow: error bounds, and files of others."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fastloader as fl
from fastloader import kernels
from fastloader.fields.flow import read_flo, read_kitti
from fastloader.formats.fld import Dataset
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write


def flow(shape=(12, 16, 2), seed=0, scale=8.0):
    """Smooth, as flow is, with a part that is not known."""
    rng = np.random.default_rng(seed)
    made = np.cumsum(rng.normal(0, 0.2, shape), axis=-2) + rng.normal(0, scale, (*shape[:-3], 1, 1, 2))
    made[..., :2, :3, :] = np.nan
    return made.astype(np.float32)


def flo(values):
    height, width, _ = values.shape
    return b"PIEH" + struct.pack("<ii", width, height) + values.astype("<f4").tobytes()


def kitti(values):
    known = ~np.isnan(values[..., :1])
    pixels = np.concatenate([np.where(known, np.nan_to_num(values) * 64 + 32768, 0), known], -1).astype(np.uint16)
    return kernels.png_encode(pixels, *pixels.shape, 16, 6)


def near(field, given, got):
    """Whether what came back is as near as the field says."""
    if got.dtype != np.float32 or got.shape != given.shape or (np.isnan(got) != np.isnan(given)).any():
        return False
    wide = given.astype(np.float64)
    bound = np.maximum(np.abs(wide) / 2048, 2.0**-25) if field.step is None else field.step / 2
    error = np.abs(got - wide)
    return bool((np.nan_to_num(error - bound - np.abs(wide) * 2.0**-24) <= 0).all())


class TestOpticalFlowField(FieldContract):
    def fields(self):
        return [fl.OpticalFlowField(), fl.OpticalFlowField("int16"), fl.OpticalFlowField("int16", step=0.01)]

    def values(self, field):
        return [flow(), flow((3, 8, 6, 2), 1), flow(seed=2).astype(np.float64), flow((1, 1, 2))[..., ::-1]]

    def bad_values(self, field):
        large = np.full((2, 2, 2), 70000.0)
        return [
            large, np.full((2, 2, 2), np.inf), np.zeros((4, 4, 2), np.int32), np.zeros((4, 4, 3)), np.zeros((4, 2)),
            np.zeros((0, 4, 2)), b"", b"PIEH", b"PIEH" + bytes(20), flo(flow())[:-1], b"\x89PNG\r\n\x1a\nxx",
            kernels.png_encode(np.zeros((4, 4, 3), np.uint8), 4, 4, 3, 8, 6), "no/such.flo", [], 5,
            [flow(), flow((1, 1, 2))],
        ]  # fmt: skip

    def equal(self, given, got):
        return any(near(field, np.asarray(given, np.float32), got) for field in self.fields())


@settings(max_examples=60, deadline=None)
@given(
    values=hnp.arrays(np.float32, (3, 4, 2), elements=st.floats(-300, 300, width=32) | st.just(float("nan"))),
    field=st.sampled_from([
        fl.OpticalFlowField(), fl.OpticalFlowField("int16"), fl.OpticalFlowField("int16", step=0.05),
        fl.OpticalFlowField("int16", step=3),
    ]),
)  # fmt: skip
def test_the_error_is_within_the_bound(values, field):
    payload = np.frombuffer(field.encode(values).payload, "<i2")
    assert near(field, values, field.restored(payload, values.shape))


def test_the_bound_of_int16_is_half_a_step():
    field = fl.OpticalFlowField("int16", step=0.5)
    values = np.array([0.24, 0.26, -0.24, 1.24]).reshape(1, 2, 2)
    got = field.restored(np.frombuffer(field.encode(values).payload, "<i2"), (1, 2, 2))
    assert got.reshape(-1).tolist() == [0, 0.5, 0, 1]


def test_middlebury_files(tmp_path):
    values = flow()
    values[np.isnan(values)] = 1.7e9
    (tmp_path / "a.flo").write_bytes(flo(values))
    for value in (flo(values), tmp_path / "a.flo", str(tmp_path / "a.flo")):
        assert identical(fl.OpticalFlowField().prepare(value), flow())
    assert read_flo(flo(values)).shape == (12, 16, 2)


def test_kitti_files_are_kept_exactly(tmp_path):
    values = np.round(flow() * 64) / 64
    (tmp_path / "a.png").write_bytes(kitti(values))
    field = fl.OpticalFlowField("int16")
    reader = write(tmp_path / "x.fld", field, [tmp_path / "a.png", [kitti(values), kitti(values)]])
    assert identical(reader[0]["it"], values.astype(np.float32))
    assert identical(reader[1]["it"], np.stack([values, values]).astype(np.float32))
    assert np.isnan(read_kitti(kitti(values))).any()


def test_payloads_are_compressed_unless_the_writer_is_told_otherwise(tmp_path):
    smooth = np.cumsum(np.random.default_rng(0).normal(0, 0.03, (200, 200, 2)), axis=1)
    sizes = {}
    for name, options in (("usual", {}), ("none", {"compression": {"it": None}}), ("lz4", {"compression": "lz4"})):
        write(tmp_path / f"{name}.fld", fl.OpticalFlowField("int16"), [smooth], **options)
        sizes[name] = (tmp_path / f"{name}.fld").stat().st_size
    codecs = {name: Dataset(tmp_path / f"{name}.fld").descriptors[0].codec for name in sizes}
    assert codecs == {"usual": 2, "none": 0, "lz4": 1}
    assert sizes["usual"] < sizes["lz4"] < sizes["none"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dtype": "float32"}, ValueError, "'float16' or 'int16'"),
        ({"step": 0.1}, ValueError, "step=0.1 is for dtype='int16'"),
        ({"dtype": "int16", "step": 0}, ValueError, "from 1e-6"),
        ({"dtype": "int16", "step": "1"}, TypeError, "a number of pixels"),
    ],
)
def test_wrong_options_are_told(options, error, words):
    with pytest.raises(error, match=words):
        fl.OpticalFlowField(**options)


def test_what_is_too_large_is_told_with_the_limit():
    with pytest.raises(ValueError, match=r"a flow of 600 pixels; .* holds up to 511.984"):
        fl.OpticalFlowField("int16").encode(np.full((2, 2, 2), 600.0))
    assert fl.OpticalFlowField("int16", step=1).encode(np.full((2, 2, 2), 600.0)).metadata == (1, 2, 2, 3)
