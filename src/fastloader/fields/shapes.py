"""What lies in an image: boxes and keypoints, as many as there are."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from fastloader.fields.base import Encoded
from fastloader.fields.convert import as_array, whole
from fastloader.fields.ndarray import NDArrayField
from fastloader.types import TypeId

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]


class PointsField(NDArrayField):
    """Rows of numbers that say where something is in an image; the number of rows varies.

    A position is in pixels, where (0, 0) is the outer corner of the first one, or in shares of the image's width and
    height where ``normalized``. Operations of a pipeline can move it along (``ops.Follow``).
    """

    __slots__ = ("normalized",)
    normalized: bool

    def _set(self, inner: tuple[int, ...], normalized: bool, **options: Any) -> None:
        NDArrayField.__init__(self, "<f4", (None, *inner))
        if not isinstance(normalized, bool):
            raise TypeError(f"normalized={normalized!r}: True or False")
        for name, value in (options | {"normalized": normalized}).items():
            object.__setattr__(self, name, value)

    @property
    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.option_names}

    option_names: ClassVar[tuple[str, ...]] = ("normalized",)

    @abstractmethod
    def positions(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The points (count, points, 2) that say where each row is; for rows that were encoded."""

    @abstractmethod
    def moved(self, rows: NDArray[np.float32], positions: NDArray[np.float32]) -> NDArray[np.float32]:
        """The rows, now at these points."""

    def encode(self, value: Any) -> Encoded:
        """Takes an array, or lists, of whole or floating-point numbers; float32 keeps them."""
        inner = (self.shape or ())[1:]
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "fiu":
                raise TypeError(f"expected numbers, got an array of {value.dtype}")
            array = value.astype(np.float32)
        elif isinstance(value, str | bytes):
            raise TypeError(f"expected an array (count, {', '.join(map(str, inner))}), got {type(value).__name__}")
        else:
            array = as_array(value, np.dtype(np.float32))
        if not array.size and array.ndim <= 1:
            array = array.reshape(0, *inner)
        if array.shape[1:] == inner:
            self._check(array)
        return NDArrayField.encode(self, array)

    def _check(self, rows: NDArray[np.float32]) -> None:
        bad = ~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(f"row {first} is {rows[first].tolist()}: every number must be finite")

    def to_binary(self) -> bytes:
        """The options."""
        return json.dumps(self._options, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field with these options."""
        return cls(**json.loads(data))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._options == other._options

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._options.items())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._options.items())})"


class BoxesField(PointsField):
    """Boxes of an image: float32 (count, 4).

    ``format`` says what the four numbers are: ``"xyxy"`` (left, top, right, bottom), ``"xywh"`` (left, top, width,
    height) or ``"cxcywh"`` (centre, width, height). A box may be empty, but not turned inside out.
    """

    __slots__ = ("format",)
    format: BoxFormat
    type_id: ClassVar[int] = TypeId.BOXES
    option_names: ClassVar[tuple[str, ...]] = ("format", "normalized")

    def __init__(self, format: BoxFormat = "xyxy", *, normalized: bool = False) -> None:
        if format not in get_args(BoxFormat):
            raise ValueError(f"format={format!r}: one of {', '.join(get_args(BoxFormat))}")
        self._set((4,), normalized, format=format)

    def _check(self, rows: NDArray[np.float32]) -> None:
        PointsField._check(self, rows)
        sides = rows[:, 2:] - rows[:, :2] if self.format == "xyxy" else rows[:, 2:]
        bad = (sides < 0).any(axis=1)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"box {first} is {rows[first].tolist()}: as {self.format!r} its width and height would be negative"
            )

    def positions(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The four corners."""
        left, top, right, bottom = self.edges(rows).T
        return np.stack([left, top, right, top, right, bottom, left, bottom], axis=1).reshape(-1, 4, 2)

    def moved(self, rows: NDArray[np.float32], positions: NDArray[np.float32]) -> NDArray[np.float32]:
        """The smallest upright boxes around the corners."""
        return self.from_edges(np.concatenate([positions.min(axis=1), positions.max(axis=1)], axis=1))

    def edges(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same boxes as left, top, right, bottom."""
        first, second = rows[:, :2], rows[:, 2:]
        if self.format == "xyxy":
            return rows
        if self.format == "xywh":
            return np.concatenate([first, first + second], axis=1)
        return np.concatenate([first - second / 2, first + second / 2], axis=1)

    def from_edges(self, edges: NDArray[np.float32]) -> NDArray[np.float32]:
        """Boxes in this field's format."""
        low, high = edges[:, :2], edges[:, 2:]
        if self.format == "xyxy":
            return edges
        return np.concatenate([low if self.format == "xywh" else (low + high) / 2, high - low], axis=1)


class KeypointsField(PointsField):
    """Points of things in an image: float32 (count, points, 2), x and y.

    With ``visibility`` there is a third number a point, as in COCO: 0 where the point is not given, 1 where it is
    hidden, 2 where it is seen.
    """

    __slots__ = ("points", "visibility")
    points: int
    visibility: bool
    type_id: ClassVar[int] = TypeId.KEYPOINTS
    option_names: ClassVar[tuple[str, ...]] = ("points", "visibility", "normalized")

    def __init__(self, points: int, *, visibility: bool = False, normalized: bool = False) -> None:
        points = whole("points", points)
        if not 1 <= points <= 2**16:
            raise ValueError(f"points={points}: from 1 to {2**16}")
        if not isinstance(visibility, bool):
            raise TypeError(f"visibility={visibility!r}: True or False")
        self._set((points, 3 if visibility else 2), normalized, points=points, visibility=visibility)

    def _check(self, rows: NDArray[np.float32]) -> None:
        PointsField._check(self, rows)
        if self.visibility and not np.isin(rows[..., 2], (0, 1, 2)).all():
            raise ValueError("visibility is 0 (not given), 1 (hidden) or 2 (seen)")

    def positions(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The points themselves."""
        return rows[..., :2]

    def moved(self, rows: NDArray[np.float32], positions: NDArray[np.float32]) -> NDArray[np.float32]:
        """The points, each as visible as before."""
        return np.concatenate([positions, rows[..., 2:]], axis=-1)
