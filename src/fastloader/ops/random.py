"""Random numbers for operations of the user's: the stream of one op on one sample, as native/kernels/random has it.

The arithmetic stands here once, written so that plain Python and compiled code give the same bits; ``pipeline.jit``
compiles it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels

_WORDS_AT_ONCE = 64


class Random:
    """Draws that depend on seed, epoch, sample and op alone. A custom operation is given one as its last argument."""

    def __init__(self, seed: int, epoch: int, sample: int, op: int) -> None:
        self._place = (seed, epoch, sample, op)
        self._words: list[int] = []
        self._used = 0

    def bits(self) -> np.int64:
        """32 random bits, as a number below 2**32."""
        return np.int64(self._word())

    def uniform(self) -> np.float64:
        """A number from 0 to 1, 1 not included."""
        return np.float64((self._long() >> 11) * 2.0**-53)

    def below(self, bound: int) -> np.int64:
        """A whole number from 0 to ``bound``, not included; each is as likely."""
        limit = int(bound)
        if limit < 1:
            raise ValueError("no number lies below that")
        while True:
            product = self._long() * limit
            if product % 2**64 >= 2**64 % limit:
                return np.int64(product >> 64)

    def normal(self) -> np.float64:
        """A number from the normal distribution of mean 0 and deviation 1."""
        first, second = float(self.uniform()), float(self.uniform())
        return np.float64(normal_of(first, second))

    # Numbers come as numpy's, since these meet numpy's arrays as the numbers of compiled code do: 64 bits wide.

    def _word(self) -> int:
        if self._used == len(self._words):
            words: NDArray[np.uint32] = np.empty(2 * self._used or _WORDS_AT_ONCE, np.uint32)
            kernels.random_bits(*self._place, words)
            self._words = words.tolist()
        self._used += 1
        return self._words[self._used - 1]

    def _long(self) -> int:
        low = self._word()
        return low | self._word() << 32


def sin_pi(x: float) -> float:
    """sin(pi x), in the order of native/kernels/portable_math."""
    nearest = int(x + (-0.5 if x < 0 else 0.5))
    t = (x - float(nearest)) * 3.14159265358979323846
    s = t * t
    total = 1.0 / 121645100408832000.0 - s * (1.0 / 51090942171709440000.0)
    total = 1.0 / 355687428096000.0 - s * total
    total = 1.0 / 1307674368000.0 - s * total
    total = 1.0 / 6227020800.0 - s * total
    total = 1.0 / 39916800.0 - s * total
    total = 1.0 / 362880.0 - s * total
    total = 1.0 / 5040.0 - s * total
    total = 1.0 / 120.0 - s * total
    total = 1.0 / 6.0 - s * total
    sine = t - t * s * total
    return -sine if nearest % 2 else sine


def log_of(x: float) -> float:
    """The natural logarithm of a positive number, in the order of native/kernels/portable_math."""
    half, exponent = math.frexp(x)
    m = half * 2.0
    exponent -= 1
    if m > 1.4142135623730951:
        m *= 0.5
        exponent += 1
    z = (m - 1.0) / (m + 1.0)
    s = z * z
    total = 0.0
    for k in range(21, 1, -2):
        total = s * (1.0 / k + total)
    whole = float(exponent)
    return whole * 6.93147180369123816490e-01 + (2.0 * z * (1.0 + total) + whole * 1.90821492927058770002e-10)


def normal_of(first: float, second: float) -> float:
    """Box and Muller's normal number from two uniform ones."""
    return math.sqrt(-2.0 * log_of(1.0 - first)) * sin_pi(0.5 - abs(2.0 * second))
