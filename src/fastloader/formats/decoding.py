"""Values of files that others wrote, told by how their names end: bytes, unless they are to be decoded."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, FastLoaderError
from fastloader.fields import (
    BytesField,
    Decoder,
    Field,
    ImageFileField,
    JPEGImageField,
    JSONField,
    PNGImageField,
    TextField,
    WebPImageField,
)
from fastloader.fields.base import Encoded, PayloadBatch, ReadFunction
from fastloader.fields.text import TextDecoder
from fastloader.types import key_text

KEY = "__key__"
"""What the key of a sample is called."""

Decode = bool | Mapping[str, Field | Callable[[bytes], Any] | bool] | None
"""``True``: all that is known by its ending; or by name or ending a field, a function of bytes, or ``True``."""


class KeyDecoder(TextDecoder):
    """Gives ``str``; bytes that are no UTF-8 as surrogates, as in file names."""

    def __call__(self, metadata: Any, read: ReadFunction) -> str:
        """The text."""
        return key_text(bytes(read()))

    def batch(self, metadata: Any, payloads: PayloadBatch) -> list[str | None]:
        """A list of texts."""
        return [key_text(one) if row >= 0 else None for one, row in zip(payloads.bytes(), payloads.rows, strict=True)]


@dataclass(frozen=True, slots=True)
class KeyField(TextField):
    """Keys of samples, paths of members."""

    def get_decoder_class(self) -> type[Decoder]:
        """Reads names."""
        return KeyDecoder


class FileDecoder(Decoder):
    """Calls the field's function."""

    field: FileField

    def __call__(self, metadata: Any, read: ReadFunction) -> Any:
        """The value."""
        return self.field.decode(bytes(read()))


@dataclass(frozen=True, slots=True)
class FileField(Field):
    """The content of a file, decoded by a function of its bytes."""

    decode: Callable[[bytes], Any]

    def encode(self, value: Any) -> Encoded:
        """It is for reading."""
        raise TypeError("what a function decodes can't be encoded; name a field for it")

    def get_decoder_class(self) -> type[Decoder]:
        """Calls the function."""
        return FileDecoder

    def to_binary(self) -> bytes:
        """The function's name: nothing is stored."""
        return json.dumps(getattr(self.decode, "__name__", "decode")).encode()


class WholeNumberDecoder(Decoder):
    """Gives ``int``."""

    def __call__(self, metadata: Any, read: ReadFunction) -> int:
        """The number."""
        return whole_number(bytes(read()))

    def batch(self, metadata: Any, payloads: PayloadBatch) -> NDArray[np.int64]:
        """(batch,) numbers, 0 where there is none."""
        texts = zip(payloads.bytes(), payloads.rows, strict=True)
        return np.array([whole_number(text) if row >= 0 else 0 for text, row in texts], np.int64)


@dataclass(frozen=True, slots=True)
class WholeNumberField(FileField):
    """A whole number written in digits. Batches are int64 arrays."""

    decode: Callable[[bytes], Any] = field(default_factory=lambda: whole_number)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads numbers."""
        return WholeNumberDecoder


def whole_number(data: bytes) -> int:
    """Digits, as a number of 64 bits."""
    try:
        value = int(data)
        if -(2**63) <= value < 2**63:
            return value
        raise ValueError
    except ValueError:
        raise DecodeError(f"is no whole number of 64 bits: {data[:20]!r}") from None


def npy(data: bytes) -> Any:
    """An array as NumPy saves it; pickled objects are refused."""
    return np.load(io.BytesIO(data), allow_pickle=False)


def npz(data: bytes) -> dict[str, Any]:
    """Arrays by name."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


_JPEG = JPEGImageField(seekable=False, verbatim=True)
BY_ENDING: dict[str, Field] = {
    "jpg": _JPEG, "jpeg": _JPEG, "png": PNGImageField(), "webp": WebPImageField(),
    "json": JSONField(), "txt": TextField(), "text": TextField(), "transcript": TextField(),
    "npy": FileField(npy), "npz": FileField(npz),
    **dict.fromkeys(("cls", "cls2", "id", "index", "inx", "count"), WholeNumberField()),
}  # fmt: skip
"""By the last part of a name, as WebDataset has them."""


def field_of(name: str, decode: Decode) -> Field:
    """What the values of a field are."""
    ending = name.rpartition(".")[2]
    given: Any = decode
    if isinstance(decode, Mapping):
        given = decode.get(name, decode.get(ending))
    if isinstance(given, Field):
        return given
    if callable(given):
        return FileField(given)
    return BY_ENDING.get(ending, BytesField()) if given is True else BytesField()


def decoded(field: Field, data: bytes, name: str) -> Any:
    """One value of a field that nothing but its bytes tells of."""
    try:
        if isinstance(field, ImageFileField):
            return kernels.decode_image(field.coding, data, kernels.image_info(field.coding, data))
        return field.get_decoder_class()(field)(np.zeros(1, field.metadata_type)[0], lambda: memoryview(data))
    except kernels.Failure as failure:
        raise DecodeError(failure.args[1], field=name) from failure
    except (FastLoaderError, MemoryError):
        raise
    except Exception as error:
        raise DecodeError(f"does not decode: {type(error).__name__}: {error}", field=name) from error


def fields_by_name(names: Sequence[str], decode: Decode) -> dict[str, Field]:
    """Fields by name, the first being the key; a choice that concerns none is an error."""
    if isinstance(decode, Mapping):
        endings = {part for name in names for part in (name, name.rpartition(".")[2])}
        unknown = [name for name in decode if name not in endings]
        if unknown:
            raise ValueError(f"decode: no field is called or ends with {unknown[0]!r}; there are {', '.join(names)}")
    return {name: field_of(name, decode) if number else KeyField() for number, name in enumerate(names)}
