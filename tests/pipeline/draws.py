"""What an operation draws for a sample, from the bits of its stream."""

import numpy as np

from fastloader import kernels


class Draws:
    """The stream of one op on one sample, from its bits."""

    def __init__(self, seed, epoch, sample, op):
        self.place = (seed, epoch, sample, op)
        words = np.empty(1024, np.uint32)
        kernels.random_bits(*self.place, words)
        self.words = words.tolist()
        self.used = 0

    def bits(self):
        self.used += 2
        return self.words[self.used - 2] | self.words[self.used - 1] << 32

    def uniform(self):
        return (self.bits() >> 11) * 2.0**-53

    def between(self, low, high):
        return low + (high - low) * self.uniform()

    def happens(self, p):
        return self.uniform() < p

    def below(self, bound):
        while True:
            product = self.bits() * bound
            if product % 2**64 >= -(2**64) % bound:
                return product >> 64

    def rest(self, size):
        """Bytes that follow the numbers drawn so far, for as many rows of bytes; each row starts with a new word."""
        rows, row = size
        words = (row + 3) // 4
        more = np.empty(self.used + rows * words, np.uint32)
        kernels.random_bits(*self.place, more)
        return more[self.used :].view(np.uint8).reshape(rows, 4 * words)[:, :row]
