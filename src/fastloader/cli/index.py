"""``fastloader index``: where the samples of tars lie, found once for all who open them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from fastloader.cli.output import complain, count, printable, say, to_json
from fastloader.cli.places import PLACE
from fastloader.cli.status import DAMAGED, NOT_FOUND, message_of, status_of
from fastloader.errors import FastLoaderError, FormatError, NotFoundError


@click.command("index")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PLACE)
@click.option("--beside", is_flag=True, help="Write FILE.index beside each, which travels with it, also to a bucket.")
@click.option("--utix", is_flag=True, help="Write FILE.utix beside each: rows of msgpack, as other programs read them.")
@click.option("--jsonl", is_flag=True, help="The same as lines of JSON.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Files at once; two a core by default.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a file.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing about what is intact, and no progress.")
def command(
    files: tuple[str, ...], beside: bool, utix: bool, jsonl: bool, jobs: int | None, as_json: bool, quiet: bool
) -> None:
    """Find the members and samples of tars: .tar, .tar.gz, .tar.zst.

    Whoever opens a FILE does so by itself and keeps what it found in $FASTLOADER_CACHE, or fastloader in the user's
    cache folder. This does it beforehand, for many files at a time. A FILE may be a pattern or a URL.
    """
    from fastloader.formats.objects import Places
    from fastloader.progress import progress

    if utix and jsonl:
        raise click.UsageError("--utix and --jsonl write the same file; choose one")
    paths = [
        found
        for one in files
        for found in (
            Places().of(one).match(one) if not os.path.exists(one) and any(m in one for m in "*?[") else [one]
        )
    ]
    if not paths:
        raise click.UsageError(f"no file fits {files[0]}")
    kind = "utix" if utix else "jsonl" if jsonl else None
    workers = jobs or 2 * (os.cpu_count() or 1)
    statuses = [0]
    with (
        ThreadPoolExecutor(min(workers, len(paths)), "fastloader-index") as pool,
        progress("indexing", len(paths), show=False if quiet else None) as advance,
    ):
        for path, future in [(path, pool.submit(_indexed, path, beside, kind)) for path in paths]:
            try:
                samples, members = future.result()
            except (FastLoaderError, OSError) as error:
                statuses.append(NOT_FOUND if isinstance(error, NotFoundError) else status_of(error))
                complain(message_of(error))
            else:
                if as_json:
                    say(to_json({"path": path, "samples": samples, "members": members}))
                elif not quiet:
                    say(f"{printable(path)}: {count(samples, 'sample')} of {count(members, 'member')}")
            advance(1)
    click.get_current_context().exit(DAMAGED if DAMAGED in statuses else max(statuses))


def _indexed(path: str, beside: bool, kind: str | None) -> tuple[int, int]:
    """Index one file; samples and members."""
    from fastloader.formats.members import Names, grouped
    from fastloader.formats.objects import open_object
    from fastloader.formats.recognise import format_of
    from fastloader.formats.tar import BESIDE, index_of_tar, packed_beside
    from fastloader.formats.tar_packed import index_of_packed, ranges_of
    from fastloader.formats.utix import ENDING, packed, rows_of

    source = open_object(path)
    found = format_of(source)
    if found not in ("tar", "tar.gz", "tar.zst"):
        raise FormatError("is no tar", path=path)
    if found != "tar" and (beside or kind):
        raise FormatError("is packed: only the index of a plain tar can lie beside it", path=path)
    index = index_of_tar(source) if found == "tar" else index_of_packed(source, found)
    if index is None:
        raise FormatError(
            "has no frames to go to, and is read from front to back", path=path,
            hint='"fastloader convert" packs it in frames',
        )  # fmt: skip
    if beside:
        _write(path + BESIDE, packed_beside(source, index))
    if kind:
        _write(path + ENDING, packed(rows_of(index), kind == "jsonl", path))
    _, keys = grouped(path, Names(index.names, index.name_ends), ranges_of(index), index.has_data, index.headers)
    return len(keys), len(index)


def _write(path: str, data: bytes) -> None:
    from fastloader.stores import open_store, write_atomically
    from fastloader.stores.urls import is_url

    if is_url(path):
        store, key = open_store(path)
        store.put(key, data)
    else:
        write_atomically(Path(path), data)
