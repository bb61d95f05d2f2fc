"""Images: raw pixels, JPEG, PNG and WebP. Values are always (height, width, channels)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError, MissingLibraryError
from fastloader.fields.base import Decoder, Encoded, Field, PayloadBatch, Plan, ReadFunction
from fastloader.fields.image_files import ImageFileField
from fastloader.fields.pixels import as_hwc, make_flags, make_whole, own_pixels, pixels_of
from fastloader.types import Buffer, TypeId

JPEG_INDEX_INTERVAL = 4
"""MCUs from one anchor of a JPEG's index to the next: 8 would save half of its 1.2 % and cost 5 to 10 % of the time."""


class RawImageDecoder(Decoder):
    """Gives a view of the stored pixels."""

    field: RawImageField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """(height, width, channels), read-only."""
        data = read()
        shape, dtype = self.field.shape, np.dtype(self.field.dtype)
        if len(data) != np.prod(shape, dtype=np.int64) * dtype.itemsize:
            raise FormatError(f"{len(data)} bytes are no image of shape {shape}")
        array = np.frombuffer(data, dtype).reshape(shape)
        return array if array.flags.aligned else array.copy()

    @property
    def plan(self) -> Plan:
        """All of one size."""
        return Plan("fixed", prod(self.field.shape) * np.dtype(self.field.dtype).itemsize)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> NDArray[Any]:
        """(batch, height, width, channels)."""
        return payloads.fixed(self.field.shape, np.dtype(self.field.dtype))


@dataclass(frozen=True, slots=True)
class RawImageField(Field):
    """Uncompressed pixels of one size: the fastest to read, the largest to keep."""

    height: int
    width: int
    channels: int = 3
    dtype: str = "uint8"

    type_id: ClassVar[int] = TypeId.IMAGE_RAW
    worth_a_thread: ClassVar[bool] = False

    def __post_init__(self) -> None:
        make_whole(self, "height", "width", "channels")
        if min(self.height, self.width, self.channels) < 1:
            raise ValueError(f"an image without pixels: {self.shape}")
        if np.dtype(self.dtype).kind not in "uif":
            raise TypeError(f"pixels are integers or floats, not {self.dtype}")
        object.__setattr__(self, "dtype", np.dtype(self.dtype).name)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels

    def prepare(self, value: Any) -> Any:
        """Load PIL images, copy arrays."""
        return own_pixels(value)

    def encode(self, value: Any) -> Encoded:
        """Takes an array or a PIL image of exactly this size."""
        pixels = as_hwc(pixels_of(value), (self.channels,), (np.dtype(self.dtype).type,))
        if pixels.shape != self.shape:
            raise ValueError(f"expected an image of {self.shape}, got {pixels.shape}; resize it first")
        return Encoded(payload=pixels.reshape(-1).view(np.uint8))

    def get_decoder_class(self) -> type[Decoder]:
        """Reads pixels."""
        return RawImageDecoder


def _baseline(jpeg: Buffer) -> Buffer:
    """The JPEG in one scan. One that is damaged is kept: that is told when it is read, or by ``check``."""
    try:
        made = kernels.jpeg_baseline(jpeg)
    except kernels.Failure:
        return jpeg
    return jpeg if made is None else made


_INDEX_INTERVAL_AT = 3
"""Offset of an index's interval, which is 0 where it has no anchors."""
_UNKNOWN_BEFORE = {"seekable": False, "verbatim": True}
"""What a file that was written before there were these options stands for."""


@dataclass(frozen=True, slots=True)
class JPEGImageField(ImageFileField):
    """Images kept as JPEG: grayscale or RGB; CMYK files are read as RGB.

    Takes an array, a PIL image, or ready JPEG bytes. An image above ``max_height`` or ``max_width`` is an error.
    ``subsampling`` is "444", "422" or "420" and, like ``quality``, concerns encoding only.
    Of ready bytes only the header is relied on, so a file that was cut short is found when it is read; with ``check``
    they are decoded once on writing, and what does not decode is refused.

    ``seekable`` lays an index of about 1.2 % behind the JPEG, with which a part of the image is decoded without the
    rest. Ready bytes are stored as they are, except that a progressive JPEG is rewritten without loss as a baseline
    one, which decodes faster and can be indexed; EXIF, ICC and other markers are kept. With ``verbatim`` it stays
    progressive.

    Cameras store pictures as the sensor lay, and in the EXIF data how to turn them. With ``orient`` images are given
    upright, however they are read; the stored bytes stay, and the shape is that of the upright image. Without it
    ``ops.Orient`` does it in a pipeline.
    """

    quality: int = 90
    max_height: int | None = None
    max_width: int | None = None
    subsampling: str = "420"
    check: bool = False
    seekable: bool = True
    verbatim: bool = False
    orient: bool = False

    type_id: ClassVar[int] = TypeId.IMAGE_JPEG
    kind: ClassVar[int] = kernels.JPEG

    def __post_init__(self) -> None:
        make_whole(self, "quality")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality={self.quality}: from 1 to 100")
        if self.subsampling not in ("444", "422", "420"):
            raise ValueError(f"subsampling={self.subsampling!r}: '444', '422' or '420'")
        self.check_options()
        make_flags(self, "seekable", "verbatim")

    def prepare(self, value: Any) -> Any:
        """Load PIL images, copy arrays."""
        return own_pixels(value, orient=self.orient)

    def encode(self, value: Any) -> Encoded:
        """JPEG bytes pass through, progressive ones as baseline; pixels are encoded."""
        value = pixels_of(value, orient=self.orient)
        ready = isinstance(value, bytes)
        if not ready:
            pixels = as_hwc(value, (1, 3), (np.uint8,))
            height, width, channels = pixels.shape
            value = kernels.jpeg_encode(pixels, height, width, channels, self.quality, int(self.subsampling))
        shape, jpeg = self.encoded(value, ready)
        if ready and not self.verbatim:
            jpeg = _baseline(jpeg)
        if not self.seekable:
            return Encoded(shape, jpeg)
        index, _ = kernels.jpeg_index(jpeg, JPEG_INDEX_INTERVAL)
        return Encoded(shape, bytes(jpeg) + index)

    def stored_value(self, payload: memoryview) -> memoryview:
        """The JPEG, without the index behind it."""
        return payload[: kernels.jpeg_size(payload)] if self.seekable else payload

    def fault_of(self, read: ReadFunction) -> str | None:
        """The index must be what the JPEG calls for."""
        payload = read() if self.seekable else memoryview(b"")
        jpeg = self.stored_value(payload)
        index = payload[len(jpeg) :]
        interval = index[_INDEX_INTERVAL_AT] if len(index) else 0
        if interval and kernels.jpeg_index(jpeg, interval)[0] != index:
            return "the index is not that of the JPEG"
        return None

    def to_binary(self) -> bytes:
        """The options. A field that does neither is stored as it was before there were these options."""
        stored = super(JPEGImageField, self).to_binary()
        if self.seekable or not self.verbatim:
            return stored
        options = {name: value for name, value in json.loads(stored).items() if name not in _UNKNOWN_BEFORE}
        return json.dumps(options, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field with the options that ``to_binary`` stored."""
        return super(JPEGImageField, cls).from_binary(json.dumps(_UNKNOWN_BEFORE | json.loads(data)).encode())


@dataclass(frozen=True, slots=True)
class PNGImageField(ImageFileField):
    """Images kept as PNG, exactly: gray, gray + alpha, RGB or RGBA, of 8 or 16 bits.

    Takes an array, a PIL image, or ready PNG bytes, which are stored as they are; palettes are expanded on reading.
    ``level`` is zlib's, 0 to 9. A colour that a PIL image says is transparent becomes an alpha channel, as it does in
    the file. ``check`` decodes ready bytes once on writing and refuses what does not decode. With ``orient`` images are
    given upright, as for a JPEG.
    """

    level: int = 6
    max_height: int | None = None
    max_width: int | None = None
    check: bool = False
    orient: bool = False

    type_id: ClassVar[int] = TypeId.IMAGE_PNG
    kind: ClassVar[int] = kernels.PNG

    def __post_init__(self) -> None:
        make_whole(self, "level")
        if not 0 <= self.level <= 9:
            raise ValueError(f"level={self.level}: from 0 to 9")
        self.check_options()

    def prepare(self, value: Any) -> Any:
        """Load PIL images, copy arrays."""
        return own_pixels(value, alpha=True, orient=self.orient)

    def encode(self, value: Any) -> Encoded:
        """PNG bytes pass through; pixels are encoded."""
        value = pixels_of(value, alpha=True, orient=self.orient)
        ready = isinstance(value, bytes)
        if not ready:
            pixels = as_hwc(value, (1, 2, 3, 4), (np.uint8, np.uint16))
            height, width, channels = pixels.shape
            value = kernels.png_encode(pixels, height, width, channels, pixels.itemsize * 8, self.level)
        return self.encoded(value, ready)


@dataclass(frozen=True, slots=True)
class WebPImageField(ImageFileField):
    """Images kept as WebP: RGB, or RGBA where they have an alpha channel.

    Takes an array, a PIL image, or ready WebP bytes, which are stored as they are; animations are refused. ``quality``
    and ``lossless`` concern encoding: without ``lossless`` a higher quality is closer to the image, with it smaller and
    slower. ``check`` decodes ready bytes once on writing and refuses what does not decode. A ``PNGImageField`` keeps
    gray images as such, which WebP does not.
    """

    quality: int = 80
    lossless: bool = False
    max_height: int | None = None
    max_width: int | None = None
    check: bool = False
    orient: bool = False

    type_id: ClassVar[int] = TypeId.IMAGE_WEBP
    kind: ClassVar[int] = kernels.WEBP

    def __post_init__(self) -> None:
        make_whole(self, "quality")
        if not 0 <= self.quality <= 100:
            raise ValueError(f"quality={self.quality}: from 0 to 100")
        make_flags(self, "lossless")
        self.check_options()

    def prepare(self, value: Any) -> Any:
        """Load PIL images, copy arrays."""
        return own_pixels(value, alpha=True, gray=False, orient=self.orient)

    def encode(self, value: Any) -> Encoded:
        """WebP bytes pass through; pixels are encoded."""
        _need_webp()
        value = pixels_of(value, alpha=True, gray=False, orient=self.orient)
        ready = isinstance(value, bytes)
        if not ready:
            pixels = as_hwc(value, (3, 4), (np.uint8,))
            height, width, channels = pixels.shape
            value = kernels.webp_encode(pixels, height, width, channels, self.quality, self.lossless)
        return self.encoded(value, ready)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads pixels."""
        _need_webp()
        return super(WebPImageField, self).get_decoder_class()


def _need_webp() -> None:
    if not kernels.has_webp():
        raise MissingLibraryError(
            "fastloader was built without libwebp, which WebP images need",
            hint="apt-get install libwebp-dev and build it anew, or install the wheel, which brings it",
        )
