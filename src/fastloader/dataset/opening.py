"""Opening: readers that are datasets too, and datasets of other formats."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, cast, overload

from fastloader.dataset.base import Node
from fastloader.dataset.dataset import Dataset, IterDataset, MapDataset, Steps
from fastloader.dataset.iterator import DatasetIterator
from fastloader.dataset.records import FromRecords, FromStream
from fastloader.dataset.sources import FromReader
from fastloader.errors import KeyNotFoundError
from fastloader.formats.decoding import Decode
from fastloader.formats.extents import ExtentDataset
from fastloader.formats.fld import Dataset as Stored
from fastloader.formats.objects import Places
from fastloader.formats.opening import Own, open_source
from fastloader.formats.records import Records, Source, Stream
from fastloader.formats.where import Where
from fastloader.reader import DatasetReader
from fastloader.stores.cache import cache_at
from fastloader.stores.urls import is_url, local_path
from fastloader.types import Key, Sample


class ReaderDataset(DatasetReader, Steps[MapDataset]):
    """A reader with the steps of a dataset: ``fl.open(path).shuffle(seed=1).batch(32)``."""

    @property
    def node(self) -> Node:
        """Its samples."""
        return FromReader(self)

    def __iter__(self) -> DatasetIterator:
        return self.iterate()

    @overload  # type: ignore[override]  # a dataset has all that is asked of a slice
    def __getitem__(self, index: int | Key) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> MapDataset: ...
    def __getitem__(self, index: int | Key | slice) -> Any:
        return MapDataset(self.node)[index] if isinstance(index, slice) else self.read_sample(index)


class ForeignReader(ReaderDataset):
    """Samples whose values are parts of files that others wrote, with all that readers of ``.fld`` datasets have."""

    def __init__(self, dataset: ExtentDataset) -> None:
        self._dataset = cast("Stored", dataset)  # it has all that is asked of one
        self._columns = {}

    @property
    def _files(self) -> ExtentDataset:
        return cast("ExtentDataset", self.dataset)

    @property
    def format(self) -> str:
        """What the files are."""
        return self._files.schema.format

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in order."""
        return tuple(part.path for part in self._files.parts)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names that labels count, where folders stand for classes."""
        return self._files.schema.classes

    def __repr__(self) -> str:
        if self._dataset is None:
            return "ForeignReader(closed)"
        return f"ForeignReader({str(self.path)!r}, {len(self)} samples of {', '.join(self.field_names)})"


class _Opened:
    """What is known of a dataset of another format."""

    node: Any

    @property
    def source(self) -> Source:
        """Who reads the files."""
        found: Source = self.node.records if isinstance(self.node, FromRecords) else self.node.stream
        return found

    @property
    def format(self) -> str:
        """What the files are."""
        return self.source.format

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in order."""
        return self.source.paths

    @property
    def field_names(self) -> list[str] | None:
        """The fields of samples; ``None`` where each sample has its own."""
        names = self.node.fields or self.source.names
        return None if names is None else list(names)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names that labels count, where folders stand for classes."""
        return self.source.classes


class MapSource(_Opened, MapDataset):
    """Samples of another format, with a length and random access."""


class IterSource(_Opened, IterDataset):
    """Samples of another format, one after the other; how many is not known."""


def open_dataset(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    format: str | None = None,
    fields: Sequence[str] | None = None,
    where: Where | None = None,
    rows: bool | None = None,
    types: Mapping[str, str] | None = None,
    decode: Decode = None,
    group: bool | None = None,
    snapshot: int | str | None = None,
) -> Any:
    """Open a dataset for reading, whatever it is stored as; files are recognised by what is in them.

    A ``.fld`` file or folder of shards gives a reader, which gives samples by number and key and goes into a
    ``DataLoader``, and is a dataset, with ``map``, ``shuffle``, ``batch`` and the other steps. So do tars, zips
    and Barecat archives. Other formats give a dataset: a ``MapSource``, or an ``IterSource`` where there is no random
    access. ``path`` may also be a folder of files, a pattern such as ``"data/*.parquet"``, or a list.
    ``docs/reference/formats.md`` has all formats.

    - ``storage_options``, ``cache_dir``, ``cache_size``: for URLs, as for ``DatasetReader``.
    - ``snapshot``: a folder of shards as it was, by the number of the snapshot or its name in a loader's state.
    - ``format``: what the files are to be taken for.
    - ``fields``: which to read.
    - ``where``: for Parquet and Arrow, comparisons that must all hold: ``[("label", "==", 3)]``.
    - ``rows``: for NPY and NPZ, whether the first axis counts samples (so for one file) or each file is a sample (so
      for a folder, a pattern or a list).
    - ``decode``: for tar, zip and Barecat, ``True`` for what is known by its ending (images, JSON, text, numbers, NPY),
      or by field a ``Field``, a function of bytes, or ``True``. Without it values are bytes.
    - ``group``: for tar and zip, whether members that share a name up to its first dot are one sample, as WebDataset
      has it, or each member is one.
    - ``types``: for CSV, what columns hold, "int", "float" or "str"; for TFRecord, "list" for a feature that is one;
      for ``.beton``, what a custom field is stored like: "bytes", "ndarray", "image", ...
    """
    if not any(map(_is_remote, path if isinstance(path, list | tuple) else [path])):
        for name, value in (
            ("storage_options", storage_options), ("cache_dir", cache_dir), ("cache_size", cache_size)
        ):  # fmt: skip
            if value is not None:
                are = "are" if name.endswith("s") else "is"
                raise ValueError(f"{path}: {name} {are} for URLs; this is a local path")
    cache = cache_at(cache_dir, cache_size)
    places = Places(storage_options, cache)
    found = open_source(
        path, places, format=format, fields=fields, where=where, rows=rows, types=types, decode=decode, group=group
    )
    if isinstance(found, Own):
        manifest = found.manifest if snapshot is None else None
        return _reader(ReaderDataset.of(Stored(places.locate(found.path), manifest, snapshot=snapshot)), fields)
    if snapshot is not None:
        raise ValueError(f"{path}: snapshot={snapshot!r} is for folders of .fld shards, which alone have snapshots")
    if isinstance(found, ExtentDataset):
        reader = ForeignReader(found)
        unknown = [name for name in ([fields] if isinstance(fields, str) else fields or ()) if name not in found.names]
        if unknown:
            raise KeyNotFoundError(
                f"fields: unknown {', '.join(map(repr, unknown))}; there are {', '.join(found.names)}", path=reader.path
            )
        return _reader(reader, fields)
    chosen = found.chosen(fields)
    if isinstance(found, Records):
        return MapSource(FromRecords(found, chosen))
    assert isinstance(found, Stream)
    return IterSource(FromStream(found, chosen))


def opened(source: Any) -> Any:
    """What a path or URL opens, the reader that an archive has of its files, and anything else as it is."""
    if isinstance(source, str | os.PathLike):
        return open_dataset(source)
    return getattr(source, "reader", source) if hasattr(source, "node") else source


def _is_remote(path: object) -> bool:
    return is_url(path) and local_path(str(path)) is None


def _reader(reader: ReaderDataset, fields: Sequence[str] | None) -> Any:
    return reader if fields is None else Dataset.from_reader(reader, fields)
