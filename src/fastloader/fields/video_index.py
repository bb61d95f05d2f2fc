"""The frame index of a compressed video: where each packet lies, when its frame is shown, and where decoding can begin.

A decoder takes packets in the order in which they are stored and gives frames in the order in which they are shown.
To have a frame it needs all packets from a key frame on, up to the frame's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError

HEAD = np.dtype([
    ("form", "<u2"), ("flags", "<u2"), ("stream", "<u4"), ("packets", "<u4"), ("frames", "<u4"),
    ("time_num", "<u4"), ("time_den", "<u4"), ("end", "<i8"), ("codec", "S16"), ("tag", "S4"),
    ("extradata", "<u4"), ("table", "<u4"), ("pad", "<u4"),
])  # fmt: skip
TRAILER = np.dtype([("size", "<u4"), ("magic", "S4")])
MAGIC = b"FLVX"
FORM = 1
IN_PLACE = 1
"""Flag of an index whose packets are runs of the video's bytes, so that nothing has to take the container apart."""
KEY, HIDDEN = 1, 2
"""Flags of a packet: decoding can begin with it; its frame is not shown."""
ROW = 4 + 8 + 8 + 1
LEVEL = 3
_ZSTD = kernels.CODECS.index("zstd")
_RATIO = 32768
"""No Zstandard frame grows by more."""


class Run(NamedTuple):
    """Packets from ``start`` to ``stop`` (not included), and the frames wanted of them."""

    start: int
    stop: int
    frames: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """Packets in the order in which they are decoded."""

    codec: str
    tag: bytes
    extradata: bytes
    stream: int
    time_base: tuple[int, int]
    end: int
    """When the last frame is no longer shown, in units of the time base from the first frame on."""
    in_place: bool
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    pts: NDArray[np.int64]
    key: NDArray[np.bool_]
    hidden: NDArray[np.bool_]

    @cached_property
    def packets(self) -> NDArray[np.int64]:
        """The packet of each frame, in the order in which frames are shown."""
        shown = np.flatnonzero(~self.hidden)
        return shown[np.argsort(self.pts[shown], kind="stable")]

    @cached_property
    def frame_of(self) -> NDArray[np.int64]:
        """The frame of each packet, -1 where it is not shown."""
        frames = np.full(len(self.sizes), -1, np.int64)
        frames[self.packets] = np.arange(len(self.packets))
        return frames

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """When frames are shown, in seconds from the first on."""
        ticks = self.pts[self.packets]
        num, den = self.time_base
        return (ticks - ticks[:1]) * num / den

    @property
    def duration(self) -> float:
        """Seconds from the first frame to the end of the last."""
        num, den = self.time_base
        return self.end * num / den

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """Packets with which decoding can begin; the first is taken for one, since there is nothing before it."""
        keys = np.flatnonzero(self.key)
        return keys if len(keys) and keys[0] == 0 else np.concatenate([np.zeros(1, np.int64), keys])

    def starts(self, packets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The packet with which decoding must begin to have these right.

        A picture that is decoded behind a key frame and shown before it, as there are in open groups, may refer to
        pictures in front of that key frame; so decoding begins with one that is shown no later than the picture.
        """
        place = np.searchsorted(self.keys, packets, "right") - 1
        while True:
            late = (place > 0) & (self.pts[self.keys[place]] > self.pts[packets])
            if not late.any():
                return self.keys[place]
            place = place - late

    def runs(self, frames: NDArray[np.int64]) -> list[Run]:
        """What must be decoded for these frames: neighbouring packets, as few as there can be."""
        packets = self.packets[frames]
        starts = self.starts(packets)
        runs: list[tuple[int, int, list[int]]] = []
        for i in np.lexsort((packets, starts)).tolist():
            start, stop, frame = int(starts[i]), int(packets[i]) + 1, int(frames[i])
            if runs and start <= runs[-1][1]:
                before, end, held = runs[-1]
                runs[-1] = (before, max(end, stop), [*held, frame])
            else:
                runs.append((start, stop, [frame]))
        return [Run(start, stop, np.array(sorted(held), np.int64)) for start, stop, held in runs]

    def to_bytes(self) -> bytes:
        """The index as it lies behind the video, its trailer included."""
        ends = self.offsets + self.sizes
        gaps = self.offsets - np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        steps = np.diff(self.pts, prepend=0)
        flags = (self.key * KEY + self.hidden * HIDDEN).astype(np.uint8)
        columns = (self.sizes.astype("<u4"), gaps.astype("<i8"), steps.astype("<i8"), flags)
        table = kernels.compress(b"".join(column.tobytes() for column in columns), _ZSTD, LEVEL)
        head = np.array(
            (
                FORM, IN_PLACE * self.in_place, self.stream, len(self.sizes), len(self.packets), *self.time_base,
                self.end, self.codec.encode(), self.tag, len(self.extradata), len(table), 0,
            ),
            HEAD,
        )  # fmt: skip
        size = HEAD.itemsize + len(self.extradata) + len(table) + TRAILER.itemsize
        return head.tobytes() + self.extradata + table + np.array((size, MAGIC), TRAILER).tobytes()

    @classmethod
    def from_payload(cls, payload: memoryview) -> VideoIndex:
        """The index behind a video, checked: whatever it says is a claim."""
        video = len(payload) - index_size(payload)
        data = payload[video : len(payload) - TRAILER.itemsize]
        if len(data) < HEAD.itemsize:
            raise FormatError("the frame index is cut short")
        head: Any = np.frombuffer(data[: HEAD.itemsize], HEAD)[0]
        if head["form"] != FORM:
            raise FormatError(f"a frame index of form {head['form']}, which this version does not know")
        count, extra, packed = (int(head[name]) for name in ("packets", "extradata", "table"))
        if HEAD.itemsize + extra + packed != len(data) or count * ROW // _RATIO > packed or not count:
            raise FormatError("the frame index has other sizes than it says")
        rows = np.empty(count * ROW, np.uint8)
        try:
            kernels.decompress(data[HEAD.itemsize + extra :], _ZSTD, rows)
        except kernels.Failure as failure:
            raise FormatError(f"the frame index does not decompress: {failure.args[1]}") from None
        sizes = rows[: 4 * count].view("<u4").astype(np.int64)
        gaps, steps = rows[4 * count : 20 * count].view("<i8").reshape(2, count)
        flags = rows[20 * count :]
        with np.errstate(over="ignore"):
            offsets, pts = np.cumsum(gaps + sizes) - sizes, np.cumsum(steps)
        in_place = bool(head["flags"] & IN_PLACE)
        if not sizes.all():
            raise FormatError("the frame index names packets without bytes")
        if in_place and not _inside(offsets, sizes, video):
            raise FormatError("the frame index names bytes that are not the video's")
        index = cls(
            head["codec"].decode("ascii", "replace"), head["tag"].ljust(4, b"\0"),
            bytes(data[HEAD.itemsize : HEAD.itemsize + extra]), int(head["stream"]),
            (int(head["time_num"]), int(head["time_den"])), int(head["end"]), in_place, sizes, offsets, pts,
            (flags & KEY) != 0, (flags & HIDDEN) != 0,
        )  # fmt: skip
        if not index.tag.isascii() or 0 in index.time_base or index.end < 0 or len(index.packets) != head["frames"]:
            raise FormatError("the frame index contradicts itself")
        return index


def _inside(offsets: NDArray[np.int64], sizes: NDArray[np.int64], limit: int) -> bool:
    return bool((offsets >= 0).all() and (offsets <= limit).all() and (offsets + sizes <= limit).all())


def index_size(payload: memoryview) -> int:
    """Bytes of the index at a payload's end."""
    if len(payload) >= TRAILER.itemsize:
        size, magic = np.frombuffer(payload[-TRAILER.itemsize :], TRAILER)[0].tolist()
        if magic == MAGIC and TRAILER.itemsize <= size <= len(payload):
            return int(size)
    raise FormatError("there is no frame index behind the video")
