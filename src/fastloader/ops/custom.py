"""Operations written by the user as Python functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike

from fastloader.functions import COMPILED_TYPES, HALVES, check_function, line_of, name_of
from fastloader.ops.arrays import ArrayOp
from fastloader.ops.base import Op, Pixels, side, whole
from fastloader.ops.labels import Numbers

MAX_LENGTH = 1 << 40
Function = Callable[..., Any]
Shape = tuple[int, ...]
Output = Shape | Callable[..., Shape]


@dataclass(frozen=True)
class CustomOp(Op, ArrayOp):
    """An operation whose work is a Python function; ``custom`` makes one."""

    function: Function
    shape: Output | None = None
    dtype: str | None = None
    jit: bool = True

    @property
    def name(self) -> str:
        """The function's own."""
        return name_of(self.function)

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
        self._check_type(given.dtype)
        if given.height is None or given.width is None:
            raise ValueError("is a function of images of one size: put a crop, or a Resize((height, width)), before it")
        if self.in_place:
            return given
        shape = self._shape(given.shape)
        if len(shape) != 3:
            raise ValueError(f"has an output of three sides, not {shape!r}")
        first, second, third = shape
        height, width, channels = (first, second, third) if given.layout == "HWC" else (second, third, first)
        return replace(given, height=height, width=width, channels=channels, dtype=self.dtype or given.dtype)

    def array_output(self, given: Numbers) -> Numbers:
        """The same, of any number of dimensions."""
        if given.dtype not in HALVES:
            self._check_type(given.dtype)
        return given if self.in_place else Numbers(self._shape(given.shape), self.dtype or given.dtype)

    def _check_type(self, dtype: str) -> None:
        if dtype not in COMPILED_TYPES:
            raise ValueError(f"is a function of {', '.join(COMPILED_TYPES)}, and gets {dtype}")

    def _shape(self, given: tuple[Any, ...]) -> tuple[int, ...]:
        try:
            return tuple(side("output", one) for one in self._sides(given))
        except TypeError as error:
            raise ValueError(str(error)) from None

    def out_shape(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of ``out`` for an array of any shape, which may also have sides of 0."""
        try:
            return tuple(whole("output", one, 0, MAX_LENGTH) for one in self._sides(given))
        except TypeError as error:
            raise ValueError(str(error)) from None

    def _sides(self, given: tuple[Any, ...]) -> Sequence[Any]:
        shape: Any = given if self.shape is None else self.shape
        if callable(shape):
            try:
                shape = shape(*given)
            except Exception as error:
                sides = ", ".join(map(str, given))
                raise ValueError(f"has an output that can't be had for ({sides}): {line_of(error)}") from None
        if not isinstance(shape, tuple | list):
            raise ValueError(f"has an output of sides in a tuple, not {shape!r}")
        return shape


def _by_name(module: str, name: str, jit: bool) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return replace(found, jit=jit) if isinstance(found, CustomOp) else None


@overload
def custom(function: Function) -> CustomOp: ...
@overload
def custom(
    *, output: Output | None = None, dtype: DTypeLike | None = None, jit: bool = True
) -> Callable[[Function], CustomOp]: ...
def custom(
    function: Function | None = None, *, output: Output | None = None, dtype: DTypeLike | None = None, jit: bool = True
) -> CustomOp | Callable[[Function], CustomOp]:
    """Makes an operation of a Python function, for use among others in a pipeline.

    The function is called as ``function(image, random)`` and changes the image in place; or, where ``output`` or
    ``dtype`` is given, as ``function(image, out, random)``, and fills ``out``. The image has the shape and type that
    ``explain()`` shows at its place; ``random`` is a ``fastloader.ops.Random``. What holds for images holds for the
    arrays of fields with a fixed shape. Of any other field it gets the value that a reader gives, and may return
    another in its place: a text of a text, an array of tokens, anything.

    - ``output``: the shape of ``out``, or a function that makes it of the sides given. ``dtype``: its type. Each is
      that of the image unless told. ``out`` is all zeros before.
    - ``jit``: where numba is installed, the function is compiled and runs in the engine's threads without the GIL. With
      ``False``, or without numba, it runs in Python threads behind the engine, with the same result.
    """
    kind = None if dtype is None else np.dtype(dtype)
    if kind is not None and (kind.name not in COMPILED_TYPES or not kind.isnative):
        raise ValueError(f"dtype={dtype!r}: one of {', '.join(COMPILED_TYPES)}")

    def made(function: Function) -> CustomOp:
        if isinstance(function, CustomOp):
            raise TypeError(f"custom operation {function}: is one already")
        op = CustomOp(function, tuple(output) if isinstance(output, list) else output, kind and kind.name, jit)
        check_function(
            "custom operation", function, ("image", "random") if op.in_place else ("image", "out", "random"), jit
        )
        return op

    return made if function is None else made(function)
