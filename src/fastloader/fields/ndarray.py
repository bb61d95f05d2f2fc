"""Arrays of any dtype, of a fixed or a varying shape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastloader.errors import FormatError
from fastloader.fields.base import NO_METADATA, Decoder, Elements, Encoded, Field, PayloadBatch, Plan, ReadFunction
from fastloader.fields.convert import as_array, whole
from fastloader.types import TypeId

MAX_DIMENSIONS = 8


def _dtype_to_json(dtype: np.dtype[Any]) -> Any:
    return np.lib.format.dtype_to_descr(dtype)


def _dtype_from_json(descr: Any) -> np.dtype[Any]:
    def tuples(item: Any) -> Any:  # JSON has lists where numpy's descriptions have tuples
        name, kind, *shape = item
        kind = [tuples(sub) for sub in kind] if isinstance(kind, list) else kind
        return (tuple(name) if isinstance(name, list) else name, kind, *(tuple(s) for s in shape))

    return np.lib.format.descr_to_dtype([tuples(item) for item in descr] if isinstance(descr, list) else descr)


def _survives(dtype: np.dtype[Any]) -> bool:
    """Whether the description in the file gives the same dtype back: not so for overlapping fields or bfloat16, say."""
    try:
        return _dtype_from_json(json.loads(json.dumps(_dtype_to_json(dtype)))) == dtype
    except ValueError:
        return False


def _used(dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """Which bytes of an element carry its value; the others are padding."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.tile(_used(base), prod(shape))
    used = np.ones(dtype.itemsize, np.bool_)
    if dtype.fields is not None:
        used[:] = False
        for inner, offset, *_ in dtype.fields.values():
            used[offset : offset + inner.itemsize] = _used(inner)
    elif dtype.char in "gG" and np.finfo(np.longdouble).nmant == 63:  # ten bytes in the room of sixteen
        used.reshape(-1, np.dtype("g").itemsize)[:, 10:] = False
    return used


class NDArrayDecoder(Decoder):
    """Gives arrays; a single sample is a read-only view of the file where alignment allows."""

    field: NDArrayField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """The array."""
        shape = self.field.shape_of(metadata)
        data = read()
        self._check(shape, len(data))
        array = np.frombuffer(data, self.field.np_dtype).reshape(shape)
        return array if array.flags.aligned else array.copy()

    @property
    def plan(self) -> Plan:
        """All of one size, where the shape is fixed."""
        shape = self.field.fixed_shape
        return super().plan if shape is None else Plan("fixed", prod(shape) * self.field.np_dtype.itemsize)

    @property
    def elements(self) -> Elements | None:
        """The array's own, where its leading dimension varies, and no other unless nothing is said of them."""
        shape = self.field.shape
        if shape is None:
            return Elements(self.field.np_dtype, None)
        inner = tuple(size for size in shape[1:] if size)
        if shape[:1] != (None,) or len(inner) != len(shape) - 1:
            return None
        return Elements(self.field.np_dtype, inner, counted=True)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """One array (batch, *shape) where shapes agree, else a list of arrays, with ``None`` for what is missing."""
        dtype = self.field.np_dtype
        fixed = self.field.fixed_shape
        if fixed is not None:
            return payloads.fixed(fixed, dtype)
        values, offsets = payloads.ragged()
        rows = np.ascontiguousarray(metadata).view(np.uint64).reshape(len(metadata), metadata.itemsize // 8)
        missing = payloads.rows < 0
        if len(rows) and not missing.any() and (rows == rows[0]).all():
            shape = self.field.shape_of(metadata[0])
            sizes = np.diff(offsets)
            for size in (sizes.min(), sizes.max()):
                self._check(shape, int(size))
            return values.view(dtype).reshape(len(rows), *shape)
        shapes = self._shapes(rows, np.diff(offsets), missing)
        if shapes and shapes[0] is not None and shapes.count(shapes[0]) == len(shapes):
            return values.view(dtype).reshape(len(shapes), *shapes[0])
        elements = values.view(dtype)
        ends = (offsets // dtype.itemsize).tolist()
        return [
            None if shape is None else elements[ends[i] : ends[i + 1]].reshape(shape) for i, shape in enumerate(shapes)
        ]

    def _shapes(
        self, rows: NDArray[np.uint64], sizes: NDArray[np.int64], missing: NDArray[np.bool_]
    ) -> list[tuple[int, ...] | None]:
        """The shape of each sample, known to fit its payload; a missing value has none."""
        shape = self.field.shape
        if shape is None:
            ndims, dims = rows[:, 0], rows[:, 1:]
            if (ndims[~missing] > MAX_DIMENSIONS).any():
                raise FormatError(f"{ndims[~missing].max()} dimensions; at most {MAX_DIMENSIONS} are possible")
            dims = np.where(np.arange(MAX_DIMENSIONS, dtype=np.uint64) < ndims[:, None], dims, np.uint64(1))
            lengths = ndims.tolist()
        else:
            dims = np.empty((len(rows), len(shape)), np.uint64)
            dims[:] = [0 if size is None else size for size in shape]
            dims[:, [size is None for size in shape]] = rows
            lengths = [len(shape)] * len(rows)
        # In floats no product of eight sizes overflows; one that is far too large need not be exact.
        bytes_ = np.prod(dims, axis=1, dtype=np.float64) * self.field.np_dtype.itemsize
        exact = np.prod(dims, axis=1, dtype=np.uint64) * np.uint64(self.field.np_dtype.itemsize)
        bad = ~missing & ((bytes_ >= 2.0**63) | (exact != sizes.astype(np.uint64)))
        found = [tuple(row[:length]) for row, length in zip(dims.tolist(), lengths, strict=True)]
        if bad.any():
            first = int(np.argmax(bad))
            self._check(found[first], int(sizes[first]))
        return [None if gone else dims for gone, dims in zip(missing.tolist(), found, strict=True)]

    def _check(self, shape: tuple[int, ...], size: int) -> None:
        if prod(shape) * self.field.np_dtype.itemsize != size:
            raise FormatError(f"shape {shape} of {self.field.np_dtype} does not fit a payload of {size} bytes")


@dataclass(frozen=True, slots=True, init=False)
class NDArrayField(Field):
    """A numpy array.

    ``dtype`` is any dtype but object. ``shape`` is the shape every sample has, with ``None`` for a dimension that
    varies, or ``None`` for any shape of up to 8 dimensions. A fixed shape makes batches one array and one native call.
    """

    type_id: ClassVar[int] = TypeId.NDARRAY
    worth_a_thread: ClassVar[bool] = False

    np_dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    def __init__(self, dtype: DTypeLike = "float32", shape: tuple[int | None, ...] | int | None = None) -> None:
        np_dtype = np.dtype(dtype)
        if np_dtype.hasobject:
            raise TypeError("object arrays can't be stored; use JSONField, or BytesField with your own encoding")
        if np_dtype.itemsize == 0:
            raise TypeError(f"dtype {np_dtype} has no size; give text a length, as in 'U16'")
        if np_dtype.subdtype is not None:
            base, inner = np_dtype.subdtype
            raise TypeError(f"dtype {np_dtype} has a shape of its own; give dtype={base} and {inner} as part of shape=")
        if not _survives(np_dtype):
            raise TypeError(f"dtype {np_dtype} can't be described in a file; store its bytes as 'V{np_dtype.itemsize}'")
        if shape is not None:
            dims = shape if isinstance(shape, Iterable) else (shape,)
            shape = tuple(None if size is None else whole("shape", size) for size in dims)
            if len(shape) > MAX_DIMENSIONS or any(d is not None and d < 0 for d in shape):
                raise ValueError(f"shape {shape}: at most {MAX_DIMENSIONS} dimensions, none negative")
        object.__setattr__(self, "np_dtype", np_dtype)
        object.__setattr__(self, "shape", shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.np_dtype

    @property
    def fixed_shape(self) -> tuple[int, ...] | None:
        """The shape, when no dimension varies."""
        shape = self.shape
        return None if shape is None or None in shape else cast("tuple[int, ...]", shape)

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The dimensions that vary."""
        if self.shape is None:
            return np.dtype([("ndim", "<u8"), ("dims", "<u8", (MAX_DIMENSIONS,))])
        varying = self.shape.count(None)
        return np.dtype([("dims", "<u8", (varying,))]) if varying else NO_METADATA

    def shape_of(self, metadata: Any) -> tuple[int, ...]:
        """One sample's shape from its metadata row."""
        if self.shape is None:
            ndim = int(metadata["ndim"])
            if ndim > MAX_DIMENSIONS:
                raise FormatError(f"{ndim} dimensions; at most {MAX_DIMENSIONS} are possible")
            return tuple(int(d) for d in metadata["dims"][:ndim])
        varying = iter(metadata["dims"]) if None in self.shape else iter(())
        return tuple(int(next(varying)) if d is None else d for d in self.shape)

    def encode(self, value: Any) -> Encoded:
        """Takes arrays of the field's dtype and shape; lists and numbers too, where the dtype keeps their values."""
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            if array.dtype != self.np_dtype:
                raise TypeError(f"expected {self.np_dtype}, got an array of {array.dtype}; convert it with .astype")
        else:
            array = as_array(value, self.np_dtype)
        if self.shape is None:
            if array.ndim > MAX_DIMENSIONS:
                raise ValueError(f"{array.ndim} dimensions; at most {MAX_DIMENSIONS} are possible")
            dims = array.shape + (0,) * (MAX_DIMENSIONS - array.ndim)
            metadata: tuple[Any, ...] = (array.ndim, dims)
        else:
            fits = array.ndim == len(self.shape) and all(
                want in (None, have) for want, have in zip(self.shape, array.shape, strict=True)
            )
            if not fits:
                raise ValueError(f"expected shape {self.shape}, got {array.shape}")
            varying = tuple(have for want, have in zip(self.shape, array.shape, strict=True) if want is None)
            metadata = (varying,) if varying else ()
        if not array.size:
            return Encoded(metadata)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        used = _used(self.np_dtype)
        if not used.all():  # padding holds whatever was in memory, and the same values must give the same bytes
            data = np.where(used, data.reshape(-1, len(used)), np.uint8(0)).reshape(-1)
        return Encoded(metadata, data)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads arrays."""
        return NDArrayDecoder

    def to_binary(self) -> bytes:
        """Dtype in numpy's own description, and shape."""
        options = {"dtype": _dtype_to_json(self.np_dtype), "shape": self.shape}
        return json.dumps(options, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field that ``to_binary`` described."""
        options = json.loads(data)
        shape = options["shape"]
        return cls(_dtype_from_json(options["dtype"]), None if shape is None else tuple(shape))

    def __repr__(self) -> str:
        return f"NDArrayField(dtype={str(self.np_dtype)!r}, shape={self.shape})"


class ArrayDecoder(Decoder):
    """Reads what a field stores as NDARRAY does; the field's ``array`` says of which dtype and shape."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.inner = NDArrayDecoder(field.array)

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """A read-only view of the file where alignment allows."""
        return self.inner(metadata, read)

    @property
    def plan(self) -> Plan:
        """As that of the arrays."""
        return self.inner.plan

    @property
    def elements(self) -> Elements | None:
        """As those of the arrays."""
        return self.inner.elements

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """One array where all have one length, else a list."""
        return self.inner.batch(metadata, payloads)
