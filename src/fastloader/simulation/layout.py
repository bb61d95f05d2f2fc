"""Where the samples of a dataset lie: told from its tables, or from a manifest alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.formats.fld import Manifest
from fastloader.formats.fld.file import TABLES_LEAST, TABLES_ROW, FldFile
from fastloader.formats.fld.layout import REMOTE_PAGE_SIZE
from fastloader.formats.fld.spans import page_spans
from fastloader.samplers import Pages
from fastloader.samplers.quasi_random import MANY_SHARDS, MAX_RUNS

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Stretches of samples that lie one behind the other, in order: a page each, or a whole shard where less is known.

    Stretch ``k`` begins with sample ``first[k]``, at byte ``begin[k]`` of file ``shard[k]``, and its samples are taken
    to have ``each[k]`` bytes, their mean. ``starts`` are the first samples of shards, and the end; ``sizes`` their
    bytes.
    """

    starts: Numbers
    sizes: Numbers
    first: Numbers
    shard: Numbers
    begin: Numbers
    each: NDArray[np.float64]
    page_size: int
    payload_fields: int
    is_remote: bool

    @property
    def is_vast(self) -> bool:
        """Whether a loader tells pages from the manifest alone."""
        return len(self.sizes) > MANY_SHARDS or self.num_bytes // self.page_size > MAX_RUNS

    @property
    def num_samples(self) -> int:
        """Samples in all shards."""
        return int(self.starts[-1])

    @property
    def num_bytes(self) -> int:
        """Bytes of all shards."""
        return int(self.sizes.sum())

    @classmethod
    def of_manifest(
        cls, manifest: Manifest, *, page_size: int = REMOTE_PAGE_SIZE, payload_fields: int = 1, is_remote: bool = True
    ) -> Layout:
        """A layout of which nothing is known but the shards: samples of a shard are as large as each other."""
        samples = np.array([shard.num_samples for shard in manifest.shards], np.int64)
        sizes = np.array([shard.size for shard in manifest.shards], np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(samples)])
        held = np.flatnonzero(samples)
        data = np.maximum(sizes - TABLES_LEAST - samples * TABLES_ROW * payload_fields, 0)
        return cls(
            starts, sizes, starts[held], held, np.zeros(len(held), np.int64), data[held] / samples[held],
            page_size, payload_fields, is_remote,
        )  # fmt: skip

    @classmethod
    def of(cls, dataset: Any) -> Layout:
        """That of a reader's dataset: its files are opened, and their tables of pages read."""
        first, shard, begin, each = [], [], [], []
        payloads = [number for number, one in enumerate(dataset.descriptors) if one.has_payload]
        dataset.warm(range(len(dataset.shards)), lambda number: dataset.file(number).pages())
        for number in range(len(dataset.shards)):
            file = dataset.file(number)
            pages = file.pages()
            held = np.flatnonzero(pages["num_samples"])
            low = held * dataset.page_size
            high = np.minimum(low + dataset.page_size, file.size)
            spans = page_spans(file, payloads) if isinstance(file, FldFile) else None
            if spans is not None:
                known = spans[0] < spans[1]
                low, high = np.where(known, spans[0], low), np.where(known, spans[1], low)
            first.append(pages["first_sample"][held].astype(np.int64) + int(dataset.starts[number]))
            shard.append(np.full(len(held), number, np.int64))
            begin.append(low.astype(np.int64))
            each.append((high - low).astype(np.float64) / pages["num_samples"][held])
        sizes = np.array([shard.size for shard in dataset.shards], np.int64)
        return cls(
            np.asarray(dataset.starts), sizes, np.concatenate(first), np.concatenate(shard), np.concatenate(begin),
            np.concatenate(each), dataset.page_size, len(payloads), bool(dataset.is_remote),
        )  # fmt: skip

    def extents(self, samples: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Shard, first byte and end of each sample."""
        stretch = np.searchsorted(self.first, samples, "right") - 1
        each = self.each[stretch]
        within = samples - self.first[stretch]
        begin = self.begin[stretch] + (within * each).astype(np.int64)
        end = self.begin[stretch] + np.ceil((within + 1) * each).astype(np.int64)
        return self.shard[stretch], begin, end

    def _counts(self) -> tuple[Numbers, Numbers]:
        """Samples of stretches, and pages that these begin on."""
        counts = np.diff(self.first, append=self.num_samples)
        last = self.begin + ((counts - 1) * self.each).astype(np.int64)
        return counts, last // self.page_size - self.begin // self.page_size + 1

    @property
    def knows_pages(self) -> bool:
        """Whether each stretch is a page."""
        return bool((self._counts()[1] == 1).all())

    def spans(self) -> NDArray[np.float64]:
        """Bytes of each stretch."""
        return self._counts()[0] * self.each

    def pages(self) -> Pages:
        """Which samples begin on which page, as a loader takes them: neighbours together where there are too many."""
        if self.is_vast:
            return Pages.of_shards(self.starts, self.sizes, self.page_size)
        counts, number = self._counts()
        if self.knows_pages:
            return Pages(self.first, counts).in_runs(MAX_RUNS)
        stretch = np.repeat(np.arange(len(self.first)), number)
        page = np.arange(len(stretch)) - np.repeat(np.cumsum(number) - number, number)
        page += (self.begin // self.page_size)[stretch]
        each = np.maximum(
            self.each[stretch], 1e-9
        )  # stretches without bytes have one page, at whose beginning they are
        begin = np.ceil((page * self.page_size - self.begin[stretch]) / each).astype(np.int64)
        first = self.first[stretch] + np.maximum(begin, 0)
        return Pages(first, np.diff(first, append=self.num_samples)).in_runs(MAX_RUNS)

    def table_bytes(self) -> Numbers:
        """About what the tables of each shard take that tell where payloads lie."""
        samples = np.diff(self.starts)
        found: Numbers = np.minimum(TABLES_LEAST + samples * TABLES_ROW * self.payload_fields, self.sizes)
        return found
