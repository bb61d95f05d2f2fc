"""What the compiler says of a function that it can't compile, in our words."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any


class Uncompilable(ValueError):
    """A function that can't be compiled, told with the line that is in the way."""


def in_our_words(function: Any, error: Any, cure: str) -> Uncompilable:
    """The error, with the line of the function and the reason."""
    code = function.__code__
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [int(n) for path, n in re.findall(r'File "([^"]+)", line (\d+)', text) if Path(path).name == _stem(code)]
    line = lines[-1] if lines else getattr(getattr(error, "loc", None), "line", None) or code.co_firstlineno
    source = linecache.getline(code.co_filename, line).strip()
    place = f"line {line} of {_stem(code)} can't be compiled: {_reason(text)}"
    return Uncompilable(
        place + (f"\n        {source}\n    " if source else "; ") + "loops, arithmetic, tuples and numpy arrays can be "
        f"compiled; {cure}"
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
