"""Expressions beside a model of them in plain lists: what every pass must give, without an engine."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.dataset.batching import collate, split
from fastloader.samplers.hashing import Stream, fold, hashes

CALLS = [None, 1, 2, 7, "auto"]


@dataclass(frozen=True)
class Twin:
    """A dataset, and what each of its epochs must give."""

    dataset: Any
    model: Callable[[int], list[Any]]


def plain(value: Any) -> Any:
    """Something that can be compared: arrays told from lists, and by their type."""
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(one) for one in value)
    return value


def chance(value: Any, among: int) -> int:
    return zlib.crc32(repr(plain(value)).encode()) % among


def tagged(value):
    return (value, "m")


def drawn(value, generator):
    return (value, int(generator.integers(1000)))


def wanted(value):
    return chance(value, 3) > 0


def copies(value):
    return [value] * chance(value, 3)


def inner_numbers(value):
    return fl.Dataset.range(chance(value, 4)).shuffle(seed=3)


def inner_stream(value):
    return fl.Dataset.from_iterable(range(chance(value, 5))).shuffle(2, seed=3)


def as_list(elements):
    return list(elements)


# The model


def permuted(elements, seed, epoch):
    order = np.arange(len(elements))
    kernels.permute(len(elements), seed, epoch, order, order)
    return [elements[i] for i in order]


def in_blocks(elements, window, seed, epoch):
    found = []
    for number, first in enumerate(range(0, len(elements), window)):
        found += permuted(elements[first : first + window], fold(seed, Stream.BLOCK, number), epoch)
    return found


def batched(elements, size, drop_last, make):
    parts = [elements[i : i + size] for i in range(0, len(elements), size)]
    return [make(part) for part in parts if len(part) == size or not drop_last]


def dealt(elements, count, index, drop):
    return (elements[: len(elements) // count * count] if drop else elements)[index::count]


def drawn_by(elements, seed, epoch):
    found = []
    for number, element in enumerate(elements):
        key = fold(seed, Stream.CALL, epoch) | number << 64
        found.append(drawn(element, np.random.Generator(np.random.Philox(key=key))))
    return found


def interleaved(lists, cycle, block):
    waiting, slots, found, turn = list(lists), [None] * cycle, [], 0
    while waiting or any(slots):
        taken = 0
        while taken < block:
            while not slots[turn] and waiting:
                slots[turn], taken = list(waiting.pop(0)), 0
            if not slots[turn]:
                break
            found.append(slots[turn].pop(0))
            taken += 1
        turn = (turn + 1) % cycle
    return found


def mixed(passes, weights, seed, stop, epoch, most=10_000):
    """``passes`` gives a list for a dataset's number and epoch."""
    found, numbers = [], [0] * len(weights)
    left, weights = [list(passes(i, epoch)) for i in range(len(weights))], list(weights)
    while len(found) < most:
        draw = (int(hashes(fold(seed, Stream.MIX, epoch), np.array([len(found)]))[0]) >> 11) / 2**53
        while True:
            if not any(weights):
                return found
            edges = np.cumsum(weights)
            chosen = int(np.searchsorted(edges, draw * edges[-1], "right"))
            if left[chosen]:
                break
            if stop == "first":
                return found
            if stop == "all":
                weights[chosen] = 0
            else:
                numbers[chosen] += 1
                left[chosen] = list(passes(chosen, epoch + numbers[chosen]))
        found.append(left[chosen].pop(0))
    return found


def endless(model, epoch, count):
    found = []
    while len(found) < count:
        found += model(epoch)
        epoch += 1
    return found[:count]


# Expressions


@st.composite
def sources(draw, most=13, random_access=False):
    length = draw(st.integers(0, most))
    first = draw(st.sampled_from([0, 100]))
    numbers = list(range(first, first + length))
    datasets = [fl.Dataset.range(first, first + length), fl.Dataset.from_sequence(numbers)]
    if not random_access:
        datasets += [fl.Dataset.from_iterable(numbers), fl.Dataset.from_generator(as_list, numbers)]
    return Twin(draw(st.sampled_from(datasets)), lambda epoch: numbers)


def never_empty(twin):
    try:
        return all(twin.model(epoch) for epoch in range(40))
    except (TypeError, ValueError):  # a batch of elements that are not alike
        return False


def is_map(twin):
    return isinstance(twin.dataset, fl.MapDataset)


@st.composite
def steps(draw, twin: Twin, names: frozenset[str]) -> Twin:
    """One more step."""
    return STEPS[draw(st.sampled_from(sorted(names)))](draw, twin)


def _map(draw, twin):
    calls = draw(st.sampled_from(CALLS))
    return Twin(twin.dataset.map(tagged, calls), lambda e: [tagged(x) for x in twin.model(e)])


def _random_map(draw, twin):
    calls, seed = draw(st.sampled_from(CALLS)), draw(st.integers(0, 3))
    return Twin(twin.dataset.map(drawn, calls, seed=seed), lambda e: drawn_by(twin.model(e), seed, e))


def _filter(draw, twin):
    ahead = draw(st.sampled_from([None, False]))
    return Twin(twin.dataset.filter(wanted, ahead=ahead), lambda e: [x for x in twin.model(e) if wanted(x)])


def _flat_map(draw, twin):
    return Twin(twin.dataset.flat_map(copies), lambda e: [y for x in twin.model(e) for y in copies(x)])


def inner_model(kind, value, epoch):
    if kind is inner_numbers:
        return permuted(list(range(chance(value, 4))), 3, epoch)
    return in_blocks(list(range(chance(value, 5))), 2, 3, epoch)


def _flat_map_of_datasets(draw, twin):
    kind = draw(st.sampled_from([inner_numbers, inner_stream]))
    return Twin(twin.dataset.flat_map(kind), lambda e: [y for x in twin.model(e) for y in inner_model(kind, x, e)])


def _shuffle(draw, twin):
    seed = draw(st.integers(0, 2**64 - 1))
    window = draw(st.integers(1, 6))
    if is_map(twin) and draw(st.booleans()):
        return Twin(twin.dataset.shuffle(seed=seed), lambda e: permuted(twin.model(e), seed, e))
    return Twin(twin.dataset.shuffle(window, seed), lambda e: in_blocks(twin.model(e), window, seed, e))


def _batch(draw, twin):
    size, drop, make = draw(st.integers(1, 5)), draw(st.booleans()), draw(st.sampled_from([None, as_list]))
    dataset = twin.dataset.batch(size, drop, make)
    return Twin(dataset, lambda e: batched(twin.model(e), size, drop, make or collate))


def _unbatch(draw, twin):
    batches = _batch(draw, twin)
    return Twin(batches.dataset.unbatch(), lambda e: [row for batch in batches.model(e) for row in split(batch)])


def _prefetch(draw, twin):
    return Twin(twin.dataset.prefetch(draw(st.sampled_from([1, 3, "auto"]))), twin.model)


def _options(draw, twin):
    return Twin(twin.dataset.options(threads=draw(st.integers(1, 3))), twin.model)


def _cache(draw, twin):
    return Twin(twin.dataset.cache(), lambda e: twin.model(0))


def _repeat(draw, twin):
    count = draw(st.integers(0, 3))
    return Twin(twin.dataset.repeat(count), lambda e: [x for k in range(count) for x in twin.model(e * count + k)])


def _endless(draw, twin):
    count = draw(st.integers(0, 25))
    if not never_empty(twin):
        return _repeat(draw, twin)
    return Twin(twin.dataset.repeat().take(count), lambda e: endless(twin.model, e, count))


def _take(draw, twin):
    count = draw(st.integers(0, 15))
    return Twin(twin.dataset.take(count), lambda e: twin.model(e)[:count])


def _skip(draw, twin):
    count = draw(st.integers(0, 15))
    return Twin(twin.dataset.skip(count), lambda e: twin.model(e)[count:])


def _slice(draw, twin):
    if not is_map(twin):
        return _skip(draw, twin)
    bounds = draw(st.slices(8))
    return Twin(twin.dataset[bounds], lambda e: twin.model(e)[bounds])


def _shard(draw, twin):
    count = draw(st.integers(1, 4))
    index, remainder = draw(st.integers(0, count - 1)), draw(st.sampled_from(["uneven", "drop"]))
    dataset = twin.dataset.shard(count, index, remainder)
    return Twin(dataset, lambda e: dealt(twin.model(e), count, index, remainder == "drop"))


def _enumerate(draw, twin):
    start = draw(st.integers(-3, 3))
    return Twin(twin.dataset.enumerate(start), lambda e: list(enumerate(twin.model(e), start)))


def _others(draw, twin):
    return [twin, *draw(st.lists(chains(most_steps=2, deep=False), min_size=0, max_size=2))]


def _zip(draw, twin):
    twins = _others(draw, twin)
    dataset = fl.Dataset.zip(*(one.dataset for one in twins))
    return Twin(dataset, lambda e: list(zip(*(one.model(e) for one in twins), strict=False)))


def _concat(draw, twin):
    twins = _others(draw, twin)
    dataset = fl.Dataset.concat(*(one.dataset for one in twins))
    return Twin(dataset, lambda e: [x for one in twins for x in one.model(e)])


def _interleave(draw, twin):
    twins = _others(draw, twin)
    cycle, block = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dataset = fl.Dataset.interleave(*(one.dataset for one in twins), cycle_length=cycle, block_length=block)
    return Twin(dataset, lambda e: interleaved([one.model(e) for one in twins], min(cycle, len(twins)), block))


def _interleave_with_a_function(draw, twin):
    cycle, block = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kind = draw(st.sampled_from([inner_numbers, inner_stream]))
    dataset = twin.dataset.interleave(kind, cycle_length=cycle, block_length=block)
    return Twin(dataset, lambda e: interleaved([inner_model(kind, x, e) for x in twin.model(e)], cycle, block))


def _mix(draw, twin):
    twins = _others(draw, twin)
    weights = draw(st.lists(st.integers(1, 4), min_size=len(twins), max_size=len(twins)))
    seed, stop = draw(st.integers(0, 5)), draw(st.sampled_from(["first", "all", "restart"]))
    dataset = fl.Dataset.mix(*(one.dataset for one in twins), weights=weights, seed=seed, stop=stop)
    most = 10_000
    if stop == "restart":
        if not all(map(never_empty, twins)):
            return twin
        most = draw(st.integers(0, 20))
        dataset = dataset.take(most)
    return Twin(dataset, lambda e: mixed(lambda i, k: twins[i].model(k), weights, seed, stop, e, most))


STEPS = {
    "batch": _batch, "cache": _cache, "concat": _concat, "endless": _endless, "enumerate": _enumerate,
    "filter": _filter, "flat_map": _flat_map, "flat_map of datasets": _flat_map_of_datasets,
    "interleave": _interleave, "interleave with a function": _interleave_with_a_function, "map": _map, "mix": _mix,
    "options": _options, "prefetch": _prefetch, "random map": _random_map, "repeat": _repeat, "shard": _shard,
    "shuffle": _shuffle, "skip": _skip, "slice": _slice, "take": _take, "unbatch": _unbatch, "zip": _zip,
}  # fmt: skip
SEVERAL = {"concat", "interleave", "mix", "zip"}
ITERABLE = {"flat_map", "flat_map of datasets", "interleave", "interleave with a function", "mix", "unbatch"}
"""What gives as many as it likes, so that there is no counting ahead."""


@st.composite
def chains(draw, most_steps=4, deep=True, first=None, random_access=False):
    """An expression of a few steps; ``first`` names a step that it must have."""
    names = frozenset(STEPS) - (frozenset() if deep else SEVERAL) - (ITERABLE if random_access else frozenset())
    twin = draw(sources(random_access=random_access))
    before = draw(st.integers(0, most_steps - 1)) if first else most_steps
    for _ in range(draw(st.integers(0, before))):
        twin = draw(steps(twin, names))
    if first:
        twin = STEPS[first](draw, twin)
        for _ in range(draw(st.integers(0, most_steps - before))):
            twin = draw(steps(twin, names))
    return twin
