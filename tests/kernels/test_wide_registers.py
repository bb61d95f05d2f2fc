"""Kernels leave no wide registers in use behind them: SSE code of the same thread would be several times slower."""

from __future__ import annotations

import ctypes
import mmap
import platform
from pathlib import Path

import numpy as np
import pytest

from fastloader import kernels

WIDE = 1 << 2 | 1 << 6
"""The upper halves of the first sixteen registers, as XGETBV numbers the states there are."""
XGETBV = b"\xb9\x01\x00\x00\x00\x0f\x01\xd0\xc3"  # mov ecx, 1; xgetbv; ret
PIXELS = np.random.default_rng(0).integers(0, 256, (120, 160, 3)).astype(np.uint8)
NOISE = np.random.default_rng(1).integers(0, 256, 50_000).astype(np.uint8)

NUMBERS: dict[str, tuple[float, ...]] = {
    "brightness": (1.3,), "contrast": (1.3,), "invert": (), "solarize": (128,), "posterize": (3,), "equalize": (),
    "autocontrast": (), "saturation": (1.3,), "hue": (30,), "sharpness": (1.5,),
}  # fmt: skip
CALLS = {
    "crc32c": lambda: kernels.crc32c(NOISE),
    **{
        f"copy_crc32c, {variant}": lambda variant=variant: kernels.copy_crc32c(NOISE, np.empty_like(NOISE), variant)
        for variant in kernels.crc32c_variants()
    },
    "resize": lambda: kernels.resize_image(PIXELS, (50, 70), filter="bilinear"),
    "gaussian_blur": lambda: kernels.gaussian_blur(PIXELS, PIXELS.shape, (5, 5), (1.5, 1.5), np.empty_like(PIXELS)),
    **{
        name: lambda name=name, numbers=numbers: getattr(kernels, name)(
            PIXELS, PIXELS.shape, *numbers, np.empty_like(PIXELS)
        )
        for name, numbers in NUMBERS.items()
    },
}


def can_tell() -> bool:
    """Whether this CPU says which states are in use."""
    return platform.machine() == "x86_64" and " xgetbv1 " in Path("/proc/cpuinfo").read_text()


@pytest.mark.parametrize("name", CALLS)
def test_wide_registers_are_given_back(name):
    if not can_tell():
        return
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(XGETBV)
    states_in_use = ctypes.CFUNCTYPE(ctypes.c_uint32)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    states_in_use()
    CALLS[name]()
    assert not states_in_use() & WIDE
