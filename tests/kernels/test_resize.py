"""Resizing against Pillow, bit for bit, with every instruction set.

Pillow before 13 resizes across first and down second, and so does this. Pillow 13 goes down first where an image loses
much of its height; two calls, one a direction, give its pixels in the one order that all versions share.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastloader import kernels

LEVELS = kernels.simd_levels()
PILLOW = {
    "nearest": Image.Resampling.NEAREST, "box": Image.Resampling.BOX, "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING, "bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS,
}  # fmt: skip
MODES = {1: "L", 3: "RGB", 4: "CMYK"}

Box = tuple[float, float, float, float]


def noise(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    """Pixels at the ends of the range too, where results are clipped."""
    values = np.random.default_rng(seed).integers(-100, 356, (height, width, channels))
    return values.clip(0, 255).astype(np.uint8)


def by_pillow(pixels: np.ndarray, size: tuple[int, int], box: Box, name: str) -> np.ndarray:
    height, width, channels = pixels.shape
    out_height, out_width = size
    left, top, right, bottom = box
    image = Image.frombytes(MODES[channels], (width, height), pixels.tobytes())
    if name == "nearest":
        done = image.resize((out_width, out_height), PILLOW[name], box)
    else:
        across = image.resize((out_width, height), PILLOW[name], (left, 0, right, height))
        done = across.resize((out_width, out_height), PILLOW[name], (0, top, out_width, bottom))
    return np.asarray(done).reshape(out_height, out_width, channels)


@st.composite
def cases(draw: st.DrawFn, longest: int = 90) -> tuple[np.ndarray, tuple[int, int], Box]:
    """An image, a size and a box: the whole, whole pixels, or fractions of them."""
    side = st.integers(1, longest)
    height, width = draw(side), draw(side)
    pixels = noise(height, width, draw(st.sampled_from([1, 3, 4])), draw(st.integers(0, 9)))

    def part(length: int) -> tuple[float, float]:
        kind = draw(st.sampled_from(["whole", "pixels", "fractions"]))
        if kind == "whole":
            return 0.0, float(length)
        if kind == "pixels":
            begin = draw(st.integers(0, length - 1))
            return float(begin), float(draw(st.integers(begin + 1, length)))
        begin = draw(st.floats(0, length - 0.5, width=32))
        return begin, draw(st.floats(float(np.float32(begin + 0.25)), length, width=32))

    (left, right), (top, bottom) = part(width), part(height)
    return pixels, (draw(side), draw(side)), (left, top, right, bottom)


@pytest.mark.parametrize("name", kernels.FILTERS)
@given(case=cases(), flip=st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_instruction_set_gives_the_pixels_of_pillow(name, case, flip):
    pixels, size, box = case
    wanted = by_pillow(pixels, size, box, name)
    for level in LEVELS:
        found = kernels.resize_image(pixels, size, box=box, filter=name, flip=flip, level=level)
        np.testing.assert_array_equal(found, wanted[:, ::-1] if flip else wanted, level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", kernels.FILTERS)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_long_and_short_sides(level, name, channels):
    """One pixel to many, many to one, rows shorter than a register, and hundreds of taps."""
    for shape, size in [
        ((1, 1), (70, 90)), ((300, 700), (1, 1)), ((2, 640), (3, 21)), ((640, 2), (21, 3)), ((33, 64), (33, 64)),
        ((65, 64), (33, 64)), ((33, 65), (33, 64)), ((5, 1500), (7, 2)), ((900, 21), (1, 500)),
    ]:  # fmt: skip
        pixels = noise(*shape, channels)
        box = (0.0, 0.0, float(shape[1]), float(shape[0]))
        found = kernels.resize_image(pixels, size, filter=name, level=level)
        np.testing.assert_array_equal(found, by_pillow(pixels, size, box, name), str((shape, size)))


@pytest.mark.parametrize("name", kernels.FILTERS)
def test_one_call_of_pillow_gives_the_same_where_it_goes_across_first(name):
    pixels = noise(300, 400, 3)
    for box in [(0, 0, 400, 300), (30, 20, 290, 270), (100.5, 3.25, 220.75, 110)]:
        wanted = np.asarray(Image.fromarray(pixels).resize((224, 224), PILLOW[name], box))
        np.testing.assert_array_equal(kernels.resize_image(pixels, (224, 224), box=box, filter=name), wanted)


@pytest.mark.parametrize("name", kernels.FILTERS)
@given(case=cases(60), flip=st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_region_is_all_that_is_needed(name, case, flip):
    pixels, size, box = case
    number = kernels.FILTERS.index(name)
    top, left, bottom, right = kernels.resize_region(pixels.shape, box, size, number)
    assert 0 <= top < bottom <= pixels.shape[0]
    assert 0 <= left < right <= pixels.shape[1]
    region = np.ascontiguousarray(pixels[top:bottom, left:right])
    for level in LEVELS:
        out = np.empty((*size, pixels.shape[2]), np.uint8)
        kernels.resize(region, pixels.shape, 0, box, size, number, flip, out, level, cropped=True)
        wanted = kernels.resize_image(pixels, size, box=box, filter=name, flip=flip, level=level)
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_written_outside_of_the_output(level):
    for width in (1, 2, 5, 10, 11, 21, 22, 40, 43):
        size = 3 * width * 3
        out = np.full(size + 128, 77, np.uint8)
        kernels.resize(
            noise(20, 30, 3), (20, 30, 3), 0, (0, 0, 30, 20), (3, width), 2, False, out[64 : 64 + size], level
        )
        assert (out[:64] == 77).all()
        assert (out[64 + size :] == 77).all()


def test_changing_from_image_to_image_leaves_nothing_behind():
    """Tables and memory are kept by a thread; another filter, channel or size must not see those of the last one."""
    steps = [
        ((50, 60, 3), (40, 30), "bilinear"), ((50, 60, 1), (40, 30), "bilinear"), ((50, 60, 3), (40, 30), "nearest"),
        ((50, 60, 3), (40, 30), "lanczos"), ((50, 60, 3), (40, 60), "box"), ((50, 60, 4), (50, 60), "bicubic"),
        ((50, 60, 3), (41, 30), "bilinear"), ((50, 60, 3), (40, 30), "bilinear"),
    ]  # fmt: skip
    for shape, size, name in steps * 2:
        pixels = noise(*shape)
        wanted = by_pillow(pixels, size, (0, 0, 60, 50), name)
        np.testing.assert_array_equal(kernels.resize_image(pixels, size, filter=name), wanted)


@pytest.mark.parametrize("name", kernels.FILTERS)
@given(case=cases(40), flip=st.booleans())
@settings(max_examples=30, deadline=None)
def test_float_images_are_those_of_pillow(name, case, flip):
    pixels, size, box = case
    values = np.random.default_rng(0).normal(0, 100, pixels.shape).astype(np.float32)
    found = kernels.resize_image(values, size, box=box, filter=name, flip=flip)
    for c in range(values.shape[2]):
        image = Image.fromarray(values[:, :, c])
        left, top, right, bottom = box
        if name == "nearest":
            wanted = np.asarray(image.resize(size[::-1], PILLOW[name], box))
        else:
            across = image.resize((size[1], values.shape[0]), PILLOW[name], (left, 0, right, values.shape[0]))
            wanted = np.asarray(across.resize(size[::-1], PILLOW[name], (0, top, size[1], bottom)))
        # Where the sine of a filter is rounded otherwise, so is its sum.
        np.testing.assert_allclose(found[:, ::-1, c] if flip else found[:, :, c], wanted, rtol=1e-6, atol=1e-4)
        if name in ("nearest", "box", "bilinear", "bicubic"):
            np.testing.assert_array_equal(found[:, ::-1, c] if flip else found[:, :, c], wanted)


@pytest.mark.parametrize("name", ["nearest", "box", "bilinear", "hamming"])
def test_16_bit_images_are_those_of_pillow(name):
    values = np.random.default_rng(0).integers(0, 65536, (37, 51, 1), np.uint16)
    for size in [(20, 30), (37, 12), (80, 90)]:
        image = Image.fromarray(values[:, :, 0])
        across = image.resize((size[1], 37), PILLOW[name])
        wanted = np.asarray((image if name == "nearest" else across).resize(size[::-1], PILLOW[name]))
        np.testing.assert_array_equal(kernels.resize_image(values, size, filter=name)[:, :, 0], wanted)


def test_16_bit_overshoot_is_clipped():
    values = np.zeros((1, 40, 1), np.uint16)
    values[:, 20:] = 65535
    found = kernels.resize_image(values, (1, 200), filter="lanczos").astype(int)
    assert found.min() == 0
    assert found.max() == 65535
    assert abs(np.diff(found[0, :, 0])).max() < 32000, "nothing wrapped around"


@pytest.mark.parametrize(
    ("shape", "size", "box", "message"),
    [
        ((0, 4, 3), (2, 2), (0, 0, 4, 4), "a side of the source has 0 pixels"),
        ((4, 4, 3), (0, 2), (0, 0, 4, 4), "a side of the output has 0 pixels"),
        ((4, 4, 3), (2, 2**20 + 1), (0, 0, 4, 4), "it may have 1 to 1048576"),
        ((2**32 - 1, 4, 3), (2, 2), (0, 0, 4, 4), "a side of the source has 4294967295"),
        ((4, 4, 0), (2, 2), (0, 0, 4, 4), "0 channels"),
        ((4, 4, 5), (2, 2), (0, 0, 4, 4), "5 channels"),
        ((4, 4, 2**32 - 1), (2, 2), (0, 0, 4, 4), "4294967295 channels"),
        ((4, 4, 3), (2, 2), (0, 0, 4.5, 4), "does not lie in a source of 4 pixels"),
        ((4, 4, 3), (2, 2), (-0.5, 0, 4, 4), "does not lie"),
        ((4, 4, 3), (2, 2), (2, 0, 2, 4), "does not lie"),
        ((4, 4, 3), (2, 2), (3, 0, 2, 4), "does not lie"),
        ((4, 4, 3), (2, 2), (float("nan"), 0, 4, 4), "does not lie"),
        ((4, 4, 3), (2, 2), (0, 0, float("inf"), 4), "does not lie"),
        ((4, 5, 3), (2, 2), (0, 0, 4, 4), "the source has another size"),
        ((4, 4, 3), (2, 3), (0, 0, 4, 4), "the output has another size"),
    ],
)
def test_what_can_not_be_done_is_refused(shape, size, box, message):
    for samples, dtype in enumerate(kernels.SAMPLES):
        source, out = np.zeros((4, 4, 3), dtype), np.zeros((2, 2, 3), dtype)
        with pytest.raises(kernels.Failure, match=message) as caught:
            kernels.resize(source, shape, samples, box, size, 2, False, out)
        assert caught.value.args[0] == "argument"
    good = kernels.resize_image(noise(4, 4, 3), (2, 2))
    np.testing.assert_array_equal(good, by_pillow(noise(4, 4, 3), (2, 2), (0, 0, 4, 4), "bilinear"))


def test_unknown_filters_samples_and_instructions_are_refused():
    source, out = np.zeros((4, 4, 3), np.uint8), np.zeros((2, 2, 3), np.uint8)
    for filter, samples, level in ((6, 0, ""), (-1, 0, ""), (2, 3, ""), (2, 0, "imaginary")):
        with pytest.raises(ValueError, match="no such"):
            kernels.resize(source, (4, 4, 3), samples, (0, 0, 4, 4), (2, 2), filter, False, out, level)


def test_the_plain_variant_is_always_there():
    assert LEVELS[-1] == "portable"
