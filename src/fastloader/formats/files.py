"""Each file a sample: its bytes, where it lies, and in a folder of folders its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.formats.objects import Files, Object
from fastloader.formats.records import Names, Records
from fastloader.types import Sample

IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"II*\0", b"MM\0*")


def is_image(head: bytes) -> bool:
    """Whether these are the first bytes of an image that people know."""
    return head.startswith(IMAGES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


class EachFile(Records):
    """Formats in which a file is a sample. Opening looks into none but the first."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """One sample a file."""
        return np.arange(len(self.paths) + 1)

    def __len__(self) -> int:
        return len(self.paths)

    def begin(self, number: int) -> Object:
        """The object."""
        return self.files.fetch(number)

    def file(self, number: int) -> Object:
        """The same: nothing is kept of so many."""
        return self.begin(number)

    def count(self, file: Any) -> int:
        """One."""
        return 1


class RawFiles(EachFile):
    """``data``, the bytes of the file, and ``path``, relative to the folder that was opened."""

    format = "raw"

    def __init__(self, files: Files, root: str) -> None:
        super().__init__(files)
        self.root = root

    @property
    def names(self) -> tuple[str, ...]:
        """The two."""
        return "data", "path"

    def samples(self, number: int, file: Object, rows: Sequence[int], names: Names) -> list[Sample]:
        """The one sample; the file is read only if its bytes are wanted."""
        return [{name: self.value(name, number, file) for name in names or self.names}] * len(rows)

    def value(self, name: str, number: int, file: Object) -> Any:
        """One field."""
        return self.relative(number) if name == "path" else file.read(0, file.size)

    def relative(self, number: int) -> str:
        """The path within the folder."""
        return relative(self.paths[number], self.root)


class ClassFolders(RawFiles):
    """The same with ``label``, a number of the classes that the folders in the folder stand for, sorted by name.

    The bytes are called ``image`` where the first file is one.
    """

    format = "folder"

    def __init__(self, files: Files, root: str) -> None:
        super().__init__(files, root)
        self._class_of = [self.relative(number).split("/", 1)[0] for number in range(len(self.paths))]
        self.classes = tuple(sorted(set(self._class_of)))
        self._numbers = {name: number for number, name in enumerate(self.classes)}
        first = files[0]
        self._data = "image" if is_image(first.read(0, min(16, first.size))) else "data"

    @property
    def names(self) -> tuple[str, ...]:
        """The three."""
        return self._data, "label", "path"

    def value(self, name: str, number: int, file: Object) -> Any:
        """One field."""
        if name == "label":
            return self._numbers[self._class_of[number]]
        if name == "image" and not file.size:
            raise FormatError("is empty, where an image is expected", path=file.path)
        return super().value(name, number, file)


def has_classes(paths: Sequence[str], root: str) -> bool:
    """Whether every file lies in a folder within the folder."""
    return bool(root) and all("/" in relative(path, root) for path in paths)


def relative(path: str, root: str) -> str:
    """A path as it is told within a folder that it lies in; of millions, so without asking what ``..`` may mean."""
    return path.removeprefix(root.rstrip("/") + "/") if root else path
