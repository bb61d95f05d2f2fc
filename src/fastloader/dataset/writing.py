"""``Dataset.write``: any dataset as a file, with fields that are told from its samples unless they are named."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastloader.dataset.base import MapNode, Node, Run, Skipped
from fastloader.dataset.choosing import MapOptions
from fastloader.dataset.mapping import Call, MapMap
from fastloader.dataset.planning import Plan, plan_shards
from fastloader.dataset.records import FromRecords
from fastloader.dataset.rows import Rows, rows_of
from fastloader.dataset.running import new_run
from fastloader.dataset.shards import Recipe, finished, name_all, whole, write_here
from fastloader.dataset.staging import BucketStage, LocalStage, Stage
from fastloader.dataset.streaming import IterOptions
from fastloader.errors import FormatError, KeyNotFoundError, SampleError
from fastloader.fields import Field, ImageFileField
from fastloader.formats.files import EachFile
from fastloader.formats.fld import Dataset as Stored
from fastloader.formats.fld.sending import refuse_web_servers, send, version_at
from fastloader.progress import progress
from fastloader.stores import ObjectPath
from fastloader.stores.local import Scratch
from fastloader.types import Sample
from fastloader.writer import DatasetWriter
from fastloader.writer.exports import EXPORTS, Shards, export_of, left_behind
from fastloader.writer.inference import infer_fields
from fastloader.writer.intake import size_of

LOOKED_AT = 128
SPREAD = 16
"""Samples from which fields are told: the first ones, and some spread over the rest where there is random access."""
READ_TOGETHER = 64


@dataclass(frozen=True)
class Options:
    """How a dataset is written."""

    fields: Mapping[str, Field] | None = None
    """Fields by name, for those that are not to be told from the samples."""
    shard_size: int | None = None
    shard_samples: int | None = None
    compression: Any = None
    threads: int | None = None
    show_progress: bool | None = None
    storage_options: Mapping[str, Any] | None = None


class Elements:
    """What is to be written: samples from the ``start``-th on, and a few of them to tell fields from."""

    def __init__(self, node: Node, run: Run) -> None:
        self.node, self.run = node, run
        self.length = node.length(run) if isinstance(node, MapNode) else None
        self.rows: Rows | None = rows_of([(node, run)]) if isinstance(node, MapNode) else None
        self._looked: list[tuple[int, Sample]] = []

    @property
    def known(self) -> dict[str, Field] | None:
        """The fields, where the samples are those of a reader, unchanged."""
        if self.rows is None or not isinstance(self.rows.reader.dataset, Stored):  # bytes of others may be anything
            return None
        fields = self.rows.reader.fields
        return {name: fields[name] for name in self.rows.fields or fields}

    def told(self, named: Collection[str]) -> dict[str, Field]:
        """The fields that a format tells, but for those that are named."""
        node = self.node
        if not isinstance(node, FromRecords):
            return {}
        return node.records.stored_as([name for name in node.fields or node.records.names or () if name not in named])

    def looked_at(self) -> list[Sample]:
        """Some samples."""
        with contextlib.closing(self.samples(0, None)) as first:
            found = list(enumerate(itertools.islice(first, LOOKED_AT)))
        if self.length is not None and self.length > len(found) and isinstance(self.node, MapNode):
            for place in np.linspace(len(found), self.length - 1, SPREAD).astype(np.int64).tolist():
                with contextlib.suppress(Skipped):
                    found.append((place, self.node.get(self.run, 0, place)))
        self._looked = found
        return [sample for _, sample in found]

    def plan(self, size: int) -> Plan | None:
        """Shards of about this size, where they can be known ahead: not of streams, nor where elements are left out.

        To be asked for behind the fields.
        """
        if not isinstance(self.node, MapNode) or _leaves_out(self.node):
            return None
        looked = [(place, sample) for place, sample in self._looked if isinstance(sample, Mapping)]
        mean = 1 if self.rows is None else self.rows.reader.dataset.sample_bytes
        return plan_shards(self.node, self.run, size, looked, mean)

    def samples(self, start: int, threads: int | None) -> Generator[Sample]:
        """All from ``start`` on. Images of a reader come as they are stored; files are read by several threads."""
        if self.rows is not None:
            yield from self._stored(start, self.rows)
            return
        node: Node = self.node
        if isinstance(node, FromRecords) and isinstance(node.records, EachFile):
            node = MapMap(node, Call(_itself, None, threads or "auto"))
        by_place = isinstance(node, MapNode) and not _leaves_out(node)
        with contextlib.closing(self.run.start(node, 0, start if by_place else None)) as cursor:
            yield from itertools.islice(cursor, 0 if by_place else start, None)

    def _stored(self, start: int, rows: Rows) -> Iterator[Sample]:
        assert isinstance(self.node, MapNode)
        assert self.length is not None
        reader, names = rows.reader, rows.fields or tuple(rows.reader.field_names)
        images = [name for name in names if isinstance(reader.fields[name], ImageFileField)]
        others = [name for name in names if name not in images]
        for first in range(start, self.length, READ_TOGETHER):
            places = np.arange(first, min(first + READ_TOGETHER, self.length), dtype=np.int64)
            for sample in rows.of(self.node, self.run, 0, places).tolist():
                values = reader.read_sample(sample, others) if others else {}
                for name in images:
                    payload = reader.read_payload(sample, name)
                    values[name] = None if payload is None else bytes(payload)
                yield {name: values[name] for name in names}


def _itself(value: Any) -> Any:
    return value


def _leaves_out(node: Node) -> bool:
    """Whether elements may be left out, so that how many were given does not tell the place."""
    told = isinstance(node, MapOptions | IterOptions) and node.settings.on_error == "skip"
    return told or any(map(_leaves_out, node.parts()))


def fields_of(elements: Elements, named: Mapping[str, Field] | None) -> tuple[dict[str, Field], list[Sample]]:
    """The fields: those that are named, known, or told from some samples, which are given too."""
    if elements.known is not None:
        fields, looked = elements.known, []
    else:
        looked = elements.looked_at()
        told = {**elements.told(named or ()), **(named or {})}
        if not looked and not told:
            raise FormatError("has no samples, so its fields can't be told", hint="name them")
        given = [{k: v for k, v in sample.items() if k not in told} if isinstance(sample, Mapping) else sample
                 for sample in looked]  # fmt: skip
        fields = infer_fields(given)
        order = dict.fromkeys(name for sample in looked for name in sample) if looked else told
        fields = {name: fields.get(name, told.get(name)) for name in order}  # type: ignore[misc]
    unknown = [name for name in named or () if name not in fields and (looked or elements.known)]
    if unknown:
        raise KeyNotFoundError(f"there is no field {unknown[0]!r}; there are {', '.join(fields)}")
    return {**fields, **(named or {})}, looked


def write(node: Node, path: Path | ObjectPath, options: Options) -> dict[str, Field]:
    """Write all elements; the fields they were written with."""
    exported = path.name.endswith(EXPORTS)
    if not exported and not path.name.endswith(".fld"):
        raise ValueError(f"{path}: a name ends with .fld, {' or '.join(EXPORTS)}, which says what to write")
    if exported and options.compression is not None:
        raise ValueError(f"compression is for .fld, not for {Path(path.name).suffix}")
    elements = Elements(node, new_run())
    fields, looked = fields_of(elements, options.fields)
    target = path if isinstance(path, ObjectPath) else Path(os.path.realpath(path))
    if exported:
        _export_to(elements, target, fields, looked, options)
    elif options.shard_samples is not None:
        raise ValueError("shard_samples is for tars; shard_size makes shards of a .fld dataset")
    elif options.shard_size is not None:
        stage = stage_for(target, options)
        plan = elements.plan(options.shard_size)
        if plan is None:
            _write_on(elements, stage, fields, options, options.shard_size)
        else:
            _write_planned(elements, plan, stage, fields, options)
    else:
        with (
            DatasetWriter(
                str(target), fields, num_workers=options.threads, compression=options.compression,
                storage_options=options.storage_options,
            ) as writer,
            _told(elements, options) as advance,
        ):  # fmt: skip
            for sample in elements.samples(0, options.threads):
                writer.write_sample(whole(sample, fields))
                advance(1)
    return fields


def _told(elements: Elements, options: Options, done: int = 0) -> Any:
    total = None if elements.length is None else elements.length - done
    return progress("converting", total, show=options.show_progress)


def _export_to(
    elements: Elements, target: Path | ObjectPath, fields: Mapping[str, Field], looked: Sequence[Sample],
    options: Options,
) -> None:  # fmt: skip
    """Into a store by way of the temporary folder, as shards go."""
    if isinstance(target, Path):
        _export(elements, target, fields, looked, options)
        return
    refuse_web_servers(target)
    with Scratch() as folder:
        _export(elements, folder / target.name, fields, looked, options)
        made = sorted(folder.iterdir())  # several, where the name has a place for a number
        for one in made:
            send(one, target.beside(one.name))
        for name in left_behind(target.name, len(made), lambda name: version_at(target.beside(name)) is not None):
            target.store.delete(target.beside(name).key)


def _export(
    elements: Elements, path: Path, fields: Mapping[str, Field], looked: Sequence[Sample], options: Options
) -> None:
    known = looked or list(itertools.islice(elements.samples(0, None), LOOKED_AT))
    export = export_of(path, fields, known, Shards(options.shard_size, options.shard_samples))
    assert export is not None
    try:
        with _told(elements, options) as advance:
            for number, sample in enumerate(elements.samples(0, options.threads)):
                unknown = [name for name in sample if name not in fields]
                if unknown:
                    raise SampleError(f"has unknown fields {', '.join(unknown)}", sample=number)
                export.write(whole(sample, fields))
                advance(1)
        export.finish()
    finally:
        export.discard()


def stage_for(target: Path | ObjectPath, options: Options) -> Stage:
    """Where a conversion into shards keeps what is done."""
    return LocalStage(target) if isinstance(target, Path) else BucketStage(target, options.storage_options)


def _write_planned(elements: Elements, plan: Plan, stage: Stage, fields: dict[str, Field], options: Options) -> None:
    """The shards of a plan that an earlier try has not left; the dataset appears when it is whole."""
    stage.begin(about(elements, fields, options, plan))
    folder = stage.folder
    if isinstance(folder, Path):
        folder.mkdir(exist_ok=True)
    there = finished(folder, plan)
    recipe = Recipe.to(folder, fields, options.compression, options.threads)
    with _told(elements, options, sum(shard.num_samples for shard in there.values())) as advance:
        done = write_here(
            folder, plan, recipe, there,
            lambda first: contextlib.closing(elements.samples(first, options.threads)), advance,
        )  # fmt: skip
    name_all(folder, done)
    stage.publish()


def _write_on(elements: Elements, stage: Stage, fields: dict[str, Field], options: Options, size: int) -> None:
    """Shard by shard as they fill, behind what an earlier try has left; the dataset appears when it is whole."""
    stage.begin(about(elements, fields, options, None))
    done = stage.samples()
    writing = partial(DatasetWriter, stage.data, fields, storage_options=stage.storage_options)
    samples = elements.samples(done, options.threads)
    with _told(elements, options, done) as advance, contextlib.closing(samples):
        for sample in samples:
            more: Any = {"mode": "a"} if done else {"shard_size": 2 * size}
            with writing(num_workers=options.threads, compression=options.compression, **more) as writer:
                held = 0
                for one in itertools.chain([sample], samples):
                    sample = whole(one, fields)
                    writer.write_sample(sample)
                    advance(1)
                    held += size_of(sample)
                    if held >= size:
                        break
                done += writer.num_samples
        if not done:
            writing(shard_size=size).close()
    stage.publish()


def about(elements: Elements, fields: Mapping[str, Field], options: Options, plan: Plan | None) -> bytes:
    """What must agree for a conversion to go on with what another has left."""
    told: dict[str, Any] = {
        "expression": elements.node.signature(elements.run),
        "origin": elements.node.origin(elements.run),
        "fields": {name: [field.type_id, field.to_binary().hex()] for name, field in fields.items()},
        "compression": str(options.compression),
    }  # fmt: skip
    if plan is not None:
        told["shards"] = plan.digest()
    return json.dumps(told, indent=1).encode()
