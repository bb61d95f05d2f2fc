"""A folder of shards: a small JSON file names them in order. Swapping that file is what makes a change visible."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastloader.errors import ChecksumError, FormatError, NotFoundError
from fastloader.formats.fld.layout import VERSION
from fastloader.kernels import crc32c
from fastloader.stores import ObjectPath, RefusedError, write_atomically

MANIFEST = "manifest.json"
FORMAT = "fastloader manifest"
_OWN = re.compile(r"(data-[0-9a-f]{8}/)?shard-([0-9a-f]{8}-)?\d{5,}\.fld")
"""Names of shards in a store; a conversion puts them in a folder."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard: a path relative to the folder (or absolute), its samples, size and identity."""

    path: str
    num_samples: int
    size: int
    identity: int


@dataclass(frozen=True, slots=True, order=True)
class Removed:
    """Rows of a shard that are no longer part of an archive: of samples, or of nodes where ``is_node``."""

    shard: int
    is_node: bool
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The shards of a dataset at one moment; ``snapshot`` counts its changes.

    ``removed`` are the entries taken out of an archive: in ascending order, none twice.
    """

    shards: tuple[Shard, ...]
    snapshot: int = 1
    removed: tuple[Removed, ...] = ()

    @property
    def num_samples(self) -> int:
        """Samples in all shards."""
        return sum(shard.num_samples for shard in self.shards)

    def with_shards(self, shards: Sequence[Shard], removed: Sequence[Removed] = ()) -> Manifest:
        """The next snapshot: these shards behind the ones there are, and these rows removed besides."""
        together = tuple(sorted((*self.removed, *removed)))
        return replace(self, shards=self.shards + tuple(shards), snapshot=self.snapshot + 1, removed=together)

    def own_shards(self) -> list[str]:
        """The paths of those that a writer made for this very folder: what replaces the dataset may remove them."""
        return [shard.path for shard in self.shards if _OWN.fullmatch(shard.path)]

    def to_bytes(self) -> bytes:
        """The file's content."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "version": list(VERSION),
            "snapshot": self.snapshot,
            "num_samples": self.num_samples,
            "shards": [[s.path, s.num_samples, s.size, s.identity] for s in self.shards],
        }
        if self.removed:
            content["removed"] = [[r.shard, int(r.is_node), r.first, r.count] for r in self.removed]
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
    def from_bytes(cls, data: bytes, path: Path | ObjectPath) -> Manifest:
        """Parse a manifest; whatever is wrong with it is a FormatError."""
        try:
            content = json.loads(data)
            if not isinstance(content, dict) or content.get("format") != FORMAT:
                raise ValueError("this JSON is no manifest")
            major = content["version"][0]
            if major != VERSION[0]:
                raise FormatError(
                    f"has version {content['version']}; this fastloader reads {VERSION[0]}.x",
                    path=path, hint="pip install -U fastloader",
                )  # fmt: skip
            stored = content.pop("crc32c")
            computed = crc32c(_canonical(content))
            if stored != computed:
                raise ChecksumError(
                    "damaged", stored=int(stored), computed=computed, path=path, hint="restore it from a copy"
                )
            shards = tuple(Shard(_path(p), *map(_count, (n, size, id_))) for p, n, size, id_ in content["shards"])
            manifest = cls(shards, _count(content["snapshot"]), _removed(content.get("removed", []), shards))
            if _count(manifest.num_samples) != content["num_samples"]:
                raise ValueError("its shards do not have as many samples as it says")
            return manifest
        except FormatError:
            raise
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise FormatError(f"is damaged ({error})", path=path, hint="restore it from a copy") from error


def _removed(rows: Any, shards: Sequence[Shard]) -> tuple[Removed, ...]:
    """Ranges of rows: within their shards, ascending, apart from each other. How many nodes there are is not known."""
    found = []
    end = (-1, False, 0)
    for shard, node, first, count in rows:
        removed = Removed(_count(shard), bool(_count(node)), _count(first), _count(count))
        past = removed.first + removed.count
        known = removed.shard < len(shards) and (removed.is_node or past <= shards[removed.shard].num_samples)
        if not known or not removed.count or node > 1 or (removed.shard, removed.is_node, removed.first) < end:
            raise ValueError("what it says is removed is not in order, or not there")
        found.append(removed)
        end = (removed.shard, removed.is_node, past)
    return tuple(found)


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
