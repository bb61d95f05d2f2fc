"""Text as tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields.base import (
    NO_METADATA,
    Decoder,
    Elements,
    Encoded,
    EncodedColumn,
    Field,
    PayloadBatch,
    ReadFunction,
)
from fastloader.fields.convert import whole
from fastloader.fields.text import utf8
from fastloader.fields.tokenizers import (
    Identity,
    Tokenizer,
    TokenizerError,
    as_tokenizer,
    check_identity,
    from_serialised,
    pack_serialised,
)
from fastloader.types import TypeId

MOST_TOKENS = 2**32


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The smallest unsigned integer that holds all tokens below ``vocab_size``.

    >>> token_dtype(256), token_dtype(50_257), token_dtype(100_277)
    (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    return np.dtype("u1" if vocab_size <= 2**8 else "<u2" if vocab_size <= 2**16 else "<u4")


def check_vocab_size(vocab_size: Any) -> int:
    """A number of tokens."""
    size = whole("vocab_size", vocab_size)
    if isinstance(vocab_size, bool) or not 1 <= size <= MOST_TOKENS:
        raise ValueError(f"vocab_size={vocab_size!r}: from 1 to 2**32")
    return size


def as_tokens(value: Any, vocab_size: int) -> NDArray[Any]:
    """Ready tokens as they are stored; those outside the vocabulary are an error that names the first."""
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"expected text or a list of tokens, got {_told(value, array)}")
    bad = np.flatnonzero((array < 0) | (array >= vocab_size))
    if len(bad):
        raise ValueError(f"token {array[bad[0]]} at {bad[0]} is not in the vocabulary of {vocab_size}")
    return array.astype(token_dtype(vocab_size))


def _told(value: Any, array: NDArray[Any]) -> str:
    if isinstance(value, np.ndarray) or array.dtype.kind in "iufcb":
        return f"an array of {array.dtype} of the shape {array.shape}"
    return type(value).__name__


class TokensDecoder(Decoder):
    """Gives arrays of tokens; a single one is a read-only view of the file where alignment allows."""

    field: TokenizedTextField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """The tokens."""
        data = read()
        self._check(len(data))
        array = np.frombuffer(data, self.field.dtype)
        return array if array.flags.aligned else array.copy()

    @property
    def elements(self) -> Elements:
        """Tokens."""
        return Elements(self.field.dtype)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """One array (batch, length) where lengths agree, else a list of arrays, with ``None`` for what is missing."""
        values, offsets = payloads.ragged()
        sizes = np.diff(offsets)
        for size in sizes[sizes % self.field.dtype.itemsize != 0].tolist():
            self._check(size)
        tokens = values.view(self.field.dtype)
        if len(sizes) and (sizes == sizes[0]).all() and (payloads.rows >= 0).all():
            return tokens.reshape(len(sizes), -1) if sizes[0] else tokens.reshape(len(sizes), 0)
        ends = (offsets // self.field.dtype.itemsize).tolist()
        there = (payloads.rows >= 0).tolist()
        return [tokens[ends[i] : ends[i + 1]] if good else None for i, good in enumerate(there)]

    def _check(self, size: int) -> None:
        if size % self.field.dtype.itemsize:
            raise FormatError(f"{size} bytes are no whole number of tokens of {self.field.dtype}")


@dataclass(frozen=True, slots=True, init=False)
class TokenizedTextField(Field):
    """Text, stored as tokens: as the smallest unsigned integers that hold the vocabulary.

    ``tokenizer`` is one of ``tokenizers`` or its file, an encoding of ``tiktoken`` or its name, or any function from
    text to tokens. Without one, values are tokens already, and with one they may be. ``vocab_size`` is the tokenizer's
    own unless given. ``add_special_tokens`` lets one of ``tokenizers`` add those of its template.

    Which tokenizer it was is stored: its name and a hash of it. ``embed`` stores all of it, so that whoever has the
    file can turn tokens into text. Batches are made of arrays; ``DataLoader(pad=...)`` joins or pads them.
    """

    type_id: ClassVar[int] = TypeId.TEXT_TOKENIZED

    vocab_size: int
    identity: Identity | None
    add_special_tokens: bool
    embedded: str | None = field(repr=False)
    _tokenizer: Tokenizer | None = field(repr=False, compare=False)

    def __init__(
        self,
        tokenizer: Any = None,
        vocab_size: int | None = None,
        *,
        add_special_tokens: bool = False,
        embed: bool = False,
    ) -> None:
        made = None if tokenizer is None else as_tokenizer(tokenizer, add_special_tokens)
        own = None if made is None else made.vocab_size
        if vocab_size is None and own is None:
            raise ValueError("vocab_size: how many tokens are there? Nothing else tells")
        size = check_vocab_size(own if vocab_size is None else vocab_size)
        if own is not None and size < own:
            raise ValueError(f"vocab_size={size}: the tokenizer has tokens up to {own - 1}")
        if made is None and (embed or add_special_tokens):
            raise ValueError(f"{'embed' if embed else 'add_special_tokens'}=True is for a tokenizer, and there is none")
        self._set(
            size,
            None if made is None else made.identity,
            bool(add_special_tokens),
            pack_serialised(made) if embed and made is not None else None,
            made,
        )

    def _set(
        self, vocab_size: int, identity: Identity | None, special: bool, embedded: str | None, made: Tokenizer | None
    ) -> None:
        for name, value in (
            ("vocab_size", vocab_size), ("identity", identity), ("add_special_tokens", special),
            ("embedded", embedded), ("_tokenizer", made),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a token in files and batches."""
        return token_dtype(self.vocab_size)

    @property
    def worth_a_thread(self) -> bool:  # type: ignore[override]
        """Tokenizers of others run without the GIL, ready tokens are only copied."""
        return self._tokenizer is not None

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer: the one given, or the one that is stored with the field."""
        if self._tokenizer is None:
            if self.identity is None:
                raise TokenizerError("the field was written with ready tokens, and knows no tokenizer")
            if self.embedded is None:
                raise TokenizerError(
                    f"the tokenizer {self.identity} is not stored with the field",
                    hint="field.with_tokenizer(...) takes it; embed=True would have stored it",
                )
            made = from_serialised(self.identity, self.embedded, self.add_special_tokens)
            object.__setattr__(self, "_tokenizer", made)
            return made
        return self._tokenizer

    def with_tokenizer(self, tokenizer: Any) -> Self:
        """The field with a tokenizer at hand. Another than it was written with is a ``TokenizerError``.

        Of functions only the names are known: there, different names are a warning.
        """
        made = as_tokenizer(tokenizer, self.add_special_tokens)
        if self.identity is not None:
            check_identity(self.identity, made.identity)
        other = object.__new__(type(self))
        other._set(self.vocab_size, self.identity, self.add_special_tokens, self.embedded, made)
        return other

    def decode(self, tokens: Any) -> str:
        """The text of tokens, by the field's tokenizer."""
        return self.tokenizer.decode(np.asarray(tokens).tolist())

    def prepare(self, value: Any) -> Any:
        """Lists become arrays; text waits for a worker."""
        if isinstance(value, str):
            utf8(value)
            return value
        return as_tokens(value, self.vocab_size)

    def encode(self, value: Any) -> Encoded:
        """Takes text, where the field has a tokenizer, or tokens."""
        if isinstance(value, str):
            (value,) = self._of_texts([value])
        return Encoded((), as_tokens(value, self.vocab_size))

    def _of_texts(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        try:
            return self.tokenizer.encode(texts)
        except TokenizerError as error:
            raise ValueError(f"text needs a tokenizer: {error}; or give ready tokens") from None

    def encode_many(self, values: Sequence[Any]) -> EncodedColumn | None:
        """Texts are tokenized together."""
        kinds = set(map(type, values))
        try:
            if kinds == {str}:
                arrays = [as_tokens(one, self.vocab_size) for one in self._of_texts(values)]
            elif kinds == {np.ndarray}:
                arrays = [as_tokens(one, self.vocab_size) for one in values]
            else:
                return None
        except Exception:  # told by encode, with the value's number
            return None
        return EncodedColumn(np.zeros(len(values), NO_METADATA), [array.tobytes() for array in arrays])

    def get_decoder_class(self) -> type[Decoder]:
        """Reads tokens."""
        return TokensDecoder

    def fault_of(self, read: ReadFunction) -> str | None:
        """Tokens must be of the vocabulary."""
        tokens = np.frombuffer(read(), self.dtype)
        if tokens.size and int(tokens.max()) >= self.vocab_size:
            return f"token {tokens.max()} is not in the vocabulary of {self.vocab_size}"
        return None

    def clash_with(self, stored: Field) -> str | None:
        """Tokens of two tokenizers don't mix."""
        if not isinstance(stored, TokenizedTextField) or stored.identity == self.identity:
            return None
        told = [str(one or "no tokenizer") for one in (stored.identity, self.identity)]
        return f"its tokens were made by {told[0]}, and these would be by {told[1]}"

    def to_binary(self) -> bytes:
        """All but the tokenizer itself, which is a matter of whoever writes or reads, unless it is embedded."""
        known = self.identity
        options = {
            "vocab_size": self.vocab_size,
            "tokenizer": None if known is None else {"kind": known.kind, "name": known.name, "hash": known.hash},
            "add_special_tokens": self.add_special_tokens,
            "embedded": self.embedded,
        }
        return json.dumps(options, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_binary(cls, data: bytes) -> Self:
        """The field that ``to_binary`` described, without a tokenizer at hand."""
        options = json.loads(data)
        known = options["tokenizer"]
        made = object.__new__(cls)
        made._set(
            check_vocab_size(options["vocab_size"]),
            None if known is None else Identity(str(known["kind"]), str(known["name"]), str(known["hash"])),
            bool(options["add_special_tokens"]),
            options["embedded"],
            None,
        )
        return made

    def __repr__(self) -> str:
        known = "" if self.identity is None else f", tokenizer={self.identity}"
        special = ", add_special_tokens=True" if self.add_special_tokens else ""
        return (
            f"TokenizedTextField(vocab_size={self.vocab_size}{known}{special}{', embed=True' if self.embedded else ''})"
        )


class TokenStreamField(TokenizedTextField):
    """What a file of one long run of tokens says of them. It has no samples; ``TokenStream`` reads windows of it."""

    type_id: ClassVar[int] = TypeId.TOKEN_STREAM

    def prepare(self, value: Any) -> Any:
        """There is nothing to be written a sample at a time."""
        raise TypeError("a stream has no samples; TokenStreamWriter writes it")

    def encode(self, value: Any) -> Encoded:
        """The same."""
        raise TypeError("a stream has no samples; TokenStreamWriter writes it")

    def __repr__(self) -> str:
        return super().__repr__().replace("TokenizedTextField", "TokenStreamField")
