"""What stands in the way of compiling a function, in our words and with its line."""

from __future__ import annotations

import dis
import linecache
import random
import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fastloader.functions import RETURNED

CONSTRUCTS = "loops, arithmetic, tuples and numpy arrays can be compiled"

_CALLED = r"Function\(<(?:[\w-]* ?function (?:array_|arr_)?|class ')(\w+)[^>]*>\)"
_REASONS = (
    (r"Cannot modify readonly array", "the payload can only be read"),
    (r"NameError: name '(\w+)' is not defined|global name '(\w+)' is not defined", "{} is not defined"),
    (r"Variable '(\w+)' is not defined", "{} has no value here"),
    (r"freevar\((\w+): |variable '(\w+)' in globals", "{} comes from outside: give it as a tuple or an array"),
    (r"Untyped global name '([^']+)'", "{} is nothing that compiled code can use"),
    (r"Unknown attribute '(\w+)'", "there is no attribute {}"),
    (r"Cannot resolve setattr: .*\)\.(\w+) =", "the attribute {} can't be set"),
    (r"yield in a closure", "a generator can't be used: put a list in [ ] in its place"),
    (r"opcode \(IMPORT_NAME\)", "nothing can be imported here, and of most libraries nothing can be used"),
    (r"opcode \((STORE|DELETE)_GLOBAL\)", "a global name can't be set"),
    (r"opcode \(LOAD_BUILD_CLASS\)", "no class can be made here"),
    (r"format spec in f-strings", "text can't be formatted"),
    (r"Exception object cannot be stored", "an exception can be caught, but has no name: write 'except Exception:'"),
    (r"with \(context manager\)", "'with' can't be used"),
    (r"[Uu]se of unsupported (?:NumPy )?function '?([\w.]+)'?", "{} is not supported"),
    (r"[Cc]annot unify .+? for '(\w+)", "{} is now of one type, now of another"),
    (r"failed to unpack", "this can't be taken apart into several names"),
    (r"cannot index array\(\w+, (\d)d.*?\) with (\d+) indices", "{1} indices for an array of {0} dimensions"),
    (r"function setitem>", "what is to be put there is of another type, or has another number of dimensions"),
    (r"function getitem>", "this has no such items"),
    (rf"{_CALLED}(?s:.*?)unexpected keyword argument '(\w+)'", "{} takes no {}="),
    (rf"{_CALLED} found for signature", "{} does not take these arguments"),
)


class Uncompilable(ValueError):
    """A function that can't be compiled, told with the line that is in the way."""


def in_our_words(function: FunctionType, error: Exception, cure: str) -> Uncompilable:
    """The compiler's error, with the line of the function and the reason."""
    code = function.__code__
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    found = re.findall(r'File "([^"]+)", line (\d+)', text) or re.findall(r"(?:at|from) (\S+) \((\d+)\)", text)
    lines = [int(n) for path, n in found if Path(path).name == _file(code)]
    line = lines[-1] if lines else getattr(getattr(error, "loc", None), "line", None) or code.co_firstlineno
    return _told(code, line, f"can't be compiled: {_reason(text)}", f"{CONSTRUCTS}; {cure}")


def check_names(function: FunctionType, cure: str) -> None:
    """Refuses names set outside, which compiled code would keep to itself."""
    for line, _, now in _instructions(function.__code__):
        if now.opname == "STORE_DEREF" and now.argval in function.__code__.co_freevars:
            why = f"can't be compiled: {now.argval} belongs to the function around it and can't be set"
            raise _told(function.__code__, line, why, f"{CONSTRUCTS}; {cure}")


def check_draws(function: FunctionType) -> None:
    """Refuses numbers that differ from run to run."""
    for line, before, now in _instructions(function.__code__):
        held = function.__globals__.get(now.argval) if now.opname == "LOAD_GLOBAL" else None
        numpys = now.argval == "random" and before is not None and _named(function, before) is np
        if numpys or held in (random, np.random):
            raise _told(
                function.__code__, line, "draws numbers that differ from run to run",
                "the argument random has below(n), uniform(), normal() and bits()",
            )  # fmt: skip


def returns_something(function: FunctionType) -> Uncompilable:
    """A function whose value nobody takes."""
    code, where = function.__code__, function.__code__.co_firstlineno
    for line, before, now in _instructions(code):
        nothing = before is not None and before.opname == "LOAD_CONST" and before.argval is None
        if now.opname == "RETURN_VALUE" and not nothing:
            where = line
    return _told(code, where, RETURNED, "what it returns would be lost")


def helpers(function: FunctionType) -> Iterator[FunctionType]:
    """Plain functions of the user's that it calls by name."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=False)
    held = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    held |= {name: function.__globals__[name] for name in code.co_names if name in function.__globals__}
    for one in held.values():
        if isinstance(one, FunctionType) and one.__module__.partition(".")[0] not in ("numpy", "numba"):
            yield one


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # of a name that has no value yet
        return False
    return True


def _named(function: FunctionType, instruction: dis.Instruction) -> Any:
    if instruction.opname != "LOAD_GLOBAL":
        return None
    found = function.__globals__.get(instruction.argval)
    return found if isinstance(found, ModuleType) else None


def _instructions(code: CodeType) -> Iterator[tuple[int, dis.Instruction | None, dis.Instruction]]:
    """Each instruction with its line and the one before."""
    line, before = code.co_firstlineno, None
    for now in dis.get_instructions(code):
        line = (now.positions.lineno if now.positions else None) or line
        yield line, before, now
        before = now


def _told(code: CodeType, line: int, what: str, cure: str) -> Uncompilable:
    source = linecache.getline(code.co_filename, line).strip()
    return Uncompilable(
        f"line {line} of {_file(code)} {what}" + (f"\n        {source}\n    " if source else "; ") + cure
    )


def _file(code: CodeType) -> str:
    return Path(code.co_filename).name


def _reason(text: str) -> str:
    """The part of the compiler's message that speaks of the code."""
    for pattern, words in _REASONS:
        if match := re.search(pattern, text):
            return words.format(*(group for group in match.groups() if group))
    return "compiled code has no such construct"
