"""Text."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError
from fastloader.fields.base import NO_METADATA, Decoder, Encoded, EncodedColumn, Field, PayloadBatch, ReadFunction
from fastloader.types import TypeId, parse_size

LEAST_DICTIONARY, MOST_DICTIONARY = 256, 16 << 20


def utf8(value: Any) -> bytes:
    """Text, or bytes that are text already, as stored."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the text is no UTF-8: half of a surrogate pair at character {error.start}") from None
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"the bytes are no UTF-8: {error.reason} at byte {error.start}") from None
        return data
    raise TypeError(f"expected text, got {type(value).__name__}")


def as_text(value: Any) -> Any:
    """Dates, times, spans of time and decimals as the text that says the same; anything else as it is.

    >>> as_text(datetime.timedelta(days=1, seconds=2.5)), as_text(Decimal("1.50"))
    ('P1DT2.500000S', '1.50')
    """
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return _span(value)
    return str(value) if isinstance(value, Decimal) else value


def _span(value: Any) -> str:
    """In ISO 8601. Spans of pandas know how, and have nanoseconds."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    size = abs(value)
    part = f".{size.microseconds:06d}" if size.microseconds else ""
    return f"{'-' if value.days < 0 else ''}P{size.days}DT{size.seconds}{part}S"


class TextDecoder(Decoder):
    """Gives ``str``."""

    def __call__(self, metadata: Any, read: ReadFunction) -> str:
        """The text."""
        try:
            return str(read(), "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"the text is no UTF-8: {error.reason} at byte {error.start}") from None

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> list[str | None]:
        """A list of texts, with ``None`` for what is missing."""
        values, offsets = payloads.ragged()
        texts: list[str | None] = [*kernels.decode_texts(values, offsets)]
        for i in np.flatnonzero(payloads.rows < 0).tolist():
            texts[i] = None
        return texts


@dataclass(frozen=True, slots=True)
class TextField(Field):
    """Text, stored as UTF-8 and compressed by zstd unless the writer is told otherwise. Batches are lists of ``str``.

    Dates, times and decimals are taken too, and are their text from then on: ISO 8601, and what ``str`` makes of a
    ``Decimal``.

    ``dictionary`` is for short texts, which alone hardly get smaller: a size in bytes, as a number or like "32KiB". The
    writer then makes a dictionary of that size of the first texts, stores it once in each file, and compresses with it.
    """

    type_id: ClassVar[int] = TypeId.TEXT_RAW
    usual_compression: ClassVar[str | None] = "zstd"

    dictionary: int | str = 0

    def __post_init__(self) -> None:
        size = 0 if self.dictionary is None else parse_size(self.dictionary, "dictionary")
        if isinstance(self.dictionary, bool) or (size and not LEAST_DICTIONARY <= size <= MOST_DICTIONARY):
            raise ValueError(
                f"dictionary={self.dictionary!r}: 0 for none, or a size from {LEAST_DICTIONARY} bytes to 16 MiB, such "
                "as '32KiB'"
            )
        object.__setattr__(self, "dictionary", size)

    @property
    def dictionary_bytes(self) -> int:
        """As asked for."""
        assert isinstance(self.dictionary, int)
        return self.dictionary

    def prepare(self, value: Any) -> bytes:
        """Encoded at once: bad text is told where it is given."""
        return utf8(as_text(value))

    def encode(self, value: Any) -> Encoded:
        """Takes text, bytes that are UTF-8, dates, times and decimals."""
        return Encoded((), value if type(value) is bytes else utf8(as_text(value)))

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """What ``prepare`` made is what is stored."""
        if set(map(type, values)) - {bytes}:
            return None
        return EncodedColumn(np.zeros(len(values), NO_METADATA), values)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads texts."""
        return TextDecoder

    def collate(self, values: Sequence[Any]) -> list[Any]:
        """Always a list."""
        return list(values)
