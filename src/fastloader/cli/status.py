"""What a command's exit status says, and how an error is put in one line."""

from __future__ import annotations

import errno
from pathlib import Path

from fastloader.errors import FastLoaderError, KeyNotFoundError, StoreError, UnknownTypeError

DAMAGED = 1
NOT_FOUND = 2
INTERRUPTED = 130
OUTPUT_CLOSED = 141
"""The last two are what a shell reports for a program that SIGINT or SIGPIPE ended."""

_SIGNS_OF_DAMAGE = (errno.ENOENT, errno.EIO)


class NoSuchDatasetError(StoreError):
    """The path given by the user does not exist (a shard that is gone is another matter: that is damage)."""


class ImportFailedError(FastLoaderError, ImportError):
    """A module named by ``--import`` can't be imported."""


def existing(path: Path) -> Path:
    """The path, known to exist."""
    if not path.exists():
        raise NoSuchDatasetError("there is no such file or folder", path=path, hint="check the path")
    return path


def status_of(error: FastLoaderError | OSError) -> int:
    """The exit status for an error that ends a command."""
    if isinstance(error, NoSuchDatasetError | ImportError | KeyNotFoundError | UnknownTypeError):
        return NOT_FOUND
    if isinstance(error, OSError):
        return DAMAGED if error.errno in _SIGNS_OF_DAMAGE else NOT_FOUND
    return DAMAGED


def message_of(error: FastLoaderError | OSError) -> str:
    """The error as a sentence, without the number an operating system gives it."""
    if isinstance(error, FastLoaderError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
