"""Writing streams of tokens."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fastloader.errors import SampleError
from fastloader.fields.convert import whole
from fastloader.fields.text import utf8
from fastloader.fields.tokenized import TokenStreamField, as_tokens
from fastloader.fields.tokenizers import as_tokenizer
from fastloader.formats.fld import FieldSpec, FldBuilder
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE, Kind
from fastloader.formats.fld.manifest import Manifest, Shard, shard_name
from fastloader.formats.fld.target import refuse_foreign
from fastloader.formats.tokens import NAME
from fastloader.publishing import Published
from fastloader.stores import Directory
from fastloader.stores.urls import local_path
from fastloader.types import parse_size

PIECE = 4 << 20


class TokenStreamWriter(Published):
    """Writes documents one behind the other, as one long run of tokens; use it in a ``with`` block.

    ``path`` becomes one file, or with ``shard_size`` (bytes of tokens) a folder of them. Nothing appears there before
    ``close``; leaving the block by an exception leaves what was there before. ``tokenizer``, ``vocab_size`` and
    ``embed`` are those of ``TokenizedTextField``; ``eos`` is a token that is put behind each document.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vocab_size: int | None = None,
        tokenizer: Any = None,
        embed: bool = False,
        eos: int | None = None,
        shard_size: int | str | None = None,
    ) -> None:
        self._closed = True  # until everything below has worked
        self._tokenizer = None if tokenizer is None else as_tokenizer(tokenizer)
        self.field = TokenStreamField(self._tokenizer, vocab_size, embed=embed)
        self._eos = None if eos is None else as_tokens([whole("eos", eos)], self.field.vocab_size)
        self._limit = None if shard_size is None else parse_size(shard_size, "shard_size")
        if self._limit is not None and self._limit < self.field.dtype.itemsize:
            raise ValueError(f"shard_size={shard_size!r}: at least one token")
        local = local_path(path)
        if local is None:
            raise ValueError(
                f"{path}: streams are written to local files; "
                f'"fastloader store put -r FILE {path}" copies one there, and TokenStream reads it there'
            )
        self._path = Path(os.path.realpath(local))
        self._spec = FieldSpec(NAME, self.field)
        self.num_documents = 0
        self.num_tokens = 0
        self._folder: Directory | None = None
        if self._limit is not None:
            if self._path.is_dir():
                refuse_foreign(self._path)
            self._folder = Directory(self._path)
        elif self._path.is_dir():
            raise IsADirectoryError(
                f"{self._path} is a folder; choose another name, or give shard_size to write shards"
            )
        self._done: list[Shard] = []
        self._waiting = bytearray()
        try:
            self._begin()
        except BaseException:
            if self._folder is not None:
                self._folder.discard()
            raise
        self._closed = False

    def _begin(self) -> None:
        path = self._path if self._folder is None else self._folder.aside / shard_name(len(self._done))
        self._builder = FldBuilder(path, [self._spec], DEFAULT_PAGE_SIZE, keys=False)
        self._table = self._builder.begin_table(Kind.TOKENS, 0, self.field.dtype.itemsize)

    def write(self, document: Any) -> None:
        """Add a document: text, where there is a tokenizer, or tokens."""
        if self._closed:
            raise ValueError("this writer is closed")
        number = self.num_documents
        try:
            if isinstance(document, str):
                if self._tokenizer is None:
                    raise ValueError("the document is text; give the writer a tokenizer, or give tokens")
                utf8(document)
                (document,) = self._tokenizer.encode([document])
            tokens = as_tokens(document, self.field.vocab_size)
        except Exception as error:
            self.abort()
            raise SampleError(str(error), sample=number, field=NAME) from error
        if self._eos is not None:
            tokens = np.append(tokens, self._eos)
        self.num_documents += 1
        self.num_tokens += len(tokens)
        self._waiting += tokens.tobytes()
        if len(self._waiting) >= PIECE:
            self._flush()

    def write_many(self, documents: Iterable[Any]) -> None:
        """Add documents from any iterable, one after the other."""
        for document in documents:
            self.write(document)

    def _flush(self) -> None:
        at, view = 0, bytes(self._waiting)
        self._waiting.clear()
        while at < len(view):
            if self._limit is not None and self._table.size >= self._whole_limit:
                self._end()
                self._begin()
            room = len(view) if self._limit is None else self._whole_limit - self._table.size
            self._table.add(view[at : at + room])
            at += room

    @property
    def _whole_limit(self) -> int:
        assert self._limit is not None
        return self._limit // self.field.dtype.itemsize * self.field.dtype.itemsize

    def _end(self) -> None:
        self._table.end()
        size, identity = self._builder.finish()
        self._done.append(Shard(shard_name(len(self._done)), 0, size, identity))

    def close(self) -> None:
        """Finish and publish."""
        if self._closed:
            return
        try:
            self._flush()
            self._end()
            if self._folder is not None:
                Manifest(tuple(self._done)).save(self._folder.aside)
                self._folder.publish()
        except BaseException:
            self.abort()
            raise
        self._closed = True

    def abort(self) -> None:
        """Give up: nothing is published."""
        if not self._closed:
            self._closed = True
            self._builder.discard()
            if self._folder is not None:
                self._folder.discard()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            with contextlib.suppress(Exception):
                self.abort()
