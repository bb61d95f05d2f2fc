"""Arguments of a loader, checked by themselves: what is wrong is told when it is given, by the option's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastloader.ops import Views
from fastloader.samplers.checks import whole

MOST_THREADS = 1024
"""More than this are a mistake, and a system may not have them."""


def threads(name: str, value: Any) -> int:
    """A number of threads."""
    number = whole(name, value)
    if number > MOST_THREADS:
        raise ValueError(f"{name}={number}: at most {MOST_THREADS:,} threads")
    return number


def names(option: str, value: Any) -> list[str] | None:
    """Names of fields: one, or several; ``None`` where none are given."""
    if value is None or isinstance(value, str):
        return None if value is None else [value]
    found = list(value) if isinstance(value, Iterable) else [value]
    wrong = next((one for one in found if not isinstance(one, str)), None)
    if wrong is not None or not isinstance(value, Iterable):
        raise TypeError(f"{option}={value!r}: names of fields are needed, not a {type(wrong).__name__}")
    return found


def function(option: str, value: Any) -> Any:
    """Something that can be called."""
    if not callable(value):
        raise TypeError(f"{option}={value!r}: a function is needed, not a {type(value).__name__}")
    return value


def functions(option: str, value: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions by the names of fields."""
    return {name: function(f"{option}[{name!r}]", one) for name, one in by_name(option, value, "functions").items()}


def operations(option: str, value: Any) -> dict[str, Any]:
    """Lists of operations, or ``Views``, by the names of fields."""
    found = by_name(option, value, "lists of operations")
    return {name: ops if isinstance(ops, Views) else several(f"{option}[{name!r}]", ops) for name, ops in found.items()}


def several(option: str, value: Any) -> list[Any]:
    """A list of operations; what they may be, those tell who compile them."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{option}={value!r}: a list of operations is needed, not a {type(value).__name__}")
    return list(value)


def by_name(option: str, value: Any, what: str) -> dict[str, Any]:
    """A dictionary by the names of fields; ``None`` is an empty one."""
    if value is not None and not isinstance(value, Mapping):
        raise TypeError(
            f"{option}={value!r}: a dictionary of {what} by the names of fields is needed, not a {type(value).__name__}"
        )
    found = dict(value or {})
    names(option, list(found))
    return found
