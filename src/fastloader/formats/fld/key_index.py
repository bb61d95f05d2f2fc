"""Builds the key index: a hash table laid out in hash order, so that it is written front to back in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.formats.fld.spill import Spill
from fastloader.types import key_text

PARTITION = 1 << 21
"""Hashes sorted at a time."""

_CHUNK = 8 << 20


def home_slots(samples: int) -> int:
    """How many slots searches may begin at: seven in ten are filled."""
    return max(8, -(-samples * 10 // 7))


class KeyIndexBuilder:
    """Takes each sample's key in order and gives the three key tables as chunks of bytes."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        self._bytes = Spill(folder)
        self._offsets = Spill(folder)
        self._hashes = Spill(folder)
        self._offsets.append(np.zeros(1, "<u8"))

    def append(self, keys: Sequence[bytes]) -> None:
        """Add the keys of the next samples."""
        lengths = np.fromiter(map(len, keys), "<u8", len(keys))
        self._offsets.append(np.cumsum(lengths, dtype="<u8") + np.uint64(self._bytes.size))
        self._bytes.append(b"".join(keys))
        self._hashes.append(np.fromiter(map(kernels.xxh64, keys), "<u8", len(keys)))
        self.count += len(keys)

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
                    raise SampleError(
                        f"key {key_text(key)!r} was given to sample {seen[key]} already",
                        sample=sample,
                        hint="keys are unique",
                    )
            last = i

    def _key(self, sample: int) -> bytes:
        begin, end = np.frombuffer(self._offsets.read(sample * 8, 16), "<u8").tolist()
        return self._bytes.read(begin, end - begin)

    def close(self) -> None:
        """Give back memory and disk."""
        for spill in (self._bytes, self._offsets, self._hashes):
            spill.close()
