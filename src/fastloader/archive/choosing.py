"""Some of an archive's entries: those that fit, and one of several that have the same path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from fastloader.archive.patterns import ALL, Choice
from fastloader.errors import FormatError
from fastloader.formats.entries import Entry, EntryKind, EntrySource
from fastloader.formats.extractable import LINKS
from fastloader.types import key_text

Duplicates = Literal["refuse", "first", "last"]

_File = tuple[bytes, int]
"""A path, and the number of the entry that is meant; -1 where there is one of each path."""


@dataclass(frozen=True)
class Chosen:
    """The entries that are chosen. All are listed once beforehand.

    Of several with one path, the first or the last is taken, as ``duplicates`` says; "refuse" gives all of them. Every
    name keeps its content: where the file of a hard link is left out, the first of its names becomes the file.
    """

    source: EntrySource
    choice: Choice = ALL
    duplicates: Duplicates = "refuse"

    @property
    def path(self) -> object:
        """That of the archive."""
        return getattr(self.source, "path", None)

    def entries(self) -> Iterator[Entry]:
        """Those that fit."""
        plan = _Plan(self)
        for number, entry in enumerate(self.source.entries()):
            file = (entry.path, plan.number(number))
            if entry.is_file and file in plan.orphans:
                first, *others = plan.orphans.pop(file)
                yield replace(entry, path=first)
                yield from (replace(entry, path=one, kind=EntryKind.HARDLINK, size=0, target=first) for one in others)
            if entry.kind is EntryKind.HARDLINK:
                name = plan.links.get(number)
                if name is not None:
                    yield replace(entry, target=name)
            elif plan.takes(file):
                yield entry
        for (target, _), names in plan.orphans.items():
            raise FormatError(
                f"{key_text(names[0])!r} is a hard link to {key_text(target)!r}, which is no file in the archive",
                path=self.path, hint="leave it out with --exclude",
            )  # fmt: skip


@dataclass
class _Plan:
    """What is to be done with each entry, known from the list of all."""

    chosen: Chosen
    links: dict[int, bytes] = field(default_factory=dict)
    """Hard links that stay such, by number, and the names of their files."""
    orphans: dict[_File, list[bytes]] = field(default_factory=dict)
    """Files that are left out, and the names of them that are not."""
    _counts: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counted = self.chosen.duplicates != "refuse"
        latest: dict[bytes, _File] = {}
        found: list[tuple[int, bytes, _File]] = []
        for number, entry in enumerate(self.chosen.source.entries()):
            if counted and (self.chosen.duplicates == "last" or entry.path not in self._counts):
                self._counts[entry.path] = number
            if entry.kind is EntryKind.HARDLINK:  # another name of what its file is now, not of what comes later
                latest[entry.path] = latest.get(entry.target, (entry.target, -1))
                found.append((number, entry.path, latest[entry.path]))
            elif counted:
                latest[entry.path] = (entry.path, number)
        for number, path, file in found:
            for _ in range(LINKS):
                if file[1] >= 0 or file[0] not in latest:
                    break
                file = latest[file[0]]
            if not self.takes((path, self.number(number))):
                continue
            if self.takes(file):
                self.links[number] = file[0]
            else:
                self.orphans.setdefault(file, []).append(path)

    def number(self, number: int) -> int:
        """What tells entries of one path apart."""
        return -1 if self.chosen.duplicates == "refuse" else number

    def takes(self, file: _File) -> bool:
        """Whether an entry is chosen. A path that leads out is asked for as it is, without the slash in front."""
        path, number = file
        return path.strip(b"/") in self.chosen.choice and (number < 0 or self._counts[path] == number)
