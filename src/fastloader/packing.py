"""Documents in, sequences of one length out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import SampleError
from fastloader.fields.convert import whole
from fastloader.fields.packed import Packed, check_length
from fastloader.fields.text import utf8
from fastloader.fields.tokenizers import as_tokenizer

Strategy = Literal["greedy", "best_fit"]
Long = Literal["split", "truncate", "refuse"]

BUFFER = 10_000
"""Documents that are packed together."""


@dataclass(slots=True)
class PackReport:
    """What became of the documents so far. ``efficiency`` is the share of the sequences that is no padding."""

    documents: int = 0
    tokens: int = 0
    sequences: int = 0
    seq_len: int = 0
    split: int = 0
    truncated: int = 0
    empty: int = 0

    @property
    def efficiency(self) -> float:
        """Tokens of all there is room for; 1 where there are no sequences."""
        return self.tokens / (self.sequences * self.seq_len) if self.sequences else 1.0

    def __str__(self) -> str:
        return (
            f"{self.documents:,} documents in {self.sequences:,} sequences of {self.seq_len:,}: "
            f"{self.tokens:,} tokens, {self.efficiency:.2%} of the room"
        )


class Packing(Iterator[Packed]):
    """The sequences, one after the other. ``report`` says how well documents fit, and is whole at the end."""

    def __init__(self, documents: Iterator[Any], make: Any, report: PackReport) -> None:
        self.report = report
        self._sequences = make(documents)

    def __next__(self) -> Packed:
        found: Packed = next(self._sequences)
        return found


def pack(
    documents: Iterable[Any],
    seq_len: int,
    strategy: Strategy = "greedy",
    *,
    long: Long = "split",
    tokenizer: Any = None,
    eos: int | None = None,
    buffer: int = BUFFER,
) -> Packing:
    """Documents packed into sequences of at most ``seq_len`` tokens, for a ``PackedTextField``.

    - ``documents`` are tokens, or texts with a ``tokenizer`` as ``TokenizedTextField`` takes it. Empty ones are left
      out.
    - ``strategy``: "greedy" keeps their order: a document goes behind the one before, or begins a new sequence where it
      does not fit. "best_fit" takes ``buffer`` documents at a time, the longest first, and puts each where it leaves
      the least room; sequences come in the order of their first documents. Both depend on the documents alone.
    - ``long``: what a document of more than ``seq_len`` tokens becomes: several ("split"), its beginning ("truncate"),
      or an error ("refuse").
    - ``eos``: a token that is put behind each document; it counts as part of it.
    """
    length = check_length(seq_len)
    if strategy not in get_args(Strategy):
        raise ValueError(f"strategy={strategy!r}: one of {', '.join(get_args(Strategy))}")
    if long not in get_args(Long):
        raise ValueError(f"long={long!r}: one of {', '.join(get_args(Long))}")
    if whole("buffer", buffer) < 1:
        raise ValueError(f"buffer={buffer}: at least one document")
    if eos is not None and whole("eos", eos) < 0:
        raise ValueError(f"eos={eos}: a token is 0 or more")
    if isinstance(documents, str | bytes):
        raise TypeError(f"documents is one {type(documents).__name__}; give an iterable of documents")
    known = None if tokenizer is None else as_tokenizer(tokenizer)
    report = PackReport(seq_len=length)

    def tokens_of(number: int, document: Any) -> NDArray[np.int64]:
        if isinstance(document, str):
            if known is None:
                raise SampleError("the document is text; give tokenizer=, or tokens", sample=number)
            try:
                utf8(document)
            except ValueError as error:
                raise SampleError(str(error), sample=number) from None
            (array,) = known.encode([document])
        else:
            array = np.asarray(document)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise SampleError(f"a document is text or a list of tokens, not a {type(document).__name__}", sample=number)
        return np.append(array, eos) if eos is not None and array.size else array

    def pieces(number: int, array: NDArray[Any]) -> list[NDArray[Any]]:
        report.documents += 1
        if not array.size:
            report.empty += 1
            return []
        if len(array) <= length:
            return [array]
        if long == "refuse":
            raise SampleError(
                f"the document has {len(array)} tokens, and a sequence {length}", sample=number,
                hint="long='split' makes several of it, long='truncate' cuts it",
            )  # fmt: skip
        if long == "truncate":
            report.truncated += 1
            return [array[:length]]
        report.split += 1
        return [array[at : at + length] for at in range(0, len(array), length)]

    def sequences(given: Iterator[Any]) -> Iterator[Packed]:
        waiting: list[NDArray[Any]] = []
        used = 0
        for number, document in enumerate(given):
            for piece in pieces(number, tokens_of(number, document)):
                if strategy == "greedy" and used + len(piece) > length:
                    yield joined(waiting)
                    waiting, used = [], 0
                waiting.append(piece)
                used += len(piece)
            if strategy == "best_fit" and len(waiting) >= buffer:
                yield from fitted(waiting)
                waiting = []
        if strategy == "best_fit":
            yield from fitted(waiting)
        elif waiting:
            yield joined(waiting)

    def fitted(waiting: list[NDArray[Any]]) -> Iterator[Packed]:
        sizes = np.fromiter(map(len, waiting), np.int64, len(waiting))
        where = np.empty(len(waiting), np.int64)
        kernels.best_fit(sizes, length, where)
        groups: dict[int, list[NDArray[Any]]] = {}  # in the order of their first documents
        for piece, sequence in zip(waiting, where.tolist(), strict=True):
            groups.setdefault(sequence, []).append(piece)
        yield from map(joined, groups.values())

    def joined(documents: list[NDArray[Any]]) -> Packed:
        made = Packed(np.concatenate(documents), np.fromiter(map(len, documents), np.int64, len(documents)))
        report.sequences += 1
        report.tokens += len(made.tokens)
        return made

    return Packing(iter(documents), sequences, report)
