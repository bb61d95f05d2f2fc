"""Functions of the user's that may be compiled: what they must be like, and what is told when they fail."""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from types import FunctionType
from typing import Any

COMPILED_TYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "complex64",
    "complex128",
)  # fmt: skip
"""Numpy's names of the numbers that compiled functions take and make."""

HALVES = ("float16", "bfloat16")
"""Floats that no compiled function takes; those in Python do."""

RETURNED = "returns a value, which nobody takes: change the array that is given, or fill out"


def name_of(function: Any) -> str:
    """Its own name."""
    return getattr(function, "__name__", None) or repr(function)


def check_function(what: str, function: Any, parameters: tuple[str, ...], jit: bool = True) -> None:
    """Raises ``TypeError`` unless it can be called with these alone; to be compiled, it must be a plain function."""
    name, wanted = name_of(function), ", ".join(parameters)
    if not callable(function):
        raise TypeError(f"{what} {name}: a function of {wanted} is needed, not a {type(function).__name__}")
    if jit and not isinstance(function, FunctionType):
        cure = "leave out its decorator" if hasattr(function, "py_func") else f"write one of {wanted} around it"
        raise TypeError(f"{what} {name}: a plain function can be compiled, not a {type(function).__name__}; {cure}")
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise TypeError(f"{what} {name}: a plain function is needed, and this one is async or has a yield in it")
    try:
        signature = inspect.signature(function)
        signature.bind(*parameters)
    except TypeError:
        raise TypeError(f"{what} {name}: called as {name}({wanted}), which it can't be") from None
    if jit and len(signature.parameters) != len(parameters):
        raise TypeError(
            f"{what} {name}: called as {name}({wanted}), and may have no other parameters; "
            "what it needs beside comes from a function around it"
        )


def line_of(error: BaseException) -> str:
    """Where an exception was raised and what it says, in one line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"line {last.lineno} of {Path(last.filename).name}: {type(error).__name__}: {error}"
