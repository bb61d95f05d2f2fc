"""Many images of different sizes resized to one size on a device, as Pillow's filters do it.

A resize is two products with matrices of weights. The weights are whole 1024ths and pixels are whole numbers, so all
sums are exact in single precision, TF32 included: the result depends on neither the device nor on what else is in the
batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.torch.library import torch

UNIT = 1024
CHUNK_PIXELS = 16 << 20
"""Pixels of images that are resized at once, each as large as the largest."""


def _bilinear(x: Any) -> Any:
    return (1 - x.abs()).clamp_min(0)


def _box(x: Any) -> Any:
    return ((x > -0.5) & (x <= 0.5)).to(x.dtype)


def _hamming(x: Any) -> Any:
    return torch.where(x.abs() < 1, torch.sinc(x) * (0.54 + 0.46 * torch.cos(math.pi * x)), 0)


def _bicubic(x: Any) -> Any:
    a, x = -0.5, x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, 0))


def _lanczos(x: Any) -> Any:
    return torch.where(x.abs() < 3, torch.sinc(x) * torch.sinc(x / 3), 0)


_SHAPES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "box": (_box, 0.5), "bilinear": (_bilinear, 1.0), "hamming": (_hamming, 1.0), "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}  # fmt: skip


def _weights(
    length: int, size: int, cut: Any, cut_size: Any, resized: Any, window: Any, flipped: Any, filter: str
) -> Any:
    """Of each image, a row of ``length`` weights for each of ``size`` pixels along one axis, in whole 1024ths."""
    device = cut.device
    place = torch.arange(size, device=device)[None]
    place = torch.where(flipped[:, None], size - 1 - place, place) + window[:, None]
    scale = cut_size.double() / resized.double()
    centre = (place + 0.5) * scale[:, None]  # N x size, in pixels of the cut
    taps = torch.arange(length, device=device)[None] - cut[:, None]  # N x length, the same
    inside = ((taps >= 0) & (taps < cut_size[:, None]))[:, None]
    if filter == "nearest":
        return (inside & (taps[:, None] == centre.floor()[..., None])).float() * UNIT
    shape, radius = _SHAPES[filter]
    spread = scale.clamp_min(1)[:, None]
    first = (centre - radius * spread + 0.5).floor()[..., None]
    last = (centre + radius * spread + 0.5).floor()[..., None]
    near = inside & (taps[:, None] >= first) & (taps[:, None] < last)
    raw = shape((taps[:, None] + 0.5 - centre[..., None]) / spread[..., None]) * near
    parts = (raw / raw.sum(-1, keepdim=True) * UNIT).round()
    # What rounding left goes to the greatest of them, so that they are one together.
    lacking = UNIT - parts.sum(-1, keepdim=True)
    return parts.scatter_add(-1, parts.argmax(-1, keepdim=True), lacking).float()


def _rounded(sums: Any) -> Any:
    return (sums / UNIT + 0.5).floor().clamp(0, 255)


def _chunks(parts: NDArray[Any]) -> Iterator[NDArray[np.int64]]:
    """Images of about one size and of one filter together, so that little is padding."""
    order = np.lexsort((parts["width"], parts["height"], parts["filter"]))
    begin = 0
    while begin < len(order):
        end, tall, wide = begin, 0, 0
        while end < len(order) and parts["filter"][order[end]] == parts["filter"][order[begin]]:
            tall = max(tall, int(parts["height"][order[end]]))
            wide = max(wide, int(parts["width"][order[end]]))
            if end > begin and tall * wide * (end - begin + 1) > CHUNK_PIXELS:
                break
            end += 1
        yield order[begin:end]
        begin = end


def resample(images: Sequence[Any], parts: NDArray[Any], size: tuple[int, int], out: Any, rows: Any) -> None:
    """Decoded JPEGs (3 x H x W bytes, on the device of ``out``) as ``kernels.PART`` says, into rows of ``out``."""
    device = out.device
    height, width = size
    for chunk in _chunks(parts):
        chosen = parts[chunk]
        tall, wide = int(chosen["height"].max()), int(chosen["width"].max())
        padded = torch.zeros((len(chunk), 3, tall, wide), dtype=torch.uint8, device=device)
        for i, number in enumerate(chunk.tolist()):
            image = images[number]
            padded[i, :, : image.shape[1], : image.shape[2]] = image
        names = ("cut_left", "cut_top", "cut_width", "cut_height", "resized_width", "resized_height", "window_left",
                 "window_top", "mirrored")  # fmt: skip
        numbers = _on_device(np.stack([chosen[name].astype(np.int64) for name in names] + [rows[chunk]]), device)
        left, top, cut_w, cut_h, new_w, new_h, at_x, at_y, mirrored, places = numbers
        filter = kernels.FILTERS[int(chosen["filter"][0])]
        across = _weights(wide, width, left, cut_w, new_w, at_x, mirrored > 0, filter)
        down = _weights(tall, height, top, cut_h, new_h, at_y, torch.zeros_like(mirrored, dtype=torch.bool), filter)
        rough = _rounded(torch.matmul(padded.float(), across.transpose(1, 2)[:, None]))
        made = _rounded(torch.matmul(down[:, None], rough))
        out[places] = made.to(torch.uint8).permute(0, 2, 3, 1)


def _on_device(numbers: NDArray[np.int64], device: Any) -> Any:
    there = torch.from_numpy(numbers)
    return there if device.type == "cpu" else there.pin_memory().to(device, non_blocking=True)
