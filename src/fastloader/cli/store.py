"""``fastloader store``: objects in stores, and local files, by their URLs and paths."""

from __future__ import annotations

import posixpath
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import complain, count, printable, say, to_json
from fastloader.cli.places import PLACE, settings_of, store_options, usage_errors

if TYPE_CHECKING:
    from fastloader.stores import Stat, Store

JOBS = 16


@click.group("store")
def command() -> None:
    """Look at objects in stores, and copy and remove them.

    A URL is s3://bucket/key, gs://bucket/key, az://container/key, https://host/path or a local path. Credentials come
    from the environment, from AWS profiles, or from options.
    """


_jobs = click.option("-j", "--jobs", type=click.IntRange(1, 256), default=JOBS, help=f"Objects at a time; {JOBS}.")
_recursive = click.option("-r", "--recursive", is_flag=True, help="All objects of a folder.")


def _open(url: str, options: dict[str, Any]) -> tuple[Store, str]:
    from fastloader.stores import LocalStore, is_url, open_store, parse_url

    settings = settings_of(options)  # given once for both ends of a copy, of which one may be local
    with usage_errors():
        if not is_url(url):
            return LocalStore("/"), posixpath.normpath(posixpath.join(_here(), url)).lstrip("/")
        kind = parse_url(url).kind
        if kind == "file":
            return LocalStore("/"), parse_url(url).key.strip("/")
        return open_store(url, None if kind == "memory" else settings)


def _here() -> str:
    import os

    return os.getcwd()


@command.command("ls")
@click.argument("url", type=PLACE)
@_recursive
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@store_options
def list_objects(url: str, recursive: bool, as_json: bool, **options: Any) -> None:
    """List the objects of the folder URL: size, time, name. Folders end with a slash; -r lists what is in them."""
    from fastloader.stores.copying import below

    store, folder = _open(url, options)
    shown: set[str] = set()
    objects = size = 0
    listed = list(below(store, folder))
    if not listed and not _is_empty_place(store, folder):
        listed = [(store.stat(folder), posixpath.basename(folder))]
    for found, name in listed:
        objects, size = objects + 1, size + found.size
        if not recursive and "/" in name:
            name = name.partition("/")[0] + "/"
            if name not in shown:
                shown.add(name)
                say(to_json({"name": name}) if as_json else f"{'':>15}  {'':>19}  {printable(name)}")
        elif as_json:
            say(to_json({"name": name, "size": found.size, "etag": found.etag, "mtime": found.mtime}))
        else:
            say(f"{found.size:>15,}  {_time(found):>19}  {printable(name)}")
    complain(f"{count(objects, 'object')}, {size:,} bytes")


def _is_empty_place(store: Store, folder: str) -> bool:
    """Whether it is a bucket, which could be listed, or a local folder."""
    from fastloader.stores import LocalStore

    return not folder or (isinstance(store, LocalStore) and (store.root / folder).is_dir())


def _time(found: Stat) -> str:
    return "" if found.mtime is None else f"{datetime.fromtimestamp(found.mtime, UTC):%Y-%m-%d %H:%M:%S}"


@command.command("stat")
@click.argument("url", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def stat(url: str, as_json: bool, **options: Any) -> None:
    """Tell the size, the time and the ETag of the object URL."""
    store, key = _open(url, options)
    found = store.stat(key)
    if as_json:
        say(to_json({"key": found.key, "size": found.size, "etag": found.etag, "mtime": found.mtime}))
        return
    say(f"size  {found.size:,} bytes")
    say(f"time  {_time(found)}")
    say(f"etag  {printable(found.etag or 'none')}")


def _copy(source: str, target: str, recursive: bool, jobs: int, options: dict[str, Any]) -> None:
    from fastloader.progress import progress
    from fastloader.stores import LocalStore
    from fastloader.stores.copying import copy_folder, copy_object, to_copy

    (from_, key), (to, to_key) = _open(source, options), _open(target, options)
    if recursive:
        found = to_copy(from_, key)
        with progress(f"copying {len(found)} objects", sum(one.size for one, _ in found)) as advance:
            copied = copy_folder(from_, key, to, to_key, jobs, advance, found)
        complain(f"copied {count(copied, 'object')}, {sum(one.size for one, _ in found):,} bytes")
        return
    one = from_.stat(key)
    into_folder = target.endswith("/") or not to_key or (isinstance(to, LocalStore) and (to.root / to_key).is_dir())
    if into_folder:
        to_key = posixpath.join(to_key, posixpath.basename(key))
    with progress("copying", one.size) as advance:
        copy_object(from_, one, to, to_key, advance)


@command.command("get")
@click.argument("url", type=PLACE)
@click.argument("path", default=".", type=PLACE)
@_recursive
@_jobs
@store_options
def get(url: str, path: str, recursive: bool, jobs: int, **options: Any) -> None:
    """Copy the object URL to the local PATH, by default into the current folder."""
    _copy(url, path, recursive, jobs, options)


@command.command("put")
@click.argument("path", type=PLACE)
@click.argument("url", type=PLACE)
@_recursive
@_jobs
@store_options
def put(path: str, url: str, recursive: bool, jobs: int, **options: Any) -> None:
    """Copy the local file PATH to URL; into the folder, where URL ends with a slash."""
    _copy(path, url, recursive, jobs, options)


@command.command("cp")
@click.argument("source", type=PLACE)
@click.argument("target", type=PLACE)
@_recursive
@_jobs
@store_options
def copy(source: str, target: str, recursive: bool, jobs: int, **options: Any) -> None:
    """Copy an object from SOURCE to TARGET, URLs or local paths."""
    _copy(source, target, recursive, jobs, options)


@command.command("rm")
@click.argument("urls", nargs=-1, required=True, type=PLACE)
@_recursive
@_jobs
@store_options
def remove(urls: tuple[str, ...], recursive: bool, jobs: int, **options: Any) -> None:
    """Remove objects; with -r, all objects of folders."""
    from fastloader.progress import progress
    from fastloader.stores.copying import below

    doomed: list[tuple[Store, str]] = []
    for url in urls:
        store, key = _open(url, options)
        if not key:
            raise click.UsageError(f"{url} names a whole store; name an object or a folder in it")
        found = [one.key for one, _ in below(store, key)] if recursive else []
        doomed += [(store, one) for one in found or [store.stat(key).key]]
    with progress("removing", len(doomed)) as advance, ThreadPoolExecutor(jobs, "fastloader-remove") as pool:
        for _ in pool.map(lambda one: one[0].delete(one[1]), doomed):
            advance(1)
    complain(f"removed {count(len(doomed), 'object')}")
