"""Tokenizers of others, all alike from outside: ``tokenizers``, ``tiktoken``, any function. Only this imports them."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, MissingExtraError


class TokenizerError(FastLoaderError, ValueError):
    """A tokenizer is not the one that tokens were made with, or none is at hand."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells tokenizers apart: the library, a name, and a hash of all that decides which tokens they give.

    A function has no such hash: its name is all that is known of it.
    """

    kind: str
    name: str
    hash: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}{', ' + self.hash[:12] if self.hash else ''})"


class Tokenizer(ABC):
    """A tokenizer as this package uses it."""

    identity: Identity

    @property
    def vocab_size(self) -> int | None:
        """One more than the largest token; ``None`` where it does not say."""
        return None

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        """The tokens of each text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        raise TokenizerError(f"the tokenizer {self.identity} does not say what text tokens are of")

    def serialised(self) -> bytes | None:
        """All that it is, from which ``from_serialised`` makes it again; ``None`` where that can't be had."""
        return None


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{name} is not installed", extra="text") from error


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


class _Tokenizers(Tokenizer):
    """One of the library ``tokenizers``."""

    def __init__(self, tokenizer: Any, name: str, add_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._special = add_special_tokens
        self.identity = Identity("tokenizers", name, _hash(self.serialised()))

    @property
    def vocab_size(self) -> int:
        return 1 + max(self._tokenizer.get_vocab().values(), default=0)

    def encode(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=self._special)
        return [np.asarray(one.ids, np.int64) for one in found]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def serialised(self) -> bytes:
        return str(self._tokenizer.to_str()).encode()


class _Tiktoken(Tokenizer):
    """An encoding of ``tiktoken``."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self.identity = Identity("tiktoken", encoding.name, _hash(self.serialised()))

    @property
    def vocab_size(self) -> int:
        return int(self._encoding.n_vocab)

    def encode(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        return [np.asarray(one, np.int64) for one in self._encoding.encode_ordinary_batch(list(texts))]

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._encoding.decode(list(tokens)))

    def serialised(self) -> bytes:
        encoding = self._encoding
        ranks = sorted((rank, base64.b64encode(token).decode()) for token, rank in encoding._mergeable_ranks.items())
        parts = {
            "name": encoding.name, "pattern": encoding._pat_str, "ranks": ranks,
            "special": dict(sorted(encoding._special_tokens.items())),
        }  # fmt: skip
        return json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()


class _Function(Tokenizer):
    """Any function from text to tokens."""

    def __init__(self, function: Callable[[str], Any]) -> None:
        self._function = function
        name = getattr(function, "__qualname__", type(function).__qualname__)
        self.identity = Identity("callable", f"{getattr(function, '__module__', '')}.{name}".lstrip("."))

    def encode(self, texts: Sequence[str]) -> list[NDArray[Any]]:
        return [self._tokens(text) for text in texts]

    def _tokens(self, text: str) -> NDArray[Any]:
        found = self._function(text)
        if isinstance(found, Mapping):  # as tokenizers of transformers answer
            found = found["input_ids"]
        array = np.asarray(getattr(found, "ids", found))
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError(f"the tokenizer {self.identity} gives {type(found).__name__}, no list of whole numbers")
        return array.astype(np.int64)


def as_tokenizer(given: Any, add_special_tokens: bool = False) -> Tokenizer:
    """Whatever tokenizes: one of ``tokenizers`` or its file, an encoding of ``tiktoken`` or its name, a function."""
    if isinstance(given, Tokenizer):
        return given
    if isinstance(given, str | os.PathLike):
        return _named(given, add_special_tokens)
    inner = getattr(given, "backend_tokenizer", given)  # a fast tokenizer of transformers is one of tokenizers inside
    library = type(inner).__module__.partition(".")[0]
    if library == "tokenizers":
        return _Tokenizers(inner, type(inner.model).__name__, add_special_tokens)
    if add_special_tokens:
        raise ValueError("add_special_tokens=True: only tokenizers of the library 'tokenizers' add tokens of their own")
    if library == "tiktoken":
        return _Tiktoken(inner)
    if callable(given):
        return _Function(given)
    raise TypeError(
        f"tokenizer is a {type(given).__name__}; give one of tokenizers or tiktoken, a file or a name, or a function"
    )


def _named(given: str | os.PathLike[str], add_special_tokens: bool) -> Tokenizer:
    path = Path(given)
    if path.exists():
        library = _library("tokenizers")
        try:
            return _Tokenizers(library.Tokenizer.from_file(str(path)), path.stem, add_special_tokens)
        except Exception as error:
            raise ValueError(f"tokenizer={str(given)!r} is no file of a tokenizer: {error}") from error
    if path.suffix or len(path.parts) != 1:
        raise FileNotFoundError(f"tokenizer={str(given)!r}: there is no such file")
    library = _library("tiktoken")
    if str(given) not in library.list_encoding_names():
        known = ", ".join(library.list_encoding_names())
        raise ValueError(f"tokenizer={str(given)!r} is no file, and no encoding of tiktoken, which has {known}")
    return as_tokenizer(library.get_encoding(str(given)), add_special_tokens)


def pack_serialised(tokenizer: Tokenizer) -> str:
    """All that a tokenizer is, as text for a file."""
    data = tokenizer.serialised()
    if data is None:
        raise ValueError(f"embed=True: of the tokenizer {tokenizer.identity} nothing is known that could be stored")
    return base64.b64encode(zlib.compress(data, 9)).decode()


def from_serialised(identity: Identity, packed: str, add_special_tokens: bool) -> Tokenizer:
    """The tokenizer that ``pack_serialised`` stored."""
    data = zlib.decompress(base64.b64decode(packed))
    made: Tokenizer
    if identity.kind == "tokenizers":
        library = _library("tokenizers")
        made = _Tokenizers(library.Tokenizer.from_str(data.decode()), identity.name, add_special_tokens)
    elif identity.kind == "tiktoken":
        parts = json.loads(data)
        made = _Tiktoken(
            _library("tiktoken").Encoding(
                parts["name"], pat_str=parts["pattern"], special_tokens=parts["special"],
                mergeable_ranks={base64.b64decode(token): rank for rank, token in parts["ranks"]},
            )
        )  # fmt: skip
    else:
        raise TokenizerError(f"a tokenizer of the kind {identity.kind!r} can't be stored")
    check_identity(identity, made.identity)
    return made


def check_identity(stored: Identity, given: Identity) -> None:
    """Raise where another tokenizer made the tokens; warn where it can't be told, and only names differ."""
    if stored.hash and given.hash:
        if stored.hash != given.hash:
            raise TokenizerError(
                f"the tokens were made by {stored}, and this tokenizer is {given}",
                hint="take the tokenizer that the dataset was written with, or write it anew",
            )
    elif (stored.kind, stored.name) != (given.kind, given.name):
        warnings.warn(
            f"the tokens were made by {stored}, and this tokenizer is {given}; nothing tells whether they agree",
            stacklevel=3,
        )
