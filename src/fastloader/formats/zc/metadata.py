"""The JSON of a shard: ``{"num_samples": n, "samples": [{"offset": o, "size": s}, ...]}``.

A table of a million samples is 36 MB of text. Text of the usual form, as ``json.dumps`` gives it with or without
spaces, is read by ``scan`` a few megabytes at a time; whatever else is JSON goes through ``parse``, the slow twin.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.types import format_size

Numbers: TypeAlias = NDArray[np.int64]
Text: TypeAlias = NDArray[np.uint8]

PARSE_LIMIT = 1 << 28
"""Bytes of JSON in an unusual form that are parsed: the objects made of them may take twenty times as much memory."""

_CHUNK = 1 << 22
_MAX_DIGITS = 18  # as many always fit 63 bits
_HEAD_BYTES = 80
_WRITTEN_TOGETHER = 1 << 14


class _Style:
    """One way to put spaces, and the text that surrounds the numbers then."""

    def __init__(self, comma: bytes, colon: bytes) -> None:
        self.comma = comma
        self.head = re.compile(
            rb'\{"num_samples"%b(0|[1-9][0-9]{0,17})%b"samples"%b\[' % (colon, comma, colon), re.ASCII
        )
        before = b'{"offset"' + colon
        between = comma + b'"size"' + colon
        self.entry = np.frombuffer(before + between + b"}" + comma, np.uint8)
        self.numbers_at = np.array([len(before), len(before) + len(between)])

    def scan(self, text: Text, head: re.Match[bytes]) -> tuple[Numbers, Numbers] | None:
        """Offsets and sizes, or ``None`` where the text is anything but this."""
        body = text[head.end() : -2]
        if text[-2:].tobytes() != b"]}":
            return None
        found = [np.empty(0, np.int64)]
        position = 0
        while position < len(body):
            piece = body[position : position + _CHUNK]
            piece = piece[: piece.tobytes().rfind(b"}") + 1]
            numbers = self._numbers(piece)
            if numbers is None:
                return None
            found.append(numbers)
            position += len(piece)
            if position < len(body):
                comma = body[position : position + len(self.comma)].tobytes()
                position += len(self.comma)
                if comma != self.comma or position >= len(body):
                    return None
        pairs = np.concatenate(found).reshape(-1, 2)
        return (pairs[:, 0].copy(), pairs[:, 1].copy()) if len(pairs) == int(head[1]) else None

    def _numbers(self, piece: Text) -> Numbers | None:
        """The numbers of some entries with commas between: offset, size, offset, size, ..."""
        is_digit = (piece - ord("0")) < 10  # wraps around for what lies below
        edges = np.flatnonzero(is_digit[1:] != is_digit[:-1]) + 1
        if len(piece) == 0 or is_digit[0] or is_digit[-1] or len(edges) % 4 or len(edges) == 0:
            return None
        entries = len(edges) // 4
        if not np.array_equal(piece[~is_digit], np.tile(self.entry, entries)[: -len(self.comma)]):
            return None
        begin, end = edges[0::2], edges[1::2]
        length = end - begin
        # The text without its digits is right; now each run of digits must stand where it should in that text.
        standing = begin - (np.cumsum(length) - length)
        expected = np.arange(entries)[:, None] * len(self.entry) + self.numbers_at
        longest = int(length.max())
        if not np.array_equal(standing, expected.ravel()) or longest > _MAX_DIGITS:
            return None
        if np.any((piece[begin] == ord("0")) & (length > 1)):
            return None
        value = np.zeros(len(begin), np.int64)
        for place in range(longest):
            has = np.flatnonzero(length > place)
            value[has] += (piece[end[has] - 1 - place] - ord("0")).astype(np.int64) * 10**place
        return value


_STYLES = (_Style(b",", b":"), _Style(b", ", b": "))


def scan(text: Text) -> tuple[Numbers, Numbers] | None:
    """Offsets and sizes out of text of the usual form, or ``None``: then ``parse`` knows what is wrong, if anything."""
    start = text[:_HEAD_BYTES].tobytes()
    for style in _STYLES:
        head = style.head.match(start)
        if head is not None:
            return style.scan(text, head)
    return None


def parse(text: bytes) -> tuple[Numbers, Numbers]:
    """Offsets and sizes out of any JSON that has them. Other keys are passed over, keys given twice are refused."""
    try:
        content = json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_refuse)
    except FormatError:
        raise
    except RecursionError:
        raise FormatError("the metadata is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"the metadata is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise FormatError(f"the metadata is {reprlib.repr(content)}, no JSON object")
    count = _count(content, "num_samples")
    samples = content.get("samples")
    if not isinstance(samples, list):
        raise FormatError('the metadata has no list "samples"')
    if len(samples) != count:
        raise FormatError(f"the metadata lists {len(samples)} samples and says there are {count}")
    offsets = np.fromiter((_count(sample, "offset", i) for i, sample in enumerate(samples)), np.int64, count)
    sizes = np.fromiter((_count(sample, "size", i) for i, sample in enumerate(samples)), np.int64, count)
    return offsets, sizes


def read(text: Text) -> tuple[Numbers, Numbers]:
    """Offsets and sizes of all samples: whole numbers from 0 up, as many of each as there are samples."""
    found = scan(text)
    if found is not None:
        return found
    if len(text) > PARSE_LIMIT:
        raise FormatError(
            f"the metadata is {format_size(len(text))} of JSON in an unusual form; at most {format_size(PARSE_LIMIT)} "
            "are parsed",
            hint="write it as ZCWriter does",
        )
    return parse(text.tobytes())


def write(offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[bytes]:
    """The text, piece by piece."""
    yield b'{"num_samples":%d,"samples":[' % len(sizes)
    for first in range(0, len(sizes), _WRITTEN_TOGETHER):
        some = slice(first, first + _WRITTEN_TOGETHER)
        entries = [b'{"offset":%d,"size":%d}' % pair for pair in zip(offsets[some], sizes[some], strict=True)]
        yield (b"," if first else b"") + b",".join(entries)
    yield b"]}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise FormatError(f"the metadata gives {reprlib.repr(name)} twice in one object")
        found[name] = value
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _count(content: Any, name: str, sample: int | None = None) -> int:
    value = content.get(name) if isinstance(content, dict) else None
    if type(value) is not int or not 0 <= value < 1 << 63:
        found = f'has "{name}": {reprlib.repr(value)}' if value is not None else f'lacks "{name}"'
        raise FormatError(f"the metadata {found}; a whole number from 0 up is needed", sample=sample)
    return value
