"""Random numbers in compiled code: the type of ``random``, and its methods.

Its state is sixteen words: 0 and 1 are the key of the stream, 2 to 5 the next counter, 6 to 9 the block in use, 10 how
much of it is left.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic, make_attribute_wrapper, models, overload_method, register_jitable, register_model

from fastloader.ops import random as arithmetic
from fastloader.ops.random import log_of, normal_of, sin_pi


class _RandomType(numba.types.Type):
    def __init__(self) -> None:
        # The name is a part of what compiled code is kept under: that of other versions of this file is not found.
        sources = b"".join(Path(file).read_bytes() for file in (__file__, arithmetic.__file__))
        super().__init__(name=f"fastloader.Random {zlib.crc32(sources):08x}")


RANDOM = _RandomType()
_WORDS = numba.types.Array(numba.types.uint32, 1, "C")


@register_model(_RandomType)
class _RandomModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("words", _WORDS)])


make_attribute_wrapper(_RandomType, "words", "_words")


@intrinsic
def _wrapped(context, words):
    def build(context, builder, signature, arguments):
        random = cgutils.create_struct_proxy(RANDOM)(context, builder)
        random.words = arguments[0]
        context.nrt.incref(builder, _WORDS, arguments[0])
        return random._getvalue()

    return RANDOM(_WORDS), build


@numba.njit(cache=True)
def _philox(words, key, counter, to):
    """Philox4x32-10 of the key and counter at these words, left at ``to``."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    k0, k1 = np.uint64(words[key]), np.uint64(words[key + 1])
    c0, c1 = np.uint64(words[counter]), np.uint64(words[counter + 1])
    c2, c3 = np.uint64(words[counter + 2]), np.uint64(words[counter + 3])
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c0
        b = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (b >> half) ^ c1 ^ k0, b & low, (a >> half) ^ c3 ^ k1, a & low
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    words[to], words[to + 1], words[to + 2], words[to + 3] = c0, c1, c2, c3


@numba.njit(cache=True)
def seeded(place, words):
    half = np.uint64(32)
    words[0], words[1] = place[0], place[0] >> half
    words[2], words[3], words[4], words[5] = place[1], place[1] >> half, place[2], place[2] >> half
    _philox(words, 0, 2, 6)
    words[0], words[1] = words[6], words[7]
    words[2], words[3], words[4], words[5] = 0, place[3], words[8], words[9]
    words[10] = 0
    return _wrapped(words)


@numba.njit(cache=True)
def _word(words):
    if words[10] == 0:
        _philox(words, 0, 2, 6)
        words[2] += np.uint32(1)
        words[10] = 4
    words[10] -= np.uint32(1)
    return np.uint64(words[9 - np.int64(words[10])])


@numba.njit(cache=True)
def _long(words):
    low = _word(words)
    return low | _word(words) << np.uint64(32)


@numba.njit(cache=True)
def _uniform(words):
    return np.float64(_long(words) >> np.uint64(11)) * 2.0**-53


@numba.njit(cache=True)
def _below(words, bound):
    """The upper half of a product of 128 bits, made of four of 64."""
    if bound < 1:
        raise ValueError("no number lies below that")
    limit = np.uint64(bound)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    while True:
        drawn = _long(words)
        a, b, c, d = drawn >> half, drawn & low, limit >> half, limit & low
        middle = a * d + (b * d >> half)
        other = b * c + (middle & low)
        lower = drawn * limit
        # What is uneven lies below the limit, so the slow division is hardly ever made.
        if lower >= limit or lower >= (np.uint64(0) - limit) % limit:
            return np.int64(a * c + (middle >> half) + (other >> half))


for one in (sin_pi, log_of, normal_of):
    register_jitable(one)


@overload_method(_RandomType, "bits")
def _bits_method(self):
    return lambda self: np.int64(_word(self._words))


@overload_method(_RandomType, "uniform")
def _uniform_method(self):
    return lambda self: _uniform(self._words)


@overload_method(_RandomType, "below")
def _below_method(self, bound):
    return lambda self, bound: _below(self._words, bound)


@overload_method(_RandomType, "normal")
def _normal_method(self):
    def normal(self):
        first = _uniform(self._words)
        return normal_of(first, _uniform(self._words))

    return normal
