"""``fastloader tree``, ``du`` and ``find``: what is in an archive, as those programs tell it of folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from fastloader.cli.archives import facts_of, json_option, open_archive, say_path
from fastloader.cli.output import count, printable, say, to_json
from fastloader.cli.places import PLACE
from fastloader.errors import KeyNotFoundError
from fastloader.types import format_size, key_bytes, key_text, parse_size

if TYPE_CHECKING:
    from fastloader.archive import Archive
    from fastloader.archive.tree import Row
    from fastloader.formats.entries import Entry

_KINDS = {"f": "FILE", "d": "DIRECTORY", "l": "SYMLINK", "h": "HARDLINK"}


def _top(archive: Archive, path: str) -> bytes:
    plain = key_bytes(path).strip(b"/")
    if plain in (b"", b"."):
        return b""
    if archive.entry(plain) is None:
        raise KeyNotFoundError(f"no entry {path!r}", path=archive.path)
    return plain


@click.command("tree")
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("path", metavar="[PATH]", default="")
@click.option("-L", "--level", type=click.IntRange(min=1), metavar="N", help="Show N levels of folders.")
@click.option("-d", "--folders", is_flag=True, help="Show folders only.")
@json_option
def tree(archive: str, path: str, level: int | None, folders: bool, as_json: bool) -> None:
    """Show an ARCHIVE, or a folder PATH of it, as a tree."""
    opened = open_archive(archive)
    top = _top(opened, path)
    if as_json:
        say(to_json(_tree_facts(opened, top, level, folders)))
        return
    say(printable(key_text(top)) or ".")
    counts = [0, 0]
    for line in _branches(opened, top, "", level, folders, counts):
        say(line)
    say()
    say(f"{count(counts[0], 'folder')}, {count(counts[1], 'file')}")


def _branches(
    archive: Archive, folder: bytes, indent: str, level: int | None, folders: bool, counts: list[int]
) -> Iterator[str]:
    from fastloader.formats.entries import EntryKind

    waiting: Entry | None = None
    entries = archive.scandir(folder)
    while True:
        entry = next((one for one in entries if not folders or one.kind is EntryKind.DIRECTORY), None)
        if waiting is not None:
            name = printable(waiting.name.rpartition("/")[2])
            arrow = f" -> {printable(key_text(waiting.target))}" if waiting.target else ""
            is_folder = waiting.kind is EntryKind.DIRECTORY
            counts[not is_folder] += 1
            yield f"{indent}{'└── ' if entry is None else '├── '}{name}{'/' if is_folder else ''}{arrow}"
            if is_folder and (level is None or level > 1):
                deeper = indent + ("    " if entry is None else "│   ")
                yield from _branches(archive, waiting.path, deeper, level and level - 1, folders, counts)
        if entry is None:
            return
        waiting = entry


def _tree_facts(archive: Archive, folder: bytes, level: int | None, folders: bool) -> list[dict[str, object]]:
    from fastloader.formats.entries import EntryKind

    found: list[dict[str, object]] = []
    for entry in archive.scandir(folder):
        is_folder = entry.kind is EntryKind.DIRECTORY
        if folders and not is_folder:
            continue
        facts: dict[str, object] = {"name": entry.name.rpartition("/")[2], **facts_of(entry)}
        if is_folder and (level is None or level > 1):
            facts["children"] = _tree_facts(archive, entry.path, level and level - 1, folders)
        found.append(facts)
    return found


@click.command("du")
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("path", metavar="[PATH]", default="")
@click.option(
    "--depth", type=click.IntRange(min=0), default=1, metavar="N", help="Tell of folders N levels deep; 1 by default."
)
@click.option("-b", "--bytes", "exact", is_flag=True, help="Print sizes in bytes.")
@json_option
def du(archive: str, path: str, depth: int, exact: bool, as_json: bool) -> None:
    """Sum up the sizes of files in an ARCHIVE, by folder."""
    opened = open_archive(archive)
    top = _top(opened, path)
    for folder, size, files in _sums(opened, top, depth):
        name = key_text(folder) or "."
        if as_json:
            say(to_json({"path": name, "bytes": size, "files": files}))
        else:
            say(f"{str(size) if exact else format_size(size):>12}  {files:>10,}  {printable(name)}")


def _sums(archive: Archive, top: bytes, depth: int) -> Iterator[tuple[bytes, int, int]]:
    """Folders that are told of, each when it is over, the top one last. Only those on the way down are held."""
    base = top.count(b"/") + 1 if top else 0
    open_: list[list[object]] = [[top, 0, 0]]

    def close() -> tuple[bytes, int, int]:
        folder, size, files = open_.pop()
        if open_:
            open_[-1][1] += size  # type: ignore[operator]
            open_[-1][2] += files  # type: ignore[operator]
        return folder, size, files  # type: ignore[return-value]

    for row in archive.tree.below(top):
        names = row[0].rstrip(b"/").split(b"/")
        if not row[0].endswith(b"/"):
            names.pop()
        wanted = [b"/".join(names[:end]) for end in range(base + 1, min(len(names), base + depth) + 1)]
        held = [one[0] for one in open_[1:]]
        common = next(
            (i for i, (a, b) in enumerate(zip(held, wanted, strict=False)) if a != b), min(len(held), len(wanted))
        )
        while len(open_) > common + 1:
            yield close()
        open_ += [[folder, 0, 0] for folder in wanted[common:]]
        if not row[2]:
            open_[-1][1] += archive.tree.entry(row).size  # type: ignore[operator]
            open_[-1][2] += 1  # type: ignore[operator]
    while open_:
        yield close()


@click.command("find")
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("path", metavar="[PATH]", default="")
@click.option("--name", multiple=True, metavar="PATTERN", help="Names that fit, like '*.jpg'; may be given again.")
@click.option("--path", "paths", multiple=True, metavar="PATTERN", help="Paths that fit, like 'train/**/*.jpg'.")
@click.option("--type", "kind", type=click.Choice(list(_KINDS)), help="Files, folders (d), links (l) or hard links.")
@click.option("--size", metavar="[+-]SIZE", help="More than +SIZE, less than -SIZE, or just SIZE bytes: +10k, -1MB.")
@click.option("-0", "--null", "--print0", is_flag=True, help="End paths with a NUL.")
@json_option
def find(
    archive: str, path: str, name: tuple[str, ...], paths: tuple[str, ...], kind: str | None, size: str | None,
    null: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the paths in an ARCHIVE, or below its folder PATH, that fit all that is asked for.

    A hard link is a file, too, of the size its file has.
    """
    from fastloader.archive.patterns import compiled
    from fastloader.formats.entries import EntryKind

    opened = open_archive(archive)
    try:
        names, whole = ([compiled(one).fullmatch for one in some] for some in (name, paths))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    bounds = _bounds(size)
    wanted = None if kind is None else {EntryKind[_KINDS[kind]]} | ({EntryKind.HARDLINK} if kind == "f" else set())
    for row in _rows(opened, _top(opened, path)):
        text = key_text(row[0].removesuffix(b"/"))
        if names and not any(fits(text.rpartition("/")[2]) for fits in names):
            continue
        if whole and not any(fits(text) for fits in whole):
            continue
        entry = _sized(opened, row) if wanted is not None or bounds is not None or as_json else None
        if entry is not None and wanted is not None and entry.kind not in wanted:
            continue
        has_size = entry is not None and entry.kind in (EntryKind.FILE, EntryKind.HARDLINK)
        if entry is not None and bounds is not None and not (has_size and bounds[0] <= entry.size <= bounds[1]):
            continue
        if as_json and entry is not None:
            say(to_json(facts_of(entry)))
        else:
            say_path(row[0].removesuffix(b"/"), null=null)


def _rows(archive: Archive, top: bytes) -> Iterator[Row]:
    """All below a folder; of what is none, that itself."""
    from fastloader.formats.entries import EntryKind

    for row, kind in archive.tree.rows_of(top) if top else ():
        if kind is not EntryKind.DIRECTORY:
            return iter([(top, row.shard, row.is_node, row.first)])
    return archive.tree.below(top)


def _sized(archive: Archive, row: Row) -> Entry:
    """The entry of a row, a hard link with the size of its file."""
    from fastloader.formats.entries import EntryKind

    entry = archive.tree.entry(row)
    file = archive.tree.linked(entry.target) if entry.kind is EntryKind.HARDLINK else None
    return entry if file is None else replace(entry, size=archive.tree.entry(file).size)


def _bounds(size: str | None) -> tuple[int, int] | None:
    if size is None:
        return None
    try:
        number = parse_size(size.lstrip("+-"), "--size")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if size.startswith("+"):
        return number + 1, 1 << 63
    return (0, number - 1) if size.startswith("-") else (number, number)


commands = (tree, du, find)
