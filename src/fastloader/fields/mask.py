"""Segmentation masks: a label of 0 to 255 for each pixel, as runs or as PNG files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields.base import Decoder, Encoded, Field, PayloadBatch, Plan, ReadFunction
from fastloader.fields.files import file_bytes
from fastloader.fields.image_files import SHAPE
from fastloader.types import TypeId

_KINDS = {"runs": kernels.RUNS, "png": kernels.LABELS}
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_LEVEL = 6
_MODES = ("1", "L", "P", "I", "I;16")
"""PIL's modes of one number a pixel."""


def from_coco(value: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The mask of COCO's dict: ``size`` (height, width) and ``counts``, runs of 0 and 1 in turn, column by column."""
    if not {"size", "counts"} <= value.keys():
        raise ValueError(
            f"a COCO mask has 'size' and 'counts'; this dict has {', '.join(map(repr, value)) or 'nothing'}"
        )
    height, width = map(index, value["size"])
    counts = value["counts"]
    if isinstance(counts, str):
        counts = counts.encode("ascii")
    runs = _counts(counts) if isinstance(counts, bytes) else list(map(index, counts))
    if min(height, width) < 1 or min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError(f"the counts of a COCO mask of {height}x{width} pixels sum to {sum(runs)}, or one is below 0")
    labels = np.repeat((np.arange(len(runs)) % 2).astype(np.uint8), runs)
    return np.ascontiguousarray(labels.reshape(width, height).T)


def _counts(text: bytes) -> list[int]:
    """COCO's text: five bits a character, lowest first; from the fourth number on, differences to the last but one."""
    counts: list[int] = []
    number = shift = 0
    for place, character in enumerate(text):
        bits = character - 48
        if not 0 <= bits < 64:
            raise ValueError(f"the counts of a COCO mask: character {place} is {bytes([character])!r}")
        number |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            number -= 1 << shift
        counts.append(number + counts[-2] if len(counts) > 2 else number)
        number = shift = 0
    if shift:
        raise ValueError("the counts of a COCO mask end within a number")
    return counts


def _labels(value: Any) -> NDArray[np.uint8]:
    """(height, width, 1) of labels."""
    array = np.asarray(value)
    if array.dtype.kind not in "bui":
        raise TypeError(f"labels are integers from 0 to 255 or bool, not {array.dtype}")
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] != 1:
        raise ValueError(f"expected (height, width) or (height, width, 1), got {array.shape}")
    if not array.size:
        raise ValueError(f"a mask without pixels: {array.shape}")
    if array.dtype.itemsize > 1 or array.dtype.kind == "i":
        least, most = int(array.min()), int(array.max())
        if least < 0 or most > 255:
            raise ValueError(f"labels from {least} to {most}; they are from 0 to 255")
    return np.ascontiguousarray(array, np.uint8)


@dataclass(frozen=True, slots=True)
class MaskField(Field):
    """Masks (height, width) of uint8 labels, kept exactly: as "runs" of equal labels, row after row, or as "png".

    Takes arrays (height, width) or (height, width, 1) of bool or of integers from 0 to 255, PIL images of one number a
    pixel, PNG files or their bytes, and COCO's dicts of "size" and "counts", compressed or not, whose pixels become 0
    and 1. Of palettes the numbers are kept, not the colours; gray of 1, 2 and 4 bits is not scaled. With "png", PNG
    bytes are stored as they are.

    In pipelines a mask is (height, width, 1), and an operation whose filter would mix labels is refused.
    """

    encoding: str = "runs"

    type_id: ClassVar[int] = TypeId.MASK

    def __post_init__(self) -> None:
        if self.encoding not in _KINDS:
            raise ValueError(f"encoding={self.encoding!r}: {' or '.join(map(repr, _KINDS))}")

    @property
    def kind(self) -> int:
        """The kind of image as the native part takes it."""
        return _KINDS[self.encoding]

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Height, width, one channel, 8 bits."""
        return SHAPE

    def prepare(self, value: Any) -> Any:
        """PNG bytes as bytes, those of a file too; an array of our own of all else."""
        value = file_bytes(value)
        if isinstance(value, bytes):
            return value
        if isinstance(value, Mapping):
            return from_coco(value)
        mode = getattr(value, "mode", None)
        if isinstance(mode, str) and mode not in _MODES:
            raise ValueError(f"a PIL image of mode {mode} has no labels; those of {', '.join(_MODES)} have")
        return np.array(value)

    def encode(self, value: Any) -> Encoded:
        """Labels are encoded; PNG bytes are looked through first, and stored as they are where that is the encoding."""
        value = value if isinstance(value, np.ndarray | bytes) else self.prepare(value)
        if not isinstance(value, bytes):
            labels: NDArray[Any] = _labels(value)
        elif not value.startswith(_PNG):
            raise ValueError(f"these bytes are no PNG (they begin with {value[:8]!r})")
        else:
            try:
                shape = kernels.image_info(kernels.LABELS, value)
                labels = kernels.decode_image(kernels.LABELS, value, shape)
            except kernels.Failure as failure:
                raise ValueError(failure.args[1]) from None
            if self.encoding == "png":
                return Encoded(shape, value)
        height, width, _ = labels.shape
        if self.encoding == "png":
            return Encoded((height, width, 1, 8), kernels.png_encode(labels, height, width, 1, 8, _PNG_LEVEL))
        return Encoded((height, width, 1, 8), kernels.runs_encode(labels, height, width))

    def get_decoder_class(self) -> type[Decoder]:
        """Reads labels."""
        return MaskDecoder


class MaskDecoder(Decoder):
    """Decodes masks in the native core."""

    field: MaskField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """(height, width) of uint8."""
        height, width, channels, bits = (int(metadata[name]) for name in SHAPE.names or ())
        data = read()
        # What the bytes say decides what is allocated; what the table says must agree.
        if kernels.image_info(self.field.kind, data) != (height, width, channels, bits):
            raise FormatError(f"the mask is not the {height}x{width}x{channels} one stored here")
        return kernels.decode_image(self.field.kind, data, (height, width, channels, bits))[:, :, 0]

    @property
    def plan(self) -> Plan:
        """Decoded beforehand."""
        return Plan("image", image=self.field.kind)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """(batch, height, width) where all agree, else a list."""
        values, offsets = payloads.images(self.field.kind, np.ascontiguousarray(metadata))
        sides = np.stack([metadata["height"], metadata["width"]], axis=1)
        if len(sides) and (payloads.rows >= 0).all() and (sides == sides[0]).all():
            return values.reshape(len(sides), *sides[0].tolist())
        ends = offsets.tolist()
        return [values[ends[i] : ends[i + 1]].reshape(shape) for i, shape in enumerate(sides.tolist())]
