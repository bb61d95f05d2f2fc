"""A dataset and this machine examined: each part of the way measured by itself, within a given time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.doctor.disk import Disk, cool_down, examine_disk
from fastloader.doctor.findings import Consumption, FieldWork, Findings
from fastloader.doctor.loading import Consumer, Run, run, run_whole
from fastloader.doctor.memory import examine_copying, resizing
from fastloader.doctor.network import Network, examine_network
from fastloader.errors import OperationError
from fastloader.loader import DataLoader
from fastloader.loader.options import OrderName
from fastloader.loader.resources import memory, usable_cpus
from fastloader.reader import DatasetReader
from fastloader.stores import ObjectPath

HOT_BYTES = 64 << 20
"""Of samples that are kept in memory to see what decoding takes."""
HOT_SAMPLES = 4096
HOT_BATCHES = 256
"""Of an epoch: each begins and ends with threads that lack work."""
IMAGES = 16
USUAL_SIZE = (224, 224)
"""What images are resized to where nothing says so."""
SHARES = {"cold": 0.2, "way": 0.35, "hot": 0.15, "alone": 0.1, "resize": 0.03, "copy": 0.05, "consumer": 0.12}
"""Of the time there is, by what it is spent on."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be examined: a dataset, and the loader that is meant."""

    path: str
    storage_options: Mapping[str, Any] | None = None
    batch_size: int = 256
    num_workers: int | None = None
    order: OrderName = "random"
    fields: tuple[str, ...] | None = None
    pipelines: Mapping[str, Any] = field(default_factory=dict)
    consumer: Consumer | None = None
    consumer_name: str = ""
    step_seconds: float | None = None
    seconds: float = 20.0

    @property
    def threads(self) -> int:
        """Native threads of the loader."""
        return self.num_workers or usable_cpus()

    def loader(self, reader: DatasetReader, *, pipelines: bool = True, **options: Any) -> DataLoader:
        """The loader that is meant, or one like it."""
        options = {
            "order": self.order,
            "fields": self.fields,
            "pipelines": self.pipelines if pipelines else {},
        } | options
        return DataLoader(reader, self.batch_size, num_workers=self.threads, **options)


def examine(question: Question, told: Callable[[str], None] = lambda what: None) -> Findings:
    """Measure everything; ``told`` hears what comes next. Files of the dataset are dropped from the page cache."""
    began = time.perf_counter()
    opened = DatasetReader(question.path, question.storage_options)
    where, total = opened.path, sum(shard.size for shard in opened.dataset.shards)
    num_samples = len(opened)
    files: list[Path] = []
    if isinstance(where, Path):
        del opened  # its mapping would keep pages in memory
        files, _ = cool_down(where)
        opened = DatasetReader(question.path)
    told("the loader, cold")
    with opened as reader:
        far = reader.dataset.is_remote
        cold = _far(question, reader) if far else _cold(question, reader)
        told("decoding")
        hot = None if far else _hot(question, reader)
        alone = _alone(question, reader) if question.pipelines else None
        loaded = hot or cold
        stored = round(sum(loaded.a_sample(name, "stored_bytes") for name in loaded.fields))
        told("disk or network")
        disk, network = _way(question, reader, files, stored)
        told("resizing")
        work = _work(question, reader, loaded, alone)
        told("memory")
        copying = examine_copying(usable_cpus(), SHARES["copy"] * question.seconds)
        told("the consumer")
        consumption, with_consumer = _consumption(question, reader)
    there = memory()
    return Findings(
        path=question.path, order=question.order, batch_size=question.batch_size, num_samples=num_samples,
        num_bytes=total, cpus=usable_cpus(), threads=question.threads, memory_available=there.available,
        memory_total=there.total, cold=cold, hot=hot, with_consumer=with_consumer, fields=work, copying=copying,
        disk=disk, network=network, consumption=consumption, seconds=time.perf_counter() - began,
    )  # fmt: skip


def _way(
    question: Question, reader: DatasetReader, files: list[Path], stored: int
) -> tuple[Disk | None, Network | None]:
    """What brings the bytes."""
    seconds = SHARES["way"] * question.seconds
    dataset = reader.dataset
    if isinstance(dataset.path, ObjectPath):
        objects = []
        for number in range(min(8, len(dataset.shards))):
            at = dataset.file(number).path
            assert isinstance(at, ObjectPath)
            objects.append((at.key, dataset.shards[number].size))
        return None, examine_network(dataset.path.store, objects, stored, seconds)
    return examine_disk(files, stored, dataset.page_size, seconds), None


def _cold(question: Question, reader: DatasetReader) -> Run:
    """The loader on files that are not in memory, for an epoch at most."""
    return run(question.loader(reader), SHARES["cold"] * question.seconds, once=True)


def _far(question: Question, reader: DatasetReader) -> Run:
    """The loader on objects of a store, once their tables are there."""
    make = _growing(question, reader)
    first = make(1)
    assert first is not None
    run(first, math.inf, once=True)
    return run_whole(make, (SHARES["cold"] + SHARES["hot"]) * question.seconds)


def _hot(question: Question, reader: DatasetReader) -> Run:
    """The loader on samples that are in memory, after a pass that brought them there."""
    some = _some(question, reader)
    run(question.loader(reader, indices=some, order="random"), SHARES["hot"] * question.seconds, once=True)
    return run_whole(_growing(question, reader), SHARES["hot"] * question.seconds)


def _alone(question: Question, reader: DatasetReader) -> Run:
    """The same without operations."""
    return run_whole(_growing(question, reader, pipelines=False), SHARES["alone"] * question.seconds)


def _growing(
    question: Question, reader: DatasetReader, *, pipelines: bool = True
) -> Callable[[int], DataLoader | None]:
    """Loaders of more and more batches.

    Of local files, samples that are in memory, over and over. Objects of stores never are; what their samples take of a
    CPU is known all the same, for waiting takes none of it.
    """
    count, size = len(reader), question.batch_size

    def near(number: int) -> DataLoader | None:
        some = np.resize(_some(question, reader), number * size)
        return question.loader(reader, pipelines=pipelines, indices=some, order="random")

    def far(number: int) -> DataLoader | None:
        wanted = number * size
        if number > 1 and wanted // 2 >= count:
            return None
        chosen = np.arange(min(wanted, count))
        if question.order == "random":
            chosen = np.linspace(0, count - 1, len(chosen)).astype(np.int64)
        return question.loader(reader, pipelines=pipelines, indices=chosen)

    return far if reader.dataset.is_remote else near


def _some(question: Question, reader: DatasetReader) -> NDArray[np.int64]:
    """Samples that fit into memory many times."""
    most = max(question.batch_size, min(HOT_SAMPLES, int(HOT_BYTES / max(reader.dataset.sample_bytes, 1))))
    return np.linspace(0, len(reader) - 1, min(len(reader), most)).astype(np.int64)


def _work(question: Question, reader: DatasetReader, loaded: Run, alone: Run | None) -> tuple[FieldWork, ...]:
    images = {name: _images(reader, name) for name in loaded.fields}
    seconds = SHARES["resize"] * question.seconds / max(1, sum(map(bool, images.values())))
    found = []
    for name in loaded.fields:
        operations = name in question.pipelines
        plain = alone if operations and alone is not None else loaded
        size = _output(loaded.shapes.get(name)) if operations else None
        found.append(FieldWork(
            name, type(reader.fields[name]).__name__.removesuffix("Field"), loaded.cpu(name), plain.cpu(name),
            plain.a_sample(name, "stored_bytes"), plain.a_sample(name, "decoded_bytes"),
            loaded.a_sample(name, "decoded_bytes"), operations,
            resizing(images[name], size or USUAL_SIZE, seconds) if images[name] else None,
            (size or USUAL_SIZE) if images[name] else None, size is not None,
        ))  # fmt: skip
    return tuple(found)


def _images(reader: DatasetReader, name: str) -> list[NDArray[np.uint8]]:
    """Some images of a field, decoded; none where it holds something else."""
    if "Image" not in type(reader.fields[name]).__name__:
        return []
    places = np.linspace(0, len(reader) - 1, min(IMAGES, len(reader))).astype(int)
    values = [reader.read_sample(int(place), fields=[name])[name] for place in np.unique(places)]
    return [one for one in values if isinstance(one, np.ndarray) and one.ndim == 3]


def _output(shape: tuple[int, ...] | None) -> tuple[int, int] | None:
    """Height and width of a batch of images, channels last or first."""
    if shape is None or len(shape) != 4:
        return None
    return (shape[1], shape[2]) if shape[3] in (1, 3, 4) else (shape[2], shape[3])


def _consumption(question: Question, reader: DatasetReader) -> tuple[Consumption | None, Run | None]:
    if question.consumer is None:
        if question.step_seconds is None:
            return None, None
        return Consumption(question.step_seconds, "as was said"), None
    spent: list[float] = []
    consumer = question.consumer

    def timed(batch: Any) -> None:
        began = time.perf_counter()
        try:
            consumer(batch)
        except Exception as error:  # whatever a function of the user's does
            what = f"{question.consumer_name} failed on a batch: {type(error).__name__}: {error}"
            raise OperationError(what, hint="it is called with what the loader yields") from error
        spent.append(time.perf_counter() - began)

    options: dict[str, Any] = {}
    if not reader.dataset.is_remote:
        some = _some(question, reader)
        options = {"indices": np.resize(some, max(len(some), HOT_BATCHES * question.batch_size)), "order": "random"}
    done = run(question.loader(reader, **options), SHARES["consumer"] * question.seconds, consumer=timed)
    usual = sorted(spent[1:] or spent)  # the first call compiles, allocates, warms up
    return Consumption(usual[len(usual) // 2], f"{question.consumer_name}, measured {len(spent):,} times"), done
