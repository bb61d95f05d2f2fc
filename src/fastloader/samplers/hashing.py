"""Randomness as a place: a 64-bit hash of (key, number), the same on every machine and for ever.

The stream of a key is that of SplitMix64, which can be entered anywhere: its state after ``n`` draws is
``key + n * GOLDEN``.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Stream(IntEnum):
    """What a draw is for, so that two uses of one seed have nothing in common. Numbers never change their meaning."""

    WEIGHTED_DRAW = 1
    WEIGHTED_KEY = 2
    WINDOW = 3
    BUCKET = 4
    BATCHES = 5
    DIGEST = 6
    BLOCK = 16
    MIX = 17
    CALL = 18


def fold(*parts: int) -> int:
    """One key from several numbers; their order matters."""
    key = 0
    for part in parts:
        key = (key + part + GOLDEN) & MASK
        key = ((key ^ key >> 30) * _FIRST) & MASK
        key = ((key ^ key >> 27) * _SECOND) & MASK
        key ^= key >> 31
    return key


def hashes(key: int, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A 64-bit hash of each number: for one key a bijection, so different numbers have different hashes."""
    values = numbers.astype(np.uint64)
    values += np.uint64(1)
    values *= np.uint64(GOLDEN)
    values += np.uint64(key)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)
    return values


def number_of(key: int, value: int) -> int:
    """The number with this hash.

    >>> number_of(5, int(hashes(5, np.array([812]))[0]))
    812
    """
    value = value ^ value >> 31 ^ value >> 62
    value = value * pow(_SECOND, -1, 2**64) & MASK
    value = value ^ value >> 27 ^ value >> 54
    value = value * pow(_FIRST, -1, 2**64) & MASK
    value = value ^ value >> 30 ^ value >> 60
    return ((value - key) * pow(GOLDEN, -1, 2**64) - 1) & MASK
