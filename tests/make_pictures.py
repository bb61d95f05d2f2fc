"""Pictures as files, for tests that need some of different sizes."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image


def pictures(count: int) -> Iterator[tuple[bytes, bytes]]:
    """A JPEG and a PNG each."""
    draw = np.random.default_rng(5)
    for number in range(count):
        pixels = draw.integers(0, 256, (30 + number, 40 - number, 3), np.uint8)
        jpeg, png = io.BytesIO(), io.BytesIO()
        Image.fromarray(pixels).save(jpeg, "JPEG", quality=90)
        Image.fromarray(pixels[..., 0]).save(png, "PNG")
        yield jpeg.getvalue(), png.getvalue()
