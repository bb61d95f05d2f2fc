"""What can go wrong, as exceptions that carry the facts and name the next step.

Each inherits the builtin a caller would catch anyway, so ``except ValueError`` and ``except OSError`` keep working.
"""

from __future__ import annotations

from typing import Any


class FastLoaderError(Exception):
    """Base of all errors raised here: a message, where it happened, and what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        path: object = None,
        sample: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = None if path is None else str(path)
        self.sample = sample
        self.field = field
        self.hint = hint

    def __str__(self) -> str:
        place = []
        if self.sample is not None:
            place.append(f"sample {self.sample}")
        if self.field is not None:
            place.append(f"field {self.field!r}")
        parts = [part for part in (self.path, ", ".join(place), self.message) if part]
        return ": ".join(parts) + (f"; {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[Any, ...]:
        facts = self.__dict__.copy()
        if isinstance(self, OSError):  # which keeps it elsewhere
            facts["errno"] = self.errno
        return _rebuild, (type(self), facts)


def _rebuild(cls: type[FastLoaderError], facts: dict[str, Any]) -> FastLoaderError:
    error = cls.__new__(cls, facts["message"])
    Exception.__init__(error, facts["message"])
    for name, value in facts.items():
        setattr(error, name, value)
    return error


class FormatError(FastLoaderError, ValueError):
    """The bytes are not what the format says they are."""


class ChecksumError(FormatError):
    """Stored and computed CRC32C differ: the bytes changed after they were written."""

    def __init__(self, message: str, *, stored: int, computed: int, **facts: Any) -> None:
        super().__init__(f"{message}: crc32c stored {stored:#010x}, computed {computed:#010x}", **facts)
        self.stored = stored
        self.computed = computed


class UnknownTypeError(FormatError):
    """A field's type id has no class registered for it."""


class UnreadableError(FormatError):
    """A file does not give bytes that it had when it was opened: it became shorter meanwhile, or the disk failed.

    No policy leaves such a sample out: the next time it might be there, and the batches would be others.
    """


class DecodeError(FormatError):
    """A payload is intact but does not decode (it was stored broken, or by a field with a bug)."""


class ShapeError(FastLoaderError, ValueError):
    """A sample is sound but does not fit into the array its batch is to become: it is too long, say."""


class OperationError(FastLoaderError, ValueError):
    """A custom operation failed on a sample that is sound."""


class SampleError(FastLoaderError, ValueError):
    """A sample can't be written: the value does not fit its field."""


class MissingExtraError(FastLoaderError, ImportError):
    """A package that is not a part of the plain installation is needed, and not there."""

    def __init__(self, message: str, *, extra: str, **facts: Any) -> None:
        super().__init__(message, **({"hint": f'pip install "fastloader[{extra}]" brings it'} | facts))
        self.extra = extra


class StoreError(FastLoaderError, OSError):
    """Reading, writing or publishing files failed."""


class NotFoundError(StoreError, FileNotFoundError):
    """There is no such file or folder."""


class MissingLibraryError(FastLoaderError, ImportError):
    """What was asked for needs a library that is not there."""


class KeyNotFoundError(FastLoaderError, KeyError):
    """No sample has this key."""


class PassError(FastLoaderError, RuntimeError):
    """A loader's pass was ended from outside, and is asked for more."""


class ElementError(FastLoaderError, RuntimeError):
    """A step of a dataset expression failed: which, at which element (counted from 0), and what it raised."""

    def __init__(self, message: str, *, step: str, element: int, **facts: Any) -> None:
        super().__init__(f"{step}, element {element}: {message}", **facts)
        self.step = step
        self.element = element
