"""Videos kept as they came: H.264, VP9, AV1 and whatever else FFmpeg decodes, in their own container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, FastLoaderError, FormatError
from fastloader.fields import libav
from fastloader.fields.base import Decoder, Encoded, Field, ReadFunction
from fastloader.fields.files import file_bytes
from fastloader.fields.pixels import make_flags
from fastloader.fields.video import Size, Video
from fastloader.fields.video_index import VideoIndex, index_size
from fastloader.types import TypeId

ROW = np.dtype([
    ("height", "<u4"), ("width", "<u4"), ("frames", "<u4"), ("pad", "<u4"), ("duration", "<f8"), ("codec", "S16"),
])  # fmt: skip


class CompressedVideo(Video):
    """A video in its container. Frames are RGB, as ``ffmpeg -pix_fmt rgb24`` makes them."""

    channels = 3

    def __init__(self, field: Field, metadata: Any, payload: memoryview) -> None:
        super().__init__(field, metadata, payload)
        self.height, self.width, self.num_frames = (int(metadata[name]) for name in ("height", "width", "frames"))
        self.codec = metadata["codec"].decode("ascii", "replace")
        self._video = payload[: len(payload) - index_size(payload)]

    @cached_property
    def index(self) -> VideoIndex:
        """Packets, key frames and times."""
        with self.blamed():
            index = VideoIndex.from_payload(self._payload)
            if len(index.packets) != self.num_frames:
                raise FormatError(f"the frame index has {len(index.packets)} frames, the table {self.num_frames}")
        return index

    @property
    def times(self) -> NDArray[np.float64]:
        """When each frame is shown, in seconds from the first on, as the container says."""
        return self.index.times

    @property
    def duration(self) -> float:
        """When the last frame is no longer shown."""
        return float(self._metadata["duration"])

    @property
    def bytes(self) -> bytes:
        """The file, byte for byte."""
        return bytes(self._video)

    def check(self) -> None:
        """The index must be that of the video, and all frames must decode."""
        with self.blamed():
            try:
                index, _, _ = libav.scan(self.bytes)
            except ValueError as error:
                raise DecodeError(str(error)) from None
            if index.to_bytes() != self._payload[len(self._video) :]:
                raise FormatError("the frame index is not that of the video")
            libav.check_frames(self.index, self._video, (self.height, self.width))

    def each(
        self, numbers: NDArray[np.int64], size: Size | None, filter: str
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """These frames, as they come out of the decoder."""
        return libav.pictures(self.index, self._video, numbers, (self.height, self.width), size, filter)


class VideoDecoder(Decoder):
    """Gives a ``Video``; nothing is decoded before it is asked for frames."""

    def __call__(self, metadata: Any, read: ReadFunction) -> CompressedVideo:
        """The video."""
        return CompressedVideo(self.field, metadata, read())


@dataclass(frozen=True, slots=True)
class VideoCompressedField(Field):
    """Videos stored as they are: H.264, HEVC, VP9, AV1, MPEG-4 and the like, in mp4, mkv, webm or another container.

    Takes the name of a file, an open one, its bytes, or a video that was read, and keeps them byte for byte. On writing
    the packets are listed, without decoding any; with that list, stored behind the video, any frame is decoded from the
    nearest key frame on. With ``check`` all of it is decoded once, and what does not decode is refused.

    Reading gives a ``Video``. Needs PyAV: ``pip install "fastloader[video]"``.
    """

    check: bool = False

    type_id: ClassVar[int] = TypeId.VIDEO_COMPRESSED

    def __post_init__(self) -> None:
        make_flags(self, "check")

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Height, width, frames, seconds and the codec's name."""
        return ROW

    def prepare(self, value: Any) -> Any:
        """The bytes, read now if a file is named; of a video that was read, its file."""
        return value.bytes if isinstance(value, CompressedVideo) else file_bytes(value)

    def encode(self, value: Any) -> Encoded:
        """The file with its index behind it."""
        video = self.prepare(value)
        if not isinstance(video, bytes):
            raise TypeError(
                f"expected a video file or its bytes, got {type(video).__name__}; VideoFramesField takes frames"
            )
        index, height, width = libav.scan(video)
        if not (0 < height < 1 << 16 and 0 < width < 1 << 16):
            raise ValueError(f"frames of {height}x{width}")
        if self.check:
            try:
                libav.check_frames(index, memoryview(video), (height, width))
            except FastLoaderError as error:
                raise ValueError(f"the video does not decode: {error}") from None
        row = (height, width, len(index.packets), 0, index.duration, index.codec.encode())
        return Encoded(row, video + index.to_bytes())

    def stored_value(self, payload: memoryview) -> memoryview:
        """The video, without the index behind it."""
        return payload[: len(payload) - index_size(payload)]

    def collate(self, values: Sequence[Any]) -> list[Any]:
        """Always a list."""
        return list(values)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads videos."""
        return VideoDecoder
