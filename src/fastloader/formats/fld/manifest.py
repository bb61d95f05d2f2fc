"""A folder of shards: a small JSON file names them in order. Swapping that file is what makes a change visible."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastloader.errors import ChecksumError, FormatError, NotFoundError
from fastloader.formats.fld.layout import NAME_BYTES, VERSION
from fastloader.kernels import crc32c
from fastloader.stores import ObjectPath, RefusedError, write_atomically

MANIFEST = "manifest.json"
FORMAT = "fastloader manifest"
LIVING = (2, 0)
"""The version of manifests that say what columns are called and where they lie: who does not know that must not read
them."""
_OWN = re.compile(r"(data-[0-9a-f]{8}/)?shard-([0-9a-f]{8}-)?\d{5,}\.fld|beside-[0-9a-f]{8}-\d{5,}\.fld")
"""Names of files that writers make; a conversion puts them in a folder of their own."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: a path relative to the folder (or absolute), its samples, size and identity."""

    path: str
    num_samples: int
    size: int
    identity: int


class Removed(NamedTuple):
    """Rows of a shard that are no longer part of the dataset: of samples, or of nodes of an archive."""

    shard: int
    is_node: bool
    first: int
    count: int  # type: ignore[assignment]  # tuples have a method of that name, which nobody needs here


@dataclass(frozen=True, slots=True)
class Beside:
    """A file that holds fields of a shard's rows, in place of the shard's own or besides them.

    It has a row for each of the shard's. ``names`` are the fields it is there for, as stored. With ``rows``, ranges
    (first, count), it holds values of these alone. Where several hold a value, the last one counts.
    """

    shard: int
    path: str
    size: int
    identity: int
    names: tuple[str, ...]
    rows: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """How a snapshot came about: from which one, when (seconds since 1970), by what, and what that did, in words."""

    parent: str
    time: int
    operation: str
    summary: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a dataset at one moment; ``snapshot`` counts its changes.

    ``removed`` are rows taken out: in ascending order, none twice. ``columns`` are its fields, in order, by the name
    they have and the one they are stored under; ``None``: those of the shards, by the names there.
    """

    shards: tuple[Shard, ...]
    snapshot: int = 1
    removed: tuple[Removed, ...] = ()
    columns: tuple[tuple[str, str], ...] | None = None
    beside: tuple[Beside, ...] = ()
    change: Change | None = None

    @property
    def num_samples(self) -> int:
        """Rows of samples in all shards, those removed included."""
        return sum(shard.num_samples for shard in self.shards)

    @property
    def num_left(self) -> int:
        """Samples: the rows that are not removed."""
        return self.num_samples - sum(one.count for one in self.removed if not one.is_node)

    @property
    def id(self) -> str:
        """What tells this snapshot from all others: its number and its checksum."""
        return f"{self.snapshot}-{crc32c(_canonical(self._content())):08x}"

    def next(self, operation: str, summary: str, **changes: Any) -> Manifest:
        """The snapshot behind this one, with these members changed."""
        change = Change(self.id, _now(), operation, summary)
        return replace(self, snapshot=self.snapshot + 1, change=change, **changes)

    def with_shards(self, shards: Sequence[Shard], removed: Sequence[Removed] = ()) -> Manifest:
        """The next snapshot: these shards behind the ones there are, and these rows removed besides."""
        together = tuple(sorted((*self.removed, *removed)))
        told = []
        if shards:
            samples = sum(shard.num_samples for shard in shards)
            told.append(f"{_several(samples, 'sample')} in {_several(len(shards), 'shard')} added")
        if removed:
            told.append(f"{_several(sum(one.count for one in removed), 'row')} removed")
        operation = "append" if shards else "remove"
        return self.next(operation, ", ".join(told), shards=self.shards + tuple(shards), removed=together)

    @property
    def files(self) -> tuple[Shard | Beside, ...]:
        """All files: shards, and those beside them."""
        return self.shards + self.beside

    def own_files(self) -> list[str]:
        """The paths of those that a writer made for this very folder: what replaces the dataset may remove them."""
        return [one.path for one in self.files if is_own(one.path)]

    def _content(self) -> dict[str, Any]:
        living = self.columns is not None or self.beside
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": list(LIVING if living else VERSION),
            "snapshot": self.snapshot,
            "num_samples": self.num_samples,
            "shards": [[s.path, s.num_samples, s.size, s.identity] for s in self.shards],
        }
        if self.removed:
            content["removed"] = [[r.shard, int(r.is_node), r.first, r.count] for r in self.removed]
        if self.columns is not None:
            content["columns"] = [list(one) for one in self.columns]
        if self.beside:
            content["beside"] = [
                [b.shard, b.path, b.size, b.identity, list(b.names), b.rows and [list(rows) for rows in b.rows]]
                for b in self.beside
            ]
        if self.change is not None:
            change = self.change
            content["change"] = [change.parent, change.time, change.operation, change.summary]
        return content

    def to_bytes(self) -> bytes:
        """The file's content."""
        content = self._content()
        content["crc32c"] = crc32c(_canonical(content))
        return json.dumps(content, indent=None, separators=(", ", ": ")).encode() + b"\n"

    def save(self, folder: Path) -> None:
        """Replace the folder's manifest in one step."""
        write_atomically(folder / MANIFEST, self.to_bytes())

    @classmethod
    def load(cls, folder: Path | ObjectPath) -> Manifest:
        """Read and check a folder's manifest."""
        path = folder / MANIFEST
        try:
            data = path.read_bytes() if isinstance(path, Path) else bytes(path.store.read(path.key))
            return cls.from_bytes(data, path)
        except FileNotFoundError:
            raise FormatError(
                f"is a folder without {MANIFEST}", path=folder, hint="it is no dataset, or was never finished"
            ) from None

    @classmethod
    def found(cls, folder: ObjectPath) -> Manifest | None:
        """That of a folder of objects, if it has one: in one request."""
        path = folder / MANIFEST
        try:
            data = bytes(path.store.read(path.key))
        except (NotFoundError, RefusedError):  # who may not list is refused what is not there; the object will tell
            return None
        return cls.from_bytes(data, path).with_some(folder)

    def with_some(self, folder: Path | ObjectPath) -> Manifest:
        """The same, known to name shards."""
        if not self.shards:
            raise FormatError("names no shards", path=folder, hint="write at least one")
        return self

    @classmethod
    def from_bytes(cls, data: bytes, path: Path | ObjectPath) -> Manifest:
        """Parse a manifest; whatever is wrong with it is a FormatError."""
        try:
            content = json.loads(data)
            if not isinstance(content, dict) or content.get("format") != FORMAT:
                raise ValueError("this JSON is no manifest")
            major = content["version"][0]
            if major not in (VERSION[0], LIVING[0]):
                raise FormatError(
                    f"has version {content['version']}; this fastloader reads {VERSION[0]}.x and {LIVING[0]}.x",
                    path=path, hint="pip install -U fastloader",
                )  # fmt: skip
            stored = content.pop("crc32c")
            computed = crc32c(_canonical(content))
            if stored != computed:
                raise ChecksumError(
                    "damaged", stored=int(stored), computed=computed, path=path, hint="restore it from a copy"
                )
            shards = tuple(Shard(_path(p), *map(_count, (n, size, id_))) for p, n, size, id_ in content["shards"])
            told = content if major == LIVING[0] else {}
            columns = _columns(told["columns"]) if "columns" in told else None
            manifest = cls(
                shards, _count(content["snapshot"]), _removed(content.get("removed", []), shards), columns,
                _beside(told.get("beside", []), shards, columns), _change(content.get("change")),
            )  # fmt: skip
            if _count(manifest.num_samples) != content["num_samples"]:
                raise ValueError("its shards do not have as many samples as it says")
            return manifest
        except FormatError:
            raise
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise FormatError(f"is damaged ({error})", path=path, hint="restore it from a copy") from error


def _removed(rows: Any, shards: Sequence[Shard]) -> tuple[Removed, ...]:
    """Ranges of rows: within their shards, ascending, apart from each other. How many nodes there are is not known."""
    if not rows:
        return ()
    # There may be very many: each is looked at by numpy, not by Python.
    numbers = list(chain.from_iterable(rows))
    if set(map(type, numbers)) != {int} or set(map(len, rows)) != {4}:
        raise ValueError("what it says is removed are no ranges")
    shard, node, first, count = np.array(numbers, np.int64).reshape(-1, 4).T
    ends = first + count
    there = (
        (shard >= 0) & (shard < len(shards)) & (node >= 0) & (node <= 1) & (first >= 0) & (count > 0) & (ends > first)
    )
    if there.all():
        samples = np.array([one.num_samples for one in shards], np.int64)
        there = (node == 1) | (ends <= samples[shard])
        of, before = shard * 2 + node, ends[:-1]
        there[1:] &= (of[1:] > of[:-1]) | ((of[1:] == of[:-1]) & (first[1:] >= before))
    if not there.all():
        raise ValueError("what it says is removed is not in order, or not there")
    return tuple(map(Removed, shard.tolist(), (node == 1).tolist(), first.tolist(), count.tolist()))


def _columns(rows: Any) -> tuple[tuple[str, str], ...]:
    """Names of fields: at least one, none twice."""
    columns = tuple((_name(name), _name(stored)) for name, stored in rows)
    if not columns or any(len(set(names)) < len(columns) for names in zip(*columns, strict=True)):
        raise ValueError("its columns are none, or one of them twice")
    return columns


def _beside(rows: Any, shards: Sequence[Shard], columns: tuple[tuple[str, str], ...] | None) -> tuple[Beside, ...]:
    """Files beside shards: of shards that are there, of rows that these have."""
    found = []
    for shard, path, size, identity, names, held in rows:
        one = Beside(
            _count(shard), _path(path), _count(size), _count(identity), tuple(map(_name, names)),
            None if held is None else tuple((_count(first), _count(count)) for first, count in held),
        )  # fmt: skip
        if one.shard >= len(shards) or not one.names or columns is None:
            raise ValueError("a file beside no shard, or for no field")
        end = 0
        for first, count in one.rows or ():
            if first < end or not count:
                raise ValueError("what a file beside a shard holds is not in order")
            end = first + count
        if end > shards[one.shard].num_samples:
            raise ValueError("a file beside a shard holds rows that the shard has not")
        found.append(one)
    return tuple(found)


def _change(told: Any) -> Change | None:
    if told is None:
        return None
    parent, when, operation, summary = told
    for text in (parent, operation, summary):
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is no text")
    return Change(parent, _count(when), operation, summary)


def _name(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value or not 0 < len(value.encode()) <= NAME_BYTES:
        raise ValueError(f"{value!r} is no name of a field")
    return value


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _path(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{value!r} is no path")
    os.fsencode(value)  # a ValueError where no file can have this name
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no count")
    return value


def _several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _now() -> int:
    """The time, or the one that whoever wants the same bytes every time has set."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return int(given) if given.isdecimal() else int(time.time())


def is_own(path: str) -> bool:
    """Whether a file of this name was made by a writer for the folder it is in."""
    return _OWN.fullmatch(path) is not None


def shard_name(number: int) -> str:
    """The file name of a shard the writer makes."""
    return f"shard-{number:05d}.fld"


def is_sharded(path: Path | ObjectPath) -> bool:
    """Whether the path is a folder that holds a manifest."""
    if isinstance(path, Path):
        return os.path.isfile(path / MANIFEST)
    try:
        path.store.stat((path / MANIFEST).key)
    except (NotFoundError, RefusedError):  # who may not list is refused what is not there; the object itself will tell
        return False
    return True
