"""Decoded parts of JPEGs resized on a device, by the tables that the engine made for each.

All arithmetic is in whole numbers, columns first and rounded as Pillow does: the same bits as the engine's, whatever
the device and whatever else is in the batch. On a GPU one Triton kernel does all images; without Triton, and on a CPU,
products of matrices do one at a time.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.torch.library import torch

HEADER = kernels.PART.itemsize


def headers(rows: NDArray[np.uint8]) -> NDArray[Any]:
    """What the rows of a batch begin with."""
    return np.ascontiguousarray(rows[:, :HEADER]).view(kernels.PART)[:, 0]


def resample(rows: Any, parts: NDArray[Any], images: Sequence[Any], out: Any) -> None:
    """Fills ``out`` (N x H x W x 3 bytes) from the rows of a batch, on the same device.

    ``images`` are those of the rows that have a JPEG, decoded: 3 x H x W bytes each.
    """
    if out.device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        from fastloader.torch.resampling_triton import launch

        launch(rows, parts, images, out)
    else:
        resample_plainly(rows, parts, images, out)


def resample_plainly(rows: Any, parts: NDArray[Any], images: Sequence[Any], out: Any) -> None:
    """The same an image at a time. Double precision holds all its sums exactly."""
    _, height, width, _ = out.shape
    decoded = iter(images)
    for i, part in enumerate(parts):
        if not part["bytes"]:
            out[i] = rows[i, HEADER : HEADER + height * width * 3].view(height, width, 3)
            continue
        image = next(decoded)
        numbers = rows[i, HEADER : int(part["at"])].view(torch.int32)
        columns = width * (1 + int(part["across"]))
        across = _matrix(numbers[:columns].view(width, -1), image.shape[2])
        down = _matrix(numbers[columns:].view(height, -1), image.shape[1])
        narrow = _rounded(image.double() @ across.T)
        out[i] = _rounded(down @ narrow).to(torch.uint8).permute(1, 2, 0)


def _matrix(table: Any, length: int) -> Any:
    """A row of weights for each position, from the first position that it is made of and those from there on."""
    weights = table[:, 1:].double()
    places = table[:, :1].long() + torch.arange(weights.shape[1], device=table.device)
    made = torch.zeros((len(table), length), dtype=torch.float64, device=table.device)
    return made.scatter_add_(1, places.clamp(0, length - 1), weights)  # weights past the edge are 0


def _rounded(sums: Any) -> Any:
    return (sums / (1 << kernels.WEIGHT_BITS) + 0.5).floor().clamp(0, 255)
