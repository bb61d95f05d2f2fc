"""Streams of tokens on the command line: they have no samples, but tokens at places."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.cli.output import printable
from fastloader.errors import KeyNotFoundError
from fastloader.fields import TokenStreamField
from fastloader.formats.fld import Dataset, explain
from fastloader.formats.fld.layout import Kind
from fastloader.formats.tokens import NAME, tokens_of
from fastloader.formats.windows import WindowFile

SHOWN_TOKENS = 64


def stream_of(dataset: Dataset) -> TokenStreamField | None:
    """What the dataset says of its tokens, where it is a stream of them."""
    if len(dataset.descriptors) != 1 or dataset.descriptors[0].type_id != TokenStreamField.type_id:
        return None
    field = dataset.field(0)
    return field if isinstance(field, TokenStreamField) else None


def num_tokens(dataset: Dataset, field: TokenStreamField) -> int:
    """Tokens of all shards."""
    dataset.warm(range(len(dataset.shards)), dataset.file)
    entries = (dataset.file(number).directory.get((Kind.TOKENS, 0)) for number in range(len(dataset.shards)))
    return sum(entry.size for entry in entries if entry is not None) // field.dtype.itemsize


def told(dataset: Dataset, field: TokenStreamField) -> str:
    """The stream in a line, and what shows more of it."""
    path = printable(str(dataset.path))
    return (
        f"{path}: a stream of {num_tokens(dataset, field):,} tokens, which has no samples; "
        f'"fastloader cat {path} 0" shows the first tokens, TokenStream reads windows'
    )


def tokens_from(dataset: Dataset, field: TokenStreamField, place: int, most: int | None) -> tuple[int, NDArray[Any]]:
    """Tokens from a place on, which counts from the end where it is negative, and no further than their shard goes."""
    total = num_tokens(dataset, field)
    if not -total <= place < total:
        there = f"they are numbered 0 to {total - 1}" if total else "there are none"
        raise KeyNotFoundError(f"no token has the number {place}; {there}", path=dataset.path)
    first = row = place % total
    for number in range(len(dataset.shards)):
        tokens = tokens_of(dataset.file(number))
        if row < tokens.count:
            break
        row -= tokens.count
    left = tokens.count - row
    window = WindowFile(tokens, left if most is None else min(most, left), 1, dataset.descriptors)
    try:
        return first, np.frombuffer(window.payload(0, row), field.dtype)
    except kernels.Failure as failure:
        raise explain(failure, tokens.path, None, NAME) from failure


def heading(first: int, shown: int, total: int) -> str:
    """Which tokens are shown."""
    return f"tokens {first:,} to {first + shown - 1:,} of {total:,}"
