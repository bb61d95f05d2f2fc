"""Everything that is asked of PyAV, FFmpeg's libraries for Python: taking a container apart, and decoding packets.

One decoder has one thread: there are as many decoders as samples being decoded, and PyAV lets go of the GIL meanwhile.
Decoders are told to be bit-exact, so that a frame does not depend on the CPU.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, MissingExtraError
from fastloader.fields.video_index import Run, VideoIndex

DECODERS = {"av1": ("libdav1d", "libaom-av1", "av1")}
"""Decoders of a codec, where the first that FFmpeg would take may be one for other hardware."""
SKIPPING = frozenset({"h264", "hevc", "mpeg4", "mpeg2video"})
"""Codecs whose decoders can be told, packet by packet, to leave out what is not wanted and nothing refers to."""
_OPTIONS = {"flags": "+bitexact"}
_FILTERS = {"nearest": "POINT", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "area": "AREA", "lanczos": "LANCZOS"}
_VP8_SHOWN = 1 << 4


def require() -> Any:
    """PyAV, or an error that says how to get it."""
    try:
        return importlib.import_module("av")
    except ModuleNotFoundError as error:
        if error.name != "av":
            raise
        raise MissingExtraError("PyAV is not installed", extra="video") from None


def _open(av: Any, video: Any) -> Any:
    try:
        return av.open(io.BytesIO(video), metadata_errors="replace")
    except (av.FFmpegError, ValueError) as error:
        raise ValueError(f"FFmpeg can't read these bytes as a video: {_said(error)}") from None


def scan(video: bytes) -> tuple[VideoIndex, int, int]:
    """The index of a video, made by demuxing alone, and the height and width that its header states."""
    av = require()
    with _open(av, video) as container:
        if not container.streams.video:
            raise ValueError("there is no video in this file, only other streams")
        stream = container.streams.video[0]
        context = stream.codec_context
        if context is None:
            raise ValueError("FFmpeg knows no decoder for this video")
        try:
            packets = [packet for packet in container.demux(stream) if packet.size]
        except av.FFmpegError as error:
            raise ValueError(f"the file is damaged: {_said(error)}") from None
        if not packets:
            raise ValueError("there are no frames in this video")
        timed = np.array([packet.pts is not None for packet in packets])
        if 2 * timed.sum() < len(packets):
            raise ValueError(
                "most packets have no presentation time; write the file anew, as with "
                '"ffmpeg -fflags +genpts -i FILE -c copy NEW.mkv"'
            )
        codec = context.codec.canonical_name
        pts = _filled(packets, timed)
        # Without a time of its own a packet is the rest of a frame, or refers to what was cut off.
        hidden = np.array([packet.is_discard or _is_hidden(codec, packet) for packet in packets]) | ~timed
        shown = ~hidden
        if not shown.any():
            raise ValueError("there are no frames to be shown in this video")
        lengths = np.array([packet.duration or 0 for packet in packets], np.int64)
        end = int((pts + lengths)[shown].max() - pts[shown].min())
        offsets = _offsets(video, packets)
        index = VideoIndex(
            codec, _tag(context), bytes(context.extradata or b""), int(stream.index),
            (stream.time_base.numerator, stream.time_base.denominator), max(end, 1), offsets is not None,
            np.array([packet.size for packet in packets], np.int64),
            np.zeros(len(packets), np.int64) if offsets is None else offsets,
            pts, np.array([bool(packet.is_keyframe) for packet in packets]), hidden,
        )  # fmt: skip
        return _without_lost(index, video), int(context.height), int(context.width)


def _filled(packets: list[Any], timed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The time of each packet; where it has none, that of the one before, or of the first that has one."""
    times = np.array([0 if packet.pts is None else packet.pts for packet in packets], np.int64)
    last = np.maximum.accumulate(np.where(timed, np.arange(len(packets)), -1))
    return times[np.where(last < 0, np.argmax(timed), last)]


def _is_hidden(codec: str, packet: Any) -> bool:
    """Whether a packet is only there for others to refer to. Containers of VP8 have such packets, and don't say so."""
    return codec == "vp8" and not memoryview(packet)[0] & _VP8_SHOWN


def _tag(context: Any) -> bytes:
    """The container's name for the codec, where it is a name: some decoders make allowances by it."""
    tag = str(context.codec_tag)
    return tag.encode() if tag.isascii() and tag.isprintable() and len(tag) == 4 else bytes(4)


def _offsets(video: bytes, packets: list[Any]) -> NDArray[np.int64] | None:
    """Where the packets' bytes lie in the file; ``None`` where one does not lie there in one piece."""
    found = []
    for packet in packets:
        data = bytes(packet)
        place = (
            -1 if packet.pos is None or packet.pos < 0 else video.find(data, packet.pos, packet.pos + len(data) + 64)
        )
        if place < 0:
            return None
        found.append(place)
    return np.array(found, np.int64)


def _without_lost(index: VideoIndex, video: bytes) -> VideoIndex:
    """Pictures that are shown before the first key frame refer to what was cut off; some decoders drop them."""
    lost = np.flatnonzero((index.pts < index.pts[index.keys[0]]) & ~index.hidden)
    if not len(lost):
        return index
    frames = np.sort(index.frame_of[lost])
    with Packets(index, memoryview(video)) as packets:
        given = {number for number, _ in _decoded(index, packets, Run(0, int(lost.max()) + 1, frames))}
    gone = [packet for packet in lost.tolist() if int(index.frame_of[packet]) not in given]
    hidden = index.hidden.copy()
    hidden[gone] = True
    return replace(index, hidden=hidden)


class Packets:
    """The packets of a video, in ascending order: out of its bytes, or by taking the container apart again."""

    def __init__(self, index: VideoIndex, video: memoryview) -> None:
        self._index = index
        self._video = video
        self._container: Any = None
        self._demuxed: Iterator[Any] = iter(())
        self._next = 0

    def __enter__(self) -> Packets:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._container is not None:
            self._container.close()
            self._container = None

    def get(self, number: int) -> Any:
        """One packet."""
        if not self._index.in_place:
            return self._demux(number)
        start, size = int(self._index.offsets[number]), int(self._index.sizes[number])
        # Decoders read a little past the end: a packet made of a size has room there, one made of bytes has none.
        packet = require().Packet(size)
        packet.update(self._video[start : start + size])
        return packet

    def _demux(self, number: int) -> Any:
        if self._container is None or number < self._next:
            self._close()
            try:
                self._container = _open(require(), self._video)
            except ValueError as error:
                raise DecodeError(str(error)) from None
            if self._index.stream >= len(self._container.streams):
                raise DecodeError(f"there is no stream {self._index.stream} in the file")
            stream = self._container.streams[self._index.stream]
            self._demuxed = (packet for packet in self._container.demux(stream) if packet.size)
            self._next = 0
        av = require()
        try:
            while True:
                packet = next(self._demuxed)
                self._next += 1
                if self._next > number:
                    break
        except (StopIteration, av.FFmpegError):
            raise DecodeError(f"packet {number} is not in the file") from None
        if packet.size != self._index.sizes[number]:
            raise DecodeError(f"packet {number} has {packet.size} bytes, the index says {self._index.sizes[number]}")
        return packet


def _context(index: VideoIndex) -> Any:
    """An open decoder."""
    av = require()
    for name in DECODERS.get(index.codec, (index.codec,)):
        try:
            context = av.CodecContext.create(name, "r")
        except (ValueError, av.FFmpegError):  # this FFmpeg has none of that name
            continue
        if context.type != "video":
            break
        context.thread_count = 1
        context.options = dict(_OPTIONS)
        if index.extradata:
            context.extradata = index.extradata
        if index.tag != bytes(4):
            context.codec_tag = index.tag.decode("ascii")
        return context
    raise DecodeError(f"FFmpeg has no decoder for {index.codec!r}")


def send(context: Any, packet: Any) -> list[Any]:
    """The frames that come out of a decoder for a packet; ``None`` ends a run."""
    frames: list[Any] = context.decode(packet)
    return frames


def _decoded(index: VideoIndex, packets: Packets, run: Run) -> Iterator[tuple[int, Any]]:
    """Frames of a run as they come out of a decoder of its own, with their numbers."""
    av = require()
    context = _context(index)
    wanted = set(run.frames.tolist())
    first = index.pts[run.start]
    for number in range(run.start, run.stop):
        packet = packets.get(number)
        frame = int(index.frame_of[number])
        # A decoder hands a packet's time on to its frame, whatever it is: here, the frame's number.
        packet.pts = packet.dts = frame
        if index.codec in SKIPPING:
            context.skip_frame = "DEFAULT" if frame in wanted else "NONREF"
        try:
            made = send(context, packet)
        except av.FFmpegError as error:
            if index.pts[number] < first:  # it refers to what lies before this run, and nothing here refers to it
                continue
            raise DecodeError(f"packet {number} of {len(index.sizes)} does not decode: {_said(error)}") from None
        yield from ((one.pts, one) for one in made if one.pts in wanted)
    try:
        made = send(context, None)
    except av.FFmpegError as error:
        raise DecodeError(f"the video does not decode: {_said(error)}") from None
    yield from ((one.pts, one) for one in made if one.pts in wanted)


def decode(index: VideoIndex, video: memoryview, frames: NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
    """Each of these frames, as PyAV has it, with its number; only groups of pictures that are needed are decoded."""
    with Packets(index, video) as packets:
        for run in index.runs(frames):
            left = run
            while len(left.frames):
                given = set()
                for number, frame in _decoded(index, packets, left):
                    if number not in given:
                        given.add(number)
                        yield number, frame
                rest = np.array([number for number in left.frames.tolist() if number not in given], np.int64)
                if not len(rest):
                    break
                # With intra refresh a picture is whole only some time behind its key frame: begin one earlier.
                if left.start == 0:
                    raise DecodeError(f"frame {rest[0]} does not come out of the decoder")
                earlier = index.keys[np.searchsorted(index.keys, left.start, "left") - 1]
                left = Run(int(earlier), int(index.packets[rest].max()) + 1, rest)


def pictures(
    index: VideoIndex,
    video: memoryview,
    frames: NDArray[np.int64],
    shape: tuple[int, int],
    size: tuple[int, int] | None,
    filter: str,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """These frames, which ascend, as RGB, each with its place among them. ``shape`` is what each must have.

    The conversion is swscale's, as "ffmpeg -pix_fmt rgb24" does it; with a ``size`` it resizes in the same pass.
    """
    av = require()
    reformatter = av.video.reformatter.VideoReformatter()
    how = av.video.reformatter.Interpolation[_FILTERS[filter]]
    height, width = size or shape
    for number, frame in decode(index, video, frames):
        _check_frame(number, frame, shape)
        try:
            picture = reformatter.reformat(frame, width, height, "rgb24", interpolation=how, threads=1)
        except (av.FFmpegError, ValueError) as error:
            raise DecodeError(f"frame {number} can't be converted to RGB: {_said(error)}") from None
        plane = picture.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(height, plane.line_size)[:, : 3 * width]
        yield int(np.searchsorted(frames, number)), rows.reshape(height, width, 3)


def _check_frame(number: int, frame: Any, shape: tuple[int, int]) -> None:
    if (frame.height, frame.width) != shape:
        raise DecodeError(f"frame {number} is {frame.height}x{frame.width}, the video is {shape[0]}x{shape[1]}")
    if frame.is_corrupt:
        raise DecodeError(f"frame {number} is damaged")


def check_frames(index: VideoIndex, video: memoryview, shape: tuple[int, int]) -> None:
    """Decodes everything; each frame must come out, undamaged and of this shape."""
    for number, frame in decode(index, video, np.arange(len(index.packets))):
        _check_frame(number, frame, shape)


def _said(error: Exception) -> str:
    """The library's words, without its numbers and file names."""
    return str(getattr(error, "strerror", None) or error)
