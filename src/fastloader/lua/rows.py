"""Rows as a script planned them: mappings from key to bytes that nobody copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from fastloader.errors import KeyNotFoundError


class Bytes(Protocol):
    """Bytes of entries, by number."""

    def __call__(self, entry: int) -> memoryview:
        """All bytes of an entry."""


class Row(Mapping[Any, memoryview]):
    """One row: entries by key or by number, each a read-only view that keeps its memory for as long as it is held.

    ``bytes(row[".json"])`` makes a copy; ``np.frombuffer(row[".bin"], "float32")`` makes none. Any number of rows may
    be held.
    """

    __slots__ = ("_entries", "_first", "_keys")

    def __init__(self, keys: Sequence[str], entries: Bytes, first: int = 0) -> None:
        self._keys = tuple(keys)
        self._entries = entries
        self._first = first

    def __getitem__(self, key: str | int) -> memoryview:
        if isinstance(key, int):
            if not -len(self._keys) <= key < len(self._keys):
                raise IndexError(f"entry {key} of a row of {len(self._keys)}")
            return self._entries(self._first + key % len(self._keys))
        try:
            return self._entries(self._first + self._keys.index(key))
        except ValueError:
            raise KeyNotFoundError(f"the row has no {key!r}; it has {', '.join(self._keys) or 'nothing'}") from None

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self) -> list[str]:  # type: ignore[override]
        """The keys, in the order the script added them."""
        return list(self._keys)

    def values(self) -> list[memoryview]:  # type: ignore[override]
        """The bytes, in the same order."""
        return [self._entries(self._first + number) for number in range(len(self._keys))]

    def items(self) -> list[tuple[str, memoryview]]:  # type: ignore[override]
        """Keys and bytes."""
        return list(zip(self._keys, self.values(), strict=True))

    def to_dict(self) -> dict[str, memoryview]:
        """The same as a dictionary."""
        return dict(self.items())

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{key!r}: {len(value)} bytes' for key, value in self.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _with_bytes, (self._keys, [bytes(value) for value in self.values()])


class Literal:
    """Bytes that are there already."""

    __slots__ = ("_values",)

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values = values

    def __call__(self, entry: int) -> memoryview:
        """One of them."""
        return memoryview(self._values[entry])


def _with_bytes(keys: Sequence[str], values: Sequence[bytes]) -> Row:
    return Row(keys, Literal(values))
