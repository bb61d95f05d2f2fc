"""Rows of a dataset as they are stored: checked, neither decompressed nor decoded, on their way into another file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import ChecksumError, FastLoaderError
from fastloader.formats.fld import Chunk, Column, Dataset, FieldSpec, FldFile, explain
from fastloader.formats.fld.joined import place_of
from fastloader.formats.fld.layout import EXTENT, Kind
from fastloader.types import Buffer
from fastloader.writer.encoding import compressed

Ints = NDArray[np.int64]


class StoredRows:
    """The rows of some samples, field by field, for one file that is being written.

    A file has one dictionary a field. Payloads that were compressed with another one are compressed anew, without.
    """

    def __init__(self, dataset: Dataset, specs: Sequence[FieldSpec]) -> None:
        self._dataset, self._specs = dataset, specs
        self._dictionaries: dict[int, bytes] = {}

    def chunk(self, samples: Ints) -> Chunk:
        """These samples, with their keys where they have some."""
        sources, rows = self._dataset.runs.locate(samples)
        parts = [(self._dataset.file(int(source)), np.flatnonzero(sources == source)) for source in np.unique(sources)]
        columns = [self._column(number, parts, rows) for number in range(len(self._specs))]
        keys: list[bytes] | None = None
        if self._dataset.has_keys:
            keys = [b""] * len(samples)
            for file, mine in parts:
                known = file.keys()
                assert known is not None
                for i in mine.tolist():
                    keys[i] = known.key(int(rows[i]))
        return Chunk(len(samples), columns, keys)

    def _column(self, number: int, parts: Sequence[tuple[FldFile, Ints]], rows: Ints) -> Column:
        spec = self._specs[number]
        count = len(rows)
        metadata = np.zeros(count, spec.field.metadata_type)
        valid = np.ones(count, np.bool_)
        payloads: list[Buffer] = [b""] * count if spec.field.has_payload else []
        extents = np.zeros(count if spec.field.has_payload else 0, EXTENT)
        for shard, mine in parts:
            file, field = place_of(shard, number)
            theirs = np.ascontiguousarray(rows[mine])
            try:
                valid[mine] = _valid(file, field, theirs)
                table = file.table(Kind.METADATA, field, theirs)
                if table is not None:
                    part = np.zeros(len(mine), metadata.dtype)
                    kernels.take([table], None, theirs, part.view(np.uint8))
                    metadata[mine] = part
                if spec.field.has_payload:
                    self._payloads(number, file, field, theirs, mine, valid, payloads, extents)
            except kernels.Failure as failure:
                raise explain(failure, file.path, None, spec.name) from failure
            except FastLoaderError as error:
                error.field = error.field or spec.name
                raise
        return Column(
            metadata, valid, payloads, extents["raw_size"].copy(), extents["codec"].copy(),
            self._dictionaries.get(number),
        )  # fmt: skip

    def _payloads(
        self, number: int, file: FldFile, field: int, rows: Ints, mine: Ints, valid: NDArray[np.bool_],
        payloads: list[Buffer], extents: NDArray[Any],
    ) -> None:  # fmt: skip
        found = np.zeros(len(rows), EXTENT)
        table = file.table(Kind.EXTENTS, field, rows)
        assert table is not None
        kernels.take([table], None, rows, found.view(np.uint8))
        begin, end = file.data.offset, file.data.offset + file.data.size
        wanted = found[valid[mine]]
        sizes, at = wanted["size"].astype(object), wanted["pointer"].astype(object)  # sums of Python, which never wrap
        if ((sizes > 0) & ((at < begin) | (at + sizes > end))).any():
            raise file.broken("has a payload outside its data")
        data = file.bytes if file.remote is None else file.remote.fetched(list(zip(at, sizes, strict=True)))
        for i, row, (pointer, size, raw_size, crc, codec) in zip(
            mine.tolist(), rows.tolist(), found[["pointer", "size", "raw_size", "crc", "codec"]].tolist(), strict=True
        ):
            if not valid[i]:
                continue
            payload: Buffer = data[pointer : pointer + size].data
            computed = kernels.crc32c(payload)
            if computed != crc:
                raise ChecksumError(
                    "payload damaged", stored=crc, computed=computed, path=file.path,
                    hint=f'run "fastloader verify {self._dataset.path}"',
                )  # fmt: skip
            if codec == kernels.ZSTD_DICTIONARY and not self._has_dictionary(number, file, field):
                raw = file.payload(field, row)
                raw_size = len(raw)
                payload, codec = compressed(self._specs[number], raw, None)
            payloads[i] = payload
            extents["raw_size"][i], extents["codec"][i] = raw_size, codec

    def _has_dictionary(self, number: int, file: FldFile, field: int) -> bool:
        """Whether a file's dictionary is the new file's; the first that is needed is."""
        dictionary = file.dictionary(field)
        return dictionary is not None and self._dictionaries.setdefault(number, dictionary) == dictionary


def _valid(file: FldFile, field: int, rows: Ints) -> NDArray[np.bool_]:
    table = file.table(Kind.VALIDITY, field, rows // 8 if file.remote is not None else None)
    if table is None:
        return np.ones(len(rows), np.bool_)
    bits = np.empty(len(rows), np.uint8)
    kernels.take_bits([table], None, rows, bits)
    return bits.astype(np.bool_)
