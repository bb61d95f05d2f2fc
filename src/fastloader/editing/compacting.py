"""Shards written anew without what is gone: rows that were removed, columns that were dropped, files beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from fastloader.editing.stored import StoredRows
from fastloader.formats.fld import Dataset, FieldSpec, FldBuilder, Manifest, Shard
from fastloader.formats.fld.changing import FolderOrBucket

AT_ONCE = 1024
AT_ONCE_BYTES = 16 << 20

Advance = Callable[[int], object]


def needs_compacting(dataset: Dataset, shard: int) -> bool:
    """Whether a shard holds rows or columns that are gone, or has files beside it."""
    manifest = dataset.manifest
    if any(one.shard == shard for one in manifest.removed) or any(one.shard == shard for one in manifest.beside):
        return True
    if manifest.columns is None:
        return False
    stored = {stored for _, stored in manifest.columns}
    return any(descriptor.name not in stored for descriptor in dataset.members(shard)[0].descriptors)


def compacted(
    dataset: Dataset, change: FolderOrBucket, shard_size: int | None, advance: Advance
) -> tuple[Manifest, int] | None:
    """The manifest with such shards written anew, and how many; ``None`` where there are none.

    With ``shard_size`` all samples are written anew, into shards of that size.
    """
    touched = {
        shard for shard in range(len(dataset.shards)) if shard_size is not None or needs_compacting(dataset, shard)
    }
    if not touched:
        return None
    all_of_it = len(touched) == len(dataset.shards)
    columns = dataset.manifest.columns
    # Whoever writes everything anew can store fields under the names they have.
    names = None if columns is None or all_of_it else [stored for _, stored in columns]
    specs = dataset.specs() if names is None else [
        replace(spec, name=name) for spec, name in zip(dataset.specs(), names, strict=True)
    ]  # fmt: skip
    writing = _Writing(dataset, change, specs, shard_size, advance)
    shards: list[Shard] = []
    if shard_size is not None:
        shards += writing.shards(0, dataset.num_samples)
    else:
        for number, shard in enumerate(dataset.shards):
            begin, end = dataset.runs.rank(dataset.row_starts[number : number + 2]).tolist()
            shards += writing.shards(begin, end) if number in touched else [shard]
    if not shards:  # nothing is left, and a dataset has at least one shard
        shards += writing.shards(0, 0, empty=True)
    # Another shard may be left alone though columns have other names in it.
    kept = None if all_of_it else columns
    return Manifest(tuple(shards), columns=kept), len(touched)


class _Writing:
    """New shards, one after the other."""

    def __init__(
        self, dataset: Dataset, change: FolderOrBucket, specs: Sequence[FieldSpec], shard_size: int | None,
        advance: Advance,
    ) -> None:  # fmt: skip
        self._dataset, self._change, self._specs = dataset, change, specs
        self._limit, self._advance = shard_size, advance
        self._number = 0
        mean = max(1, dataset.sample_bytes)
        self._at_once = max(1, min(AT_ONCE, AT_ONCE_BYTES // mean))

    def shards(self, begin: int, end: int, *, empty: bool = False) -> Iterator[Shard]:
        """Samples from ``begin`` to ``end`` in as many shards as they take."""
        while begin < end or empty:
            empty = False
            name = self._change.name("shard", self._number)
            self._number += 1
            builder = FldBuilder(
                self._change.place(name), self._specs, self._dataset.page_size, keys=self._dataset.has_keys,
                data_limit=self._limit, first_sample=begin,
            )  # fmt: skip
            try:
                rows = StoredRows(self._dataset, self._specs)
                while begin < end:
                    count = min(self._at_once, end - begin)
                    taken = builder.append(rows.chunk(np.arange(begin, begin + count)))
                    begin += taken
                    self._advance(taken)
                    if taken < count:
                        break
                samples = builder.num_samples
                size, identity = builder.finish()
            finally:
                builder.discard()
            self._change.made(name)
            yield Shard(name, samples, size, identity)
