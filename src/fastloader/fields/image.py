"""Images: raw pixels, JPEG and PNG. Values are always (height, width, channels)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FormatError
from fastloader.fields.base import Decoder, Encoded, Field, PayloadBatch, Plan, ReadFunction
from fastloader.fields.convert import whole
from fastloader.types import Buffer, TypeId

JPEG_INDEX_INTERVAL = 4
"""MCUs from one anchor of a JPEG's index to the next: 8 would save half of its 1.2 % and cost 5 to 10 % of the time."""

SHAPE = np.dtype([("height", "<u4"), ("width", "<u4"), ("channels", "<u4"), ("bits", "<u4")])

_DTYPE = {8: np.uint8, 16: np.uint16, 0: np.uint8}
_ENCODED_MAGIC = {kernels.JPEG: b"\xff\xd8\xff", kernels.PNG: b"\x89PNG\r\n\x1a\n"}
_FORMAT_NAME = {kernels.JPEG: "JPEG", kernels.PNG: "PNG"}
_PIL_MODES = {"1": "L", "P": "RGB", "PA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB", "LAB": "RGB", "HSV": "RGB"}
"""PIL modes whose arrays are not what one sees, and what to convert them to."""


def own_pixels(value: Any, alpha: bool = False) -> Any:
    """Pixels as an array of our own; encoded bytes as bytes. PIL images are loaded now, while their file is open.

    With ``alpha``, a colour that a PIL image says is transparent gets an alpha channel to say so.
    """
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    mode = getattr(value, "mode", None)
    if isinstance(mode, str) and hasattr(value, "convert"):
        seen_through = "transparency" in value.info
        if seen_through and (mode == "P" or (alpha and mode == "RGB")):
            value = value.convert("RGBA")
        elif seen_through and alpha and mode in ("1", "L"):
            value = value.convert("LA")
        elif mode in _PIL_MODES:
            value = value.convert(_PIL_MODES[mode])
        elif mode.startswith("I"):
            array = np.asarray(value)
            if array.size and (array.min() < 0 or array.max() > 0xFFFF):
                raise ValueError(f"PIL mode {mode} with values outside 16 bits")
            array = array.astype(np.uint16)
            if seen_through and alpha:
                return np.stack(
                    [array, np.where(array == value.info["transparency"], np.uint16(0), np.uint16(0xFFFF))], -1
                )
            return array
    return np.array(value)


def _pixels(value: Any, alpha: bool = False) -> Any:
    """What ``own_pixels`` made, as it is; anything else through it."""
    return value if isinstance(value, np.ndarray | bytes) else own_pixels(value, alpha)


def _as_hwc(value: Any, channels: tuple[int, ...], dtypes: tuple[type[Any], ...]) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.type not in dtypes:
        wanted = " or ".join(np.dtype(t).name for t in dtypes)
        raise TypeError(f"expected pixels of {wanted}, got {array.dtype}")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in channels:
        wanted = " or ".join(map(str, channels))
        raise ValueError(f"expected (height, width) or (height, width, {wanted}), got {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"an image without pixels: {array.shape}")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def decode_image(data: bytes | bytearray | memoryview) -> NDArray[Any]:
    """The pixels (height, width, channels) of a JPEG or PNG file; the GIL is not held meanwhile.

    Datasets of other formats than ``.fld`` give images as they are stored; this is for their ``map``.
    """
    for kind, magic in _ENCODED_MAGIC.items():
        if bytes(data[: len(magic)]) == magic:
            try:
                return kernels.decode_image(kind, data, kernels.image_info(kind, data))
            except kernels.Failure as failure:
                raise DecodeError(f"the {_FORMAT_NAME[kind]} does not decode: {failure.args[1]}") from None
    raise DecodeError(f"is no JPEG or PNG: it begins with {bytes(data[:8])!r}")


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
        _make_whole(self, "height", "width", "channels")
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
        pixels = _as_hwc(_pixels(value), (self.channels,), (np.dtype(self.dtype).type,))
        if pixels.shape != self.shape:
            raise ValueError(f"expected an image of {self.shape}, got {pixels.shape}; resize it first")
        return Encoded(payload=pixels.reshape(-1).view(np.uint8))

    def get_decoder_class(self) -> type[Decoder]:
        """Reads pixels."""
        return RawImageDecoder


class EncodedImageDecoder(Decoder):
    """Decodes JPEG or PNG in the native core."""

    field: JPEGImageField | PNGImageField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """(height, width, channels) of uint8, or uint16 for a 16-bit PNG."""
        height, width, channels, bits = (int(metadata[name]) for name in SHAPE.names or ())
        data = read()
        kind = self.field.kind
        # What the bytes say decides what is allocated; what the table says must agree.
        if kernels.image_info(kind, data) != (height, width, channels, bits):
            raise FormatError(f"the {_FORMAT_NAME[kind]} is not the {height}x{width}x{channels} image stored here")
        return kernels.decode_image(kind, data, (height, width, channels, bits))

    @property
    def plan(self) -> Plan:
        """Decoded beforehand."""
        return Plan("image", image=self.field.kind)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """(batch, height, width, channels) where all agree, else a list."""
        shapes = np.ascontiguousarray(metadata)
        values, offsets = payloads.images(self.field.kind, shapes)
        rows = shapes.view(np.uint32).reshape(len(shapes), 4)
        if len(rows) and (payloads.rows >= 0).all() and (rows == rows[0]).all():
            *shape, bits = rows[0].tolist()
            return values.view(_DTYPE[bits]).reshape(len(rows), *shape)
        ends = offsets.tolist()
        return [
            values[ends[i] : ends[i + 1]].view(_DTYPE[bits]).reshape(shape)
            for i, (*shape, bits) in enumerate(rows.tolist())
        ]


def _encoded(kind: int, value: Any, max_height: int | None, max_width: int | None, check: bool) -> Encoded:
    """Metadata and payload of ready-encoded bytes, with the size limits applied, and on request decoded once."""
    name = _FORMAT_NAME[kind]
    if not bytes(value[:8]).startswith(_ENCODED_MAGIC[kind]):
        raise ValueError(f"these bytes are no {name} (they begin with {bytes(value[:8])!r})")
    try:
        shape = kernels.image_info(kind, value)
    except kernels.Failure as failure:
        raise ValueError(failure.args[1]) from None
    for what, size, limit in (("height", shape[0], max_height), ("width", shape[1], max_width)):
        if limit is not None and size > limit:
            raise ValueError(f"{what} {size} is above max_{what}={limit}; resize the image or raise the limit")
    if check:
        try:
            kernels.decode_image(kind, value, shape)
        except kernels.Failure as failure:
            raise ValueError(f"the {name} does not decode: {failure.args[1]}") from None
    return Encoded(shape, value)


def _make_whole(field: Field, *names: str) -> None:
    """Numpy's integers as plain ones, which the options are stored as; other numbers are refused."""
    for name in names:
        object.__setattr__(field, name, whole(name, getattr(field, name)))


def _make_flags(field: Field, *names: str) -> None:
    """Numpy's truth values as plain ones; anything else is refused."""
    for name in names:
        flag = getattr(field, name)
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name}={flag!r}: True or False")
        object.__setattr__(field, name, bool(flag))


def _check_options(field: JPEGImageField | PNGImageField) -> None:
    for what in ("max_height", "max_width"):
        limit = getattr(field, what)
        if limit is not None:
            _make_whole(field, what)
            if limit < 1:
                raise ValueError(f"{what}={limit}: a limit is at least 1")
    _make_flags(field, "check")


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
class JPEGImageField(Field):
    """Images kept as JPEG: grayscale or RGB.

    Takes an array, a PIL image, or ready JPEG bytes. An image above ``max_height`` or ``max_width`` is an error.
    ``subsampling`` is "444", "422" or "420" and, like ``quality``, concerns encoding only.
    Of ready bytes only the header is relied on, so a file that was cut short is found when it is read; with ``check``
    they are decoded once on writing, and what does not decode is refused.

    ``seekable`` lays an index of about 1.2 % behind the JPEG, with which a part of the image is decoded without the
    rest. Ready bytes are stored as they are, except that a progressive JPEG is rewritten without loss as a baseline
    one, which decodes faster and can be indexed; EXIF, ICC and other markers are kept. With ``verbatim`` it stays
    progressive.
    """

    quality: int = 90
    max_height: int | None = None
    max_width: int | None = None
    subsampling: str = "420"
    check: bool = False
    seekable: bool = True
    verbatim: bool = False

    type_id: ClassVar[int] = TypeId.IMAGE_JPEG
    kind: ClassVar[int] = kernels.JPEG

    def __post_init__(self) -> None:
        _make_whole(self, "quality")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality={self.quality}: from 1 to 100")
        if self.subsampling not in ("444", "422", "420"):
            raise ValueError(f"subsampling={self.subsampling!r}: '444', '422' or '420'")
        _check_options(self)
        _make_flags(self, "seekable", "verbatim")

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Height, width, channels, bits."""
        return SHAPE

    def prepare(self, value: Any) -> Any:
        """Load PIL images, copy arrays."""
        return own_pixels(value)

    def encode(self, value: Any) -> Encoded:
        """JPEG bytes pass through, progressive ones as baseline; pixels are encoded."""
        value = _pixels(value)
        ready = isinstance(value, bytes)
        if not ready:
            pixels = _as_hwc(value, (1, 3), (np.uint8,))
            height, width, channels = pixels.shape
            value = kernels.jpeg_encode(pixels, height, width, channels, self.quality, int(self.subsampling))
        shape, jpeg = _encoded(self.kind, value, self.max_height, self.max_width, self.check and ready)
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

    def get_decoder_class(self) -> type[Decoder]:
        """Reads pixels."""
        return EncodedImageDecoder


@dataclass(frozen=True, slots=True)
class PNGImageField(Field):
    """Images kept as PNG, exactly: gray, gray + alpha, RGB or RGBA, of 8 or 16 bits.

    Takes an array, a PIL image, or ready PNG bytes, which are stored as they are; palettes are expanded on reading.
    ``level`` is zlib's, 0 to 9. A colour that a PIL image says is transparent becomes an alpha channel, as it does in
    the file. ``check`` decodes ready bytes once on writing and refuses what does not decode.
    """

    level: int = 6
    max_height: int | None = None
    max_width: int | None = None
    check: bool = False

    type_id: ClassVar[int] = TypeId.IMAGE_PNG
    kind: ClassVar[int] = kernels.PNG

    def __post_init__(self) -> None:
        _make_whole(self, "level")
        if not 0 <= self.level <= 9:
            raise ValueError(f"level={self.level}: from 0 to 9")
        _check_options(self)

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Height, width, channels, bits."""
        return SHAPE

    def prepare(self, value: Any) -> Any:
        """Load PIL images, copy arrays."""
        return own_pixels(value, alpha=True)

    def encode(self, value: Any) -> Encoded:
        """PNG bytes pass through; pixels are encoded."""
        value = _pixels(value, alpha=True)
        ready = isinstance(value, bytes)
        if not ready:
            pixels = _as_hwc(value, (1, 2, 3, 4), (np.uint8, np.uint16))
            height, width, channels = pixels.shape
            value = kernels.png_encode(pixels, height, width, channels, pixels.itemsize * 8, self.level)
        return _encoded(self.kind, value, self.max_height, self.max_width, self.check and ready)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads pixels."""
        return EncodedImageDecoder
