"""Casting to a batch's elements in memcpys of the result, and pixel operations against Pillow. One thread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from common import Result, interleave
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from fastloader import kernels

SIDE, IMAGES = 224, 64
SHAPE = (SIDE, SIDE, 3)
SCALE, BIAS = [1 / 58.395, 1 / 57.12, 1 / 57.375], [-2.1179, -2.0357, -1.8044]
BITS = {"uint8": np.uint8, "float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32}


def casts() -> list[Result]:
    """A batch, image by image: more bytes than a cache holds, as in training."""
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, *SHAPE), np.uint8)
    results = []
    for number, element in enumerate(kernels.ELEMENTS):
        out = np.zeros((IMAGES, 3, SIDE, SIDE), BITS[element])
        like = np.ones_like(out)
        scale, bias = (SCALE, BIAS) if number else ([1.0] * 3, [0.0] * 3)

        def run(
            layout: int, flip: bool, number: int = number, out: np.ndarray = out, scale=scale, bias=bias
        ) -> Callable[[], None]:
            def cast() -> None:
                for image, row in zip(images, out, strict=True):
                    kernels.cast(image, SHAPE, number, layout, scale, bias, flip, row)

            return cast

        def memcpy(out: np.ndarray = out, like: np.ndarray = like) -> None:
            for row, other in zip(out, like, strict=True):
                np.copyto(row, other)

        times = interleave(20, memcpy=memcpy, chw=run(1, False), hwc=run(0, False), flipped=run(1, True))
        for what, name in (("chw", "CHW"), ("hwc", "HWC"), ("flipped", "CHW, flipped")):
            goal = "about 1.3" if (element, what) == ("float16", "chw") else ""
            results.append(
                Result(f"uint8 HWC to {element} {name}", "memcpy of the result", times[what] / times["memcpy"], goal,
                       f"us an image: {times[what] / IMAGES * 1e6:.1f}")
            )  # fmt: skip
    return results


def by_pillow_hue(image: Image.Image) -> Image.Image:
    """As torchvision does it."""
    hue, saturation, value = image.convert("HSV").split()
    return Image.merge("HSV", (Image.fromarray(np.asarray(hue) + np.uint8(20)), saturation, value)).convert("RGB")


def operations() -> list[Result]:
    """Each on one image of 224 x 224, against the call of Pillow with the same result (blur: a similar one)."""
    coarse = np.random.default_rng(0).integers(0, 256, (30, 30, 3), np.uint8)
    image = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    pixels, out = np.asarray(image).copy(), np.empty(SHAPE, np.uint8)
    turn = [0.97, -0.26, 30.0, 0.26, 0.97, -26.0]

    def moved(filter: Image.Resampling) -> Image.Image:
        return image.transform((SIDE, SIDE), Image.Transform.AFFINE, turn, filter)

    def move(bilinear: bool) -> None:
        kernels.affine(pixels, SHAPE, turn, bilinear, [0, 0, 0], out, (SIDE, SIDE))

    table: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "brightness": (
            lambda: kernels.brightness(pixels, SHAPE, 1.3, out), lambda: ImageEnhance.Brightness(image).enhance(1.3)
        ),
        "contrast": (
            lambda: kernels.contrast(pixels, SHAPE, 1.3, out), lambda: ImageEnhance.Contrast(image).enhance(1.3)
        ),
        "saturation": (
            lambda: kernels.saturation(pixels, SHAPE, 1.3, out), lambda: ImageEnhance.Color(image).enhance(1.3)
        ),
        "hue": (lambda: kernels.hue(pixels, SHAPE, 20, out), lambda: by_pillow_hue(image)),
        "grayscale": (lambda: kernels.grayscale(pixels, SHAPE, 3, out), lambda: image.convert("L").convert("RGB")),
        "sharpness": (
            lambda: kernels.sharpness(pixels, SHAPE, 1.3, out), lambda: ImageEnhance.Sharpness(image).enhance(1.3)
        ),
        "equalize": (lambda: kernels.equalize(pixels, SHAPE, out), lambda: ImageOps.equalize(image)),
        "autocontrast": (lambda: kernels.autocontrast(pixels, SHAPE, out), lambda: ImageOps.autocontrast(image)),
        "solarize": (lambda: kernels.solarize(pixels, SHAPE, 128, out), lambda: ImageOps.solarize(image, 128)),
        "blur, 23 px, sigma 2": (
            lambda: kernels.gaussian_blur(pixels, SHAPE, (23, 23), (2.0, 2.0), out),
            lambda: image.filter(ImageFilter.GaussianBlur(2)),
        ),
        "affine, nearest": (lambda: move(False), lambda: moved(Image.Resampling.NEAREST)),
        "affine, bilinear": (lambda: move(True), lambda: moved(Image.Resampling.BILINEAR)),
    }  # fmt: skip
    results = []
    for what, (here, pillow) in table.items():
        times = interleave(60, here=here, pillow=pillow)
        details = f"us an image: {times['here'] * 1e6:.0f} against {times['pillow'] * 1e6:.0f}"
        results.append(Result(what, "Pillow", times["here"] / times["pillow"], "< 1", details))
    return results


def main() -> list[Result]:
    """Both."""
    return casts() + operations()
