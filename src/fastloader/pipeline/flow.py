"""Optical flow through operations on images: vectors move with their pixels, and are turned and scaled with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import OperationError
from fastloader.ops import (
    Affine,
    CenterCrop,
    HorizontalFlip,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomResizedCrop,
    RandomRotation,
    RandomTranslate,
    Resize,
    Rotate,
    Step,
    VerticalFlip,
)

Flow = NDArray[np.float32]
"""(..., height, width, 2): how far each pixel moves across and down."""

Matrix = NDArray[np.float64]
"""(2, 3): ``x, y = matrix @ (x, y, 1)`` from where something is to where it will be."""

FLOW_OPS = (
    RandomResizedCrop, Resize, CenterCrop, RandomCrop, HorizontalFlip, VerticalFlip, Pad, RandomTranslate, Rotate,
    RandomRotation, Affine, RandomAffine,
)  # fmt: skip
"""Operations that flow can go through."""

_RAW = 2
_LEAST = 1e-6
"""Of a share, and of a slope: less is rounding."""
_NEAR = 1e-3
"""Of a pixel: a map is told in float32."""


class Place(Protocol):
    """Whose flow it is, and the operation's number."""

    @property
    def seed(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def sample(self) -> int: ...
    @property
    def op(self) -> int: ...


def flow_step(op: Any) -> Callable[[Any, Any], Flow]:
    """What an operation does to flow; raises ``ValueError`` where that would make no sense."""
    if isinstance(op, Pad) and op.mode not in ("constant", "edge"):
        raise ValueError(f"mirrors what lies around flow, which would point the wrong way: mode={op.mode!r}")
    if isinstance(getattr(op, "fill", 0), tuple):
        raise ValueError(f"has fill={op.fill!r}: flow has one number of pixels for both directions")
    return lambda flow, place: _moved(op, flow, place)


def _moved(op: Any, flow: Flow, place: Place) -> Flow:
    height, width = flow.shape[-3:-1]
    fill = float(getattr(op, "fill", 0))
    if isinstance(op, Resize):
        return _resized(flow, _size(op, height, width), op.filter)
    if isinstance(op, Pad):
        left, top, right, bottom = op.padding  # type: ignore[misc]
        if op.mode == "edge":
            around = [(0, 0)] * (flow.ndim - 3) + [(top, bottom), (left, right), (0, 0)]
            return np.pad(flow, around, "edge")
        return _cut(flow, -left, -top, width + left + right, height + top + bottom, fill)
    drawn = _drawn(op.step(), place, height, width)
    if isinstance(op, HorizontalFlip | VerticalFlip):
        return _mirrored(flow, isinstance(op, HorizontalFlip), isinstance(op, VerticalFlip)) if drawn[0] else flow
    if isinstance(op, RandomTranslate):
        right, down = (int(one) for one in drawn)
        return _cut(flow, -right, -down, width, height, fill)
    if isinstance(op, RandomResizedCrop | CenterCrop | RandomCrop):
        left, top, width, height = (int(one) for one in drawn)
        part = _cut(flow, left, top, width, height, fill)
        return _resized(part, op.size, op.filter) if isinstance(op, RandomResizedCrop) else part  # type: ignore[arg-type]
    return warped(flow, drawn.reshape(2, 3), (height, width), op.filter, fill)


def followed(flow: Flow, matrix: Matrix, size: tuple[int, int]) -> Flow:
    """Flow as a picture of this size has it, whose pixels moved by the matrix; NaN where there was none.

    A picture that was only cut out, mirrored and resized has its flow resized as the picture was, by "bilinear".
    """
    (a, b, x), (c, d, y) = np.asarray(matrix, np.float64)
    height, width = size
    if max(abs(b), abs(c)) > _LEAST or min(abs(a), abs(d)) < _LEAST:
        return warped(flow, matrix, size, "bilinear", np.nan)
    left, right = sorted((-x / a, (width - x) / a))
    top, bottom = sorted((-y / d, (height - y) / d))
    box = np.array([left, top, right, bottom])
    whole = np.rint(box)
    if float(np.abs(box - whole).max()) < _NEAR:  # cut out before it is resized, as the picture was
        edges = [int(one) for one in whole]
        part = _cut(flow, edges[0], edges[1], edges[2] - edges[0], edges[3] - edges[1], np.nan)
        if part.shape[-3:-1] != size:
            part = _resized(part, size, "bilinear")
    else:
        limits = np.array([flow.shape[-2], flow.shape[-3]] * 2, np.float64)
        within = np.clip(box, 0, limits)
        if np.abs(within - box).max() > _NEAR:
            return warped(flow, matrix, size, "bilinear", np.nan)
        part = _resized(flow, size, "bilinear", tuple(within.tolist()))
    return _mirrored(part, a < 0, d < 0)


def _cut(flow: Flow, left: int, top: int, width: int, height: int, fill: float) -> Flow:
    """A part, which may reach beyond the flow: there it has ``fill`` in both directions."""
    there = flow.shape[-3:-1]
    if left >= 0 and top >= 0 and top + height <= there[0] and left + width <= there[1]:
        return flow[..., top : top + height, left : left + width, :]
    out = np.full((*flow.shape[:-3], height, width, 2), fill, np.float32)
    rows, columns = slice(max(top, 0), min(top + height, there[0])), slice(max(left, 0), min(left + width, there[1]))
    if rows.start < rows.stop and columns.start < columns.stop:
        to = slice(rows.start - top, rows.stop - top), slice(columns.start - left, columns.stop - left)
        out[..., to[0], to[1], :] = flow[..., rows, columns, :]
    return out


def _mirrored(flow: Flow, across: bool, down: bool) -> Flow:
    if across:
        flow = flow[..., ::-1, :] * np.array([-1, 1], np.float32)
    if down:
        flow = flow[..., ::-1, :, :] * np.array([1, -1], np.float32)
    return flow


def _resized(
    flow: Flow, size: tuple[int, int], filter: str, box: tuple[float, float, float, float] | None = None
) -> Flow:
    """Another size, and vectors as much longer. Flow made of some that is not known is not known."""
    height, width = flow.shape[-3:-1]
    left, top, right, bottom = box or (0.0, 0.0, float(width), float(height))
    factors = np.array([size[1] / (right - left), size[0] / (bottom - top)], np.float32)

    def each(images: NDArray[np.float32]) -> NDArray[np.float32]:
        flat = images.reshape(-1, *images.shape[-3:])
        made = [kernels.resize_image(one, size, box=box, filter=filter) for one in flat]
        return np.stack(made).reshape(*images.shape[:-3], *size, images.shape[-1])

    unknown = np.isnan(flow)
    if not unknown.any():
        return each(flow) * factors
    made = each(np.where(unknown, np.float32(0), flow)) * factors
    made[np.abs(each(unknown.astype(np.float32))) > _LEAST] = np.nan
    return made


def warped(flow: Flow, matrix: Matrix, size: tuple[int, int], filter: str, fill: float) -> Flow:
    """Flow moved by any map: each pixel has what lay where it comes from, its vector turned as the picture is."""
    matrix = np.asarray(matrix, np.float64)
    back = np.linalg.inv(matrix[:, :2])
    y, x = np.mgrid[: size[0], : size[1]] + 0.5
    source = np.stack([x, y], axis=-1) - matrix[:, 2]
    column, row = np.moveaxis(source @ back.T, -1, 0)
    height, width = flow.shape[-3:-1]
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    if filter == "nearest":
        found = _at(flow, np.floor(row), np.floor(column))
    else:
        column, row = column - 0.5, row - 0.5
        first_column, first_row = np.floor(column), np.floor(row)
        across, down = (column - first_column)[..., None], (row - first_row)[..., None]
        # A neighbour that has no share must not tell that its flow is not known.
        found = np.zeros((*flow.shape[:-3], *size, 2))
        for to_row, share_down in ((0, 1 - down), (1, down)):
            for to_column, share_across in ((0, 1 - across), (1, across)):
                share = share_down * share_across
                one = _at(flow, first_row + to_row, first_column + to_column)
                found += np.where(share > _LEAST, one * share, 0)
    turned = found @ matrix[:, :2].T
    return np.where(inside[..., None], turned, fill).astype(np.float32)


def _at(flow: Flow, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> Flow:
    """Flow at whole places; of those outside, what is nearest."""
    height, width = flow.shape[-3:-1]
    y = np.clip(rows, 0, height - 1).astype(np.int64)
    x = np.clip(columns, 0, width - 1).astype(np.int64)
    return flow[..., y, x, :]


def _size(op: Resize, height: int, width: int) -> tuple[int, int]:
    if isinstance(op.size, tuple):
        return op.size
    longer = max(op.size * max(height, width) // min(height, width), 1)
    return (op.size, longer) if height <= width else (longer, op.size)


def _drawn(step: Step, place: Place, height: int, width: int) -> NDArray[np.float64]:
    """What the native step of an operation draws for an image of this size; of a turn, the map of the picture."""
    made = height, width
    if step.kind == "random_resized_crop":  # what it draws is no matter of the size it resizes to
        step = step._replace(height=1, width=1)
        made = 1, 1
    elif step.kind in ("centre_crop", "random_crop"):
        made = step.height, step.width
    elif step.kind in ("flip", "flip_down", "translate"):  # nor of any size
        height, width = made = 1, 1
    program = _program(step, place.op, height, width, made, place.seed)
    told = np.zeros(program.told)
    try:
        program.run(
            np.zeros(height * width, np.uint8), b"", place.epoch, place.sample, np.empty(program.row_bytes, np.uint8),
            told,
        )  # fmt: skip
    except kernels.Failure as failure:
        raise OperationError(failure.args[1].replace("an image of", "flow of")) from None
    return told


@lru_cache(256)
def _program(step: Step, number: int, height: int, width: int, made: tuple[int, int], seed: int) -> kernels.Program:
    turns = step.kind in ("rotate", "affine")
    steps = [step, Step("tell_geometry")] if turns else [step]
    return kernels.Program(
        _RAW, False, (height, width, 1),
        [(kernels.STEPS.index(one.kind), number, one.height, one.width, one.filter, one.numbers) for one in steps],
        (*made, 3), 0, 0, (1.0,) * 4, (0.0,) * 4, seed, [len(steps) - 1],
    )  # fmt: skip
