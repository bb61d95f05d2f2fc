"""Pictures to store, and what they look like."""

import io

import numpy as np
from PIL import Image


def pixels(shape, dtype="uint8", seed=0):
    """A picture with edges, slopes and some grain."""
    height, width, *channels = shape
    y, x = np.mgrid[:height, :width]
    base = np.stack([x * 3 + y, y * 5 - x, (x // 4 + y // 4) % 2 * 90], -1)
    grain = np.random.default_rng(seed).integers(0, 20, (height, width, 4))
    picture = np.concatenate([base, base[..., :1] * 2], -1) + grain + 40 * seed
    picture = (picture % 256 if dtype == "uint8" else picture * 201).astype(dtype)
    return picture[..., : channels[0]].copy() if channels else picture[..., 0].copy()


def encoded(image, format_, **options):
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def decoded(data, mode=None):
    image = Image.open(io.BytesIO(data))
    array = np.asarray(image if mode is None else image.convert(mode))
    return array[:, :, None] if array.ndim == 2 else array


def psnr(one, other):
    error = np.mean((one.astype(float) - other.astype(float)) ** 2)
    return 99.0 if error == 0 else 10 * np.log10(255**2 / error)


def with_channels(array):
    return array[:, :, None] if array.ndim == 2 else array
