"""Samples of different lengths in one array: joined with offsets between them, or padded to one length."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields import Decoder, Elements, Field, NDArrayField
from fastloader.fields.convert import as_array
from fastloader.samplers.checks import whole
from fastloader.types import Batch, mask_missing

MOST = 2**62
LARGEST_ITEM = 1 << 16
"""Bytes of an element; a claim past that fits no payload."""


@dataclass(frozen=True, slots=True)
class Pad:
    """Rows of one length: ``length``, or where that is ``None`` the batch's longest.

    What is left of a row holds ``value``; 0 is the zero of any dtype. A sample longer than ``length`` is an error, or
    is cut with ``truncate``. The longest can be rounded up to a multiple of something. With ``attention_mask`` an array
    (batch, length) comes beside it, ``name_mask``: true where there is a value, false where there is padding.
    """

    length: int | None = None
    value: Any = 0
    truncate: bool = False
    multiple_of: int = 1
    attention_mask: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "multiple_of", whole("multiple_of", self.multiple_of, 1))
        if self.length is None:
            if self.truncate:
                raise ValueError("truncate=True: to what length? Give length= too")
            return
        object.__setattr__(self, "length", whole("length", self.length, 1))
        if self.multiple_of != 1:
            raise ValueError(
                f"multiple_of={self.multiple_of} is for the batch's longest; length={self.length} is fixed"
            )


PadSpec: TypeAlias = Literal["list", "ragged", "longest"] | int | Pad | None
"""How a field's samples come: as they are, joined, or padded."""
Way: TypeAlias = Pad | Literal["ragged"]
"""The same, where they don't come as they are."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What becomes of a field's payloads: rows padded as ``pad`` says, or one behind the other where it is ``None``."""

    elements: Elements
    pad: Pad | None
    fill: bytes
    """An item of the field's dtype, with the value that stands where there is none."""

    def engine_plan(self, metadata_size: int) -> tuple[str, int, tuple[int, int, int, int, bool, bytes]]:
        """The engine's kind of plan, the bytes of metadata it needs, and what it must know of elements."""
        stated = 2 if self.elements.inner is None else int(self.elements.counted)
        size = min(self.elements.bytes, MOST // len(self.fill) * len(self.fill))
        pad = self.pad or Pad()
        facts = size, stated, pad.length or 0, pad.multiple_of, pad.truncate, self.fill
        return ("padded" if self.pad else "ragged"), metadata_size if stated else 0, facts

    def names(self, name: str) -> list[str]:
        """What a batch calls the arrays that come beside the field's own."""
        if self.pad is None:
            return [f"{name}_offsets", f"{name}_lengths"]
        return [f"{name}_lengths", *([f"{name}_mask"] if self.pad.attention_mask else [])]

    def values(
        self,
        metadata: NDArray[np.uint8] | None,
        data: NDArray[np.uint8],
        counts: NDArray[np.int64],
        valid: NDArray[np.bool_] | None,
    ) -> Padded | Ragged:
        """What the engine made, as arrays. ``counts`` are lengths of padded rows, or offsets in bytes."""
        inner = self._inner(metadata, valid)
        element = min(self.elements.dtype.itemsize * prod(inner), MOST)
        if self.pad is None:
            offsets = counts // element
            return Ragged(_shaped(data.view(self.elements.dtype), (int(offsets[-1]), *inner)), offsets)
        samples = len(counts)
        width = self.pad.length or (len(data) // (samples * element) if samples else 0)
        shape = samples, width, *inner
        if len(data) == prod(shape) * self.elements.dtype.itemsize:
            rows = _shaped(data.view(self.elements.dtype), shape)
        else:  # nothing is there, and what elements claim to be is not worth memory
            item = np.frombuffer(self.fill, self.elements.dtype).reshape(())  # a scalar would lose its byte order
            rows = _shaped(item, shape)
        return Padded(rows, counts, self.pad)

    def _inner(self, metadata: NDArray[np.uint8] | None, valid: NDArray[np.bool_] | None) -> tuple[int, ...]:
        if self.elements.inner is not None:
            return self.elements.inner
        assert metadata is not None
        shapes = metadata.view("<u8").reshape(-1, 9)
        if valid is not None:
            shapes = shapes[valid]
        return tuple(shapes[0, 2 : int(shapes[0, 0]) + 1].tolist()) if len(shapes) else ()


@dataclass(frozen=True, slots=True)
class Ragged:
    """Values of several samples one behind the other, and where each begins; the last offset is the end."""

    values: NDArray[Any]
    offsets: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """Other rows of the same; a negative one is an empty one."""
        sizes = np.where(rows < 0, 0, np.diff(self.offsets)[rows])
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        where = np.repeat(self.offsets[:-1][rows] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Ragged(self.values[where], offsets)

    def entries(self, name: str, valid: NDArray[np.bool_] | None) -> Batch:
        """The arrays of a batch; lengths are masked where a value is missing."""
        kept = self
        lengths = np.diff(self.offsets)
        if valid is not None and lengths[~valid].any():  # what failed while it was read had its place already
            kept = self.take(np.where(valid, np.arange(len(valid)), -1))
            lengths = np.diff(kept.offsets)
        return {
            name: kept.values,
            f"{name}_offsets": kept.offsets,
            f"{name}_lengths": lengths if valid is None else mask_missing(lengths, valid),
        }


@dataclass(frozen=True, slots=True)
class Padded:
    """Values of several samples in rows of one length, and how long each really is."""

    values: NDArray[Any]
    lengths: NDArray[np.int64]
    pad: Pad

    def take(self, rows: NDArray[np.int64]) -> Padded:
        """Other rows of the same."""
        return Padded(self.values[rows], self.lengths[rows], self.pad)

    def entries(self, name: str, valid: NDArray[np.bool_] | None) -> Batch:
        """The arrays of a batch; lengths are masked where a value is missing."""
        values = self.values
        if self.pad.length is None:
            longest = int(self.lengths.max(initial=0))
            width = -(-longest // self.pad.multiple_of) * self.pad.multiple_of
            if width < values.shape[1]:  # the longest was bad
                values = np.ascontiguousarray(values[:, :width])
        made = {
            name: values,
            f"{name}_lengths": self.lengths if valid is None else mask_missing(self.lengths, valid),
        }
        if self.pad.attention_mask:
            made[f"{name}_mask"] = np.arange(values.shape[1]) < self.lengths[:, None]
        return made


def layouts(pad: PadSpec | Mapping[str, PadSpec], fields: Mapping[str, Field]) -> dict[str, Layout]:
    """The layout of each field that has one. ``fields`` are those to be loaded."""
    if not isinstance(pad, Mapping):
        spec = way_of("pad", pad)
        found = {name: spec for name, field in fields.items() if spec and _decoder(field).elements} if spec else {}
        if spec and not found:
            raise ValueError(f"pad={pad!r}: none of the fields loaded varies in length; {_paddable(fields)}")
    else:
        unknown = [name for name in pad if name not in fields]
        if unknown:
            raise ValueError(f"pad for unknown fields {', '.join(unknown)}; there are {', '.join(fields)}")
        found = {name: spec for name, given in pad.items() if (spec := way_of(f"pad for {name!r}", given))}
    made = {name: _layout(name, fields, spec) for name, spec in found.items()}
    for name, layout in made.items():
        check_names(name, layout, fields)
    return made


def check_way(name: str, way: Way, others: Collection[str]) -> None:
    """The same, of what is known before there are arrays."""
    plain: Way = way if way == "ragged" else replace(way, value=0)
    check_names(name, layout_of(name, Elements(np.dtype("u1")), plain), others)


def elements_of(field: Field) -> Elements | None:
    """What a field's values are made of, where they vary in length alone."""
    return _decoder(field).elements


def check_names(name: str, layout: Layout, others: Collection[str]) -> None:
    """Raise where what comes beside a field is called as another one is."""
    for beside in layout.names(name):
        if beside in others:
            raise ValueError(f"pad for {name!r} also gives {beside!r}, and a field has that name; leave one out")


def way_of(what: str, spec: PadSpec) -> Way | None:
    """A checked way to lay out samples; ``None`` for "list"."""
    if spec is None or isinstance(spec, Pad):
        return spec
    if isinstance(spec, str) and spec in ("list", "ragged", "longest"):
        return None if spec == "list" else "ragged" if spec == "ragged" else Pad()
    if isinstance(spec, int | np.integer) and not isinstance(spec, bool):
        return Pad(int(spec))
    raise ValueError(f"{what}={spec!r}: None, 'list', 'ragged', 'longest', a length, or a fastloader.Pad")


def _layout(name: str, fields: Mapping[str, Field], way: Way) -> Layout:
    elements = _decoder(fields[name]).elements
    if elements is None:
        raise ValueError(f"pad for {name!r}: {_why_not(fields[name])}; {_paddable(fields)}")
    return layout_of(name, elements, way)


def layout_of(name: str, elements: Elements, way: Way) -> Layout:
    """What becomes of elements laid out in this way."""
    if elements.dtype.itemsize > LARGEST_ITEM:  # options can claim any type
        raise FormatError(
            f"an item of {elements.dtype.itemsize} bytes is too large to be padded or joined",
            field=name, hint="leave the field out of pad=",
        )  # fmt: skip
    pad = None if way == "ragged" else way
    value = 0 if pad is None else pad.value
    if type(value) is int and value == 0:
        return Layout(elements, pad, np.zeros((), elements.dtype).tobytes())
    try:
        item = as_array(value, elements.dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"pad for {name!r}: value {error}; pad={{name: ...}} gives each field its own") from None
    if item.shape:
        raise ValueError(f"pad for {name!r}: value={value!r} is not one number")
    return Layout(elements, pad, item.tobytes())


def _why_not(field: Field) -> str:
    kind = type(field).__name__
    if not field.has_payload:
        return f"{kind} has one value a sample"
    if isinstance(field, NDArrayField) and field.fixed_shape is None:
        return f"of the shape {field.shape} more than the leading dimension varies, or elements have no bytes"
    if _decoder(field).plan.kind == "fixed":
        return f"every sample of {field!r} has the same shape"
    if _decoder(field).plan.kind == "image":
        return f"{kind} has images, which vary in height and width"
    return f"the decoder of {kind} does not say what its elements are"


def _paddable(fields: Mapping[str, Field]) -> str:
    able = [name for name, field in fields.items() if _decoder(field).elements]
    return f"what can be padded here: {', '.join(able)}" if able else (
        "what can be padded: BytesField, TokenizedTextField, AudioWaveformField, SpectrogramField, ListField of "
        "numbers, and NDArrayField with None for its leading dimension or without a shape"
    )  # fmt: skip


def _decoder(field: Field) -> Decoder:
    return field.get_decoder_class()(field)


def _shaped(values: Any, shape: Sequence[int]) -> NDArray[Any]:
    """The values in a shape that a file may have made up; a single one everywhere in it."""
    try:
        return values.reshape(shape) if np.ndim(values) else np.broadcast_to(values, shape)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"no array has the shape {tuple(shape)}: {error}") from error
