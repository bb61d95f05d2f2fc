"""Conversions made by a cluster: which samples go where is planned here, and every shard is a task."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastloader.dataset.base import Node
from fastloader.dataset.dataset import as_node
from fastloader.dataset.planning import Plan
from fastloader.dataset.running import new_run
from fastloader.dataset.shards import Dictionaries, Recipe, dictionaries_of, finished, name_all, needs_dictionaries
from fastloader.dataset.writing import Elements, Options, about, fields_of, stage_for
from fastloader.errors import FormatError
from fastloader.fields import Field
from fastloader.formats.fld import shard_name
from fastloader.progress import Advance, progress
from fastloader.ray.cluster import Event, carried_out, connected, delivered
from fastloader.ray.library import ray
from fastloader.ray.places import Place
from fastloader.stores import ObjectPath, locate
from fastloader.types import parse_size


def convert_dataset(
    dataset: Any,
    path: str | os.PathLike[str],
    fields: Mapping[str, Field] | None = None,
    *,
    shard_size: int | str,
    compression: Any = None,
    address: str | None = None,
    at_once: int | None = None,
    show_progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Field]:
    """Write a dataset into shards, each made by a task of Ray: the same bytes as by ``Dataset.write``.

    The dataset has a length and random access, and its files are on a disk that workers share, or in a store. So may be
    the result; where workers do not see it, shards are sent back. What was interrupted goes on when it is called again.
    """
    size = parse_size(shard_size, "shard_size")
    if size < 1:
        raise ValueError(f"shard_size={shard_size!r}: at least one byte")
    options = Options(fields, size, None, compression, 1, show_progress, storage_options)
    where = locate(path, storage_options)
    elements = Elements(as_node(dataset), new_run())
    known, _ = fields_of(elements, fields)
    plan = elements.plan(size)
    if plan is None:
        raise FormatError(
            "comes one after the other, without random access, so that shards can't be made apart",
            hint='convert it without a cluster; "fastloader index" gives packed tars and lines random access',
        )
    stage = stage_for(where if isinstance(where, ObjectPath) else Path(os.path.realpath(where)), options)
    stage.begin(about(elements, known, options, plan))
    folder = stage.folder
    if isinstance(folder, Path):
        folder.mkdir(exist_ok=True)
    done = finished(folder, plan)
    recipe = Recipe.to(folder, known, compression, 1)
    left = plan.edges[-1] - sum(shard.num_samples for shard in done.values())
    with progress("converting", left, show=show_progress) as advance, connected(address):
        place = Place.at(folder)
        node = ray.put(elements.node)
        missing = [number for number in range(len(plan)) if number not in done]
        dictionaries: Dictionaries = {}
        if needs_dictionaries(known, compression):  # the first shard tells those of all others
            for number, made in carried_out(
                _task, _jobs([n for n in missing if n == 0], node, plan, recipe, {}), place, advance
            ):
                done[number] = made.shard
            dictionaries = dictionaries_of(folder)
        jobs = _jobs([n for n in missing if n not in done], node, plan, recipe, dictionaries)
        for number, made in carried_out(_task, jobs, place, advance, at_once):
            done[number] = made.shard
    name_all(folder, done)
    stage.publish()
    return known


def _jobs(
    numbers: list[int], node: Any, plan: Plan, recipe: Recipe, dictionaries: Dictionaries
) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
    for number in numbers:
        yield number, shard_name(number), ([node], plan.run(number), recipe, dictionaries)


def _task(
    place: Place, name: str, node: list[Any], run: tuple[int, int], recipe: Recipe, dictionaries: Dictionaries
) -> Iterator[Event]:
    first, count = run

    def make(path: Path, advance: Advance) -> None:
        elements = Elements(_kept(node[0]), new_run())
        with contextlib.closing(elements.samples(first, recipe.threads)) as samples:
            recipe.make(path, itertools.islice(samples, count), first, dictionaries, advance)

    yield from delivered(place, name, make)


@lru_cache(maxsize=1)
def _kept(node: Any) -> Node:
    """The dataset, once a worker: a list of millions of files is long to unpack."""
    return ray.get(node)  # type: ignore[no-any-return]
