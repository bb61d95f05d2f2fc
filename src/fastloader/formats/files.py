"""Each file a sample: its bytes, where it lies, and in a folder of folders its class."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.formats.objects import Fetched, Files, Object
from fastloader.formats.records import Names, Records
from fastloader.types import Sample

AHEAD, AHEAD_BYTES = 64, 64 << 20
"""Objects that are asked for before their turn: so many, and of so many bytes together."""
IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"II*\0", b"MM\0*")


def is_image(head: bytes) -> bool:
    """Whether these are the first bytes of an image that people know."""
    return head.startswith(IMAGES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


class Coming:
    """Objects that were asked for before their turn, by number. A forked child asks anew."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._largest = 0
        self._forget()

    def __reduce__(self) -> tuple[Any, ...]:
        return Coming, (self._files,)

    def _forget(self) -> None:
        self._process = os.getpid()
        self._there: OrderedDict[int, Fetched] = OrderedDict()
        self._taken: Fetched | None = None
        self._taken_since = 0

    def begin(self, numbers: Iterable[int]) -> None:
        """Ask for those that come next, as many as may be in memory."""
        if self._process != os.getpid():
            self._forget()
        if self._taken is not None:
            self._largest = max(self._largest, self._taken.here)
        window, following = self.window, iter(numbers)
        first = next(following, None)
        # Some at a time: whoever waits for answers is woken by the first of them, and each waking costs.
        if first is None or (first in self._there and self._taken_since < window // 4):
            return
        self._taken_since = 0
        for number in islice(chain((first,), following), window):
            if number not in self._there:
                found = self._files.begin(number)
                if found is None:
                    return
                self._there[number] = found
        while len(self._there) > 2 * AHEAD:  # asked for, and then somebody went elsewhere
            with contextlib.suppress(KeyError):
                self._there.popitem(last=False)

    @property
    def window(self) -> int:
        """How many, from the largest that came: many that are small, few that are large."""
        return max(2, min(AHEAD, AHEAD_BYTES // max(1, self._largest)))

    def take(self, number: int) -> Fetched | None:
        """One that was asked for."""
        if self._process != os.getpid():
            return None
        self._taken = self._there.pop(number, None)
        self._taken_since += 1
        return self._taken


class EachFile(Records):
    """Formats in which a file is a sample. Opening looks into none but the first.

    Of objects in a store, those whose turn comes next are asked for while the one before is waited for.
    """

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self._coming = Coming(files)
        self._later: tuple[int, ...] = ()

    @property
    def starts(self) -> NDArray[np.int64]:
        """One sample a file."""
        if self._starts is None:
            self._starts = np.arange(len(self.paths) + 1)
        return self._starts

    def __len__(self) -> int:
        return len(self.paths)

    def origins(self) -> list[str]:
        """As they are now: none is open."""
        return self.files.places.origins(self.paths)

    def begin(self, number: int) -> Object:
        """The object."""
        return self.files.fetch(number)

    def file(self, number: int) -> Object:
        """The same: nothing is kept of so many."""
        return self._coming.take(number) or self.begin(number)

    def shared_bytes(self) -> list[int]:
        """None: each is read once in a pass, whole."""
        return []

    def expect(self, rows: Sequence[int]) -> None:
        """These are read after the ones that are read next."""
        self._later = tuple(rows)

    def reads_bytes(self, names: Names) -> bool:
        """Whether these fields take more than a file's name."""
        return True

    def read(self, rows: Sequence[int], names: Names = None) -> list[Sample]:
        """Samples by number, in the order asked for."""
        later, self._later = self._later, ()
        if not self.reads_bytes(names) or not self.files.ahead:
            return super().read(rows, names)
        found: list[Sample] = []
        for at, row in enumerate(rows):
            self._coming.begin(chain(islice(rows, at, None), later))
            found += self._of_file(int(row), [0], names)
        return found

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

    def origins(self) -> list[str]:
        """With what they are called, which is a value too."""
        names = map(self.relative, range(len(self.paths)))
        return [f"{name}\0{one}" for name, one in zip(names, super().origins(), strict=True)]

    def reads_bytes(self, names: Names) -> bool:
        """Whether a file's bytes are among these fields."""
        return any(name not in ("path", "label") for name in names or self.names)

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
