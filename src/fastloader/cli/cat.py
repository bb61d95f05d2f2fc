"""``fastloader cat``: one sample for people to read, or one value exactly as it is stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from fastloader.cli.archives import is_archive, open_archive
from fastloader.cli.output import complain, on_terminal, printable, readable, say, to_json, write_bytes
from fastloader.cli.places import open_reader, settings_of, snapshot_option, store_options
from fastloader.cli.status import message_of, status_of
from fastloader.errors import FormatError, KeyNotFoundError

if TYPE_CHECKING:
    from fastloader.cli.glance import ColumnView
    from fastloader.fields import TokenStreamField
    from fastloader.reader import DatasetReader

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class _CatCommand(click.Command):
    """Takes ``-1`` for the last sample, not for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """All options may go first and everything else behind a ``--``; those that take a value are joined to it."""
        end = args.index("--") if "--" in args else len(args)
        valued = {name for one in self.params if isinstance(one, click.Option) and not one.is_flag for name in one.opts}
        joined: list[str] = []
        rest = iter(args[:end])
        for arg in rest:
            value = next(rest, None) if arg in valued else None
            joined.append(arg if value is None else f"{arg}={value}" if arg.startswith("--") else f"{arg}{value}")
        args, end = [*joined, *args[end:]], len(joined)
        options = [arg for arg in args[:end] if arg.startswith("-") and not _NUMBER.fullmatch(arg)]
        others = [arg for arg in args[:end] if arg not in options]
        return super().parse_args(ctx, [*options, "--", *others, *args[end + 1 :]])


@click.command("cat", cls=_CatCommand)
@click.argument("dataset", type=click.Path())
@click.argument("sample")
@click.argument("field", required=False)
@click.option("--key", "is_key", is_flag=True, help="SAMPLE is a key even if it looks like a number.")
@click.option("--npy", is_flag=True, help="Write the decoded value as .npy; needs FIELD.")
@click.option("--json", "as_json", is_flag=True, help="Print the sample as one JSON object; without FIELD.")
@click.option(
    "--tokenizer", metavar="FILE|NAME", help="Show tokens as text too: a tokenizer's file, or tiktoken's name."
)
@click.option("--force", is_flag=True, help="Write binary data even to a terminal; needs FIELD.")
@snapshot_option
@store_options
def command(
    dataset: str, sample: str, field: str | None, is_key: bool, npy: bool, as_json: bool, tokenizer: str | None,
    force: bool, snapshot: str | None, **store: Any,
) -> None:  # fmt: skip
    """Show a SAMPLE, or write one FIELD of it. Of an archive, write the file whose path SAMPLE is.

    SAMPLE is a number (-1 is the last) or a key. A JPEG comes out as a JPEG, a number as a line of text. In a stream of
    tokens, it is the number of a token.
    """
    settings = settings_of(store)
    if field is None and not as_json and snapshot is None and is_archive(dataset, settings):
        archive = open_archive(dataset, settings)
        if is_key or sample in archive or not _NUMBER.fullmatch(sample):
            _write_data(archive.view(sample), force)
            return
    if field is None and (npy or force):
        raise click.UsageError("--npy and --force need a FIELD")
    if field is not None and as_json:
        raise click.UsageError("--json shows a whole sample; leave out FIELD")
    if field is not None and tokenizer is not None:
        raise click.UsageError("--tokenizer is for a whole sample; leave out FIELD")
    from fastloader.cli.stream import stream_of

    with open_reader(dataset, store, snapshot) as reader:
        stream = stream_of(reader.dataset)
        if stream is not None:
            _stream(reader, stream, sample, field, npy, as_json, tokenizer, force)
            return
        number = _find(reader, sample, is_key)
        if field is not None:
            _write_value(reader, number, field, npy, force)
        else:
            _show_sample(reader, number, as_json, tokenizer)


def _find(reader: DatasetReader, sample: str, is_key: bool) -> int:
    if is_key or not _NUMBER.fullmatch(sample):
        return reader.index_of(sample)
    number, total = int(sample), len(reader)
    if not -total <= number < total:
        there = f"they are numbered 0 to {total - 1}" if total else "there are none"
        raise KeyNotFoundError(f"no sample has the number {number}; {there}", path=reader.path)
    return number % total


def _write_value(reader: DatasetReader, sample: int, name: str, npy: bool, force: bool) -> None:
    from fastloader.cli.glance import columns_of

    (column,) = columns_of(reader.dataset, [name])
    shard, row = reader.dataset.where(sample)
    payload = reader.read_payload(sample, name) if column.descriptor.has_payload and not npy else None
    if payload is None and column.glance(reader.dataset.file(shard), row, sample) is None:
        raise KeyNotFoundError("the value is missing", path=reader.path, sample=sample, field=name)
    if npy:
        data = _as_npy(reader.read_sample(sample, [name])[name], name)
    elif payload is not None:
        data = bytes(payload)
    else:
        say(printable(str(reader.read_sample(sample, [name])[name])))
        return
    _write_data(data, force)


def _write_data(data: bytes | memoryview, force: bool) -> None:
    if on_terminal() and not force and readable(bytes(data)) is None:
        raise click.UsageError("this is binary data and might upset the terminal; redirect it, or give --force")
    write_bytes(data)


def _stream(
    reader: DatasetReader, stream: TokenStreamField, place: str, name: str | None, npy: bool, as_json: bool,
    tokenizer: str | None, force: bool,
) -> None:  # fmt: skip
    """Tokens from a place on: some of them to be read, or all as they are."""
    from fastloader.cli import show
    from fastloader.cli.stream import SHOWN_TOKENS, heading, num_tokens, tokens_from

    if not _NUMBER.fullmatch(place):
        raise KeyNotFoundError("a stream of tokens has no keys", path=reader.path, hint="give the number of a token")
    (known,) = reader.field_names
    if name not in (None, known):
        raise KeyNotFoundError(f"no field {name!r}; there is {known}", path=reader.path)
    first, tokens = tokens_from(reader.dataset, stream, int(place), SHOWN_TOKENS if name is None else None)
    if name is not None:
        _write_data(_as_npy(tokens, name) if npy else tokens.tobytes(), force)
        return
    facts = show.token_facts(stream, tokens, tokenizer)
    total = num_tokens(reader.dataset, stream)
    if as_json:
        say(to_json({"token": first, "tokens": total, "fields": {known: show.for_json(facts)}}))
        return
    say(heading(first, len(tokens), total))
    for line in show.lines(facts):
        say(f"  {line}")


def _as_npy(value: Any, name: str) -> bytes:
    import io

    import numpy as np

    from fastloader.fields import Video

    if hasattr(value, "decode") and hasattr(value, "sample_rate"):  # a sound file
        value = value.decode()
    if isinstance(value, Video):
        value = value.frames()
    if not isinstance(value, np.ndarray | np.generic | int | float):
        raise click.UsageError(f"field {printable(name)!r} holds {type(value).__name__}, no array; leave out --npy")
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return file.getvalue()


def _show_sample(reader: DatasetReader, sample: int, as_json: bool, tokenizer: str | None) -> None:
    from fastloader.cli import show
    from fastloader.cli.glance import columns_of

    columns = columns_of(reader.dataset)
    key = reader.key_of(sample) if reader.has_keys else None
    troubles: list[FormatError] = []
    facts = {column.name: _look(reader, sample, column, troubles, tokenizer) for column in columns}
    if as_json:
        fields = {name: show.for_json(told) for name, told in facts.items()}
        say(to_json({"sample": sample} | ({} if key is None else {"key": key}) | {"fields": fields}))
    else:
        say(f"sample {sample}" + ("" if key is None else f"  {printable(key)}"))
        width = max((len(printable(column.name)) for column in columns), default=0)
        for name, told in facts.items():
            first, *others = show.lines(told)
            say(f"  {printable(name):<{width}}  {first}")
            for line in others:
                say(f"  {'':<{width}}  {line}")
    for trouble in troubles:
        complain(message_of(trouble))
    if troubles:
        click.get_current_context().exit(max(map(status_of, troubles)))


def _look(
    reader: DatasetReader, sample: int, column: ColumnView, troubles: list[FormatError], tokenizer: str | None
) -> Any:
    """Facts about a value; where it can't be read, that is a fact too, and the other fields are still shown."""
    from fastloader.cli import show

    try:
        return show.look(reader, sample, column, tokenizer)
    except FormatError as error:
        troubles.append(error)
        return {"error": error.message}
