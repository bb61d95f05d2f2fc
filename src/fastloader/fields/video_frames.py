"""Videos as single pictures: JPEG, PNG or raw pixels, each frame reachable without decoding another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields.base import Decoder, Encoded, Field, ReadFunction, naming
from fastloader.fields.files import file_bytes
from fastloader.fields.image import JPEGImageField, PNGImageField
from fastloader.fields.pixels import as_hwc, make_flags, own_pixels, pixels_of
from fastloader.fields.video import Size, Video
from fastloader.types import TypeId

ROW = np.dtype([("height", "<u4"), ("width", "<u4"), ("channels", "<u4"), ("frames", "<u4")])
OFFSET = np.dtype("<u8")
FORMATS = ("jpeg", "png", "raw")
_RESIZES = {"nearest": "nearest", "bilinear": "bilinear", "bicubic": "bicubic", "area": "box", "lanczos": "lanczos"}


class FramesVideo(Video):
    """Frames that are stored one by one."""

    field: VideoFramesField

    def __init__(self, field: Field, metadata: Any, payload: memoryview) -> None:
        super().__init__(field, metadata, payload)
        self.height, self.width, self.channels, self.num_frames = (int(metadata[name]) for name in ROW.names or ())
        self.codec = self.field.format
        table = 0 if self.codec == "raw" else OFFSET.itemsize * (self.num_frames + 1)
        needed = self.num_frames * self.height * self.width * self.channels
        if table > len(payload) or (not table and needed != len(payload)):
            raise FormatError(f"{len(payload)} bytes are not the {self.num_frames} frames stored here")
        self._pictures = payload[: len(payload) - table]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each frame begins, and the end of the last."""
        if self.codec == "raw":
            return np.arange(self.num_frames + 1) * (self.height * self.width * self.channels)
        with self.blamed():
            offsets = np.frombuffer(self._payload[len(self._pictures) :], OFFSET)
            if offsets[0] != 0 or offsets[-1] != len(self._pictures) or (offsets[1:] < offsets[:-1]).any():
                raise FormatError("the offsets of the frames do not ascend through the payload")
        return offsets.astype(np.int64)

    def encoded(self, frame: int) -> memoryview:
        """One frame as it is stored: a JPEG or PNG file, or its pixels."""
        (number,) = self._numbers(frame).tolist()
        with self.blamed():
            return self.field.picture.stored_value(self.stored(number)) if self.codec != "raw" else self.stored(number)

    def stored(self, frame: int) -> memoryview:
        """The same with what the field keeps behind it."""
        return self._pictures[int(self.offsets[frame]) : int(self.offsets[frame + 1])]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Height, width, channels and bits of a frame."""
        return self.height, self.width, self.channels, 8

    @property
    def times(self) -> NDArray[np.float64]:
        """When each frame is shown: by the field's ``fps``."""
        return np.arange(self.num_frames) / self.field.fps

    @property
    def duration(self) -> float:
        """When the last frame is no longer shown."""
        return self.num_frames / self.field.fps

    @property
    def bytes(self) -> bytes:
        """The payload: frames one behind the other, and their offsets."""
        return bytes(self._payload)

    def check(self) -> None:
        """Each frame must decode."""
        with self.blamed():
            for number in range(self.num_frames):
                self._frame(number)

    def each(
        self, numbers: NDArray[np.int64], size: Size | None, filter: str
    ) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """These frames, one after the other."""
        for i, number in enumerate(numbers.tolist()):
            frame = self._frame(number)
            yield i, frame if size is None else kernels.resize_image(frame, size, filter=_RESIZES[filter])

    def _frame(self, number: int) -> NDArray[Any]:
        data = self.stored(number)
        if self.codec == "raw":
            return np.frombuffer(data, np.uint8).reshape(self.shape[:3])
        kind = self.field.picture.kind
        if kernels.image_info(kind, data) != self.shape:
            raise FormatError(
                f"frame {number} is not the {self.height}x{self.width}x{self.channels} picture it should be"
            )
        return kernels.decode_image(kind, data, self.shape)


class FramesDecoder(Decoder):
    """Gives a ``Video`` whose frames are decoded when asked for."""

    def __call__(self, metadata: Any, read: ReadFunction) -> FramesVideo:
        """The video."""
        return FramesVideo(self.field, metadata, read())


@dataclass(frozen=True, slots=True)
class VideoFramesField(Field):
    """Videos as pictures of one size, each decoded without the others: ``format`` is "jpeg", "png" or "raw".

    Takes an array (frames, height, width, 1 or 3) or (frames, height, width) of uint8, or a list of frames: arrays, PIL
    images, and for JPEG and PNG also files or bytes that are that already; or a ``Video`` that was read.

    ``quality``, ``subsampling`` and ``seekable`` are those of ``JPEGImageField``. ``fps`` says when frames are shown.
    ``check`` decodes ready frames once on writing and refuses what does not decode.

    Reading gives a ``Video``.
    """

    format: str = "jpeg"
    fps: float = 25.0
    quality: int = 90
    subsampling: str = "420"
    seekable: bool = True
    check: bool = False

    type_id: ClassVar[int] = TypeId.VIDEO_FRAMES

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"format={self.format!r}: one of {', '.join(FORMATS)}")
        if isinstance(self.fps, bool) or not isinstance(self.fps, int | float | np.integer | np.floating):
            raise TypeError(f"fps={self.fps!r}: frames a second")
        make_flags(self, "check")
        object.__setattr__(self, "fps", float(self.fps))
        if not (isfinite(self.fps) and self.fps > 0):
            raise ValueError(f"fps={self.fps!r}: above 0")
        jpeg = JPEGImageField(quality=self.quality, subsampling=self.subsampling, seekable=self.seekable)
        for name in ("quality", "subsampling", "seekable"):
            object.__setattr__(self, name, getattr(jpeg, name))
        if self.format != "jpeg" and jpeg != JPEGImageField():
            raise ValueError(f"format={self.format!r}: quality, subsampling and seekable are for 'jpeg'")

    @property
    def picture(self) -> JPEGImageField | PNGImageField:
        """The field of one frame, where it is encoded."""
        if self.format == "png":
            return PNGImageField(check=self.check)
        return JPEGImageField(
            quality=self.quality, subsampling=self.subsampling, seekable=self.seekable, check=self.check
        )

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Height, width, channels and the number of frames."""
        return ROW

    def prepare(self, value: Any) -> Any:
        """Arrays are copied, PIL images loaded, files read."""
        if isinstance(value, np.ndarray):
            return value.copy()
        if isinstance(value, FramesVideo) and value.codec == self.format != "raw":
            return [bytes(value.encoded(i)) for i in range(len(value))]
        if isinstance(value, Video):
            return value.frames()
        if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Sequence):
            raise TypeError(f"expected an array or a list of frames, got {type(value).__name__}")
        frames = []
        for i, frame in enumerate(value):
            with naming(f"frame {i}"):
                frames.append(own_pixels(file_bytes(frame)))
        return frames

    def encode(self, value: Any) -> Encoded:
        """Frames one behind the other, and where each begins."""
        frames = value if isinstance(value, np.ndarray | list) else self.prepare(value)
        if isinstance(frames, np.ndarray) and frames.ndim not in (3, 4):
            raise ValueError(
                f"expected (frames, height, width) or (frames, height, width, channels), got {frames.shape}"
            )
        if not len(frames):
            raise ValueError("a video without frames")
        made = [self._encode_frame(i, frame) for i, frame in enumerate(frames)]
        shape = made[0][0]
        for i, (other, _) in enumerate(made):
            if other != shape:
                said = " and ".join("x".join(map(str, one)) for one in (shape, other))
                raise ValueError(f"frames 0 and {i} differ in size: {said}; resize them first")
        payload = [data for _, data in made]
        if self.format != "raw":
            ends = np.cumsum([0, *map(len, payload)], dtype=OFFSET)
            payload.append(ends.tobytes())
        return Encoded((*shape, len(made)), b"".join(payload))

    def _encode_frame(self, number: int, frame: Any) -> tuple[tuple[int, int, int], bytes]:
        with naming(f"frame {number}"):
            if self.format == "raw":
                pixels = as_hwc(pixels_of(frame), (1, 3), (np.uint8,))
                height, width, channels = pixels.shape
                return (height, width, channels), pixels.tobytes()
            (height, width, channels, bits), data = self.picture.encode(frame)
            if bits != 8:
                raise ValueError(f"a frame of {bits} bits a sample; frames have 8")
            return (height, width, channels), bytes(data)

    def collate(self, values: Sequence[Any]) -> list[Any]:
        """Always a list."""
        return list(values)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads videos."""
        return FramesDecoder
