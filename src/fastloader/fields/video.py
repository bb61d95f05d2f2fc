"""What a video is when it is read: facts, and frames that are decoded when they are asked for."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastloader.fields.base import Field, Lazy

Size = tuple[int, int]


class Video(Lazy, ABC):
    """The frames of one sample, none of them decoded yet.

    ``frames``, ``clip`` and ``at`` decode only what is needed for the frames asked for and give (frames, height, width,
    channels) arrays of uint8. ``video[3]`` is one frame, ``video[3:9:2]`` several, ``numpy.asarray(video)`` all.
    Times are seconds from the first frame.
    """

    filters: ClassVar[tuple[str, ...]] = ("nearest", "bilinear", "bicubic", "area", "lanczos")
    """How a frame is made smaller or larger while it is decoded."""

    field: Field
    num_frames: int
    height: int
    width: int
    channels: int
    codec: str

    def __init__(self, field: Field, metadata: Any, payload: memoryview) -> None:
        self.field = field
        self._metadata = metadata
        self._payload = payload

    @property
    @abstractmethod
    def times(self) -> NDArray[np.float64]:
        """When each frame is shown."""

    @property
    @abstractmethod
    def duration(self) -> float:
        """When the last frame is no longer shown."""

    @property
    @abstractmethod
    def bytes(self) -> bytes:
        """The video as it is stored."""

    @abstractmethod
    def each(
        self, numbers: NDArray[np.int64], size: Size | None, filter: str
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """These frames, which ascend and are there, each with its place among them; in any order."""

    @property
    def fps(self) -> float:
        """Frames a second, on average."""
        return self.num_frames / self.duration if self.duration else 0.0

    def frames(
        self, indices: ArrayLike | None = None, *, size: Size | None = None, filter: str = "bilinear"
    ) -> NDArray[np.uint8]:
        """The frames at these places, in this order, repeats included; all of them without ``indices``.

        -1 is the last. ``size`` is the height and width to resize to while decoding, by one of ``Video.filters``.
        """
        if filter not in self.filters:
            raise ValueError(f"filter={filter!r}: one of {', '.join(self.filters)}")
        numbers = np.arange(self.num_frames) if indices is None else self._numbers(indices)
        wanted, places = np.unique(numbers, return_inverse=True)
        height, width = (self.height, self.width) if size is None else check_size(size)
        decoded = None
        with self.blamed():
            for i, frame in self.each(wanted, None if size is None else (height, width), filter):
                if decoded is None:  # now that one has come out, memory is taken for all
                    decoded = np.empty((len(wanted), *frame.shape), np.uint8)
                decoded[i] = frame
        if decoded is None:
            decoded = np.empty((0, height, width, self.channels), np.uint8)
        return decoded if np.array_equal(wanted, numbers) else decoded[places.reshape(-1)]

    def clip(self, start: int, num_frames: int, stride: int = 1, **options: Any) -> NDArray[np.uint8]:
        """``num_frames`` frames from ``start`` on, ``stride`` apart; ``options`` are those of ``frames``."""
        first, count, step = (operator.index(number) for number in (start, num_frames, stride))
        if count < 1 or step < 1:
            raise ValueError(f"a clip of {count} frames, {step} apart: both are at least 1")
        last = first + (count - 1) * step
        if first < 0 or last >= self.num_frames:
            raise IndexError(f"a clip of frames {first} to {last} of a video of {self.num_frames}")
        return self.frames(first + step * np.arange(count), **options)

    def at(self, seconds: ArrayLike, **options: Any) -> NDArray[np.uint8]:
        """The frames shown at these times, in this order; ``options`` are those of ``frames``."""
        return self.frames(self.indices_at(seconds), **options)

    def indices_at(self, seconds: ArrayLike) -> NDArray[np.int64]:
        """Which frames are shown at these times: of each, the last that is not later."""
        moments = np.asarray(seconds, np.float64).reshape(-1)
        bad = ~((moments >= 0) & (moments < self.duration))
        if bad.any():
            raise IndexError(f"{moments[bad][0]:g} s of a video from 0 to {self.duration:g} s")
        return np.searchsorted(self.times, moments, "right") - 1

    def _numbers(self, indices: ArrayLike) -> NDArray[np.int64]:
        given = np.asarray(indices)
        if given.ndim > 1 or (given.size and given.dtype.kind not in "iu"):
            raise TypeError("frames are named by whole numbers, in one dimension")
        numbers = given.reshape(-1).astype(np.int64)
        bad = (numbers < -self.num_frames) | (numbers >= self.num_frames)
        if bad.any():
            raise IndexError(f"frame {numbers[bad][0]} of a video of {self.num_frames}")
        return np.where(numbers < 0, numbers + self.num_frames, numbers)

    def __len__(self) -> int:
        return self.num_frames

    @overload
    def __getitem__(self, index: int) -> NDArray[np.uint8]: ...
    @overload
    def __getitem__(self, index: slice) -> NDArray[np.uint8]: ...
    def __getitem__(self, index: int | slice) -> NDArray[np.uint8]:
        if isinstance(index, slice):
            return self.frames(np.arange(self.num_frames)[index])
        one: NDArray[np.uint8] = self.frames([operator.index(index)])[0]
        return one

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        raise TypeError("one frame after the other would decode anew for each; iterate over video.frames()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("frames are decoded into new memory: there is no array without a copy")
        return self.frames() if dtype is None else self.frames().astype(dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Video):
            return NotImplemented
        return (self.field, self._metadata.tobytes(), self._payload) == (
            other.field, other._metadata.tobytes(), other._payload,
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.field, self._metadata.tobytes(), bytes(self._payload), self.place)

    def __repr__(self) -> str:
        said = f"{self.num_frames} frames, {self.height}x{self.width}, {self.duration:.3f} s"
        return f"{type(self).__name__}({said}, {self.codec})"


def _unpickled(cls: type[Video], field: Field, metadata: bytes, payload: bytes, place: Any) -> Video:
    video = cls(field, np.frombuffer(metadata, field.metadata_type)[0], memoryview(payload))
    video.place = place
    return video


def check_size(size: Any) -> Size:
    """A height and a width."""
    try:
        height, width = (operator.index(side) for side in size)
    except (TypeError, ValueError):
        raise TypeError(f"size={size!r}: height and width") from None
    if not (1 <= height <= 1 << 16 and 1 <= width <= 1 << 16):
        raise ValueError(f"size={size!r}: sides from 1 to {1 << 16}")
    return height, width
