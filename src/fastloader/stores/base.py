"""What a store is: objects under keys, read by ranges of bytes, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastloader.errors import StoreError
from fastloader.publishing import Published
from fastloader.types import Buffer


class ChangedError(StoreError):
    """An object is not, or no longer, the one that was asked for: it was replaced, or is there already."""


class RefusedError(StoreError, PermissionError):
    """The store does not let us in. Some say so of objects that are not there, to who may not list them."""


class NoConditionsError(StoreError, NotImplementedError):
    """The store can't write on a condition."""


@dataclass(frozen=True, slots=True)
class Stat:
    """An object: its key, its bytes, what its content is known by, and when it was written (seconds since 1970)."""

    key: str
    size: int
    etag: str | None = None
    mtime: float | None = None

    @property
    def version(self) -> str:
        """By what a change is noticed: the ETag or, where the server has none, the time and the size."""
        return self.etag or f"{self.mtime}-{self.size}"


class Upload(Protocol):
    """An object being written front to back. It appears when finished; aborted or forgotten it never does."""

    def write(self, data: Buffer) -> None:
        """Add bytes."""

    def finish(self) -> Stat:
        """Publish the object."""

    def abort(self) -> None:
        """Leave nothing behind; harmless after ``finish``."""


Done = Callable[[Any, BaseException | None], None]
"""Called once with the bytes, or with what went wrong; from any thread."""


class Store(Protocol):
    """Objects under keys, such as ``photos/cat.jpg``. Safe from many threads and after fork; picklable."""

    url: str
    """What keys are appended to."""

    def stat(self, key: str) -> Stat:
        """The object's size and version; a ``NotFoundError`` where there is none."""

    def read(self, key: str, begin: int = 0, size: int | None = None, *, version: str | None = None) -> memoryview:
        """All of ``size`` bytes from ``begin`` on (to the end where it is ``None``), or an error.

        With ``version``, a ``ChangedError`` where the object is another one by now.
        """

    def read_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[memoryview]:
        """Several ranges, each ``(begin, size)``, asked for at the same time."""

    def begin_read(self, key: str, begin: int, size: int, version: str | None, done: Done) -> None:
        """Ask for a range and go on; ``done`` is told."""

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """All objects whose keys begin with these folders, in the order of their keys."""

    def put(self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None) -> Stat:
        """Write an object in one step. A ``ChangedError`` where one is there already (``if_absent``), or where the
        version there is not ``if_match``.
        """

    def upload(self, key: str) -> Upload:
        """Write an object of any size, front to back."""

    def delete(self, key: str) -> None:
        """Remove the object; no error where there is none."""


class UploadBlock(Published):
    """``with`` for uploads: finished at the end, aborted by an exception."""

    def close(self) -> None:
        """Publish the object."""
        self.finish()

    def finish(self) -> Stat:
        """Publish the object."""
        raise NotImplementedError


def full_url(url: str, key: str) -> str:
    """The URL of an object."""
    return f"{url.rstrip('/')}/{key}" if key else url
