"""Operations that choose frames of a video, before anything is decoded."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import OperationError
from fastloader.ops.base import both_sides, number, whole
from fastloader.ops.random import Random

MAX_FRAMES = 1 << 16
MODES = ("random", "center", "uniform", "segments", "dense")
SPREAD = ("uniform", "segments")
"""Modes that take all of a video."""
SHORT = ("error", "repeat", "loop")
RESIZES = ("nearest", "bilinear", "bicubic", "area", "lanczos")


@dataclass(frozen=True, slots=True)
class Frames:
    """What is chosen of a video between two operations: how many frames, and the size they are to be decoded to.

    ``None`` where that differs from video to video.
    """

    count: int | None = None
    size: tuple[int, int] | None = None
    filter: str = "bilinear"

    def __str__(self) -> str:
        size = "" if self.size is None else f" of {self.size[0]}x{self.size[1]}"
        return f"{'?' if self.count is None else self.count} frames{size}"


class Chosen(NamedTuple):
    """Frames of one video: their numbers, when each is shown, and when the last no longer is."""

    numbers: NDArray[np.int64]
    times: NDArray[np.float64]
    end: float

    def take(self, places: NDArray[np.int64]) -> Chosen:
        """Some of them."""
        return Chosen(self.numbers[places], self.times[places], self.end)


class ClipOp(ABC):
    """An operation on which frames are decoded. Subclasses are frozen dataclasses, their attributes the options."""

    @abstractmethod
    def output(self, given: Frames) -> Frames:
        """What it leaves; raises ``ValueError`` where it can't take what is given."""

    def choose(self, given: Chosen, random: Random) -> Chosen:
        """The frames it leaves of one video."""
        return given


@dataclass(frozen=True)
class ClipSampler(ClipOp):
    """``num_frames`` frames of each video.

    - ``mode="random"``: ``stride`` apart, from anywhere. "center": the same from the middle. "uniform": the middles of
      ``num_frames`` equal parts of the video. "segments": one from anywhere in each such part. "dense": ``clips``
      clips as those of "center", spread evenly from the video's beginning to its end, one behind the other.
    - ``seconds``: the clip spans this time, whatever the frame rate: of each of ``num_frames`` equal steps the frame
      that is shown then. It takes the place of ``stride``.
    - ``short``: what a video does that is too short: "error", "repeat" its last frame, or "loop" to its first. Of such
      a video "uniform" and "segments" give some frames twice, without being asked.
    """

    num_frames: int
    stride: int = 1
    mode: str = "random"
    seconds: float | None = None
    clips: int = 1
    short: str = "error"

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_frames", whole("num_frames", self.num_frames, 1, MAX_FRAMES))
        object.__setattr__(self, "stride", whole("stride", self.stride, 1, 1 << 30))
        object.__setattr__(self, "clips", whole("clips", self.clips, 1, MAX_FRAMES))
        if self.mode not in MODES:
            raise ValueError(f"mode={self.mode!r}: one of {', '.join(MODES)}")
        if self.short not in SHORT:
            raise ValueError(f"short={self.short!r}: one of {', '.join(SHORT)}")
        if self.seconds is not None:
            object.__setattr__(self, "seconds", number("seconds", self.seconds, 1e-6, 1e9))
            if self.stride != 1:
                raise ValueError("seconds and stride both say how far frames are apart: give one")
        if self.clips != 1 and self.mode != "dense":
            raise ValueError(f"clips={self.clips} is for mode='dense'")
        if self.mode in SPREAD and (self.stride, self.seconds, self.short) != (1, None, "error"):
            raise ValueError(f"mode={self.mode!r} takes all of a video: stride, seconds and short are for others")

    def output(self, given: Frames) -> Frames:
        """As many as were asked for."""
        needs = self._span if self.seconds is None and self.short == "error" and self.mode not in SPREAD else 0
        if given.count is not None and needs > given.count:
            raise ValueError(f"takes {needs} frames, and gets {given.count}")
        return replace(given, count=self.num_frames * self.clips)

    @property
    def _span(self) -> int:
        """Frames from the first of a clip to its last."""
        return (self.num_frames - 1) * self.stride + 1

    def choose(self, given: Chosen, random: Random) -> Chosen:
        """The frames of the clip."""
        there = len(given.numbers)
        if self.mode in SPREAD:
            shares = np.full(self.num_frames, 0.5)
            if self.mode == "segments":
                shares = np.array([random.uniform() for _ in range(self.num_frames)])
            places = ((np.arange(self.num_frames) + shares) * there / self.num_frames).astype(np.int64)
            return given.take(np.minimum(places, there - 1))
        if self.seconds is not None:
            return given.take(self._by_time(given, random))
        slack = there - self._span
        if slack < 0:
            self._too_short(f"{there} frames", f"{self._span}")
        starts = self._starts(max(slack, 0), int(random.below(max(slack, 0) + 1)) if self.mode == "random" else 0)
        places = (np.array(starts)[:, None] + self.stride * np.arange(self.num_frames)).reshape(-1)
        return given.take(places % there if self.short == "loop" else np.minimum(places, there - 1))

    def _by_time(self, given: Chosen, random: Random) -> NDArray[np.int64]:
        assert self.seconds is not None
        begin, end = float(given.times[0]), given.end
        slack = end - begin - self.seconds
        if slack < -1e-9 * self.seconds:
            self._too_short(f"{end - begin:g} s", f"{self.seconds:g} s")
        slack = max(slack, 0.0)
        starts = [slack * float(random.uniform())] if self.mode == "random" else self._spread(slack)
        moments = (np.array(starts)[:, None] + np.arange(self.num_frames) * self.seconds / self.num_frames).reshape(-1)
        if self.short == "loop":
            moments = np.mod(moments, end - begin)
        return np.maximum(np.searchsorted(given.times, begin + moments, "right") - 1, 0)

    def _starts(self, slack: int, drawn: int) -> list[int]:
        return [drawn] if self.mode == "random" else [math.floor(start) for start in self._spread(slack)]

    def _spread(self, slack: float) -> list[float]:
        """Where clips begin: in the middle, or from the beginning to the end."""
        if self.clips == 1:
            return [slack / 2]
        return [slack * i / (self.clips - 1) for i in range(self.clips)]

    def _too_short(self, has: str, needs: str) -> None:
        if self.short == "error":
            raise OperationError(
                f"{self} takes {needs}, and the video has {has}", hint="short='repeat' or short='loop' fills the clip"
            )


@dataclass(frozen=True)
class TemporalSubsample(ClipOp):
    """Every ``stride``-th of the frames, from the first on; or ``num_frames`` of them, the middles of equal parts.

    What is left out is not decoded. Before a ``ClipSampler`` it makes a video of fewer frames a second.
    """

    stride: int | None = None
    num_frames: int | None = None

    def __post_init__(self) -> None:
        if (self.stride is None) == (self.num_frames is None):
            raise ValueError("give either stride or num_frames")
        if self.stride is not None:
            object.__setattr__(self, "stride", whole("stride", self.stride, 1, 1 << 30))
        else:
            object.__setattr__(self, "num_frames", whole("num_frames", self.num_frames, 1, MAX_FRAMES))

    def output(self, given: Frames) -> Frames:
        """Fewer."""
        if self.stride is not None:
            return given if given.count is None else replace(given, count=-(-given.count // self.stride))
        if given.count is not None and self.num_frames is not None and self.num_frames > given.count:
            raise ValueError(f"takes {self.num_frames} frames, and gets {given.count}")
        return replace(given, count=self.num_frames)

    def choose(self, given: Chosen, random: Random) -> Chosen:
        """Some of those given."""
        there = len(given.numbers)
        if self.stride is not None:
            return given.take(np.arange(0, there, self.stride))
        assert self.num_frames is not None
        if there < self.num_frames:
            raise OperationError(
                f"{self} takes {self.num_frames} frames, and the video has {there}",
                hint="on_error='skip' leaves it out",
            )
        return given.take(((np.arange(self.num_frames) + 0.5) * there / self.num_frames).astype(np.int64))


@dataclass(frozen=True)
class DecodeResize(ClipOp):
    """Frames of a compressed video at another size, (height, width), made by FFmpeg in the pass that makes RGB of them.

    Cheaper than decoding them in full and a ``Resize`` behind it, which has Pillow's bits. ``filter`` is "nearest",
    "bilinear", "bicubic", "area" or "lanczos".
    """

    size: int | tuple[int, int]
    filter: str = "bilinear"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", both_sides("size", self.size))
        if self.filter not in RESIZES:
            raise ValueError(f"filter={self.filter!r}: one of {', '.join(RESIZES)}")

    def output(self, given: Frames) -> Frames:
        """Of that size."""
        if given.size is not None:
            raise ValueError("is the second of its kind; one is enough")
        return replace(given, size=both_sides("size", self.size), filter=self.filter)
