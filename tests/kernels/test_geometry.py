"""Moving pixels: affine maps against Pillow bit for bit, padding against numpy, erasing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fastloader import kernels

MODES = {1: "L", 3: "RGB", 4: "CMYK"}


def noise(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def affine(pixels: np.ndarray, size: tuple[int, int], matrix, bilinear: bool, fill) -> np.ndarray:
    """What every instruction set gives."""
    out = np.empty((*size, pixels.shape[2]), np.uint8)
    kernels.affine(pixels, pixels.shape, list(matrix), bilinear, list(fill), out, size, "portable")
    for level in kernels.simd_levels():
        guarded = np.full(out.size + 16, 77, np.uint8)
        kernels.affine(pixels, pixels.shape, list(matrix), bilinear, list(fill), guarded[:-16], size, level)
        np.testing.assert_array_equal(guarded[:-16].reshape(out.shape), out, level)
        assert (guarded[-16:] == 77).all()
    return out


def by_pillow(pixels: np.ndarray, size: tuple[int, int], matrix, bilinear: bool, fill) -> np.ndarray:
    height, width, channels = pixels.shape
    image = Image.frombytes(MODES[channels], (width, height), pixels.tobytes())
    filter = Image.Resampling.BILINEAR if bilinear else Image.Resampling.NEAREST
    colour = fill[0] if channels == 1 else tuple(fill)
    done = image.transform(size[::-1], Image.Transform.AFFINE, matrix, filter, fillcolor=colour)
    return np.asarray(done).reshape(*size, channels)


numbers = st.floats(-2, 2, width=32) | st.sampled_from([0.0, 1.0, -1.0, 0.5])
shifts = st.floats(-40, 40, width=32) | st.integers(-40, 40).map(float)
sides = st.integers(1, 40)


@given(
    sides,
    sides,
    sides,
    sides,
    st.sampled_from([1, 3, 4]),
    st.tuples(numbers, numbers, shifts, numbers, numbers, shifts),
)
@settings(max_examples=300, deadline=None)
def test_affine_maps_are_pillows(height, width, out_height, out_width, channels, matrix):
    pixels, fill = noise(height, width, channels), [7, 99, 200, 31][:channels]
    for bilinear in (False, True):
        found = affine(pixels, (out_height, out_width), matrix, bilinear, fill)
        np.testing.assert_array_equal(found, by_pillow(pixels, (out_height, out_width), matrix, bilinear, fill))


@pytest.mark.parametrize("bilinear", [False, True])
@pytest.mark.parametrize("angle", [0, 7, 45, 90, 133.5, 180, 270, -30])
def test_rotating_is_pillows(angle, bilinear):
    """With the matrix that Pillow makes of an angle."""
    pixels = noise(64, 81, 3)
    seen = []

    class Spy(Image.Image):
        def transform(self, size, method, data=None, resample=0, fill=1, fillcolor=None):
            seen.append(tuple(data))
            return super().transform(size, method, data, resample, fill, fillcolor)

    image = Image.fromarray(pixels)
    image.__class__ = Spy
    filter = Image.Resampling.BILINEAR if bilinear else Image.Resampling.NEAREST
    wanted = np.asarray(image.rotate(angle, filter, center=(30.5, 20), fillcolor=(1, 2, 3)))
    if not seen:
        pytest.fail("Pillow rotated without a matrix")
    np.testing.assert_array_equal(affine(pixels, (64, 81), seen[0], bilinear, [1, 2, 3]), wanted)


def test_maps_far_away_show_the_filling_alone():
    pixels = noise(5, 6, 3)
    for shift in (-17.0, 16.0, 1e6, -1e9, 1e300, -1e300):
        for matrix in ([1, 0, shift, 0, 1, 0], [1, 0, 0, 0, 1, shift], [1, 0.5, shift, 0.5, 1, shift]):
            for bilinear in (False, True):
                found = affine(pixels, (5, 6), matrix, bilinear, [9, 8, 7])
                assert (found == [9, 8, 7]).all()


@given(
    sides, sides, st.integers(1, 60), st.integers(1, 60), st.integers(-45, 45), st.integers(-45, 45),
    st.sampled_from([1, 3, 4]), st.sampled_from(kernels.PADDINGS),
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_padding_is_numpys(height, width, out_height, out_width, top, left, channels, mode):
    pixels, fill = noise(height, width, channels), [7, 99, 200, 31][:channels]
    out = np.empty((out_height, out_width, channels), np.uint8)
    kernels.pad_image(
        pixels, pixels.shape, (top, left), kernels.PADDINGS.index(mode), fill, out, (out_height, out_width)
    )
    border = 120  # more than any offset and size here: the part that is shown is cut from it
    around = ((border, border), (border, border), (0, 0))
    if mode == "constant":
        wide = np.empty((height + 2 * border, width + 2 * border, channels), np.uint8)
        wide[:] = fill
        wide[border : border + height, border : border + width] = pixels
    else:
        wide = np.pad(pixels, around, mode)
    wanted = wide[border - top : border - top + out_height, border - left : border - left + out_width]
    np.testing.assert_array_equal(out, wanted)


def test_erasing_a_box():
    pixels = noise(12, 15, 3)
    wanted = pixels.copy()
    wanted[3:9, 4:15] = (10, 20, 30)
    kernels.erase(pixels, pixels.shape, (3, 4, 9, 15), [10, 20, 30])
    np.testing.assert_array_equal(pixels, wanted)
    kernels.erase(pixels, pixels.shape, (3, 4, 3, 15), [1, 1, 1])
    np.testing.assert_array_equal(pixels, wanted, "a box without rows")


def test_noise_is_that_of_its_place_and_stays_in_its_box():
    pixels = np.zeros((200, 210, 3), np.uint8)
    box = (20, 30, 180, 200)
    kernels.erase_noise(pixels, pixels.shape, box, 1, 2, 3, 4)
    inside = pixels[20:180, 30:200].copy()
    again = np.zeros_like(pixels)
    kernels.erase_noise(again, pixels.shape, box, 1, 2, 3, 4)
    np.testing.assert_array_equal(again, pixels)
    other = np.zeros_like(pixels)
    kernels.erase_noise(other, pixels.shape, box, 1, 2, 4, 4)
    assert (other != pixels).any()
    counts = np.bincount(inside.ravel(), minlength=256)
    expected = inside.size / 256
    assert ((counts - expected) ** 2 / expected).sum() < 340, "chi-squared of 255 degrees, far in the tail"
    pixels[20:180, 30:200] = 0
    assert not pixels.any()


def test_what_can_not_be_done_is_refused():
    pixels = noise(5, 6, 3)
    out = np.empty_like(pixels)
    identity = [1.0, 0, 0, 0, 1, 0]

    def moved(shape=(5, 6, 3), matrix=identity, fill=(0, 0, 0), out=out, size=(5, 6)):
        kernels.affine(pixels, shape, matrix, True, list(fill), out, size)

    def padded(shape=(5, 6, 3), at=(0, 0), mode=0, fill=(0, 0, 0), out=out, size=(5, 6)):
        kernels.pad_image(pixels, shape, at, mode, list(fill), out, size)

    for call in (moved, padded):
        call()
        for arguments, message in [
            ({"shape": (5, 7, 3)}, "another size"), ({"size": (6, 5 * 10**5)}, "another size"),
            ({"shape": (0, 6, 3)}, "0 pixels"), ({"size": (2**32 - 1, 2**32 - 1)}, "4294967295 pixels"),
            ({"fill": (1, 2)}, "one value a channel"), ({"out": pixels}, "overlaps"),
            ({"shape": (5, 6, 5), "fill": (1, 2, 3, 4, 5)}, "one value a channel"),
        ]:  # fmt: skip
            with pytest.raises((kernels.Failure, ValueError), match=message):
                call(**arguments)
    with pytest.raises(kernels.Failure, match="not finite"):
        moved(matrix=[1, 0, float("nan"), 0, 1, 0])
    with pytest.raises(ValueError, match="six numbers"):
        moved(matrix=[1.0])
    with pytest.raises(ValueError, match="no such padding"):
        padded(mode=4)
    for box in ((0, 0, 6, 6), (0, 0, 5, 7), (3, 0, 2, 6), (0, 5, 5, 4), (2**32 - 1, 0, 2**32 - 1, 6)):
        with pytest.raises(kernels.Failure, match="does not lie in the image"):
            kernels.erase(pixels, pixels.shape, box, [0, 0, 0])
        with pytest.raises(kernels.Failure, match="does not lie in the image"):
            kernels.erase_noise(pixels, pixels.shape, box, 1, 2, 3, 4)
