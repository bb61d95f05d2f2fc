"""Pixels to elements of a batch: bit for bit what numpy's float32 gives, with every instruction set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader import kernels

LEVELS = kernels.simd_levels()
BITS = {"uint8": np.uint8, "float16": np.uint16, "bfloat16": np.uint16, "float32": np.uint32}
MEAN, STD = (123.675, 116.28, 103.53, 90.0), (58.395, 57.12, 57.375, 60.0)


def cast(pixels, element, layout, scale, bias, flip=False, level="") -> np.ndarray:
    """The bits of the elements."""
    height, width, channels = pixels.shape
    shape = pixels.shape if layout == "hwc" else (channels, height, width)
    out = np.zeros(shape, BITS[element])
    kernels.cast(
        pixels, pixels.shape, kernels.ELEMENTS.index(element), kernels.LAYOUTS.index(layout), list(scale), list(bias),
        flip, out, level,
    )  # fmt: skip
    return out


def by_numpy(pixels, element, layout, scale, bias, flip) -> np.ndarray:
    values = pixels.astype(np.float32) * np.float32(scale) + np.float32(bias)
    if flip:
        values = values[:, ::-1]
    if layout == "chw":
        values = values.transpose(2, 0, 1)
    values = values.copy()
    if element == "bfloat16":
        return torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
    with np.errstate(over="ignore"):
        return values.astype(element).view(BITS[element])


def all_samples(width: int, channels: int) -> np.ndarray:
    """Every value of a byte in every channel and every lane."""
    return np.random.default_rng(width).permuted(
        np.resize(np.arange(256, dtype=np.uint8), (channels, 256 * 3 // width + 1, width)).transpose(1, 2, 0), axis=0
    )


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("layout", kernels.LAYOUTS)
@pytest.mark.parametrize("element", kernels.ELEMENTS)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_every_instruction_set_gives_the_bits_of_numpy(channels, element, layout, flip):
    scale, bias = [1 / s for s in STD[:channels]], [-m / s for m, s in zip(MEAN, STD, strict=True)][:channels]
    if element == "uint8":
        scale, bias = [1.0] * channels, [0.0] * channels
    for width in (1, 2, 5, 6, 15, 16, 17, 31, 48, 191, 192, 193, 224, 400):
        pixels = np.ascontiguousarray(all_samples(width, channels))
        wanted = by_numpy(pixels, element, layout, scale, bias, flip)
        for level in LEVELS:
            found = cast(pixels, element, layout, scale, bias, flip, level)
            np.testing.assert_array_equal(found, wanted, f"{level} {width}")


factors = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32"])
@given(scale=st.tuples(factors, factors, factors), bias=st.tuples(factors, factors, factors), layout=st.integers(0, 1))
@settings(max_examples=80, deadline=None)
def test_any_factors_give_the_bits_of_numpy(element, scale, bias, layout):
    """Those that overflow to infinity or fall among the subnormal numbers too."""
    pixels = np.arange(256 * 3, dtype=np.uint16).astype(np.uint8).reshape(1, 256, 3)
    with np.errstate(over="ignore"):
        wanted = by_numpy(pixels, element, kernels.LAYOUTS[layout], scale, bias, False)
    for level in LEVELS:
        found = cast(pixels, element, kernels.LAYOUTS[layout], scale, bias, False, level)
        np.testing.assert_array_equal(found, wanted, level)


def test_the_product_is_rounded_before_the_sum():
    """A fused multiply-add would give the rounding error of the product."""
    scale = np.float32(1 / 3)
    bias = -np.float32(255) * scale
    pixels = np.full((1, 64, 3), 255, np.uint8)
    assert np.float64(255) * np.float64(scale) + np.float64(bias) != 0, "the example shows the difference"
    for level in LEVELS:
        assert not cast(pixels, "float32", "chw", [scale] * 3, [bias] * 3, level=level).any()


def test_nothing_is_written_outside_of_the_output():
    for level in LEVELS:
        for width in (1, 5, 16, 17, 33):
            for element, name in enumerate(kernels.ELEMENTS):
                size = 2 * width * 3 * np.dtype(BITS[name]).itemsize
                out = np.full(size + 128, 77, np.uint8)
                pixels = np.zeros((2, width, 3), np.uint8)
                for layout in (0, 1):
                    for flip in (False, True):
                        kernels.cast(
                            pixels,
                            pixels.shape,
                            element,
                            layout,
                            [1.0] * 3,
                            [0.0] * 3,
                            flip,
                            out[64 : 64 + size],
                            level,
                        )
                assert (out[:64] == 77).all()
                assert (out[64 + size :] == 77).all()


def test_what_can_not_be_done_is_refused():
    pixels, out = np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4, 3), np.float32)
    three, none = [1.0] * 3, [0.0] * 3

    def run(shape=(4, 4, 3), element=3, scale=three, bias=none, out=out):
        kernels.cast(pixels, shape, element, 1, scale, bias, False, out)

    run()
    for arguments, message in [
        ({"shape": (0, 4, 3)}, "0 pixels"), ({"shape": (4, 2**32 - 1, 3)}, "4294967295 pixels"),
        ({"shape": (4, 5, 3)}, "the pixels have another size"), ({"out": out[:3]}, "the output has another size"),
        ({"element": 1}, "the output has another size"),
        ({"scale": [1.0, float("nan"), 1.0]}, "channel 1 are not finite"),
        ({"bias": [0.0, 0.0, float("inf")]}, "channel 2 are not finite"),
        ({"element": 0, "scale": [0.5] * 3, "out": np.zeros((4, 4, 3), np.uint8)}, "uint8 takes no normalisation"),
    ]:  # fmt: skip
        with pytest.raises(kernels.Failure, match=message):
            run(**arguments)
    for arguments in ({"element": 4}, {"element": -1}, {"scale": [1.0]}, {"shape": (4, 4, 2)}):
        with pytest.raises(ValueError, match=r"no such element|one scale and one bias"):
            run(**arguments)
