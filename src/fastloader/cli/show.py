"""A value, made fit to be read: text as text, other bytes in hexadecimal, arrays by what is in them."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.cli.glance import ColumnView, Facts, phrase
from fastloader.cli.output import as_text, printable
from fastloader.errors import MissingExtraError
from fastloader.fields import BoxesField, DictField, ListField, PackedTextField, TextField, TokenizedTextField
from fastloader.reader import DatasetReader
from fastloader.types import format_size

SHOWN_CHARACTERS = 4000
SHOWN_BYTES = 32
SHOWN_NUMBERS = 8
SHOWN_BOXES = 16


def look(reader: DatasetReader, sample: int, column: ColumnView, tokenizer: str | None = None) -> Facts | None:
    """Facts about one value, read and checked; ``None`` where it is missing.

    Tokens are told as text too, by the tokenizer that is stored with them or else by ``tokenizer``.
    """
    shard, row = reader.dataset.where(sample)
    facts = column.glance(reader.dataset.file(shard), row, sample)
    if facts is None:
        return None
    if column.trouble is not None and column.is_registered:
        raise column.trouble
    if column.field is None:
        facts["type_id"] = column.descriptor.type_id
        payload = reader.read_payload(sample, column.name) if column.descriptor.has_payload else None
        return facts | _bytes_facts(bytes(payload or b""))
    if column.is_image or column.is_sound_file:
        payload = reader.read_payload(sample, column.name)  # checked; decoding is for those who want the pixels
        return facts | {"bytes": len(payload or b"")}
    value = reader.read_sample(sample, [column.name])[column.name]
    if isinstance(column.field, TextField):
        return facts | _bytes_facts(value.encode())
    if isinstance(column.field, TokenizedTextField):
        return facts | token_facts(column.field, value, tokenizer)
    if isinstance(column.field, PackedTextField):
        lengths = np.bincount(value["document_ids"][value["document_ids"] >= 0])
        return facts | {"lengths": lengths.tolist(), "first": value["tokens"][: facts["tokens"]][:SHOWN_NUMBERS]}
    if isinstance(column.field, ListField | DictField) and not isinstance(value, np.ndarray):
        return facts | {"value": _plain(value)}
    if isinstance(column.field, BoxesField):
        return facts | _array_facts(value) | {"format": column.field.format, "boxes": value.tolist()}
    if isinstance(value, np.ndarray):
        return facts | _array_facts(value)
    if isinstance(value, bytes):
        return facts | _bytes_facts(value)
    return facts | {"value": value.item() if isinstance(value, np.generic) else value}


def token_facts(field: TokenizedTextField, tokens: NDArray[Any], tokenizer: str | None) -> Facts:
    """What is told of tokens."""
    return _array_facts(tokens) | _text_of(field, tokens, tokenizer)


def _text_of(field: TokenizedTextField, tokens: NDArray[Any], tokenizer: str | None) -> Facts:
    if tokenizer is not None and not field.embedded:
        return {"text": field.with_tokenizer(tokenizer).decode(tokens)}
    try:
        return {"text": field.decode(tokens)} if field.embedded else {}
    except MissingExtraError as error:  # the tokens are there all the same
        return {"text": f"({error})"}


def _plain(value: Any) -> Any:
    """What JSON can say: arrays by what is in them."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        text = as_text(value)
        return f"{format_size(len(value))}: {value[:SHOWN_BYTES].hex(' ')}" if text is None else text
    if isinstance(value, np.ndarray):
        return _array_line(_array_facts(value)) if value.size > SHOWN_NUMBERS else value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def _bytes_facts(data: bytes) -> Facts:
    return {"bytes": len(data), "data": data}


def _array_facts(array: NDArray[Any]) -> Facts:
    facts: Facts = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "biuf":
        with np.errstate(all="ignore"):  # fmin and fmax pass over NaN
            low, high = (np.fmin.reduce(array, None), np.fmax.reduce(array, None))
        facts |= {"min": low.item(), "max": high.item()}
    return facts | {"first": array.reshape(-1)[:SHOWN_NUMBERS]}


def for_json(facts: Facts | None) -> Facts | None:
    """The facts with text as text, other bytes as base64 and numbers as a list."""
    if facts is None:
        return None
    told = dict(facts)
    if "data" in told:
        data = told.pop("data")
        text = as_text(data)
        told |= {"base64": data} if text is None else {"text": text}
    if "first" in told:
        told["first"] = told["first"].tolist()
    return told


def lines(facts: Facts | None) -> list[str]:
    """The facts for people, a line or more."""
    if facts is None:
        return ["missing"]
    if "error" in facts:
        return [printable(f"unreadable: {facts['error']}")]
    if "data" in facts:
        unregistered = [f"type {facts['type_id']} is not registered"] if "type_id" in facts else []
        return [*unregistered, *_data_lines(facts["data"])]
    if "lengths" in facts:
        return [
            f"{phrase(facts)} ({facts['tokens'] / facts['seq_len']:.0%})",
            _few("documents of", facts["lengths"], len(facts["lengths"])),
            _few("tokens", facts["first"].tolist(), facts["tokens"]),
        ]
    if "boxes" in facts:
        return _box_lines(facts["boxes"], facts["format"])
    if "first" in facts:
        return [_array_line(facts), *(_clipped(facts["text"]) if facts.get("text") else [])]
    if "value" in facts:
        return _clipped(_pretty(facts["value"]))
    return [f"{phrase(facts)}, {format_size(facts['bytes'])}"]


def _pretty(value: Any) -> str:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except TypeError:  # what a user's own decoder made
        return repr(value)
    except RecursionError:
        return "nested too deeply to be shown; name the field to get it as it is stored"


def _data_lines(data: bytes) -> list[str]:
    text = as_text(data)
    if text is None or "\0" in text:
        more = " ..." if len(data) > SHOWN_BYTES else ""
        return [f"{format_size(len(data))}: {data[:SHOWN_BYTES].hex(' ')}{more}"]
    return _clipped(text) if text else ["0 B"]


def _clipped(text: str) -> list[str]:
    """Lines of text, not endlessly many."""
    shown = printable(text[:SHOWN_CHARACTERS], keep="\n\t").split("\n")
    rest = len(text) - SHOWN_CHARACTERS
    return shown + ([f"... {rest:,} more characters; name the field to get all of it"] if rest > 0 else [])


def _array_line(facts: Facts) -> str:
    values = [_short(value) for value in facts["first"].tolist()]
    if prod(facts["shape"]) > len(values):
        values.append("...")
    span = f"min {_short(facts['min'])}, max {_short(facts['max'])}, " if "min" in facts else ""
    return printable(f"{phrase(facts)}  {span}[{', '.join(values)}]")


def _box_lines(boxes: list[list[float]], form: str) -> list[str]:
    """A box a line, its numbers below one another: the range of all of them together says nothing."""
    cells = [[_short(number) for number in box] for box in boxes[:SHOWN_BOXES]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells]
    more = [f"... {len(boxes) - len(rows)} more"] if len(boxes) > len(rows) else []
    return [f"{len(boxes)} {'box' if len(boxes) == 1 else 'boxes'}, {form}", *rows, *more]


def _few(what: str, numbers: list[int], of: int) -> str:
    said = [str(number) for number in numbers[:SHOWN_NUMBERS]]
    return f"{what} [{', '.join([*said, *(['...'] if of > len(said) else [])])}]"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
