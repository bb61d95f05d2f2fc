"""Custom operations compiled by numba to functions that the engine's threads call without the GIL.

Nothing else imports numba, and only a pipeline with such an operation imports this. What is compiled stays as long as
the process does, since an engine may hold its address.
"""

from __future__ import annotations

import linecache
import re
import zlib
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import intrinsic, make_attribute_wrapper, models, overload_method, register_jitable, register_model

from fastloader.ops import CustomOp, Pixels
from fastloader.ops import random as arithmetic
from fastloader.ops.random import log_of, normal_of, sin_pi

_compiled: dict[tuple[Any, ...], Any] = {}


class Uncompilable(ValueError):
    """A custom operation that can't be compiled, told with the line that is in the way."""


def address(op: CustomOp, given: Pixels, made: Pixels) -> int:
    """Where the compiled function lies; ``native/kernels/chain.h`` says how it is called."""
    key = (op.function, op.in_place, given.shape, given.dtype, made.shape, made.dtype)
    if key not in _compiled:
        _compiled[key] = _compile(op, given, made)
    found: int = _compiled[key].address
    return found


def _compile(op: CustomOp, given: Pixels, made: Pixels) -> Any:
    function = _cached(op)
    element, result = getattr(numba.types, given.dtype), getattr(numba.types, made.dtype)
    before: Any = given.shape
    after: Any = made.shape
    in_place = op.in_place
    try:
        types = [numba.types.Array(one, 3, "C") for one in ((element,) if in_place else (element, result))]
        function.compile((*types, _RANDOM))

        # An exception that leaves a C function is lost, so it becomes a status here.
        if in_place:

            def called(image, out, place, words):
                try:
                    function(carray(image, before), _seeded(carray(place, 4), carray(words, 16)))
                except Exception:
                    return 1
                return 0

        else:

            def called(image, out, place, words):
                try:
                    function(carray(image, before), carray(out, after), _seeded(carray(place, 4), carray(words, 16)))
                except Exception:
                    return 1
                return 0

        pointer = numba.types.CPointer
        signature = numba.types.int32(
            pointer(element), pointer(result), pointer(numba.types.uint64), pointer(numba.types.uint32)
        )
        return numba.cfunc(signature)(called)
    except NumbaError as error:
        raise _in_our_words(op, error) from None


def _cached(op: CustomOp) -> Any:
    """The function, to be compiled; the result is kept on disk where the function lives in a file.

    Indices are checked: one past the end would write into other samples.
    """
    try:
        return numba.njit(cache=True, boundscheck=True)(op.function)
    except RuntimeError:  # typed in, or from a string
        return numba.njit(boundscheck=True)(op.function)


def _in_our_words(op: CustomOp, error: Any) -> Uncompilable:
    code = op.function.__code__
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [int(n) for path, n in re.findall(r'File "([^"]+)", line (\d+)', text) if Path(path).name == _stem(code)]
    line = lines[-1] if lines else getattr(getattr(error, "loc", None), "line", None) or code.co_firstlineno
    source = linecache.getline(code.co_filename, line).strip()
    place = f"line {line} of {_stem(code)} can't be compiled: {_reason(text)}"
    return Uncompilable(
        place + (f"\n        {source}\n    " if source else "; ") + "loops, arithmetic, tuples and numpy arrays can be "
        "compiled; @custom(jit=False) keeps the operation in Python"
    )


def _stem(code: Any) -> str:
    return Path(code.co_filename).name


def _reason(text: str) -> str:
    """The part of numba's message that speaks of the code."""
    for pattern, words in (
        (r"NameError: name '(\w+)' is not defined|global name '(\w+)' is not defined", "{} is not defined"),
        (r"Untyped global name '([^']+)'", "{} is nothing that compiled code can use"),
        (r"Unknown attribute '(\w+)'", "there is no attribute {}"),
        (r"[Uu]se of unsupported (?:NumPy )?function '?([\w.]+)'?", "{} is not supported"),
        (r"[Cc]annot unify (.+?) for '", "a variable is now of one type, now of another: {}"),
        (r"No implementation of function Function\((.+?)\) found for signature", "{} does not take these arguments"),
    ):
        if match := re.search(pattern, text):
            return words.format(next(group for group in match.groups() if group))
    return "compiled code has no such construct"


# Random numbers in compiled code: the type of ``random``, and its methods. Words 0 and 1 are the key of the stream,
# 2 to 5 the next counter, 6 to 9 the block in use, 10 how much of it is left.


class _RandomType(numba.types.Type):
    def __init__(self) -> None:
        # The name is a part of what compiled code is kept under: that of other versions of this file is not found.
        sources = b"".join(Path(file).read_bytes() for file in (__file__, arithmetic.__file__))
        super().__init__(name=f"fastloader.Random {zlib.crc32(sources):08x}")


_RANDOM = _RandomType()
_WORDS = numba.types.Array(numba.types.uint32, 1, "C")


@register_model(_RandomType)
class _RandomModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("words", _WORDS)])


make_attribute_wrapper(_RandomType, "words", "_words")


@intrinsic
def _wrapped(context, words):
    def build(context, builder, signature, arguments):
        random = cgutils.create_struct_proxy(_RANDOM)(context, builder)
        random.words = arguments[0]
        context.nrt.incref(builder, _WORDS, arguments[0])
        return random._getvalue()

    return _RANDOM(_WORDS), build


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
def _seeded(place, words):
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
