"""Every way to a part of a JPEG's pixels gives what the full decode has there."""

from __future__ import annotations

import io
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jpeg_by_hand import FACTORS, Table, draw
from PIL import Image, features

from fastloader import kernels
from fastloader.kernels import JPEG, decode_jpeg_box

JPEG_TOLERANCE = 0 if features.check("libjpeg_turbo") else 2
ROUTES = ("partial", "splice", "automatic")
Box = tuple[int, int, int, int]


def photo(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / (3 + c) + y / 9) + np.cos(y / (5 - c)) for c in range(channels)], -1)
    return ((waves + 2) * 64 + rng.normal(0, 12, waves.shape)).clip(0, 255).astype(np.uint8)


def saved(pixels: np.ndarray, **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(out, "JPEG", **options)
    return out.getvalue()


def whole(data: bytes, shrink: int = 1) -> np.ndarray:
    """The slow twin: everything, without an index."""
    shape = kernels.image_info(JPEG, data)
    height, width = (-(-side // shrink) for side in shape[:2])
    pixels, route = decode_jpeg_box(data, b"", shape, (0, 0, width, height), shrink=shrink, route="full")
    assert route == "full"
    if shrink == 1:
        assert (pixels == kernels.decode_image(JPEG, data, shape)).all()
    return pixels


def cut(pixels: np.ndarray, box: Box) -> np.ndarray:
    x, y, width, height = box
    return pixels[y : y + height, x : x + width]


def some_boxes(rng: Random, height: int, width: int, count: int) -> list[Box]:
    """Boxes of any size, many of them small and many at an edge."""
    boxes = []
    for _ in range(count):
        w, h = rng.randint(1, width), rng.randint(1, height)
        if rng.random() < 0.4:
            w, h = min(w, rng.randint(1, 5)), min(h, rng.randint(1, 5))
        x, y = (rng.choice([0, rest, rng.randint(0, rest)]) for rest in (width - w, height - h))
        boxes.append((x, y, w, h))
    return boxes


def check(data: bytes, interval: int, seed: int, boxes: int = 4) -> set[tuple[str, str]]:
    """All routes at all scales against the slow twin; the routes that were asked for and taken."""
    rng = Random(seed)
    shape = kernels.image_info(JPEG, data)
    index, _ = kernels.jpeg_index(data, interval)
    taken = set()
    for shrink in (1, 2, 4, 8):
        wanted = whole(data, shrink)
        for box in some_boxes(rng, *wanted.shape[:2], boxes):
            for route in ROUTES:
                found, way = decode_jpeg_box(data, index, shape, box, shrink=shrink, route=route)
                assert (found == cut(wanted, box)).all(), (shrink, box, route, way)
                taken.add((route, way))
    return taken


sizes = st.one_of(st.integers(1, 40), st.integers(1, 200))


@given(
    st.integers(0, 2**32), sizes, sizes, st.sampled_from(["4:4:4", "4:2:2", "4:2:0", "gray"]),
    st.sampled_from([1, 30, 75, 95, 100]), st.booleans(), st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_files_of_pillow(seed, height, width, subsampling, quality, optimize, interval):
    if subsampling == "gray":
        data = saved(photo(height, width, 1, seed % 7), quality=quality)
    else:
        # Pillow gives fitted tables a buffer that high quality overflows.
        fitted = {"optimize": True} if optimize and quality <= 75 else {}
        data = saved(photo(height, width, 3, seed % 7), quality=quality, subsampling=subsampling, **fitted)
    check(data, interval, seed)


@given(
    st.integers(0, 2**32), st.integers(1, 110), st.integers(1, 70), st.sampled_from(sorted(FACTORS)), st.booleans(),
    st.sampled_from([1, 2, 3, 4, 8]),
)  # fmt: skip
@settings(max_examples=250, deadline=None)
def test_files_with_any_sampling_factors(seed, width, height, factors, fitted, interval):
    check(draw(seed, width, height, FACTORS[factors], fitted=fitted).data, interval, seed)


@pytest.mark.parametrize("factors", sorted(FACTORS))
def test_splicing_is_what_happens_for_every_sampling(factors):
    assert ("splice", "splice") in check(draw(5, 150, 90, FACTORS[factors]).data, 2, 0)


@pytest.mark.parametrize("options", [{"progressive": True}, {"restart_marker_blocks": 3}, {"restart_marker_rows": 1}])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_files_without_an_index_are_decoded_in_part(options, subsampling):
    taken = check(saved(photo(90, 130), subsampling=subsampling, **options), 4, 0, boxes=10)
    assert taken == {(route, "partial") for route in ROUTES}


def test_a_file_of_a_scan_a_component_is_decoded_in_part():
    assert ("splice", "partial") in check(draw(1, 90, 60, separate=True).data, 4, 0, boxes=10)


def test_an_arithmetic_coded_file_is_decoded_in_full():
    data = (Path(__file__).parents[1] / "vectors" / "images" / "arithmetic" / "rgb-420.jpg").read_bytes()
    assert kernels.jpeg_index(data, 4)[1] == "it is arithmetic-coded"
    assert check(data, 4, 0) == {(route, "full") for route in ROUTES}


@pytest.mark.parametrize("shrink", [1, 2, 4, 8])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_a_box_anywhere(subsampling, shrink):
    """Every place of small boxes, so that each meets every edge of MCUs, anchors and image."""
    data = saved(photo(37, 53), subsampling=subsampling)
    shape = kernels.image_info(JPEG, data)
    index, _ = kernels.jpeg_index(data, 1)
    wanted = whole(data, shrink)
    height, width = wanted.shape[:2]
    for w, h in ((1, 1), (3, 2)):
        for y in range(height - h + 1):
            for x in range(width - w + 1):
                for route in ("partial", "splice"):
                    found, _ = decode_jpeg_box(data, index, shape, (x, y, w, h), shrink=shrink, route=route)
                    assert (found == cut(wanted, (x, y, w, h))).all(), (x, y, w, h, route)


@pytest.mark.parametrize("shrink", [2, 4, 8])
@pytest.mark.parametrize("channels", [1, 3])
def test_shrunk_pixels_are_those_of_pillow(channels, shrink):
    data = saved(photo(80, 120, channels), quality=90)
    image = Image.open(io.BytesIO(data))
    image.draft(image.mode, (120 // shrink, 80 // shrink))
    seen = np.asarray(image).reshape(80 // shrink, 120 // shrink, channels)
    assert np.abs(whole(data, shrink).astype(int) - seen).max() <= JPEG_TOLERANCE


@pytest.mark.parametrize("route", ["full", *ROUTES])
def test_padded_pixels_are_the_same_with_a_byte_between(route):
    data = saved(photo(70, 90))
    shape = kernels.image_info(JPEG, data)
    index, _ = kernels.jpeg_index(data, 4)
    found, _ = decode_jpeg_box(data, index, shape, (11, 13, 40, 30), padded=True, route=route)
    assert (found[..., :3] == cut(whole(data), (11, 13, 40, 30))).all()
    assert (found[..., 3] == 255).all()


def test_the_way_is_chosen_by_what_is_wanted():
    data = saved(photo(400, 500), quality=90)
    shape = kernels.image_info(JPEG, data)
    index, _ = kernels.jpeg_index(data, 4)
    ways = {
        box: decode_jpeg_box(data, index, shape, box)[1]
        for box in ((200, 200, 100, 100), (0, 0, 500, 400), (0, 0, 500, 40), (0, 300, 500, 100))
    }
    assert list(ways.values()) == ["splice", "partial", "partial", "splice"]
    assert decode_jpeg_box(data, b"", shape, (200, 200, 100, 100))[1] == "partial"


def test_differences_without_a_code_get_one():
    """Fitted tables lack the categories that joining distant MCUs needs."""
    steps = (0, 3, -3)
    drawn = draw(2, 300, 200, fitted=True, steps=steps)
    shape = kernels.image_info(JPEG, drawn.data)
    index, _ = kernels.jpeg_index(drawn.data, 1)
    wanted = whole(drawn.data)
    for x in range(0, 256, 16):
        found, way = decode_jpeg_box(drawn.data, index, shape, (x, 50, 30, 100), route="splice")
        assert way == "splice"
        assert (found == cut(wanted, (x, 50, 30, 100))).all()


def test_a_table_with_no_code_left_gives_way_to_decoding_in_part():
    full = Table({0: 1, 2: 2})
    full.counts, full.order = bytes([1] * 16), [0, 2] + [0] * 14  # the others are codes that nobody uses
    drawn = draw(2, 300, 200, dc=full, steps=(0, 3, -3))
    shape = kernels.image_info(JPEG, drawn.data)
    index, why_not = kernels.jpeg_index(drawn.data, 1)
    assert not why_not
    wanted = whole(drawn.data)
    ways = set()
    for x in range(0, 256, 16):
        found, way = decode_jpeg_box(drawn.data, index, shape, (x, 50, 30, 100), route="splice")
        assert (found == cut(wanted, (x, 50, 30, 100))).all()
        ways.add(way)
    assert "partial" in ways


def test_one_decoder_after_another_does_not_remember():
    """State is kept between calls in a thread; tables and sizes of one file must not reach the next."""
    files = [
        saved(photo(90, 120), quality=20), saved(photo(50, 60, 1), quality=95), draw(7, 100, 80, FACTORS["4:4:0"]).data,
        saved(photo(90, 120), quality=98, subsampling="4:4:4"), saved(photo(64, 64), keep_rgb=True),
    ]  # fmt: skip
    indexes = [kernels.jpeg_index(data, 1)[0] for data in files]
    wanted = [whole(data) for data in files]
    for number in Random(0).choices(range(len(files)), k=100):
        box = (17, 9, 20, 30)
        shape = kernels.image_info(JPEG, files[number])
        found, way = decode_jpeg_box(files[number], indexes[number], shape, box, route="splice")
        assert way == "splice"
        assert (found == cut(wanted[number], box)).all()


WHOLE = saved(photo(64, 96), quality=80)
SHAPE = kernels.image_info(JPEG, WHOLE)


@pytest.mark.parametrize(
    "box", [(0, 0, 0, 5), (0, 0, 5, 0), (90, 0, 7, 5), (0, 60, 5, 5), (96, 0, 1, 1), (2**32 - 1, 0, 2, 1)]
)
def test_a_box_outside_the_image_is_refused(box):
    out = np.zeros(box[2] * box[3] * 3, np.uint8)
    with pytest.raises(kernels.Failure, match="outside the image"):
        kernels.jpeg_crop(WHOLE, b"", np.array(SHAPE, np.uint32), box, 1, 3, 3, out)


def test_the_box_is_one_of_the_shrunk_image():
    decode_jpeg_box(WHOLE, b"", SHAPE, (0, 0, 12, 8), shrink=8)
    with pytest.raises(kernels.Failure, match="outside the image"):
        decode_jpeg_box(WHOLE, b"", SHAPE, (0, 0, 13, 8), shrink=8)


def test_other_mistakes_of_the_caller_are_refused():
    with pytest.raises(kernels.Failure, match="shrunk by 1, 2, 4 or 8"):
        decode_jpeg_box(WHOLE, b"", SHAPE, (0, 0, 4, 4), shrink=3)
    with pytest.raises(kernels.Failure, match="one channel or three"):
        decode_jpeg_box(WHOLE, b"", (64, 96, 2, 8), (0, 0, 4, 4))
    with pytest.raises(kernels.Failure, match="four for three"):
        decode_jpeg_box(WHOLE, b"", (64, 96, 1, 8), (0, 0, 4, 4), padded=True)
    with pytest.raises(ValueError, match="wrong size"):
        kernels.jpeg_crop(WHOLE, b"", np.array(SHAPE, np.uint32), (0, 0, 4, 4), 1, 3, 3, np.zeros(47, np.uint8))
    with pytest.raises(ValueError, match="no such route"):
        kernels.jpeg_crop(WHOLE, b"", np.array(SHAPE, np.uint32), (0, 0, 4, 4), 1, 3, 4, np.zeros(48, np.uint8))


@pytest.mark.parametrize("wrong", [(96, 64, 3, 8), (64, 95, 3, 8), (64, 96, 1, 8), (64, 96, 3, 16)])
@pytest.mark.parametrize("index", [b"", kernels.jpeg_index(WHOLE, 4)[0]])
def test_another_shape_than_the_stored_one_is_refused(wrong, index):
    with pytest.raises(kernels.Failure, match="differs from its stored shape"):
        decode_jpeg_box(WHOLE, index, wrong, (0, 0, 4, 4))


@pytest.mark.parametrize("route", ["full", "partial", "automatic"])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("shrink", [1, 2, 8])
def test_a_part_of_ink_is_what_the_whole_has_there(route, subsampling, shrink):
    out = io.BytesIO()
    ink = Image.fromarray(np.concatenate([photo(90, 130), photo(90, 130)[..., :1]], -1), "CMYK")
    ink.save(out, "JPEG", quality=90, subsampling=subsampling)
    data = out.getvalue()
    shape = kernels.image_info(JPEG, data)
    all_of_it = (0, 0, -(-130 // shrink), -(-90 // shrink))
    full, _ = decode_jpeg_box(data, b"", shape, all_of_it, shrink=shrink, route="full")
    if shrink == 1:
        assert (full == np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))).all()
    for box in ((0, 0, 3, 2), (5, 4, 7, 6), (all_of_it[2] - 9, all_of_it[3] - 8, 9, 8), all_of_it):
        found, _ = decode_jpeg_box(data, b"", shape, box, shrink=shrink, route=route)
        assert (found == cut(full, box)).all()
        padded, _ = decode_jpeg_box(data, b"", shape, box, shrink=shrink, route=route, padded=True)
        assert (padded[..., :3] == found).all()
        assert (padded[..., 3] == 255).all()


def test_twelve_bits_are_an_error_that_says_so():
    deep = bytearray(WHOLE)
    deep[WHOLE.index(b"\xff\xc0") + 4] = 12
    with pytest.raises(kernels.Failure, match="precision 12"):
        decode_jpeg_box(bytes(deep), b"", SHAPE, (0, 0, 4, 4))


@pytest.mark.parametrize("progressive", [False, True])
def test_a_truncated_scan_is_an_error_or_right_wherever_it_was_cut(progressive):
    data = saved(photo(40, 48), progressive=progressive)
    shape = kernels.image_info(JPEG, data)
    wanted = whole(data)
    right, kinds = 0, set()
    for keep in range(len(data)):
        index, why_not = kernels.jpeg_index(data[:keep], 4)
        assert why_not
        for box in ((0, 0, 48, 40), (20, 5, 9, 9), (30, 30, 18, 10)):
            try:
                found, _ = decode_jpeg_box(data[:keep], index, shape, box)
            except kernels.Failure as failure:
                kinds.add(failure.args[0])
            else:
                assert (found == cut(wanted, box)).all(), (keep, box)
                right += 1
    assert kinds == {"decode"}
    assert right < len(data)


@given(st.integers(0, 2**32), st.sampled_from(["4:2:0", "4:4:4", "gray"]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_and_indexes_give_pixels_or_an_error_and_never_more_than_their_place(seed, factors, of_index):
    rng = Random(seed)
    data = bytearray(draw(seed % 16, 100, 60, FACTORS[factors]).data)
    shape = kernels.image_info(JPEG, bytes(data))
    index = bytearray(kernels.jpeg_index(bytes(data), rng.choice([1, 4]))[0])
    victim = index if of_index else data
    for _ in range(rng.randint(1, 4)):
        victim[rng.randrange(len(victim))] = rng.choice([0, 1, 255, rng.randrange(256)])
    box = some_boxes(rng, 60, 100, 1)[0]
    width, height = box[2:]
    out = np.full(width * height * shape[2] + 64, 93, np.uint8)
    try:
        kernels.jpeg_crop(
            bytes(data), bytes(index), np.array(shape, np.uint32), box, 1, 0, 2, out[: width * height * shape[2]]
        )
    except kernels.Failure as failure:
        kind = failure.args[0]
    else:
        kind = "decode"
    assert kind == "decode"
    assert (out[-64:] == 93).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index[:3] + b"\0" + index[4:], "no such interval"),
        (lambda index: index[:3] + b"\xff" + index[4:], "no such interval"),
        (lambda index: index[:4] + b"\x21" + index[5:], "too wide"),
        (lambda index: index[:8] + b"\0\0\0\0" + index[12:], "another image"),
        (lambda index: index[:-9] + index[-8:], "another image"),
        (lambda index: index[:12] + bytes(len(index) - 20) + index[-8:], "does not fit the data"),
        (lambda index: index[:12] + b"\xff" * (len(index) - 20) + index[-8:], "the index"),
        (lambda index: index[:4] + index[-8:], "too short"),
    ],
)
def test_an_index_that_does_not_fit_is_an_error_that_says_so(change, message):
    index = kernels.jpeg_index(WHOLE, 2)[0]
    with pytest.raises(kernels.Failure, match=message) as caught:
        decode_jpeg_box(WHOLE, change(index), SHAPE, (50, 30, 20, 20), route="splice")
    assert caught.value.args[0] == "decode"


def test_an_index_of_a_kind_to_come_is_not_used():
    index = kernels.jpeg_index(WHOLE, 2)[0]
    later = index[:2] + b"\x02" + index[3:]
    assert decode_jpeg_box(WHOLE, later, SHAPE, (50, 30, 20, 20), route="splice")[1] == "partial"


@pytest.mark.parametrize("gray", [False, True])
def test_a_progressive_file_becomes_baseline_without_loss(gray):
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {"exif": exif, "icc_profile": b"p" * 70_000, "comment": b"hello"}
    data = saved(photo(90, 70, 1 if gray else 3), progressive=True, quality=85, **options)
    made = kernels.jpeg_baseline(data)
    assert made is not None
    assert kernels.jpeg_index(made, 4)[1] == ""
    assert (whole(made) == whole(data)).all()
    before, after = (Image.open(io.BytesIO(file)) for file in (data, made))
    assert after.info["icc_profile"] == before.info["icc_profile"] == b"p" * 70_000
    assert after.getexif()[0x0112] == 6
    assert after.info["comment"] == b"hello"
    assert not after.info.get("progressive")
    assert data.count(b"JFIF\0") == made.count(b"JFIF\0") == 1
    assert kernels.jpeg_baseline(made) is None


def test_scans_of_single_components_are_joined():
    data = draw(4, 90, 60, separate=True).data
    made = kernels.jpeg_baseline(data)
    assert made is not None
    assert kernels.jpeg_index(made, 4)[1] == ""
    assert (whole(made) == whole(data)).all()


def test_colours_survive_becoming_baseline():
    for options in ({"keep_rgb": True}, {"subsampling": "4:2:2"}):
        data = saved(photo(40, 50), progressive=True, **options)
        made = kernels.jpeg_baseline(data)
        assert made is not None
        assert (whole(made) == whole(data)).all()


def test_a_progressive_file_whose_last_scans_are_missing_stays_as_it_is():
    """A decoder smooths what is not all there; as baseline it would look different."""
    data = saved(photo(90, 70), progressive=True)
    scans = [i for i in range(len(data) - 1) if data[i : i + 2] == b"\xff\xda"]
    tables = [i for i in range(scans[-2], scans[-1]) if data[i : i + 2] == b"\xff\xc4"]
    shorter = data[: min([scans[-1], *tables])] + b"\xff\xd9"
    whole(shorter)
    assert kernels.jpeg_baseline(shorter) is None


def test_a_damaged_progressive_file_is_an_error():
    data = saved(photo(90, 70), progressive=True)
    with pytest.raises(kernels.Failure) as caught:
        kernels.jpeg_baseline(data[: len(data) // 2])
    assert caught.value.args[0] == "decode"
