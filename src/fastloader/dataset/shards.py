"""The shards of a planned conversion: which are there, and how each is made, apart from the others."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastloader.dataset.planning import Plan
from fastloader.errors import FastLoaderError
from fastloader.fields import Field
from fastloader.formats.fld import MANIFEST, FldFile, Manifest, Shard, shard_name
from fastloader.formats.fld.layout import DEFAULT_PAGE_SIZE, REMOTE_PAGE_SIZE
from fastloader.formats.fld.sending import send
from fastloader.stores import ObjectPath
from fastloader.stores.copying import below
from fastloader.stores.local import Scratch
from fastloader.types import Sample
from fastloader.writer import DatasetWriter
from fastloader.writer.schema import make_specs
from fastloader.writer.training import Training

Advance = Callable[[int], None]
Dictionaries = dict[int, bytes]
_NAME = re.compile(r"shard-(\d{5,})\.fld")


@dataclass(frozen=True)
class Recipe:
    """All that is needed to make the file of a shard from its samples."""

    fields: Mapping[str, Field]
    compression: Any
    threads: int | None
    page_size: int

    @classmethod
    def to(
        cls, folder: Path | ObjectPath, fields: Mapping[str, Field], compression: Any, threads: int | None
    ) -> Recipe:
        """For shards that will lie in this folder."""
        pages = REMOTE_PAGE_SIZE if isinstance(folder, ObjectPath) else DEFAULT_PAGE_SIZE
        return cls(dict(fields), compression, threads, pages)

    def make(
        self, path: Path, samples: Iterator[Sample], first: int, dictionaries: Dictionaries, advance: Advance
    ) -> None:
        """Write the file; ``first`` is the number of its first sample."""
        with DatasetWriter.shard(
            path, self.fields, first=first, dictionaries=dictionaries, page_size=self.page_size,
            num_workers=self.threads, compression=self.compression,
        ) as writer:  # fmt: skip
            for sample in samples:
                writer.write_sample(whole(sample, self.fields))
                advance(1)


def whole(sample: Any, fields: Mapping[str, Field]) -> Any:
    """A sample with all fields: one that it lacks is missing."""
    if not isinstance(sample, Mapping) or len(sample) == len(fields):
        return sample
    return {**dict.fromkeys(fields), **sample}


def shard_at(path: Path | ObjectPath, name: str) -> Shard:
    """A finished file as manifests name it."""
    file = FldFile(path)
    return Shard(name, file.num_samples, file.size, file.identity)


def finished(folder: Path | ObjectPath, plan: Plan) -> dict[int, Shard]:
    """The shards of a plan that are there, by number: files appear when they are whole."""
    if isinstance(folder, Path):
        names = [path.name for path in folder.glob("shard-*.fld")]
    else:
        names = [name for _, name in below(folder.store, folder.key)]
    numbers = [int(found[1]) for name in names if (found := _NAME.fullmatch(name))]
    there: dict[int, Shard] = {}
    with ThreadPoolExecutor(16, "fastloader-opener") as pool:  # of objects, each takes a round trip or two
        for number, shard in zip(numbers, pool.map(lambda number: _sound(folder, number), numbers), strict=True):
            if shard is not None and number < len(plan) and shard.num_samples == plan.run(number)[1]:
                there[number] = shard
    return there


def _sound(folder: Path | ObjectPath, number: int) -> Shard | None:
    with contextlib.suppress(FastLoaderError):
        return shard_at(folder / shard_name(number), shard_name(number))
    return None


def needs_dictionaries(fields: Mapping[str, Field], compression: Any) -> bool:
    """Whether shards may be compressed with what the first has learned."""
    return Training(make_specs(dict(fields), compression, None), {}).wanted


def dictionaries_of(folder: Path | ObjectPath) -> Dictionaries:
    """Those of the first shard, which all others are compressed with."""
    file = FldFile(folder / shard_name(0))
    found = {number: file.dictionary(number) for number in range(len(file.descriptors))}
    return {number: data for number, data in found.items() if data is not None}


def write_here(
    folder: Path | ObjectPath, plan: Plan, recipe: Recipe, there: dict[int, Shard],
    samples: Callable[[int], contextlib.AbstractContextManager[Iterator[Sample]]], advance: Advance,
) -> dict[int, Shard]:  # fmt: skip
    """Make the shards that are not there, one after the other; those bound for a store are sent meanwhile.

    ``samples`` gives them from a number on.
    """
    done = dict(there)
    dictionaries: Dictionaries | None = None
    with contextlib.ExitStack() as stack:
        sender = _Sender(stack, folder) if isinstance(folder, ObjectPath) else None
        place = stack.enter_context(Scratch()) if sender else folder
        assert isinstance(place, Path)
        at, open_samples = -1, contextlib.ExitStack()
        coming: Iterator[Sample] = iter(())
        stack.push(open_samples)
        for number in range(len(plan)):
            if number in done:
                continue
            first, count = plan.run(number)
            if at != first:  # behind shards that were there
                open_samples.close()
                coming = open_samples.enter_context(samples(first))
            if number and dictionaries is None:
                if sender is not None:
                    sender.settle()
                dictionaries = dictionaries_of(folder)
            path = place / shard_name(number)
            recipe.make(path, itertools.islice(coming, count), first, dictionaries or {}, advance)
            at = first + count
            done[number] = shard_at(path, path.name)
            if sender is not None:
                sender.send(path)
        if sender is not None:
            sender.settle()
    return done


class _Sender:
    """Sends files one after the other, while the next is made."""

    def __init__(self, stack: contextlib.ExitStack, folder: ObjectPath) -> None:
        self._folder = folder
        self._pool = stack.enter_context(ThreadPoolExecutor(1, "fastloader-sender"))
        self._sending: Future[None] | None = None

    def send(self, path: Path) -> None:
        self.settle()
        self._sending = self._pool.submit(self._sent, path)

    def _sent(self, path: Path) -> None:
        send(path, self._folder / path.name)
        path.unlink()

    def settle(self) -> None:
        """Wait until all is sent."""
        if self._sending is not None:
            sending, self._sending = self._sending, None
            sending.result()


def name_all(folder: Path | ObjectPath, done: Mapping[int, Shard]) -> None:
    """The manifest of all shards, in order, which a stage then publishes."""
    manifest = Manifest(tuple(done[number] for number in sorted(done)))
    if isinstance(folder, Path):
        kept = {shard.path for shard in manifest.shards}
        for path in folder.iterdir():  # what a killed writer has left
            if path.name not in kept:
                path.unlink()
        manifest.save(folder)
    else:
        folder.store.put((folder / MANIFEST).key, manifest.to_bytes())
