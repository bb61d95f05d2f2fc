"""Changes to a dataset that is there. Each is a new snapshot; those before it stay as they were."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fastloader.editing.beside import NewColumn, by_fields, learned, live_rows, write_beside
from fastloader.editing.choosing import Choice, Where
from fastloader.editing.compacting import Advance, compacted
from fastloader.editing.log import Snapshot, as_it_is, drop_snapshots_of, snapshots_of
from fastloader.editing.removing import with_removed
from fastloader.errors import KeyNotFoundError, SampleError, StoreError
from fastloader.fields import Field
from fastloader.formats.fld import Dataset, FieldSpec, Manifest, is_sharded
from fastloader.formats.fld.changing import changing, publish
from fastloader.formats.fld.layout import NAME_BYTES
from fastloader.formats.fld.manifest import Beside
from fastloader.formats.fld.sending import published_manifest
from fastloader.formats.fld.snapshots import changed, replace_newest
from fastloader.formats.fld.target import as_folder
from fastloader.reader import DatasetReader, dataset_at
from fastloader.types import Key, Sample, TypeId, parse_size
from fastloader.writer.schema import make_specs
from fastloader.writer.training import known_dictionaries

Changes = Mapping[Any, Mapping[str, Any]]
Values = Mapping[str, Any] | Callable[[Sample], Mapping[str, Any]]


def edit(path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> DatasetEditor:
    """Changes to the dataset at a path or URL: ``fl.edit("train.fld").delete(keys=["a"])``."""
    return DatasetEditor(path, storage_options)


class DatasetEditor:
    """Changes a dataset, a local one or one in a store. Files that are there are never changed.

    Each method makes a new snapshot, whole or not at all, and returns it; ``fl.open(path, snapshot=...)`` still opens
    those before. Who reads the dataset meanwhile keeps what they have opened. Of two who change it at once, the first
    wins, and the other gets a ``StoreError`` and may do it again: nothing of theirs is lost, since nothing of it is
    there yet. A single local file becomes the first shard of a folder.

    Archives are changed by ``fastloader add`` and ``rm``, and streams of tokens not at all.
    """

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> None:
        self._path, self._options = path, storage_options
        self._open()

    def _open(self) -> Dataset:
        dataset = dataset_at(self._path, self._options)
        if isinstance(dataset.path, Path):
            dataset = Dataset(Path(os.path.realpath(dataset.path)))  # a link stays a link
        if dataset.is_archive:
            raise StoreError(
                "is an archive, of files", path=dataset.path,
                hint=f'"fastloader add" and "fastloader rm" change it: fastloader rm {dataset.path} ...',
            )  # fmt: skip
        if any(descriptor.type_id == TypeId.TOKEN_STREAM for descriptor in dataset.descriptors):
            raise StoreError("is a stream of tokens, which has no rows to change", path=dataset.path)
        return dataset

    def delete(
        self,
        keys: Iterable[Key] | None = None,
        *,
        indices: Iterable[int] | None = None,
        where: Where | None = None,
        fields: Sequence[str] | None = None,
    ) -> Snapshot:
        """Take samples out: those with these keys, numbers, or for which ``where`` holds.

        ``where`` is a comparison such as ``("label", "==", 3)``, several that must all hold, or a function of a sample,
        which is given ``fields`` (all unless told). Samples behind count on from those before. Their bytes stay in the
        files until ``compact``.
        """
        choice = Choice(keys=keys, indices=indices, where=where, fields=fields)
        dataset = self._open()
        samples = choice.samples(DatasetReader.of(dataset))
        if not len(samples):
            return as_it_is(dataset)
        dataset = as_folder(dataset)
        removed = tuple(with_removed(dataset, dataset.runs.places_of(samples)))
        summary = f"{len(samples):,} of {dataset.num_samples:,} samples deleted"
        return self._commit(dataset, dataset.manifest.next("delete", summary, removed=removed))

    def update(
        self,
        changes: Changes | None = None,
        *,
        where: Where | None = None,
        values: Values | None = None,
        fields: Sequence[str] | None = None,
    ) -> Snapshot:
        """Give samples new values: ``{key: {"label": 3}}``, by keys or numbers; or the same ``values`` to all for which
        ``where`` holds (to all there are, without), or those that ``values``, a function of a sample, returns.

        What is not named stays. A value of ``None`` is a missing one. Samples keep their numbers and keys. The new
        values are written beside the shards they are in.
        """
        dataset = self._open()
        reader = DatasetReader.of(dataset)
        if (changes is None) == (values is None) or (changes is not None and where is not None):
            raise ValueError("give either changes, by key or number, or where= and values=")
        if changes is not None:
            numbered: dict[int, Mapping[str, Any] | None] = {
                reader.number_of(sample): given for sample, given in changes.items()
            }
        else:
            every = range(len(reader)) if where is None else None
            chosen = Choice(indices=every, where=where, fields=fields).samples(reader)
            numbered = dict.fromkeys(chosen.tolist())
        if not numbered:
            return as_it_is(dataset)
        known = set(dataset.names)
        dataset = as_folder(dataset)
        reader = DatasetReader.of(dataset)
        specs = _stored(dataset, dataset.specs())
        known_before = known_dictionaries(dataset, specs)
        columns = {
            name: NewColumn(spec, known_before.get(i))
            for i, (name, spec) in enumerate(zip(dataset.names, specs, strict=True))
        }
        samples = np.array(sorted(numbered), np.int64)
        places = dataset.runs.places_of(samples)
        shards = np.searchsorted(dataset.row_starts, places, "right") - 1
        made: list[Beside] = []
        with changing(dataset) as change:
            for shard in np.unique(shards).tolist():
                mine = shards == shard
                rows = (places[mine] - dataset.row_starts[shard]).tolist()
                updates: dict[int, Mapping[str, Any]] = {}
                for row, sample in zip(rows, samples[mine].tolist(), strict=True):
                    given = numbered[sample]
                    if values is not None:
                        given = values(reader.read_sample(sample, fields)) if callable(values) else values
                    _check_names(given, known, sample)
                    if given:
                        updates[row] = given
                for names, some in by_fields(updates).items():
                    given_values = ([updates[row][name] for name in names] for row in some)
                    made.append(
                        write_beside(
                            change, dataset, shard, len(made), [columns[name] for name in names], np.array(some),
                            given_values,
                        )
                    )  # fmt: skip
            if not made:
                return as_it_is(dataset)
            manifest = dataset.manifest
            after = manifest.next(
                "update", f"{len(samples):,} of {dataset.num_samples:,} samples updated",
                columns=manifest.columns or tuple((name, name) for name in dataset.names),
                beside=_unhidden((*manifest.beside, *made)),
            )  # fmt: skip
            change.commit(after)
        return Snapshot.of(after)

    def add_column(
        self,
        name: str,
        field: Field,
        values: Iterable[Any] | Mapping[Key, Any] | Callable[[Sample], Any],
        *,
        fields: Sequence[str] | None = None,
        compression: str | None = None,
    ) -> Snapshot:
        """Give every sample another value. It is written beside the shards, which stay as they are.

        ``values`` has one for each sample, in order; or one for each key, where a key that it lacks has none; or it is
        a function of a sample, which is given ``fields`` (all unless told). ``None`` is a missing value.
        """
        dataset = self._open()
        if name in dataset.names:
            raise ValueError(f"{dataset.path}: there is a field {name!r} already; drop or rename it first")
        given = None if compression is None else {name: compression}
        spec = make_specs({name: field}, given, None)[0]
        dataset = as_folder(dataset)
        columns = dataset.manifest.columns or tuple((known, known) for known in dataset.names)
        spec = replace(spec, name=_unused(name, {stored for _, stored in columns}, dataset.manifest.snapshot + 1))
        reader = DatasetReader.of(dataset)
        column, one_each = learned(spec, _in_order(reader, values, fields))
        with changing(dataset) as change:
            made = [
                write_beside(change, dataset, shard, shard, [column], live_rows(dataset, shard)[1], one_each)
                for shard in range(len(dataset.shards))
            ]
            left = sum(1 for _ in one_each)
            if left:
                raise ValueError(f"there are {left:,} values more than the {len(reader):,} samples of {dataset.path}")
            after = dataset.manifest.next(
                "add column", f"{name!r} added", columns=(*columns, (name, spec.name)),
                beside=(*dataset.manifest.beside, *made),
            )  # fmt: skip
            change.commit(after)
        return Snapshot.of(after)

    def rename_column(self, old: str, new: str) -> Snapshot:
        """Call a field by another name."""
        dataset = self._open()
        columns = self._columns(dataset, old)
        if new in dataset.names:
            raise ValueError(f"{dataset.path}: there is a field {new!r} already; drop or rename it first")
        FieldSpec(new, dataset.field(dataset.names.index(old)))  # whether a field can be called that
        dataset = as_folder(dataset)
        renamed = tuple((new if name == old else name, stored) for name, stored in columns)
        return self._commit(dataset, dataset.manifest.next("rename column", f"{old!r} is {new!r} now", columns=renamed))

    def drop_column(self, name: str) -> Snapshot:
        """Take a field out. Its bytes stay in the files until ``compact``."""
        dataset = self._open()
        columns = self._columns(dataset, name)
        if len(columns) == 1:
            raise ValueError(f"{dataset.path}: {name!r} is its only field; a dataset has at least one")
        dataset = as_folder(dataset)
        left = tuple(column for column in columns if column[0] != name)
        stored = {stored for _, stored in left}
        beside = []
        for one in dataset.manifest.beside:
            names = tuple(name for name in one.names if name in stored)
            if names:
                beside.append(replace(one, names=names))
        after = dataset.manifest.next("drop column", f"{name!r} dropped", columns=left, beside=tuple(beside))
        return self._commit(dataset, after)

    def compact(self, *, shard_size: int | str | None = None, advance: Advance = lambda samples: None) -> Snapshot:
        """Write shards anew that hold rows or columns which are gone, or have files beside them.

        Payloads move as they are stored. With ``shard_size`` all samples are written anew, into shards of that size:
        for datasets that have grown by many small additions. The old files stay for the snapshots before, until
        ``drop_snapshots``. Samples keep their order and numbers.
        """
        limit = None if shard_size is None else parse_size(shard_size, "shard_size")
        if limit is not None and limit < 1:
            raise ValueError(f"shard_size={shard_size!r}: at least one byte")
        dataset = self._open()
        if not is_sharded(dataset.path) and limit is None:
            return as_it_is(dataset)  # a file is never changed, so it holds nothing that is gone
        dataset = as_folder(dataset)
        with changing(dataset) as change:
            made = compacted(dataset, change, limit, advance)
            if made is None:
                return as_it_is(dataset)
            manifest, touched = made
            after = dataset.manifest.next(
                "compact", f"{touched:,} of {len(dataset.shards):,} shards written anew", shards=manifest.shards,
                removed=(), columns=manifest.columns, beside=(),
            )  # fmt: skip
            change.commit(after)
        return Snapshot.of(after)

    def snapshots(self) -> list[Snapshot]:
        """All that can be opened, the newest first."""
        return snapshots_of(self._open())

    def drop_snapshots(self, keep: int = 1, *, unnamed_days: float | None = None) -> tuple[list[int], int]:
        """Forget all snapshots but the newest ``keep``, and remove files that only they need.

        Returns the numbers of those that are gone and the bytes that were given back. What the others name stays. A
        writer that was killed leaves files that nothing names. On a local disk they go too; in a bucket, where they
        might be those of one that is still at work, if they are ``unnamed_days`` old.
        """
        return drop_snapshots_of(self._open(), keep, unnamed_days)

    def _commit(self, dataset: Dataset, after: Manifest) -> Snapshot:
        """A change that needs no new file."""
        where = dataset.path
        if isinstance(where, Path):
            publish(where, dataset.manifest, after, [])
        else:
            version, newest = published_manifest(where / "manifest.json")
            if newest != dataset.manifest:
                raise changed(where)
            replace_newest(where, after, version, dataset.manifest)
        return Snapshot.of(after)

    def _columns(self, dataset: Dataset, name: str) -> tuple[tuple[str, str], ...]:
        if name not in dataset.names:
            raise KeyNotFoundError(f"no field {name!r}; there are {', '.join(dataset.names)}", path=dataset.path)
        return dataset.manifest.columns or tuple((known, known) for known in dataset.names)


def _stored(dataset: Dataset, specs: Sequence[FieldSpec]) -> list[FieldSpec]:
    """Fields by the names they are stored under."""
    columns = dataset.manifest.columns
    names = dataset.names if columns is None else [stored for _, stored in columns]
    return [replace(spec, name=name) for spec, name in zip(specs, names, strict=True)]


def _check_names(given: Any, known: set[str], sample: int) -> None:
    if not isinstance(given, Mapping):
        raise SampleError(f"new values are a mapping from field to value, not a {type(given).__name__}", sample=sample)
    unknown = sorted(map(repr, given.keys() - known))
    if unknown:
        raise SampleError(f"has no fields {', '.join(unknown)}; there are {', '.join(sorted(known))}", sample=sample)


def _unused(name: str, taken: set[str], snapshot: int) -> str:
    """A name to store a new field under: its own, unless one that was renamed since is stored under that."""
    if name not in taken:
        return name
    ending = f".{snapshot}"
    cut = name.encode()[: NAME_BYTES - len(ending)].decode(errors="ignore")
    return cut + ending


def _unhidden(beside: Sequence[Beside]) -> tuple[Beside, ...]:
    """Without those of which later ones hold every value."""
    kept: list[Beside] = []
    hidden: dict[int, set[str]] = defaultdict(set)
    for one in reversed(beside):
        names = tuple(name for name in one.names if name not in hidden[one.shard])
        if names:
            kept.append(replace(one, names=names))
        if one.rows is None:
            hidden[one.shard] |= set(one.names)
    return tuple(reversed(kept))


def _in_order(
    reader: DatasetReader,
    values: Iterable[Any] | Mapping[Key, Any] | Callable[[Sample], Any],
    fields: Sequence[str] | None,
) -> Iterator[list[Any]]:
    """A value for each sample, each in a list of its own; too few are an error."""
    found: Iterator[Any]
    if isinstance(values, Mapping):
        numbers = {reader.index_of(key): value for key, value in values.items()}
        found = (numbers.get(sample) for sample in range(len(reader)))
    elif callable(values):
        found = (values(reader.read_sample(sample, fields)) for sample in range(len(reader)))
    elif isinstance(values, str | bytes):
        raise TypeError(f"values is a {type(values).__name__}; give a list with one for each sample")
    else:
        found = chain(values)
    return _counted(found, reader)


def _counted(values: Iterator[Any], reader: DatasetReader) -> Iterator[list[Any]]:
    count = 0
    for value in values:
        yield [value]
        count += 1
    if count < len(reader):
        raise ValueError(f"{count:,} values for the {len(reader):,} samples of {reader.path}; None is a missing one")
