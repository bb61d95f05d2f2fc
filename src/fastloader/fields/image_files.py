"""Images kept as the bytes of a file: what is stored of them, and how they are read."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FormatError
from fastloader.fields.base import Decoder, Encoded, Field, PayloadBatch, Plan, ReadFunction
from fastloader.fields.pixels import make_flags, make_whole

SHAPE = np.dtype([("height", "<u4"), ("width", "<u4"), ("channels", "<u4"), ("bits", "<u4")])

_DTYPE = {8: np.uint8, 16: np.uint16, 0: np.uint8}
_MAGIC = {kernels.JPEG: b"\xff\xd8\xff", kernels.PNG: b"\x89PNG\r\n\x1a\n", kernels.WEBP: b"RIFF"}
_NAME = {kernels.JPEG: "JPEG", kernels.PNG: "PNG", kernels.WEBP: "WebP"}


def kind_of(head: bytes) -> int | None:
    """The kind of image that begins with these bytes, at least twelve."""
    for kind, magic in _MAGIC.items():
        if head.startswith(magic) and (kind != kernels.WEBP or head[8:12] == b"WEBP"):
            return kind
    return None


def decode_image(data: bytes | bytearray | memoryview, *, orient: bool = False) -> NDArray[Any]:
    """The pixels (height, width, channels) of a JPEG, PNG or WebP file; the GIL is not held meanwhile.

    With ``orient`` they stand upright, as EXIF data says. Datasets of other formats than ``.fld`` give images as they
    are stored; this is for their ``map``.
    """
    kind = kind_of(bytes(data[:12]))
    if kind is None:
        raise DecodeError(f"is no JPEG, PNG or WebP: it begins with {bytes(data[:8])!r}")
    coding = kind | (kernels.UPRIGHT if orient else 0)
    try:
        return kernels.decode_image(coding, data, kernels.image_info(coding, data))
    except kernels.Failure as failure:
        raise DecodeError(f"the {_NAME[kind]} does not decode: {failure.args[1]}") from None


class ImageFileField(Field):
    """What fields of encoded images share. With ``orient`` images stand upright when read, as their EXIF data says."""

    kind: ClassVar[int]
    max_height: int | None
    max_width: int | None
    check: bool
    orient: bool

    @property
    def coding(self) -> int:
        """The kind as the native part takes it."""
        return self.kind | (kernels.UPRIGHT if self.orient else 0)

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Height, width, channels, bits of the image as it is read."""
        return SHAPE

    def check_options(self) -> None:
        """The options that all have."""
        for what in ("max_height", "max_width"):
            limit = getattr(self, what)
            if limit is not None:
                make_whole(self, what)
                if limit < 1:
                    raise ValueError(f"{what}={limit}: a limit is at least 1")
        make_flags(self, "check", "orient")

    def encoded(self, value: Any, ready: bool) -> Encoded:
        """Metadata and payload of encoded bytes, with the size limits applied; ready ones decoded once, on request."""
        name = _NAME[self.kind]
        if not bytes(value[:8]).startswith(_MAGIC[self.kind]):
            raise ValueError(f"these bytes are no {name} (they begin with {bytes(value[:8])!r})")
        try:
            shape = kernels.image_info(self.coding, value)
        except kernels.Failure as failure:
            raise ValueError(failure.args[1]) from None
        for what, size, limit in (("height", shape[0], self.max_height), ("width", shape[1], self.max_width)):
            if limit is not None and size > limit:
                raise ValueError(f"{what} {size} is above max_{what}={limit}; resize the image or raise the limit")
        if ready and self.check:
            try:
                kernels.decode_image(self.coding, value, shape)
            except kernels.Failure as failure:
                raise ValueError(f"the {name} does not decode: {failure.args[1]}") from None
        return Encoded(shape, value)

    def to_binary(self) -> bytes:
        """The options. A field that does not ``orient`` is stored as it was before there was this option."""
        stored = super().to_binary()
        if self.orient:
            return stored
        options = {name: value for name, value in json.loads(stored).items() if name != "orient"}
        return json.dumps(options, sort_keys=True, separators=(",", ":")).encode()

    def get_decoder_class(self) -> type[Decoder]:
        """Reads pixels."""
        return EncodedImageDecoder


class EncodedImageDecoder(Decoder):
    """Decodes images in the native core."""

    field: ImageFileField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """(height, width, channels) of uint8, or uint16 for a 16-bit PNG."""
        height, width, channels, bits = (int(metadata[name]) for name in SHAPE.names or ())
        data = read()
        coding = self.field.coding
        # What the bytes say decides what is allocated; what the table says must agree.
        if kernels.image_info(coding, data) != (height, width, channels, bits):
            raise FormatError(f"the {_NAME[self.field.kind]} is not the {height}x{width}x{channels} image stored here")
        return kernels.decode_image(coding, data, (height, width, channels, bits))

    @property
    def plan(self) -> Plan:
        """Decoded beforehand."""
        return Plan("image", image=self.field.coding)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """(batch, height, width, channels) where all agree, else a list."""
        shapes = np.ascontiguousarray(metadata)
        values, offsets = payloads.images(self.field.coding, shapes)
        rows = shapes.view(np.uint32).reshape(len(shapes), 4)
        if len(rows) and (payloads.rows >= 0).all() and (rows == rows[0]).all():
            *shape, bits = rows[0].tolist()
            return values.view(_DTYPE[bits]).reshape(len(rows), *shape)
        ends = offsets.tolist()
        return [
            values[ends[i] : ends[i + 1]].view(_DTYPE[bits]).reshape(shape)
            for i, (*shape, bits) in enumerate(rows.tolist())
        ]
