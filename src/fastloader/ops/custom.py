"""Operations written by the user as Python functions."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, overload

from fastloader.ops.base import Op, Pixels, side

Function = Callable[..., None]
Shape = tuple[int, int, int]
Output = Shape | Callable[[int, int, int], Shape]

DTYPES = ("uint8", "float32")


@dataclass(frozen=True)
class CustomOp(Op):
    """An operation whose work is a Python function; ``custom`` makes one."""

    function: Function
    shape: Output | None = None
    dtype: str | None = None
    jit: bool = True

    @property
    def name(self) -> str:
        """The function's own."""
        return getattr(self.function, "__name__", repr(self.function))

    @property
    def in_place(self) -> bool:
        """Whether it changes the image it is given, in place of making one."""
        return self.shape is None and self.dtype is None

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        # By its name, as functions are pickled. Where the decorator was used, that name is the operation's.
        place = self.function.__module__, self.function.__qualname__
        try:
            known = _by_name(*place, self.jit) == self
        except (ImportError, AttributeError):
            known = False
        return (
            (_by_name, (*place, self.jit)) if known else (CustomOp, (self.function, self.shape, self.dtype, self.jit))
        )

    def output(self, given: Pixels) -> Pixels:
        """What was declared, or what is given."""
        if given.dtype not in DTYPES:
            raise ValueError(f"is a function of {' or '.join(DTYPES)} pixels, and gets {given.dtype}")
        if given.height is None or given.width is None:
            raise ValueError("is a function of images of one size: put a crop, or a Resize((height, width)), before it")
        if self.in_place:
            return given
        shape: Any = given.shape if self.shape is None else self.shape
        if callable(shape):
            shape = shape(*given.shape)
        if not isinstance(shape, tuple) or len(shape) != 3:
            raise ValueError(f"has an output of three sides, not {shape!r}")
        first, second, third = (side("output", one) for one in shape)
        height, width, channels = (first, second, third) if given.layout == "HWC" else (second, third, first)
        return replace(given, height=height, width=width, channels=channels, dtype=self.dtype or given.dtype)


def _by_name(module: str, name: str, jit: bool) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return replace(found, jit=jit) if isinstance(found, CustomOp) else None


@overload
def custom(function: Function) -> CustomOp: ...
@overload
def custom(
    *, output: Output | None = None, dtype: str | None = None, jit: bool = True
) -> Callable[[Function], CustomOp]: ...
def custom(
    function: Function | None = None, *, output: Output | None = None, dtype: str | None = None, jit: bool = True
) -> CustomOp | Callable[[Function], CustomOp]:
    """Makes an operation of a Python function, for use among others in a pipeline.

    The function is called as ``function(image, random)`` and changes the image in place; or, where ``output`` or
    ``dtype`` is given, as ``function(image, out, random)``, and fills ``out``. The image has the shape and type that
    ``explain()`` shows at its place, uint8 or float32; ``random`` is a ``fastloader.ops.Random``.

    - ``output``: the shape of ``out``, or a function that makes it of the three sides given. ``dtype``: its type, uint8
      or float32. Each is that of the image unless told.
    - ``jit``: where numba is installed, the function is compiled and runs in the engine's threads without the GIL. With
      ``False``, or without numba, it runs in Python threads behind the engine, with the same result.
    """
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r}: one of {', '.join(DTYPES)}")

    def made(function: Function) -> CustomOp:
        op = CustomOp(function, output, dtype, jit)
        wanted = "(image, random)" if op.in_place else "(image, out, random)"
        try:
            inspect.signature(function).bind(*wanted.split(","))
        except TypeError:
            raise TypeError(f"custom operation {op.name}: called as {op.name}{wanted}, which it can't be") from None
        return op

    return made if function is None else made(function)
