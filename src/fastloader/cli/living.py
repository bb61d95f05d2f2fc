"""``fastloader columns``, ``delete``, ``update``, ``log`` and ``gc``: datasets that change, and their snapshots."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import json_option, quiet_option
from fastloader.cli.output import count, printable, say, say_table, to_json
from fastloader.cli.places import PLACE, Given, located, not_there, settings_of, store_options, usage_errors
from fastloader.errors import SampleError
from fastloader.types import format_size

if TYPE_CHECKING:
    from fastloader.editing import DatasetEditor, Snapshot

TYPES = ("int", "float", "text", "json", "bytes", "ndarray")
_COMPARISON = re.compile(r"\s*(\S+)\s*(==|!=|<=|>=|<|>|\bnot in\b|\bin\b)\s*(.+)", re.DOTALL)

where_option = click.option(
    "-w", "--where", multiple=True, metavar="'FIELD OP VALUE'",
    help="Those for which it holds, like 'label == 3'; OP is == != < <= > >= in or not in, VALUE is JSON or text. May "
    "be given again: all must hold.",
)  # fmt: skip


def _editor(dataset: str, given: Given) -> DatasetEditor:
    from fastloader.editing import edit
    from fastloader.stores.urls import local_path

    located(dataset, given)
    with not_there():
        return edit(local_path(dataset) or dataset, settings_of(given))


def _tell(dataset: str, snapshot: Snapshot, as_json: bool, quiet: bool) -> None:
    if as_json:
        say(to_json(_facts(snapshot)))
    elif not quiet:
        say(f"{printable(dataset)}: snapshot {snapshot.number}: {printable(snapshot.summary or 'nothing was changed')}")


def _facts(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "snapshot": snapshot.number, "id": snapshot.id, "samples": snapshot.num_samples, "time": snapshot.time,
        "operation": snapshot.operation, "summary": snapshot.summary,
    }  # fmt: skip


def _value(text: str) -> Any:
    """JSON, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _where(given: tuple[str, ...]) -> list[tuple[str, str, Any]] | None:
    found = []
    for one in given:
        match = _COMPARISON.fullmatch(one)
        if match is None:
            raise click.UsageError(f"--where {one!r}: give FIELD OP VALUE, like 'label == 3'")
        found.append((match[1], match[2], _value(match[3].strip())))
    return found or None


@click.group("columns")
def columns() -> None:
    """Add, rename and drop columns of a DATASET; its shards stay as they are."""


@columns.command("add")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@click.argument("name", metavar="NAME")
@click.argument("values", metavar="VALUES", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-t", "--type", "kind", type=click.Choice(TYPES), required=True, help="What the values are.")
@click.option("--compression", metavar="NAME", help="lz4, zstd or zstd:LEVEL.")
@json_option
@quiet_option
@store_options
def add(
    dataset: str, name: str, values: Path, kind: str, compression: str | None, as_json: bool, quiet: bool, **given: Any
) -> None:
    """Give every sample of a DATASET another value, called NAME.

    VALUES is a file: .npy, an array with a row for each sample; .jsonl, a JSON value a line; .json, a list of values,
    or an object of them by key, where a key that is not there has none. null is a missing value; bytes are texts.
    """
    editor = _editor(dataset, given)
    with _wrong_usage(), usage_errors():
        content = _read(values)
        made = editor.add_column(name, _field(kind, content), _converted(content, kind), compression=compression)
    _tell(dataset, made, as_json, quiet)


def _read(path: Path) -> Any:
    if path.suffix == ".npy":
        import numpy as np

        return np.load(path, mmap_mode="r", allow_pickle=False)
    if path.suffix == ".jsonl":
        return [_parsed(line, path) for line in path.read_bytes().splitlines()]
    if path.suffix == ".json":
        return _parsed(path.read_bytes(), path)
    raise click.UsageError(f"{path}: give a .npy, .jsonl or .json file")


def _parsed(text: bytes, path: Path) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{path}: is no JSON: {error}") from error


def _field(kind: str, content: Any) -> Any:
    import fastloader as fl

    if kind == "ndarray":
        if not hasattr(content, "dtype"):
            raise click.UsageError("--type ndarray: the values are a .npy file")
        return fl.NDArrayField(content.dtype, content.shape[1:])
    kinds: dict[str, Any] = {"int": fl.IntField, "float": fl.FloatField, "text": fl.TextField, "json": fl.JSONField}
    return kinds.get(kind, fl.BytesField)()


def _converted(content: Any, kind: str) -> Any:
    if kind == "bytes":
        if isinstance(content, dict):
            return {key: _as_bytes(value) for key, value in content.items()}
        return map(_as_bytes, content)
    if isinstance(content, list | dict) or kind == "ndarray":
        return content
    return content.tolist() if hasattr(content, "tolist") else [content]


def _as_bytes(value: Any) -> bytes | None:
    if value is not None and not isinstance(value, str):
        raise click.UsageError(f"{value!r}: bytes are given as text")
    return None if value is None else value.encode("utf-8", "surrogateescape")


@columns.command("rename")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@click.argument("old", metavar="NAME")
@click.argument("new", metavar="NEW")
@json_option
@quiet_option
@store_options
def rename(dataset: str, old: str, new: str, as_json: bool, quiet: bool, **given: Any) -> None:
    """Call the column NAME of a DATASET by another one."""
    editor = _editor(dataset, given)
    with usage_errors():
        _tell(dataset, editor.rename_column(old, new), as_json, quiet)


@columns.command("drop")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
@quiet_option
@store_options
def drop(dataset: str, names: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> None:
    """Take columns out of a DATASET. Their bytes stay in its files until fastloader compact."""
    editor = _editor(dataset, given)
    with usage_errors():
        for name in names:
            _tell(dataset, editor.drop_column(name), as_json, quiet)


@click.command("delete")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("-i", "--index", "indices", type=int, multiple=True, metavar="N", help="The sample with this number.")
@where_option
@click.option("-n", "--dry-run", is_flag=True, help="List the numbers of those that would be deleted.")
@json_option
@quiet_option
@store_options
def delete(
    dataset: str, keys: tuple[str, ...], indices: tuple[int, ...], where: tuple[str, ...], dry_run: bool, as_json: bool,
    quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Take samples out of a DATASET: by KEY, by number, or by their values.

    The bytes stay in its files until fastloader compact, and earlier snapshots stay readable.
    """
    if not (keys or indices or where):
        raise click.UsageError("say which samples: a KEY, --index or --where")
    editor = _editor(dataset, given)
    chosen: dict[str, Any] = {"keys": keys or None, "indices": indices or None, "where": _where(where)}
    with _wrong_usage(), usage_errors():
        if dry_run:
            from fastloader.cli.places import open_reader
            from fastloader.editing.choosing import Choice

            for sample in Choice(**chosen).samples(open_reader(dataset, given)).tolist():
                say(str(sample))
            return
        _tell(dataset, editor.delete(**chosen), as_json, quiet)


@contextlib.contextmanager
def _wrong_usage() -> Iterator[None]:
    """Samples that are not there, and values that can't be stored or compared, are wrong usage."""
    try:
        yield
    except (IndexError, TypeError, SampleError) as error:
        if type(error) not in (IndexError, TypeError, SampleError):
            raise
        raise click.UsageError(str(error)) from error


@click.command("update")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@click.argument(
    "values", metavar="[VALUES]", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@where_option
@click.option("-s", "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="With --where: a new value, as JSON.")
@json_option
@quiet_option
@store_options
def update(
    dataset: str, values: Path | None, where: tuple[str, ...], sets: tuple[str, ...], as_json: bool, quiet: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Give samples of a DATASET new values. They keep their numbers and keys.

    VALUES is a .json file with an object of objects, {"key": {"label": 3}}, or a .jsonl file of objects that have
    "key", or "index" for the sample's number, beside new values. Or --where says which samples, --set what they get.
    """
    editor = _editor(dataset, given)
    with _wrong_usage(), usage_errors():
        if values is not None:
            if where or sets:
                raise click.UsageError("give either VALUES, or --where and --set")
            made = editor.update(dict(_changes(_read(values), values)))
        else:
            if not (where and sets):
                raise click.UsageError("say what to update: VALUES, or --where and --set")
            made = editor.update(where=_where(where), values=dict(_assignment(one) for one in sets))
    _tell(dataset, made, as_json, quiet)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.UsageError(f"--set {text}: give FIELD=VALUE")
    return name, _value(value)


def _changes(content: Any, path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    rows = content.items() if isinstance(content, dict) else ((None, row) for row in content)
    for key, row in rows:
        if not isinstance(row, dict):
            raise click.UsageError(f"{path}: {row!r} is no object of new values")
        rest = dict(row)
        if key is None:
            key = rest.pop("key", None)
            key = rest.pop("index", None) if key is None else key
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise click.UsageError(f"{path}: {row!r} names no sample; give its key, or its index")
        yield key, rest


@click.command("log")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@json_option
@store_options
def log(dataset: str, as_json: bool, **given: Any) -> None:
    """List the snapshots of a DATASET, the newest first; fastloader.open(..., snapshot=N) opens one."""
    from fastloader.cli.archives import is_archive
    from fastloader.editing.log import snapshots_of
    from fastloader.formats.fld import Dataset

    where = located(dataset, given)
    with not_there():
        found = snapshots_of(Dataset(where))
    if as_json:
        say(to_json([_facts(snapshot) for snapshot in found], indent=2))
        return
    noun = "files" if is_archive(dataset, settings_of(given)) else "samples"
    rows = [
        (str(one.number), one.id, _when(one.time), f"{one.num_samples:,}", one.operation or "", one.summary or "")
        for one in found
    ]
    say_table(("snapshot", "id", "time", noun, "operation", "what it did"), rows, right=("snapshot", noun))


def _when(seconds: int | None) -> str:
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(seconds, 2**37)))


@click.command("gc")
@click.argument("dataset", metavar="DATASET", type=PLACE)
@click.option("-k", "--keep", type=click.IntRange(1), default=1, metavar="N", help="Snapshots to keep, the newest; 1.")
@click.option(
    "--unnamed",
    "days",
    type=click.FloatRange(0),
    metavar="DAYS",
    help="In a bucket, also remove what killed writers left, if it is so old: longer than any writer takes.",
)
@json_option
@quiet_option
@store_options
def gc(dataset: str, keep: int, days: float | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Forget old snapshots of a DATASET, and remove files that no other one needs.

    Whoever still reads a snapshot that is forgotten gets an error for files they have not opened yet.
    """
    from fastloader.editing.log import drop_snapshots_of
    from fastloader.formats.fld import Dataset

    where = located(dataset, given)
    with not_there():
        opened = Dataset(where)
    dropped, freed = drop_snapshots_of(opened, keep, days)
    if as_json:
        say(to_json({"path": dataset, "dropped": dropped, "bytes": freed}))
    elif not quiet:
        say(f"{printable(dataset)}: {count(len(dropped), 'snapshot')} forgotten, {format_size(freed)} given back")


commands = (columns, delete, update, log, gc)
