"""Archives that no writer of ours makes: any path, any link."""

from __future__ import annotations

from pathlib import Path

from fastloader.archive import ArchiveWriter
from fastloader.archive.encoding import Files, encode, specs_for
from fastloader.formats.entries import Entry, EntryKind
from fastloader.formats.fld import Node


def forge(path: Path, *entries: Entry) -> Path:
    """An archive of these entries, unchecked."""
    files = Files()
    for entry in entries:
        if entry.is_file:
            files.add(entry.path, entry.read(), entry.mode, entry.mtime)
        else:
            files.nodes.append((len(files.paths), Node.of(entry)))
    with ArchiveWriter(path, workers=0) as writer:
        writer.add_chunk(encode(specs_for(None), files))
    return path


def link(path: bytes, target: bytes) -> Entry:
    """A symbolic link."""
    return Entry(path, EntryKind.SYMLINK, 0o777, 0, 0, target)


def hard(path: bytes, target: bytes) -> Entry:
    """A hard link."""
    return Entry(path, EntryKind.HARDLINK, 0o644, 0, 0, target)
