"""The resize of a whole batch as one kernel for GPUs, by Triton, which comes with torch."""

# mypy: disable-error-code="import-not-found,import-untyped,no-untyped-def,untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.torch.library import torch


@triton.jit
def _byte(total, BITS: tl.constexpr):
    return tl.minimum(tl.maximum((total + (1 << (BITS - 1))) >> BITS, 0), 255)


@triton.jit
def _row(rows, pointers, out, row_bytes, height, width, HEADER: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """One row of one image: all its columns, and one of its colours."""
    image, y, colour = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    x = tl.arange(0, BLOCK)
    inside = x < width
    row = rows + image.to(tl.int64) * row_bytes
    to = out + ((image.to(tl.int64) * height + y) * width + x) * 3 + colour
    source = tl.load(pointers + image)
    if source == 0:
        tl.store(to, tl.load(row + HEADER + (y * width + x) * 3 + colour, mask=inside), mask=inside)
    else:
        numbers = row.to(tl.pointer_type(tl.int32))
        wide, tall = tl.load(numbers + 1), tl.load(numbers + 2)
        across, down = tl.load(numbers + 4), tl.load(numbers + 5)
        columns = numbers + HEADER // 4 + x * (1 + across)
        lines = numbers + HEADER // 4 + width * (1 + across) + y * (1 + down)
        left = tl.load(columns, mask=inside, other=0)
        top = tl.load(lines)
        pixels = source.to(tl.pointer_type(tl.uint8)) + colour.to(tl.int64) * tall * wide
        total = tl.zeros((BLOCK,), tl.int32)
        for j in range(down):
            weight = tl.load(lines + 1 + j)
            if weight != 0:
                line = pixels + tl.minimum(tl.maximum(top + j, 0), tall - 1).to(tl.int64) * wide
                narrow = tl.zeros((BLOCK,), tl.int32)
                for k in range(across):
                    share = tl.load(columns + 1 + k, mask=inside, other=0)
                    pixel = tl.load(line + tl.minimum(tl.maximum(left + k, 0), wide - 1), mask=inside, other=0)
                    narrow += share * pixel.to(tl.int32)
                total += weight * _byte(narrow, BITS)
        tl.store(to, _byte(total, BITS).to(tl.uint8), mask=inside)


def launch(rows: Any, parts: NDArray[Any], images: Sequence[Any], out: Any) -> None:
    """As ``resample``."""
    planes = [image.contiguous() for image in images]
    places = np.zeros(len(parts), np.int64)
    places[parts["bytes"] > 0] = [image.data_ptr() for image in planes]
    pointers = torch.from_numpy(places).pin_memory().to(out.device, non_blocking=True)
    count, height, width, _ = out.shape
    block = triton.next_power_of_2(width)
    _row[(count, height, 3)](
        rows, pointers, out, rows.shape[1], height, width, HEADER=kernels.PART.itemsize, BITS=kernels.WEIGHT_BITS,
        BLOCK=block, num_warps=min(8, max(1, block // 64)),
    )  # fmt: skip
