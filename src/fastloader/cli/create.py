"""``fastloader create`` and ``add``: folders into archives."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import choice_of, exclude_option, include_option, json_option, quiet_option
from fastloader.cli.engines import engine_options, is_ray
from fastloader.cli.output import complain, count, printable, say, to_json
from fastloader.cli.places import PLACE, usage_errors
from fastloader.cli.status import NoSuchDatasetError, existing
from fastloader.errors import KeyNotFoundError, StoreError

if TYPE_CHECKING:
    from fastloader.archive import FolderSource
    from fastloader.formats.entries import Entry


_CODEC = re.compile(r"none|(lz4|zstd)(:.*)?")


class _Compressing(click.Command):
    """Takes what follows ``--compress`` for its value only where that is one: OUT.fld may follow, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The option alone is joined to what it means."""
        end = args.index("--") if "--" in args else len(args)
        pairs = zip_longest(args[:end], args[1:end], fillvalue="")
        joined = [
            f"{one}=zstd" if one == "--compress" and not _CODEC.fullmatch(behind) else one for one, behind in pairs
        ]
        return super().parse_args(ctx, [*joined, *args[end:]])


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """What both take."""
    for option in (
        include_option,
        exclude_option,
        click.option(
            "-T", "--files-from", metavar="FILE", type=PLACE,
            help="Take the paths that FILE lists, a line each, relative to DIR; - is standard input.",
        ),
        click.option(
            "-0", "--null", is_flag=True,
            help="Paths end with a NUL, as find -print0 writes them; without -T they come from standard input.",
        ),
        click.option("--compress", metavar="NAME", is_flag=False, flag_value="zstd", default=None,
                     help="Compress what is no JPEG: lz4, zstd (if no NAME is given) or zstd:LEVEL."),
        click.option("-s", "--shard-size", metavar="SIZE", help="Write shards of about this size, like 50G."),
        click.option("-j", "--jobs", type=click.IntRange(min=0), metavar="N",
                     help="Threads that read and index; one a core by default."),
        json_option,
        quiet_option,
    ):  # fmt: skip
        command = option(command)
    return command


@click.command("create", cls=_Compressing)
@click.argument("archive", metavar="OUT.fld", type=PLACE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace OUT.fld if it is there.")
@_shared
@engine_options
def create(
    archive: str, folder: Path, force: bool, engine: str, address: str | None, shard_size: str | None, **options: Any
) -> None:
    """Put all of DIR into the archive OUT.fld.

    Keeps paths, folders (empty ones too), modes, times, symbolic and hard links, and every byte. JPEG files get an
    index beside them, so that the archive can be trained from at once. The order is that of the paths, so the same
    files give the same archive.

    With --engine ray every shard is a task of a Ray cluster, and the archive is the same, byte for byte. DIR must be on
    a disk that its workers share; OUT.fld may be on such a disk, on this machine's own, or in a store.
    """
    from fastloader.stores.urls import local_path

    with usage_errors():
        local = local_path(archive)
    if local is not None and os.path.lexists(local) and not force:
        raise click.UsageError(f"{archive} is there already; --force replaces it, and fastloader add adds to it")
    cluster = (address,) if is_ray(engine, address, shard_size) else None
    _write(archive, folder, append=False, replace=False, shard_size=shard_size, cluster=cluster, **options)


@click.command("add", cls=_Compressing)
@click.argument("archive", metavar="ARCHIVE", type=PLACE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Put files in place of those in the archive that have the same path.")
@_shared
def add(archive: str, folder: Path, replace: bool, **options: Any) -> None:
    """Add all of DIR to an ARCHIVE, as new shards behind those there are.

    A single file becomes a folder of shards. What is replaced stays in the files until fastloader compact.
    """
    _write(archive, folder, append=True, replace=replace, **options)


def _write(
    archive: str, folder: Path, *, append: bool, replace: bool, include: tuple[str, ...], exclude: tuple[str, ...],
    files_from: str | None, null: bool, compress: str | None, shard_size: str | None, jobs: int | None,
    as_json: bool, quiet: bool, cluster: tuple[str | None] | None = None,
) -> None:  # fmt: skip
    from fastloader.archive.folders import FolderSource
    from fastloader.archive.writer import ArchiveWriter
    from fastloader.progress import progress

    if not existing(folder).is_dir():
        raise click.UsageError(f"{folder} is no folder; give the folder that holds the files")
    choice = choice_of(include, exclude)
    names = _below(folder, _names(files_from, null)) if files_from is not None or null else None
    warnings: list[str] = []
    source = FolderSource(
        folder, choice, names, _itself(archive), lambda text: _warn(text, warnings), _aside(archive, folder)
    )
    began = time.monotonic()
    try:
        with progress("adding" if append else "creating", None, show=False if quiet else None) as advance:
            if cluster is not None:
                from fastloader.ray.creating import create_archive

                writer: Any = create_archive(
                    archive, source, shard_size=shard_size or 0, compression=compress, address=cluster[0],
                    at_once=jobs or None, advance=advance,
                )  # fmt: skip
            else:
                with ArchiveWriter(
                    archive, shard_size=shard_size, compression=compress, workers=jobs, append=append, replace=replace
                ) as writer:
                    counted = _Counted(source)
                    writer.add_folder(counted if include else source, advance)
                    if include and not counted.count:
                        raise KeyNotFoundError("nothing fits", path=folder, hint="check the patterns")
    except StoreError as error:
        if error.errno == errno.ENOENT:
            raise NoSuchDatasetError(error.message, path=error.path, hint=error.hint) from error
        raise
    except ValueError as error:
        if type(error) is ValueError:
            raise click.UsageError(str(error)) from error
        raise
    facts = {
        "path": archive, "files": writer.num_files, "bytes": writer.num_bytes, "size": _size(archive),
        "seconds": round(time.monotonic() - began, 3), "left_out": sum(text.endswith("left out") for text in warnings),
        "changed": sum("file changed" in text for text in warnings),
    }  # fmt: skip
    if as_json:
        say(to_json(facts))
    elif not quiet:
        say(_summary(facts))


class _Counted:
    """What a folder lists, counted."""

    def __init__(self, source: FolderSource) -> None:
        self.root, self.warn, self._source, self.count = source.root, source.warn, source, 0

    def found(self) -> Iterator[bytes | Entry]:
        """All of it."""
        for one in self._source.found():
            self.count += 1
            yield one


def _warn(text: str, warnings: list[str]) -> None:
    warnings.append(text)
    complain(text)


def _summary(facts: dict[str, Any]) -> str:
    from fastloader.types import format_size

    size = "" if facts["size"] is None else f" in {format_size(facts['size'])}"
    stored = f"{count(facts['files'], 'file')}, {format_size(facts['bytes'])}{size}"
    return f"{printable(facts['path'])}: {stored}, {facts['seconds']:.1f} s"


def _size(archive: str) -> int | None:
    from fastloader.errors import FastLoaderError
    from fastloader.reader import dataset_at

    try:
        return sum(shard.size for shard in dataset_at(archive).shards)
    except FastLoaderError:
        return None


def _itself(archive: str) -> frozenset[tuple[int, int]]:
    """An archive that lies in the folder is not put into itself."""
    from fastloader.stores.urls import local_path

    local = local_path(archive)
    try:
        status = os.lstat(local or "")
    except OSError:
        return frozenset()
    return frozenset({(status.st_dev, status.st_ino)})


def _aside(archive: str, folder: Path) -> tuple[bytes, ...]:
    """Nor is what it is made of while it is made."""
    from fastloader.stores.urls import local_path

    local = local_path(archive)
    if local is None:
        return ()
    inside = os.path.relpath(os.path.realpath(local), os.path.realpath(folder))
    parent, name = os.path.split(inside)
    return tuple(os.fsencode(os.path.join(parent, f".{name}{kind}.writing-")) for kind in ("", ".append"))


def _below(folder: Path, names: Iterator[bytes]) -> Iterator[bytes]:
    """Names of a list relative to the folder, absolute ones too, which are those of what lies in it."""
    roots = {os.fsencode(root(folder)).rstrip(b"/") + b"/" for root in (os.path.abspath, os.path.realpath)}
    for name in names:
        if name.startswith(b"/") and not name.startswith(os.fsencode(folder).rstrip(b"/") + b"/"):
            root = next((root for root in roots if (name + b"/").startswith(root)), None)
            if root is None:
                raise click.UsageError(f"{os.fsdecode(name)!r} does not lie in {folder}; names are relative to it")
            name = name[len(root) :] or b"."
        yield name


def _names(path: str | None, null: bool) -> Iterator[bytes]:
    """The paths of a list."""
    end = b"\0" if null else b"\n"
    if path is None or path == "-":
        file = sys.stdin.buffer
    else:
        try:
            file = open(path, "rb")  # noqa: SIM115
        except OSError as error:
            raise click.UsageError(f"{path}: {error.strerror}") from error
    rest = b""
    with file:
        while block := file.read(1 << 20):
            *whole, rest = (rest + block).split(end)
            yield from (name for name in whole if name)
    if rest:
        yield rest


commands = (create, add)
