"""Tensors over memory that must not be written to. The one place that imports torch; only ``to_torch`` imports this.

Torch writes wherever it is told to, and a write into a file mapped for reading ends the process. So a tensor over a
shard is of a class that looks at each operation before it runs, and refuses those that write to it.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import numpy as np

torch: Any = importlib.import_module("torch")


class ReadOnlyTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor that can't be written to, nor can any view of it. Results and copies are ordinary tensors."""

    # The same memory as a tensor without this class: what operations really work on.
    _plain: Any

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():  # or every result would be of this class too
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called for every operation, with its schema: the arguments it writes to are marked there."""
        kwargs = kwargs or {}
        if func._schema.is_mutable:
            _refuse_writes(func._schema, args, kwargs)
        memory: set[int] = set()
        result = func(
            *(_plain(arg, memory) for arg in args), **{name: _plain(arg, memory) for name, arg in kwargs.items()}
        )
        return _guarded(result, memory)

    def tolist(self) -> Any:
        """The values as Python numbers."""
        return self._plain.tolist()

    def numpy(self, *, force: bool = False) -> NoReturn:
        """Refused: numpy would take the memory for writable."""
        raise TypeError("this tensor is a read-only view of a shard; use to_numpy for an array, or clone() it first")

    def __dlpack__(self, *_: Any, **__: Any) -> NoReturn:
        raise BufferError("this tensor is a read-only view of a shard; clone() it before another library takes it")

    def __repr__(self, **_: Any) -> str:
        return repr(self._plain)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain.clone().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        return self._plain.clone()


def dtype_of(dtype: Any) -> Any:
    """Torch's dtype, out of that or numpy's."""
    if isinstance(dtype, torch.dtype):
        return dtype
    return torch.from_numpy(np.empty(0, dtype)).dtype  # a TypeError where torch has none like it


class _Memory:
    """Bytes as an array that says it can be written to: torch warns where one says it can't."""

    def __init__(self, data: memoryview) -> None:
        self.owner = data
        self.__array_interface__ = np.frombuffer(data, np.uint8).__array_interface__
        self.__array_interface__["data"] = (self.__array_interface__["data"][0], False)


def over(data: memoryview, dtype: Any) -> Any:
    """A flat, unguarded tensor over the bytes."""
    if not data.nbytes:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(np.asarray(_Memory(data)), dtype=dtype)


def guard(plain: Any) -> Any:
    """The same tensor, read-only."""
    guarded = plain.as_subclass(ReadOnlyTensor)
    guarded._plain = plain
    return guarded


def _refuse_writes(schema: Any, args: Any, kwargs: Any) -> None:
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[position] if position < len(args) else kwargs.get(argument.name)
        if any(isinstance(one, ReadOnlyTensor) for one in (given if isinstance(given, list | tuple) else [given])):
            name = schema.name.rpartition("::")[2]
            # No TypeError: torch would take it for "try another way", and "+=" would make a new tensor.
            raise ValueError(f"{name} would write to a tensor that is a read-only view of a shard; clone() it first")


def _plain(value: Any, memory: set[int]) -> Any:
    """The argument without this class in it; ``memory`` learns what must be guarded."""
    if isinstance(value, ReadOnlyTensor):
        memory.add(value._plain.untyped_storage().data_ptr())
        return value._plain
    if type(value) in (list, tuple):
        return type(value)(_plain(one, memory) for one in value)
    return value


def _guarded(result: Any, memory: set[int]) -> Any:
    """The result, with the class put on whatever looks into guarded memory."""
    if type(result) is torch.Tensor:
        inside = result.device.type == "cpu" and result.untyped_storage().data_ptr() in memory
        return guard(result) if inside else result
    if type(result) in (list, tuple):
        return type(result)(_guarded(one, memory) for one in result)
    return result
