"""Documents packed into sequences of one length, for attention that knows where each begins."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields.base import Decoder, Encoded, Field, PayloadBatch, ReadFunction
from fastloader.fields.convert import whole
from fastloader.fields.tokenized import as_tokens, check_vocab_size, token_dtype
from fastloader.types import TypeId

MOST_LENGTH = 1 << 24
_ROW = np.dtype([("documents", "<u4"), ("tokens", "<u4")])
_ROWS = ("tokens", "position_ids", "document_ids")
"""Arrays of a batch that have a row a sequence."""


class Packed(NamedTuple):
    """Documents of one sequence: their tokens, one document behind the other, and how many each has."""

    tokens: NDArray[Any]
    lengths: NDArray[np.int64]


class PackedDecoder(Decoder):
    """Lays sequences out for attention: all of a batch in one native call."""

    field: PackedTextField

    def __call__(self, metadata: Any, read: ReadFunction) -> dict[str, Any]:
        """One sequence, as a batch of one has it, without the batch's dimension."""
        data = np.frombuffer(read(), np.uint8)
        rows = np.array([metadata], _ROW)
        found = self._laid_out(rows, data, np.array([0, len(data)], np.int64))
        return {name: value[0] if getattr(value, "ndim", 0) == 2 else value for name, value in found.items()}

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> PackedBatch:
        """The arrays of a batch."""
        if (metadata["documents"][payloads.rows >= 0] == 0).any():
            raise FormatError("a sequence without documents")
        return PackedBatch(self._laid_out(metadata, *payloads.ragged()))

    def _laid_out(
        self, metadata: NDArray[Any], values: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> dict[str, Any]:
        field = self.field
        shape = len(metadata), field.seq_len
        # Claims are believed once payloads bear them out, and only then is memory taken for them.
        counts = np.ascontiguousarray(metadata).view(np.uint32)
        stated = 4 * metadata["documents"].astype(np.int64) + field.dtype.itemsize * metadata["tokens"].astype(np.int64)
        wrong = np.flatnonzero(stated != np.diff(offsets))
        if len(wrong):
            raise FormatError("the numbers of documents and tokens do not fit the payload")
        tokens = np.empty(shape, field.dtype)
        positions, documents = np.empty(shape, np.int32), np.empty(shape, np.int32)
        ends = np.empty(int(metadata["documents"].sum(dtype=np.int64)) + len(metadata) + 1, np.int32)
        pad = np.array([field.pad_id], field.dtype)
        used = kernels.unpack_sequences(values, offsets, counts, field.seq_len, pad, tokens, positions, documents, ends)
        ends = ends[:used]
        return {
            "tokens": tokens, "position_ids": positions, "document_ids": documents, "cu_seqlens": ends,
            "max_seqlen": int(np.diff(ends).max(initial=0)),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A batch of packed sequences: arrays with a row a sequence, and those that span all rows."""

    arrays: dict[str, Any]

    def __len__(self) -> int:
        return len(self.arrays["tokens"])

    def take(self, rows: NDArray[np.int64]) -> PackedBatch:
        """Other rows of the same."""
        chosen = {name: self.arrays[name][rows] for name in _ROWS}
        begins = chosen["position_ids"] == 0
        edges = np.append(np.flatnonzero(begins), begins.size).astype(np.int32)
        return PackedBatch(chosen | {"cu_seqlens": edges, "max_seqlen": int(np.diff(edges).max(initial=0))})

    def entries(self, name: str, valid: NDArray[np.bool_] | None) -> dict[str, Any]:
        """What a batch holds; a missing sequence is a row of padding alone."""
        return {name: self.arrays}


@dataclass(frozen=True, slots=True)
class PackedTextField(Field):
    """Documents packed into sequences of ``seq_len`` tokens; ``fastloader.pack`` makes such sequences.

    Batches are dictionaries: ``tokens`` (batch, seq_len), filled up with ``pad_id``; ``position_ids``, a token's place
    in its document; ``document_ids``, the document's number in its sequence, -1 for padding; ``cu_seqlens``, where the
    documents of all sequences end, one behind the other, with padding as a document of its own; and ``max_seqlen``.
    All but ``tokens`` are int32. What is stored has no padding.
    """

    type_id: ClassVar[int] = TypeId.TEXT_PACKED
    worth_a_thread: ClassVar[bool] = False
    collates_missing: ClassVar[bool] = True

    seq_len: int
    vocab_size: int
    pad_id: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seq_len", check_length(self.seq_len))
        object.__setattr__(self, "vocab_size", check_vocab_size(self.vocab_size))
        object.__setattr__(self, "pad_id", whole("pad_id", self.pad_id))
        if not 0 <= self.pad_id <= np.iinfo(self.dtype).max:
            raise ValueError(f"pad_id={self.pad_id}: from 0 to {np.iinfo(self.dtype).max}, as tokens are {self.dtype}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a token in files and batches."""
        return token_dtype(self.vocab_size)

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """How many documents and tokens a sequence has."""
        return _ROW

    def prepare(self, value: Any) -> Packed:
        """Checked, and in our own memory."""
        if isinstance(value, Packed):
            tokens, lengths = value
        elif isinstance(value, Mapping) and {"tokens", "lengths"} <= value.keys():
            tokens, lengths = value["tokens"], value["lengths"]
        elif isinstance(value, Mapping) and {"tokens", "document_ids"} <= value.keys():  # as it is read
            documents = np.asarray(value["document_ids"])
            there = documents >= 0
            tokens, lengths = np.asarray(value["tokens"])[there], np.unique(documents[there], return_counts=True)[1]
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            parts = [as_tokens(one, self.vocab_size) for one in value]
            tokens, lengths = np.concatenate([np.zeros(0, self.dtype), *parts]), np.array([len(part) for part in parts])
        else:
            raise TypeError(f"expected a list of documents, or what fastloader.pack gives, got {type(value).__name__}")
        array, sizes = as_tokens(tokens, self.vocab_size), np.array(lengths)
        if sizes.dtype.kind not in "iu" and sizes.size:
            raise TypeError(f"lengths are whole numbers, got {lengths!r}")
        sizes = sizes.astype(np.int64)
        if sizes.ndim != 1 or not sizes.size or (sizes < 1).any():
            raise ValueError("a sequence has at least one document, and a document at least one token")
        if sizes.sum() != len(array):
            raise ValueError(f"documents of {sizes.sum()} tokens in all, and {len(array)} tokens")
        if len(array) > self.seq_len:
            raise ValueError(f"{len(array)} tokens do not fit a sequence of {self.seq_len}; fastloader.pack cuts them")
        return Packed(array, sizes)

    def encode(self, value: Any) -> Encoded:
        """Takes what ``fastloader.pack`` gives, a list of documents that fit one sequence, or one that was read."""
        tokens, lengths = self.prepare(value)
        return Encoded((len(lengths), len(tokens)), lengths.astype("<u4").tobytes() + tokens.tobytes())

    def get_decoder_class(self) -> type[Decoder]:
        """Reads sequences."""
        return PackedDecoder

    def collate(self, values: Sequence[Any]) -> PackedBatch:
        """Sequences as one batch; a missing one is a row of padding alone."""
        blank = {
            "tokens": np.full(self.seq_len, self.pad_id, self.dtype),
            "position_ids": np.arange(self.seq_len, dtype=np.int32),
            "document_ids": np.full(self.seq_len, -1, np.int32),
        }
        rows = {
            name: np.array([(value or blank)[name] for value in values], filler.dtype).reshape(-1, self.seq_len)
            for name, filler in blank.items()
        }
        return PackedBatch(rows).take(np.arange(len(values)))

    def fits(self, value: Any) -> bool:
        """Whether a value, which may have been changed, is still what a sequence is read as."""
        arrays = [value.get(name) for name in _ROWS] if isinstance(value, Mapping) else []
        return bool(arrays) and all(isinstance(one, np.ndarray) and one.shape == (self.seq_len,) for one in arrays)

    def to_binary(self) -> bytes:
        """The options as JSON."""
        options = {"seq_len": self.seq_len, "vocab_size": self.vocab_size, "pad_id": self.pad_id}
        return json.dumps(options, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field that ``to_binary`` described."""
        options = json.loads(data)
        return cls(options["seq_len"], options["vocab_size"], options["pad_id"])


def check_length(seq_len: Any) -> int:
    """A number of tokens of a sequence."""
    length = whole("seq_len", seq_len)
    if isinstance(seq_len, bool) or not 1 <= length <= MOST_LENGTH:
        raise ValueError(f"seq_len={seq_len!r}: from 1 to {MOST_LENGTH}")
    return length
