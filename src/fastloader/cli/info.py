"""``fastloader info``: what a dataset is and which fields it has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.output import complain, count, on_terminal, printable, say, say_table, to_json
from fastloader.cli.places import located, not_there, snapshot_option, store_options
from fastloader.cli.status import DAMAGED, message_of
from fastloader.errors import FastLoaderError

if TYPE_CHECKING:
    from fastloader.cli.glance import ColumnView
    from fastloader.formats.fld import Dataset, FldFile

SUMMED_SAMPLES = 1_000_000
"""Up to here summing up the tables is a matter of milliseconds and is done without being asked for."""

_ROWS = 65536


@dataclass(slots=True)
class FieldInfo:
    """One field. ``missing``, ``stored_bytes`` and ``raw_bytes`` are ``None`` where they were not summed up.

    ``notes``: ``dictionary_bytes`` of the largest dictionary of a file; ``tokens`` and ``documents`` of packed text,
    and the ``efficiency``, the share of sequences that is no padding; ``tokens`` of a stream.
    """

    name: str
    type: str
    type_id: int
    registered: bool
    options: str
    compression: str
    has_missing: bool
    missing: int | None
    stored_bytes: int | None
    raw_bytes: int | None
    notes: dict[str, Any]


@dataclass(slots=True)
class DatasetInfo:
    """What ``info --json`` prints. ``padding`` is the share of the data that holds no payload, where nothing in it is
    removed or replaced. ``snapshot`` is that of a folder, and ``removed`` counts rows that are no samples any more.
    """

    path: str
    kind: str
    shards: int
    version: str
    samples: int
    size: int
    data_bytes: int
    padding: float | None
    page_sizes: list[int]
    pages: int
    keys: bool
    checksummed: bool
    compressed: bool
    snapshot: int | None
    removed: int
    fields: list[FieldInfo]


@dataclass(slots=True)
class _Sums:
    """Totals over a field's tables."""

    missing: int = 0
    stored: int = 0
    raw: int = 0
    documents: int = 0
    tokens: int = 0


@click.command("info")
@click.argument("dataset", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--full", is_flag=True, help="Sum up sizes also where there are more than a million samples.")
@snapshot_option
@store_options
def command(dataset: str, as_json: bool, full: bool, snapshot: str | None, **store: Any) -> None:
    """Show what DATASET is and which fields it has."""
    from fastloader.formats.fld import Dataset

    with not_there():
        opened = Dataset(located(dataset, store), snapshot=snapshot)
    sums, trouble = None, None
    if full or opened.num_samples <= SUMMED_SAMPLES:
        try:
            sums = _sum_up(opened)
        except FastLoaderError as error:
            trouble = error  # the rest can still be told
    info = _describe(opened, sums)
    if as_json:
        say(to_json(asdict(info), indent=2))
    else:
        _show(info)
    if trouble is not None:
        complain(message_of(trouble))
        click.get_current_context().exit(DAMAGED)
    elif sums is None:
        complain("sizes of fields were not summed up over so many samples; --full does it")


def _describe(dataset: Dataset, sums: list[_Sums] | None) -> DatasetInfo:
    from fastloader.cli.glance import columns_of
    from fastloader.formats.fld.layout import NO_FIELD, PAGE, Flags, Kind

    shards = range(len(dataset.shards))
    joined = [dataset.file(number) for number in shards]
    files = [file for number in shards for file in dataset.members(number)]
    changed = bool(dataset.removed or dataset.manifest.columns)
    data_bytes = sum(file.data.size for file in files)
    payload_bytes = sum(total.stored for total in sums) if sums is not None else None
    columns = columns_of(dataset)
    return DatasetInfo(
        path=str(dataset.path),
        kind="folder" if dataset.shards[0].path else "file",
        shards=len(shards),
        version="{}.{}".format(*max(file.header.version for file in files)),
        samples=dataset.num_samples,
        size=sum(file.size for file in files),
        data_bytes=data_bytes,
        padding=None if payload_bytes is None or changed else 1 - payload_bytes / data_bytes if data_bytes else 0.0,
        page_sizes=sorted({file.header.page_size for file in files}),
        pages=sum(file.directory[Kind.PAGES, NO_FIELD].size // PAGE.itemsize for file in files),
        keys=dataset.has_keys,
        checksummed=all(file.header.flags & Flags.CHECKSUMMED for file in files),
        compressed=any(file.header.flags & Flags.COMPRESSED for file in files),
        snapshot=dataset.manifest.snapshot if dataset.shards[0].path else None,
        removed=sum(one.count for one in dataset.removed if not one.is_node),
        fields=[
            _describe_field(column, joined, dataset.num_samples, None if sums is None else sums[column.number])
            for column in columns
        ],
    )


def _describe_field(column: ColumnView, files: list[FldFile], samples: int, sums: _Sums | None) -> FieldInfo:
    from fastloader.formats.fld.layout import Kind

    told = column.descriptor
    stored, raw = (None, None) if sums is None else (sums.stored, sums.raw)
    if not told.has_payload:  # the value is the row of the metadata table
        stored = raw = told.metadata_size * samples
    return FieldInfo(
        name=column.name,
        type=_type_name(column),
        type_id=told.type_id,
        registered=column.is_registered,
        options=_options(column),
        compression=_compression(told.codec, told.level),
        has_missing=any((Kind.VALIDITY, column.number) in file.directory for file in files)
        if sums is None
        else sums.missing > 0,
        missing=None if sums is None else sums.missing,
        stored_bytes=stored,
        raw_bytes=raw,
        notes=_notes(column, files, samples, sums),
    )


def _notes(column: ColumnView, files: list[FldFile], samples: int, sums: _Sums | None) -> dict[str, Any]:
    from fastloader.fields import PackedTextField, TokenStreamField
    from fastloader.formats.fld.layout import Kind

    notes: dict[str, Any] = {}
    learned = [file.directory[Kind.DICTIONARY, column.number].size for file in files
               if (Kind.DICTIONARY, column.number) in file.directory]  # fmt: skip
    if learned:
        notes["dictionary_bytes"] = max(learned)
    if isinstance(column.field, TokenStreamField):
        sizes = (file.directory.get((Kind.TOKENS, column.number)) for file in files)
        notes["tokens"] = sum(entry.size for entry in sizes if entry is not None) // column.field.dtype.itemsize
    if isinstance(column.field, PackedTextField) and sums is not None:
        room = column.field.seq_len * (samples - sums.missing)
        notes |= {"documents": sums.documents, "tokens": sums.tokens, "efficiency": sums.tokens / room if room else 1.0}
    return notes


def _type_name(column: ColumnView) -> str:
    from fastloader.fields import field_class
    from fastloader.types import TypeId

    if column.field is None and not column.is_registered:
        fallback = "unregistered"
    else:
        fallback = field_class(column.descriptor.type_id).__name__
    return next((known.name for known in TypeId if known == column.descriptor.type_id), fallback)


def _options(column: ColumnView) -> str:
    """The field as one would write it in Python; the stored options where no class can read them."""
    if column.field is not None:
        return repr(column.field)
    stored = column.descriptor.arguments.decode("utf-8", "backslashreplace")
    return stored if column.trouble is None or not column.is_registered else f"{stored} ({column.trouble.message})"


def _compression(codec: int, level: int) -> str:
    from fastloader.kernels import CODECS

    if codec >= len(CODECS):
        return f"unknown ({codec})"
    return f"{CODECS[codec]}:{level}" if codec else CODECS[codec]


def _sum_up(dataset: Dataset) -> list[_Sums]:
    """Totals of every field, read from the tables a piece at a time."""
    from fastloader import kernels
    from fastloader.formats.fld import explain
    from fastloader.progress import progress
    from fastloader.types import TypeId

    sums = [_Sums() for _ in dataset.descriptors]
    with progress("summing up", dataset.num_samples * len(sums)) as advance:
        runs = dataset.runs
        sizes = (runs.starts[1:] - runs.starts[:-1]).tolist()
        for source, first, size in zip(runs.sources.tolist(), runs.firsts.tolist(), sizes, strict=True):
            file = dataset.file(source)
            for number, total in enumerate(sums):
                try:
                    for begin in range(first, first + size, _ROWS):
                        count = min(_ROWS, first + size - begin)
                        _add_missing(file, number, begin, count, total)
                        _add_extents(file, number, begin, count, total)
                        if file.descriptors[number].type_id == TypeId.TEXT_PACKED:
                            _add_tokens(file, number, begin, count, total)
                        advance(count)
                except kernels.Failure as failure:
                    raise explain(failure, file.path, None, dataset.names[number]) from failure
    return sums


def _add_extents(file: FldFile, number: int, begin: int, count: int, total: _Sums) -> None:
    import numpy as np

    from fastloader.formats.fld.layout import EXTENT, Kind

    table = file.table(Kind.EXTENTS, number)
    if table is not None:
        extents = np.frombuffer(table.row(begin, count), EXTENT)
        total.stored += int(extents["size"].sum())
        total.raw += int(extents["raw_size"].sum())


def _add_tokens(file: FldFile, number: int, begin: int, count: int, total: _Sums) -> None:
    import numpy as np

    from fastloader.formats.fld.layout import Kind

    table = file.table(Kind.METADATA, number)
    if table is not None:
        numbers = np.frombuffer(table.row(begin, count), "<u4").reshape(count, -1)
        total.documents += int(numbers[:, 0].sum(dtype=np.int64))
        total.tokens += int(numbers[:, 1].sum(dtype=np.int64))


def _add_missing(file: FldFile, number: int, begin: int, count: int, total: _Sums) -> None:
    import numpy as np

    from fastloader.formats.fld.layout import Kind

    table = file.table(Kind.VALIDITY, number)
    if table is None:
        return
    first = begin // 8
    packed = np.frombuffer(table.row(first, (begin + count - 1) // 8 - first + 1), np.uint8)
    present = np.unpackbits(packed, bitorder="little")[begin - 8 * first :][:count]
    total.missing += count - int(present.sum())


def _show(info: DatasetInfo) -> None:
    from fastloader.types import format_size

    kind = "a file" if info.kind == "file" else f"a folder of {count(info.shards, 'shard')}"
    padding = "" if info.padding is None else f", {info.padding:.1%} padding"
    page_size = " and ".join(format_size(size) for size in info.page_sizes)
    say(f"{printable(info.path)}: {kind}, format version {info.version}")
    for name, value in (
        ("samples", f"{info.samples:,}" + (f" ({count(info.removed, 'row')} removed)" if info.removed else "")),
        ("size", f"{format_size(info.size)} ({info.size:,} bytes)"),
        ("data", f"{format_size(info.data_bytes)}{padding}"),
        ("pages", f"{info.pages:,} of {page_size}"),
        ("keys", "yes" if info.keys else "no"),
        ("checksummed", "yes" if info.checksummed else "no"),
        ("compressed", "yes" if info.compressed else "no"),
    ):
        say(f"  {name:<12} {value}")
    say()
    _show_fields(info.fields)


def _show_fields(fields: list[FieldInfo]) -> None:
    from fastloader.types import format_size

    rows = []
    for field in fields:
        missing = "some" if field.missing is None else f"{field.missing:,}"
        rows.append((
            field.name,
            field.type,
            str(field.type_id),
            missing if field.has_missing else "no",
            field.compression,
            "-" if field.stored_bytes is None else format_size(field.stored_bytes),
            "-" if field.raw_bytes is None else format_size(field.raw_bytes),
            field.options,
        ))  # fmt: skip
    titles = ("field", "type", "id", "missing", "compression", "stored", "raw", "options")
    widths = [max(len(printable(row[place])) for row in (titles, *rows)) for place in range(len(titles))]
    if on_terminal() and sum(widths) + 2 * len(widths) > get_terminal_size().columns:
        # Options in a narrow last column would be cut into syllables: they get lines of their own.
        say_table(titles[:-1], [row[:-1] for row in rows], right=("id", "stored", "raw"))
        say("")
        say_table(("field", "options"), [(row[0], row[-1]) for row in rows])
    else:
        say_table(titles, rows, right=("id", "stored", "raw"))
    for field in fields:
        if field.notes:
            told = (f"{name} {_said(name, value)}" for name, value in field.notes.items())
            say(f"  {printable(field.name)}: {', '.join(told)}")


def _said(name: str, value: Any) -> str:
    return f"{value:.2%}" if name == "efficiency" else f"{value:,}"
