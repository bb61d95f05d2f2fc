"""Files of other formats written aside and renamed when they are whole, for libraries that want a file to write to."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fastloader.errors import FastLoaderError
from fastloader.stores.local import explain, sync_directory

BUFFER = 1 << 20


class Aside:
    """A file under construction. ``file`` is where its bytes go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = path.with_name(f".{path.name}.writing-{os.getpid()}-{secrets.token_hex(4)}")
        try:
            self.file: BinaryIO = open(self.place, "xb", BUFFER)  # noqa: SIM115  (closed when it is published)
        except OSError as error:
            raise explain(error, path) from error

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """What goes wrong while something is written to it names it, and says what to do."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FastLoaderError):  # which says so already, of what was to be written perhaps
                raise
            raise explain(error, self.path) from error

    def close(self) -> None:
        """All was written: bring it to the disk."""
        with self.written():
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()

    def publish(self) -> None:
        """Make it appear under its name."""
        if not self.file.closed:
            self.close()
        with self.written():
            os.replace(self.place, self.path)
            sync_directory(self.path.parent)

    def discard(self) -> None:
        """Leave nothing behind; harmless after ``publish``."""
        with contextlib.suppress(OSError):
            self.file.close()
        self.place.unlink(missing_ok=True)
