"""Operations on pixels against Pillow, bit for bit, and torchvision's definitions, with every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from fastloader import kernels

LEVELS = kernels.simd_levels()
FACTORS = [0.0, 0.3, 0.999, 1.0, 1.4, 7.5, -0.6]


def colours() -> np.ndarray:
    """A quarter of a million colours: every pair of red and green, with blues that differ from pixel to pixel."""
    red, green, more = np.mgrid[:256, :256, :4]
    blue = (red * 7 + green * 13 + more * 64 + (red * green) % 61) % 256
    return np.stack([red, green, blue], -1).astype(np.uint8).reshape(512, 512, 3)


COLOURS = colours()


def photo(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Waves and noise between 20 and 210."""
    rng = np.random.default_rng(seed)
    y, x, c = np.mgrid[:height, :width, :channels]
    return (
        (115 + 80 * np.sin(x / 9 + c + seed) * np.cos(y / 7) + rng.normal(0, 8, y.shape)).clip(20, 210).astype(np.uint8)
    )


def image_of(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def run(op, pixels: np.ndarray, *options, level: str = "") -> np.ndarray:
    out = np.empty_like(pixels)
    op(pixels, pixels.shape, *options, out, level)
    return out


def same(op, pixels: np.ndarray, wanted: Image.Image, *options) -> None:
    expected = np.asarray(wanted).reshape(pixels.shape)
    for level in LEVELS:
        np.testing.assert_array_equal(run(op, pixels, *options, level=level), expected, level)


ENHANCE = {
    kernels.brightness: ImageEnhance.Brightness, kernels.contrast: ImageEnhance.Contrast,
    kernels.saturation: ImageEnhance.Color, kernels.sharpness: ImageEnhance.Sharpness,
}  # fmt: skip


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("op", ENHANCE, ids=lambda op: op.__name__)
def test_enhancing_is_pillows(op, factor):
    for pixels in (COLOURS, photo(61, 83), photo(3, 3), photo(2, 9), photo(1, 1)):
        same(op, pixels, ENHANCE[op](image_of(pixels)).enhance(factor), factor)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("op", [kernels.brightness, kernels.contrast, kernels.sharpness], ids=lambda op: op.__name__)
def test_gray_images_are_enhanced_too(op, factor):
    pixels = photo(40, 51, 1)
    same(op, pixels, ENHANCE[op](image_of(pixels)).enhance(factor), factor)


def by_pillow_hue(pixels: np.ndarray, shift: int) -> Image.Image:
    hue, saturation, value = image_of(pixels).convert("HSV").split()
    turned = Image.fromarray(np.asarray(hue) + np.uint8(shift))
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


@pytest.mark.parametrize("shift", [0, 1, 42, 128, 255])
def test_hue_is_turned_as_torchvision_turns_it_through_pillow(shift):
    for pixels in (COLOURS, photo(33, 5), photo(1, 1)):
        same(kernels.hue, pixels, by_pillow_hue(pixels, shift), shift)


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
def test_hue_and_saturation_of_all_colours_there_are(level):
    number = np.arange(2**24, dtype=np.uint32)
    pixels = np.stack([number >> 16, number >> 8 & 255, number & 255], -1).astype(np.uint8).reshape(4096, 4096, 3)
    assert (run(kernels.hue, pixels, 77, level=level) == np.asarray(by_pillow_hue(pixels, 77))).all()
    wanted = np.asarray(ImageEnhance.Color(image_of(pixels)).enhance(1.7))
    assert (run(kernels.saturation, pixels, 1.7, level=level) == wanted).all()


def test_grayscale_is_pillows_luma():
    for pixels in (COLOURS, photo(7, 11)):
        gray = image_of(pixels).convert("L")
        same(kernels.grayscale, pixels, gray.convert("RGB"), 3)
        for level in LEVELS:
            out = np.empty(pixels.shape[:2], np.uint8)
            kernels.grayscale(pixels, pixels.shape, 1, out, level)
            np.testing.assert_array_equal(out, np.asarray(gray))


@pytest.mark.parametrize("channels", [1, 3])
def test_tones_are_pillows(channels):
    flat = np.full((9, 9, channels), 77, np.uint8)
    two = np.where(np.arange(81).reshape(9, 9, 1) < 40, 3, 250).astype(np.uint8).repeat(channels, 2)
    for pixels in (photo(45, 70, channels), COLOURS[:, :, :channels].copy(), flat, two, photo(1, 1, channels)):
        image = image_of(pixels)
        same(kernels.invert, pixels, ImageOps.invert(image))
        same(kernels.equalize, pixels, ImageOps.equalize(image))
        same(kernels.autocontrast, pixels, ImageOps.autocontrast(image))
        for bits in range(1, 9):
            same(kernels.posterize, pixels, ImageOps.posterize(image, bits), bits)
        for threshold in (0, 1, 128, 255, 256):
            same(kernels.solarize, pixels, ImageOps.solarize(image, threshold), threshold)


@pytest.mark.parametrize("op", ["brightness", "contrast", "saturation", "hue", "invert", "equalize", "autocontrast"])
def test_the_output_may_be_the_image(op):
    options = {"invert": (), "equalize": (), "autocontrast": (), "hue": (9,)}.get(op, (1.3,))
    for level in LEVELS:
        pixels = photo(40, 61)
        wanted = run(getattr(kernels, op), pixels, *options, level=level)
        getattr(kernels, op)(pixels, pixels.shape, *options, pixels, level)
        np.testing.assert_array_equal(pixels, wanted)


def by_torchvision_blur(pixels: np.ndarray, size: tuple[int, int], sigma: tuple[float, float]) -> np.ndarray:
    """A convolution in float32 with the border reflected, as ``torchvision.transforms.functional.gaussian_blur``."""

    def weights(count: int, deviation: float) -> torch.Tensor:
        half = (count - 1) * 0.5
        density = torch.exp(-0.5 * (torch.linspace(-half, half, count) / deviation) ** 2)
        return density / density.sum()

    kernel = weights(size[0], sigma[0])[:, None] * weights(size[1], sigma[1])[None, :]
    planes = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float()[:, None]
    border = (size[1] // 2, size[1] // 2, size[0] // 2, size[0] // 2)
    done = torch.nn.functional.conv2d(torch.nn.functional.pad(planes, border, "reflect"), kernel[None, None])
    return done[:, 0].round().numpy().transpose(1, 2, 0)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(
    ("size", "sigma"), [((3, 3), (0.5, 0.5)), ((23, 23), (2.0, 2.0)), ((5, 9), (0.1, 4.0)), ((1, 7), (1.0, 1.5))]
)
def test_blur_is_torchvisions_within_one(channels, size, sigma):
    for shape in ((40, 61), (12, 12), (60, 100)):
        pixels = np.random.default_rng(0).integers(0, 256, (*shape, channels), np.uint8)
        wanted = by_torchvision_blur(pixels, size, sigma)
        found = [run(kernels.gaussian_blur, pixels, size, sigma, level=level) for level in LEVELS]
        assert np.abs(found[0] - wanted).max() <= 1
        for other in found[1:]:
            np.testing.assert_array_equal(other, found[0])


def test_blur_leaves_one_colour_as_it_is():
    for value in (0, 1, 127, 255):
        pixels = np.full((30, 30, 3), value, np.uint8)
        np.testing.assert_array_equal(run(kernels.gaussian_blur, pixels, (13, 13), (3.0, 3.0)), pixels)


def reject(message: str, op, pixels: np.ndarray, *options, shape=None, out=None) -> None:
    with pytest.raises((kernels.Failure, ValueError), match=message):
        op(pixels, shape or pixels.shape, *options, np.empty_like(pixels) if out is None else out)


def test_what_can_not_be_done_is_refused():
    pixels, gray = photo(6, 8), photo(6, 8, 1)
    for op, options in [
        (kernels.brightness, (1.2,)), (kernels.contrast, (1.2,)), (kernels.saturation, (1.2,)), (kernels.hue, (3,)),
        (kernels.invert, ()), (kernels.equalize, ()), (kernels.autocontrast, ()), (kernels.sharpness, (1.2,)),
        (kernels.gaussian_blur, ((3, 3), (1.0, 1.0))),
    ]:  # fmt: skip
        reject("another size", op, pixels, *options, shape=(6, 9, 3))
        reject("another size", op, pixels, *options, out=np.empty((5, 8, 3), np.uint8))
        reject("0 pixels", op, pixels, *options, shape=(0, 8, 3))
        reject("4294967295 pixels", op, pixels, *options, shape=(2**32 - 1, 2**32 - 1, 3))
        reject("channels", op, pixels, *options, shape=(6, 8, 5))
    for op in (kernels.brightness, kernels.contrast, kernels.saturation, kernels.sharpness):
        reject("not finite", op, pixels, float("nan"))
        reject("not finite", op, pixels, float("inf"))
    reject("has no colours", kernels.saturation, gray, 1.2)
    reject("has no colours", kernels.hue, gray, 1)
    reject("has no colours", kernels.contrast, photo(6, 8, 4), 1.2)
    reject("gray has 1 or 3 channels", kernels.grayscale, pixels, 2)
    reject("keeps 1 to 8 bits", kernels.posterize, pixels, 0)
    reject("keeps 1 to 8 bits", kernels.posterize, pixels, 9)
    reject("number is odd", kernels.gaussian_blur, pixels, (4, 3), (1.0, 1.0))
    reject("number is odd", kernels.gaussian_blur, pixels, (0, 3), (1.0, 1.0))
    reject("reflects more than the 6", kernels.gaussian_blur, pixels, (13, 3), (1.0, 1.0))
    reject("more than 0", kernels.gaussian_blur, pixels, (3, 3), (0.0, 1.0))
    reject("more than 0", kernels.gaussian_blur, pixels, (3, 3), (1.0, float("nan")))
    reject("overlaps", kernels.sharpness, pixels, 1.0, out=pixels)
    reject("overlaps", kernels.gaussian_blur, pixels, (3, 3), (1.0, 1.0), out=pixels)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_instruction_set_gives_the_same_at_any_size(height, width, channels, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    for op, options in [(kernels.brightness, (1.3,)), (kernels.sharpness, (0.2,)), (kernels.equalize, ())]:
        for level in LEVELS:
            guarded = np.full(pixels.size + 128, 77, np.uint8)
            op(pixels, pixels.shape, *options, guarded[64:-64], level)
            wanted = run(op, pixels, *options, level="portable")
            np.testing.assert_array_equal(guarded[64:-64], wanted.ravel())
            assert (guarded[:64] == 77).all()
            assert (guarded[-64:] == 77).all()
