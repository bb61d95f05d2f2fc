"""What a field is: how a value becomes a fixed-width metadata row and a payload, and back.

A field of your own needs a class like this and one line of registration::

    @register_type(1000)
    class PointField(Field):
        ...

See ``examples/custom_field.py``.
"""

from __future__ import annotations

import contextlib
import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FormatError
from fastloader.types import Buffer, stack

NO_METADATA = np.dtype([])

_IMMUTABLE = frozenset({bool, int, float, complex, str, bytes, np.bool_, np.int32, np.int64, np.float32, np.float64})
"""Types whose values nobody can change, so that they may be held as they are."""

ReadFunction = Callable[[], memoryview]
"""Gives a sample's payload, checked and decompressed; called at most when needed."""


class Encoded(NamedTuple):
    """What a field made of a value: its metadata row (a tuple in the dtype's order) and its payload, if it has one."""

    metadata: tuple[Any, ...] = ()
    payload: Buffer = b""


class EncodedColumn(NamedTuple):
    """What a field made of many values: an array of their metadata rows, and their payloads, none if it stores none."""

    metadata: NDArray[Any]
    payloads: Sequence[bytes] = ()


class Lazy:
    """A value that is decoded when it is asked for. What goes wrong then still names file, sample and field."""

    place: tuple[str, int, str] | None = None

    def locate(self, path: object, sample: int, field: str) -> None:
        """Where the value comes from; whoever reads it says so."""
        object.__setattr__(self, "place", (str(path), sample, field))  # a frozen value, too, comes from somewhere

    def check(self) -> None:
        """Decode all of it, as ``fastloader verify --decode`` asks; what is wrong is raised."""

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Name that place in what goes wrong inside."""
        try:
            yield
        except (kernels.Failure, FormatError) as error:
            known = DecodeError(error.args[1]) if isinstance(error, kernels.Failure) else error
            if self.place is not None and known.sample is None:
                known.path, known.sample, known.field = self.place
                known.hint = known.hint or f'run "fastloader verify --decode {known.path}"'
            if known is error:
                raise
            raise known from error


class Decoder:
    """Turns one sample's metadata row and payload back into a value."""

    supports_jit: ClassVar[bool] = False
    """Whether the loader may compile it: it is a ``RowDecoder``, then."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.supports_jit and not hasattr(cls, "row_function"):
            raise TypeError(f"{cls.__name__}: supports_jit is for decoders with a row function: make it a RowDecoder")

    def __init__(self, field: Field) -> None:
        self.field = field

    def __call__(self, metadata: Any, read: ReadFunction) -> Any:
        """The value. ``metadata`` is a record of the field's ``metadata_type``."""
        raise TypeError(f"{type(self).__name__} does not say how to decode; give it a __call__(metadata, read)")

    @property
    def plan(self) -> Plan:
        """What the native part should do beforehand; a decoder that knows more about its payloads says so."""
        return Plan("ragged" if self.field.has_payload else "rows")

    @property
    def elements(self) -> Elements | None:
        """What the payload is made of, where calling the decoder would give just that, as an array or as bytes.

        The loader can then pad such values, or join them (``DataLoader(pad=...)``), without calling the decoder.
        """
        return None


@dataclass(frozen=True, slots=True)
class Elements:
    """A payload that is an array whose leading dimension varies, in C order.

    ``inner`` is the shape of what one step along that dimension holds: ``()`` for a row of numbers, ``(2,)`` for points
    (count, 2). ``counted`` says that the metadata row begins with the length, as ``<u8``, which must fit the payload.
    ``inner=None``: the metadata row is the number of dimensions and room for eight, all ``<u8``.
    """

    dtype: np.dtype[Any]
    inner: tuple[int, ...] | None = ()
    counted: bool = False

    def __post_init__(self) -> None:
        dtype = np.dtype(self.dtype)
        if dtype.hasobject or dtype.subdtype is not None or not self._element(dtype):
            raise TypeError(f"no elements of {dtype} and the inner shape {self.inner}: each needs a size in bytes")
        object.__setattr__(self, "dtype", dtype)

    def _element(self, dtype: np.dtype[Any]) -> int:
        return dtype.itemsize * prod(self.inner or ())

    @property
    def bytes(self) -> int:
        """The size of an element; of one of its items, where the inner shape is in the metadata."""
        return self._element(self.dtype)


PlanKind = Literal["rows", "fixed", "ragged", "image"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the native part does for a field before its decoder sees a batch.

    ``rows``: nothing but its metadata rows; ``fixed``: payloads of ``row_bytes`` each; ``ragged``: payloads of any
    size; ``image``: payloads decoded as images of a kind (``kernels.JPEG``, ``PNG``, ``WEBP``, ``RUNS`` or
    ``LABELS``).
    """

    kind: PlanKind
    row_bytes: int = 0
    image: int = 0


class PayloadBatch(Protocol):
    """The payloads of one field for the samples of a batch. A negative row is a missing value."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """A number a sample, negative where the value is missing."""

    def fixed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """All payloads as one array (batch, *shape); each must have exactly that many bytes."""

    def ragged(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All payloads one behind the other, and the ``batch + 1`` offsets between them."""

    def bytes(self) -> list[bytes]:
        """A bytes object for each payload."""

    def images(self, kind: int, shapes: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The pixels of all payloads one behind the other, and the offsets between them."""


@runtime_checkable
class BatchDecoder(Protocol):
    """A decoder that can also do a whole batch in one native call. It must give what one by one would give."""

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """The values of a batch, as the field's ``collate`` would return them."""
        ...


@runtime_checkable
class BatchParts(Protocol):
    """A field's part of a batch that is more than one array; a batch decoder or ``collate`` may return one."""

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Other rows of the same."""
        ...

    def entries(self, name: str, valid: NDArray[np.bool_] | None) -> dict[str, Any]:
        """What the batch gets of a field of this name; ``valid`` says which rows are there, ``None`` that all are."""
        ...


class Field(ABC):
    """Describes one column of a dataset. Subclasses are frozen dataclasses whose attributes are their options."""

    type_id: ClassVar[int] = 0
    has_payload: ClassVar[bool] = True
    worth_a_thread: ClassVar[bool] = True
    """Whether encoding takes long enough, without the GIL, that the writer should do it in threads by default."""
    usual_compression: ClassVar[str | None] = None
    """How payloads are compressed where the writer is not told."""
    collates_missing: ClassVar[bool] = False
    """Whether ``collate`` takes ``None`` for a value that is missing."""

    @property
    def dictionary_bytes(self) -> int:
        """The size of the dictionary that the writer makes of the first samples to compress with; 0: none."""
        return 0

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The fixed-width row kept for each sample; an empty structured dtype when there is none."""
        return NO_METADATA

    @abstractmethod
    def encode(self, value: Any) -> Encoded:
        """The stored form of a value. Runs in a worker thread; raises ValueError or TypeError for a bad value."""

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """What ``encode`` gives for each of the values, made in one go; ``None`` where it takes one by one.

        The values come from ``prepare``, and none is missing. A value that is bad, or just unusual, is a reason for
        ``None``: ``encode`` then says which one and why. A subclass with an ``encode`` of its own needs its own
        ``encode_many`` too, or it has none.
        """
        return None

    @abstractmethod
    def get_decoder_class(self) -> type[Decoder]:
        """The class that reads values back."""

    def to_binary(self) -> bytes:
        """The options as stored in the file: here, JSON of the dataclass fields."""
        options: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)} if is_dataclass(self) else {}
        return json.dumps(options, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field with the options that ``to_binary`` stored.

        JSON has one kind of list: it becomes a tuple, inside too, unless the option is annotated as a list.
        """
        options = json.loads(data)
        kinds: dict[str, str] = {f.name: str(f.type).lower() for f in fields(cls)} if is_dataclass(cls) else {}
        return cls(**{
            name: value if "list" in kinds.get(name, "") else _tuples(value) for name, value in options.items()
        })  # fmt: skip

    def prepare(self, value: Any) -> Any:
        """Take hold of a value in the caller's thread, so that the caller may reuse its memory at once."""
        if type(value) in _IMMUTABLE:
            return value
        if isinstance(value, np.ndarray):
            return value.copy()
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        return copy.deepcopy(value)

    def clash_with(self, stored: Field) -> str | None:
        """Why values of this field can't be added to those of a stored one, where it knows better than its options."""
        return None

    def stored_value(self, payload: memoryview) -> memoryview:
        """The part of a payload that is the value, without what the field keeps beside it for its own use."""
        return payload

    def fault_of(self, read: ReadFunction) -> str | None:
        """What is wrong with a payload although it decodes; asked when a dataset is verified, not when it is read."""
        return None

    def collate(self, values: Sequence[Any]) -> Any:
        """Values of several samples as one: an array where shapes agree, else a list."""
        return stack(values)


@contextlib.contextmanager
def naming(part: str) -> Iterator[None]:
    """Say of which part of a value an error inside is: a frame, an element, a key."""
    try:
        yield
    except (TypeError, ValueError) as error:  # a new one, for subclasses are made of other facts than a message
        raise (TypeError if isinstance(error, TypeError) else ValueError)(f"{part}: {error}") from error
    except OSError as error:
        raise ValueError(f"{part}: {type(error).__name__}: {error}") from error


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
