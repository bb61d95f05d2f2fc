"""Builds the key index: a hash table laid out in hash order, so that it is written front to back in bounded memory."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.formats.fld.spill import SpillFile
from fastloader.types import key_text

PARTITION = 1 << 21
"""Hashes sorted at a time."""

_CHUNK = 8 << 20


def home_slots(samples: int) -> int:
    """How many slots searches may begin at: seven in ten are filled."""
    return max(8, -(-samples * 10 // 7))


class KeyIndexBuilder:
    """Takes each sample's key in order and gives the three key tables as chunks of bytes.

    ``first`` is what errors call the first sample.
    """

    def __init__(self, spills: SpillFile, first: int = 0) -> None:
        self.count = 0
        self._first = first
        self._bytes = spills.column()
        self._offsets = spills.column()
        self._hashes = spills.column()
        self._offsets.append(np.zeros(1, "<u8"))
        self._ascending = True
        self._last: bytes | None = None

    def append(self, keys: Sequence[bytes]) -> None:
        """Add the keys of the next samples."""
        lengths = np.fromiter(map(len, keys), "<u8", len(keys))
        self._offsets.append(np.cumsum(lengths, dtype="<u8") + np.uint64(self._bytes.size))
        self._bytes.append(b"".join(keys))
        self._hashes.append(np.fromiter(map(kernels.xxh64, keys), "<u8", len(keys)))
        self.count += len(keys)
        if self._ascending and keys:
            before = keys if self._last is None else [self._last, *keys]
            self._ascending = all(map(operator.lt, before, before[1:]))
            self._last = keys[-1]

    def order(self) -> Iterator[bytes]:
        """The samples in the order of their keys; nothing where they are in that order."""
        if self._ascending:
            return
        offsets = np.frombuffer(self._offsets.read(0, self._offsets.size), "<u8")
        order = np.empty(self.count, np.uint64)
        kernels.sort_keys(offsets, self._bytes.read(0, self._bytes.size), order)
        for first in range(0, self.count, _CHUNK // 8):
            yield order[first : first + _CHUNK // 8].astype("<u8").tobytes()

    def offsets(self) -> Iterator[bytes]:
        """The offsets table."""
        return self._offsets.chunks(_CHUNK)

    def key_bytes(self) -> Iterator[bytes]:
        """The key bytes."""
        return self._bytes.chunks(_CHUNK)

    def slots(self) -> Iterator[bytes]:
        """The slots table: the number of home slots, then the slots, the last of which is empty."""
        homes = home_slots(self.count)
        yield np.array([homes], "<u8").tobytes()
        partitions = max(1, -(-self.count // PARTITION))
        begin = free = 0  # the first slot not yet given out; the first not yet filled
        overflow = np.zeros(0, np.uint64)
        for part in range(partitions):
            low, high = (part << 64) // partitions, ((part + 1) << 64) // partitions
            hashes, samples = self._partition(low, high - 1)
            self._refuse_duplicates(hashes, samples)
            end = (high * homes) >> 64  # no later hash has its home before this slot
            room = np.zeros(end - begin + len(overflow) + len(hashes) + 1, np.uint64)
            room[: len(overflow)] = overflow
            free = kernels.lay_slots(hashes, samples, homes, max(free, begin), begin, room)
            if part + 1 == partitions:
                end = max(free, end) + 1
            yield room[: end - begin].tobytes()
            overflow = room[end - begin : max(free, end) - begin].copy()
            begin = end

    def _partition(self, low: int, high: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Hashes from ``low`` to ``high`` in ascending order, and their samples; equal hashes in sample order."""
        found: list[NDArray[np.uint64]] = []
        numbers: list[NDArray[np.uint64]] = []
        first = 0
        for chunk in self._hashes.chunks(_CHUNK):
            hashes = np.frombuffer(chunk, "<u8")
            (inside,) = np.nonzero((hashes >= np.uint64(low)) & (hashes <= np.uint64(high)))
            found.append(hashes[inside].astype(np.uint64))
            numbers.append((inside + first).astype(np.uint64))
            first += len(hashes)
        hashes = np.concatenate(found) if found else np.zeros(0, np.uint64)
        samples = np.concatenate(numbers) if numbers else np.zeros(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], samples[order]

    def _refuse_duplicates(self, hashes: NDArray[np.uint64], samples: NDArray[np.uint64]) -> None:
        seen: dict[bytes, int] = {}
        last = -1
        for i in np.nonzero(hashes[1:] == hashes[:-1])[0].tolist():
            if i != last + 1:
                seen.clear()
            for sample in (int(samples[i]), int(samples[i + 1])):
                key = self._key(sample)
                if seen.setdefault(key, sample) != sample:
                    raise given_twice(key, self._first + seen[key], self._first + sample)
            last = i

    def _key(self, sample: int) -> bytes:
        begin, end = np.frombuffer(self._offsets.read(sample * 8, 16), "<u8").tolist()
        return self._bytes.read(begin, end - begin)


class SharedHashes:
    """Finds keys of several files that may be the same, by their hashes, in bounded memory and a time linear in them.

    Hashes are dealt by their upper bits into buckets that are small enough to be sorted one at a time.
    """

    BUCKETS = 256
    BATCH = 1 << 16
    ROW = np.dtype([("hash", "<u8"), ("sample", "<u8")])

    def __init__(self, path: Path) -> None:
        self._spills = SpillFile(path)
        self._buckets = [self._spills.column() for _ in range(self.BUCKETS)]
        self._waiting: list[NDArray[Any]] = []
        self._count = 0

    def append(self, keys: Sequence[bytes], first: int) -> None:
        """Add the keys of samples from ``first`` on."""
        rows = np.empty(len(keys), self.ROW)
        rows["hash"] = np.fromiter(map(kernels.xxh64, keys), "<u8", len(keys))
        rows["sample"] = np.arange(first, first + len(keys), dtype="<u8")
        self._waiting.append(rows)
        self._count += len(keys)
        if self._count >= self.BATCH:
            self._deal()

    def _deal(self) -> None:
        rows = np.concatenate([np.empty(0, self.ROW), *self._waiting])
        buckets = rows["hash"] // np.uint64((1 << 64) // self.BUCKETS)
        rows = rows[np.argsort(buckets, kind="stable")]
        ends = np.cumsum(np.bincount(buckets.astype(np.int64), minlength=self.BUCKETS)).tolist()
        for bucket, begin, end in zip(self._buckets, [0, *ends], ends, strict=False):
            bucket.append(rows[begin:end].view(np.uint8))
        self._waiting, self._count = [], 0

    def groups(self) -> Iterator[list[int]]:
        """Samples whose keys have one hash, in their order: the same key, but for a rare coincidence."""
        self._deal()
        for bucket in self._buckets:
            rows = np.frombuffer(bucket.read(0, bucket.size), self.ROW)
            rows = rows[np.argsort(rows["hash"], kind="stable")]
            shared = rows["hash"][1:] == rows["hash"][:-1]
            (begins,) = np.nonzero(shared & ~np.concatenate([[False], shared[:-1]]))
            for begin in begins.tolist():
                end = begin + 1
                while end < len(rows) and shared[end - 1]:
                    end += 1
                yield rows["sample"][begin:end].tolist()

    def close(self) -> None:
        """Give back memory and disk."""
        self._spills.close()


def given_twice(key: bytes, first: int, second: int) -> SampleError:
    """The error for a key that is not unique."""
    return SampleError(
        f"key {key_text(key)!r} was given to sample {first} already", sample=second, hint="keys are unique"
    )
