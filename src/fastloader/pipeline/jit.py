"""Functions of the user's compiled by numba, for the engine's threads to call without the GIL.

Nothing but this and ``jit_random`` imports numba, and only a pipeline with such a function does. What is compiled stays
as long as the process does, since an engine may hold its address.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core.errors import NumbaError, UnsupportedBytecodeError
from numba.extending import register_jitable

from fastloader.fields import RowFunction
from fastloader.ops import CustomOp
from fastloader.pipeline.jit_random import RANDOM, seeded
from fastloader.pipeline.jit_words import (
    Uncompilable,
    check_draws,
    check_names,
    helpers,
    in_our_words,
    returns_something,
)
from fastloader.pipeline.pieces import Arrays, Row

Caller = Callable[..., Any]

__all__ = ["Uncompilable", "address", "caller", "decoder_address"]

_compiled: dict[tuple[Any, ...], Any] = {}

_helpers: set[Any] = set()

_byte, _pointer = numba.types.uint8, numba.types.CPointer


def address(op: CustomOp, given: Row, made: Row) -> int:
    """Where a compiled operation lies; ``native/kernels/chain.h`` says how it is called."""
    key = (*_identity(op.function), op.in_place, given.shape, given.dtype, made.shape, made.dtype)
    return _once(
        key, lambda: _compile(op, given, made), op.function, "@custom(jit=False) keeps the operation in Python"
    )


def decoder_address(row: RowFunction, metadata: np.dtype[Any]) -> int:
    """The same of a decoder's row function."""
    key = (*_identity(row.function), row.dtype, row.shape, metadata)
    cure = "supports_jit = False keeps the decoder in Python"
    return _once(key, lambda: _compile_decoder(row, metadata), row.function, cure)


def caller(op: CustomOp, given: Arrays, made: Arrays | None) -> Caller:
    """The operation compiled for arrays of any size, to be called from Python, which lets go of the GIL meanwhile.

    It is called with the array, ``out`` where ``made`` says what that is, and seed, epoch, sample and op. A function
    that returns something is not compiled: what numbers become when they are added is another matter there.
    """
    key = ("caller", *_identity(op.function), given, made)
    return _kept(key, lambda: _compile_caller(op, given, made), op.function, "in Python it can be used")  # type: ignore[no-any-return]


def _compile_caller(op: CustomOp, given: Arrays, made: Arrays | None) -> Caller:
    function = _cached(op.function)
    arrays = [numba.types.Array(numba.from_dtype(np.dtype(one.dtype)), one.ndim, "C") for one in (given, made) if one]
    _specialise(function, (*arrays, RANDOM))
    called: Any

    if made is None:

        def called(array, place):
            function(array, seeded(place, np.zeros(16, np.uint32)))

    else:

        def called(array, out, place):
            function(array, out, seeded(place, np.zeros(16, np.uint32)))

    whole: Caller = numba.njit(nogil=True)(called)
    _specialise(whole, (*arrays, numba.types.Array(numba.types.uint64, 1, "C")))
    return whole


def _once(key: tuple[Any, ...], compile: Callable[[], Any], function: Any, cure: str) -> int:
    found: int = _kept(key, compile, function, cure).address
    return found


def _kept(key: tuple[Any, ...], compile: Callable[[], Any], function: Any, cure: str) -> Any:
    if key not in _compiled:
        check_draws(function)
        check_names(function, cure)
        _add_helpers(function)
        try:
            _compiled[key] = function, compile()  # the key may hold the function's parts by their ids
        except (NumbaError, UnsupportedBytecodeError) as error:
            raise in_our_words(function, error, cure) from None
    return _compiled[key][1]


def _identity(function: Any) -> tuple[Any, ...]:
    """What tells it from others: for one that is made again and again, its code and what it holds on to."""
    try:
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        key = (function.__code__, id(function.__globals__), function.__defaults__, *((type(one), one) for one in held))
        hash(key)
    except (AttributeError, TypeError, ValueError):
        return (function,)
    return key


def _compile(op: CustomOp, given: Row, made: Row) -> Any:
    function = _cached(op.function)
    element, result = numba.from_dtype(np.dtype(given.dtype)), numba.from_dtype(np.dtype(made.dtype))
    before: Any = given.shape
    after: Any = made.shape
    arrays = [numba.types.Array(element, len(before), "C"), numba.types.Array(result, len(after), "C")]
    _specialise(function, (*(arrays[:1] if op.in_place else arrays), RANDOM))

    # An exception that leaves a C function is lost, so it becomes a status here.
    if op.in_place:

        def called(image, out, place, words):
            try:
                function(carray(image, before), seeded(carray(place, 4), carray(words, 16)))
            except Exception:
                return 1
            return 0

    else:

        def called(image, out, place, words):
            try:
                function(carray(image, before), carray(out, after), seeded(carray(place, 4), carray(words, 16)))
            except Exception:
                return 1
            return 0

    signature = numba.types.int32(
        _pointer(element), _pointer(result), _pointer(numba.types.uint64), _pointer(numba.types.uint32)
    )
    return numba.cfunc(signature)(called)


def _compile_decoder(row: RowFunction, metadata: np.dtype[Any]) -> Any:
    function = _cached(row.function)
    shape = row.shape
    result = numba.from_dtype(np.dtype(row.dtype))
    record = numba.from_dtype(metadata) if metadata.itemsize else _byte
    given = record if metadata.itemsize else numba.types.Tuple(())
    payload = numba.types.Array(_byte, 1, "C", readonly=True)
    _specialise(function, (given, payload, numba.types.Array(result, len(shape), "C")))

    if metadata.itemsize:

        def called(metadata, payload, size, out):
            try:
                function(carray(metadata, 1)[0], carray(payload, size), carray(out, shape))
            except Exception:
                return 1
            return 0

    else:

        def called(metadata, payload, size, out):
            try:
                function((), carray(payload, size), carray(out, shape))
            except Exception:
                return 1
            return 0

    signature = numba.types.int32(_pointer(record), _pointer(_byte), numba.types.uint64, _pointer(result))
    return numba.cfunc(signature)(called)


_STALE = (AttributeError, ImportError, EOFError, pickle.UnpicklingError)
"""What reading compiled code raises that another version of this package kept, or a program that is not a file."""


def _specialise(function: Any, types: tuple[Any, ...]) -> None:
    """Compiled for these types and no others: a payload must not become one that can be written to."""
    try:
        function.compile(types)
    except _STALE:
        function._cache.flush()
        function.compile(types)
    function.disable_compile()
    if function.overloads[types].signature.return_type is not numba.types.none:
        raise returns_something(function.py_func)


def _add_helpers(function: Any) -> None:
    """What it calls by name is compiled along with it, and stays callable in Python."""
    for helper in helpers(function):
        if helper not in _helpers and helper is not function:
            _helpers.add(helper)
            _add_helpers(helper)
            register_jitable(helper)


def _cached(function: Any) -> Any:
    """The function, to be compiled; the result is kept on disk where the function lives in a file.

    Its module must be one that can be imported when the result is loaded again. Indices are checked: one past the end
    would write into other samples.
    """
    if function.__module__ not in sys.modules:
        return numba.njit(boundscheck=True)(function)
    try:
        return numba.njit(cache=True, boundscheck=True)(function)
    except RuntimeError:  # typed in, or from a string
        return numba.njit(boundscheck=True)(function)
