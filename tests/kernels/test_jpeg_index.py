"""The index of a JPEG against files whose every bit is known, and the files that get none."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jpeg_by_hand import FACTORS, draw, segment, unpack
from PIL import Image

from fastloader import kernels


def saved(pixels: np.ndarray, **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", **options)
    return out.getvalue()


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@given(
    st.integers(0, 2**32), st.integers(1, 120), st.integers(1, 70), st.sampled_from(sorted(FACTORS)),
    st.sampled_from([1, 2, 3, 4, 8]), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_anchors_are_where_the_mcus_were_put(seed, width, height, factors, interval, fitted):
    drawn = draw(seed, width, height, FACTORS[factors], fitted=fitted)
    index, why_not = kernels.jpeg_index(drawn.data, interval)
    if why_not:
        assert why_not == "an index would be large beside it"
        return
    found, anchors = unpack(index)
    assert found % interval == 0
    wanted = [
        (place, (*predictors, 0, 0)[:3])
        for places, row in zip(drawn.places, drawn.predictors, strict=True)
        for place, predictors in zip(places[::found], row[::found], strict=True)
    ]
    assert anchors[: len(wanted)] == wanted
    assert anchors[len(wanted)][0] == drawn.end
    more = anchors[len(wanted) + 1 :]  # of no bits: the last byte has room for them
    assert not any(place != drawn.end for place, _ in more)


def test_the_interval_is_kept_where_the_index_is_small_beside_the_file():
    data = saved(noise(200, 300), quality=90)
    for interval in (4, 8):
        index, why_not = kernels.jpeg_index(data, interval)
        assert not why_not
        assert unpack(index)[0] == interval
        assert len(index) < len(data) * 0.02


def test_a_picture_of_one_colour_gets_few_anchors():
    data = saved(np.zeros((1500, 2000, 3), np.uint8))
    index, why_not = kernels.jpeg_index(data, 4)
    assert not why_not
    assert unpack(index)[0] > 4
    assert len(index) < len(data) / 8


RESTARTS = segment(0xDD, struct.pack(">H", 3))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (saved(noise(30, 30), progressive=True), "progressive"),
        (saved(noise(30, 30), restart_marker_blocks=2), "restart intervals"),
        (draw(0, 30, 30, extra=RESTARTS).data, "restart intervals"),
        (draw(0, 30, 30, separate=True).data, "several scans"),
        (draw(0, 30, 30, marker=0xC9).data, "arithmetic"),
        (draw(0, 30, 30, marker=0xC3).data, "markers are broken"),
        (draw(0, 30, 30, ((3, 1), (2, 1), (1, 1))).data, "not whole"),
        (draw(0, 30, 30).data[:-2], "does not end with the image"),
        (draw(0, 30, 30).data[:-30] + b"\xff\xd9", "ends early"),
        (draw(0, 30, 30).data[:-2] + b"abc\xff\xd9", "more data than image"),
        (b"", "broken"),
        (b"\xff\xd8", "broken"),
        (bytes(100), "broken"),
    ],
)
def test_what_can_not_be_indexed_gets_an_index_that_leads_nowhere(data, why):
    index, why_not = kernels.jpeg_index(data, 4)
    assert why in why_not
    assert index == b"\xff\xd9\0\0" + struct.pack("<I", 12) + b"FLJX"


def test_twelve_bits_and_four_components_are_not_indexed():
    data = bytearray(draw(0, 30, 30).data)
    at = data.index(b"\xff\xc0")
    data[at + 4] = 12
    assert "other than 8 bits" in kernels.jpeg_index(bytes(data), 4)[1]
    cmyk = io.BytesIO()
    Image.new("CMYK", (30, 30)).save(cmyk, "JPEG")
    assert "neither one component nor three" in kernels.jpeg_index(cmyk.getvalue(), 4)[1]


def test_a_file_that_lacks_a_table_is_not_indexed():
    data = draw(0, 30, 30).data
    for marker in (b"\xff\xdb", b"\xff\xc4"):
        at = data.index(marker)
        size = struct.unpack(">H", data[at + 2 : at + 4])[0] + 2
        assert "lacks a table" in kernels.jpeg_index(data[:at] + data[at + size :], 4)[1]


def test_bytes_behind_the_image_do_no_harm():
    data = draw(3, 100, 60).data
    assert kernels.jpeg_index(data, 4) == kernels.jpeg_index(data + b"left behind \xff\xd8", 4)


@pytest.mark.parametrize("interval", [0, 129, 2**32 - 1])
def test_an_interval_out_of_range_is_refused(interval):
    with pytest.raises(kernels.Failure, match="1 to 128"):
        kernels.jpeg_index(draw(0, 30, 30).data, interval)


def test_a_payload_is_cut_where_its_index_begins():
    data = draw(0, 100, 60).data
    index, _ = kernels.jpeg_index(data, 4)
    assert kernels.jpeg_size(data + index) == len(data)
    assert kernels.jpeg_size(data) == len(data)
    assert kernels.jpeg_size(b"") == 0
    for wrong in (
        index[:-1] + b"x",
        b"x" + index[1:],
        index[:-8] + struct.pack("<I", 2**32 - 1) + index[-4:],
        index[:-8] + struct.pack("<I", 3) + index[-4:],
        index[-8:],
    ):
        assert kernels.jpeg_size(data + wrong) == len(data + wrong)


def test_a_jpeg_with_an_index_behind_it_is_a_jpeg_to_everybody_else():
    data = saved(noise(40, 60))
    index, _ = kernels.jpeg_index(data, 4)
    seen = np.asarray(Image.open(io.BytesIO(data + index)))
    assert (seen == np.asarray(Image.open(io.BytesIO(data)))).all()
    shape = kernels.image_info(kernels.JPEG, data + index)
    ours = [kernels.decode_image(kernels.JPEG, both, shape) for both in (data, data + index)]
    assert (ours[0] == ours[1]).all()


def test_a_truncated_jpeg_is_an_error_although_an_index_is_behind_it():
    data = saved(noise(17, 20))
    shape = kernels.image_info(kernels.JPEG, data)
    for keep in range(len(data)):
        index, _ = kernels.jpeg_index(data[:keep], 4)
        with pytest.raises(kernels.Failure):
            kernels.decode_image(kernels.JPEG, data[:keep] + index, shape)
