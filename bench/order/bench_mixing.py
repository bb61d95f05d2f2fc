"""How well the quasi-random order mixes and how little it reads, against a plain shuffle; and what positions cost."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from common import Result, interleave
from numpy.typing import NDArray

from fastloader.samplers import LengthBuckets, Order, Pages, QuasiRandom, Shuffled, Weighted

PAGES, PER_PAGE, BATCH, CLASSES = 4096, 128, 256, 1000
SAMPLES = PAGES * PER_PAGE
WINDOWS = (1, 4, 16, 64, 256)
EPOCHS = 3


def epochs(order: Order) -> NDArray[np.int64]:
    """A few whole epochs, a row each."""
    return np.stack([order.samples(epoch, 0, len(order)) for epoch in range(EPOCHS)])


def displacement(samples: NDArray[np.int64]) -> float:
    """Mean distance between where a sample was written and where it comes."""
    return float(np.abs(samples - np.arange(SAMPLES)).mean())


def pages_a_batch(samples: NDArray[np.int64]) -> float:
    """Mean number of different pages in a batch."""
    batches = np.sort((samples // PER_PAGE).reshape(-1, BATCH))
    return 1 + float(np.count_nonzero(np.diff(batches), axis=1).mean())


def label_spread(samples: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """How far batches are from the dataset in their labels: the noise that the order adds to an average over a batch.

    The mean over batches of the squared differences between the counts of labels and their expectation.
    """
    counts = np.apply_along_axis(np.bincount, 1, labels[samples].reshape(-1, BATCH), minlength=CLASSES)
    return float(((counts - BATCH / CLASSES) ** 2).sum(axis=1).mean())


def page_reads(samples: NDArray[np.int64], kept: int) -> int:
    """Pages read in the first epoch by a reader that keeps the last ``kept`` it used."""
    cache: OrderedDict[int, None] = OrderedDict()
    reads = 0
    for page in (samples[0] // PER_PAGE).tolist():
        if page in cache:
            cache.move_to_end(page)
        else:
            reads += 1
            cache[page] = None
            if len(cache) > kept:
                cache.popitem(last=False)
    return reads


def mixing() -> list[Result]:
    """One row a measure and window."""
    pages = Pages(np.arange(PAGES) * PER_PAGE, np.full(PAGES, PER_PAGE))
    shuffled = epochs(Shuffled(SAMPLES, 1))
    by_label = np.arange(SAMPLES) * CLASSES // SAMPLES
    by_chance = np.random.default_rng(0).permutation(by_label)
    plain = [label_spread(shuffled, labels) for labels in (by_label, by_chance)]
    results = []
    for window in WINDOWS:
        found = epochs(QuasiRandom(pages, window, 1))
        what = f"window of {window}"
        kept = 2 * window
        reads, random_reads = page_reads(found, kept), page_reads(shuffled, kept)
        results += [
            Result(f"{what}: displacement", "a shuffle", displacement(found) / displacement(shuffled), "1"),
            Result(f"{what}: pages in a batch", "a shuffle", pages_a_batch(found) / pages_a_batch(shuffled), "1",
                   f"{pages_a_batch(found):.1f} in batches of {BATCH}"),
            Result(f"{what}: spread of labels", "a shuffle", label_spread(found, by_label) / plain[0],
                   f"< {1 + (BATCH - 1) / window:.1f}", f"written sorted by {CLASSES} labels"),
            Result(f"{what}: spread of labels", "a shuffle", label_spread(found, by_chance) / plain[1], "1",
                   "written in no order"),
            Result(f"{what}: page reads", "a shuffle", reads / random_reads, "low",
                   f"{reads / PAGES:.2f} a page against {random_reads / PAGES:.1f}, with {kept} pages kept"),
        ]  # fmt: skip
    return results


def cost() -> list[Result]:
    """Time for the samples of a batch at a random place, against the plain shuffle."""
    pages = Pages(np.arange(PAGES) * PER_PAGE, np.full(PAGES, PER_PAGE))
    weights = np.random.default_rng(0).random(SAMPLES)
    orders: dict[str, Order] = {
        "shuffled": Shuffled(SAMPLES, 1),
        "quasi_random": QuasiRandom(pages, 64, 1),
        "eight_lanes": QuasiRandom(pages, 64, 1, lanes=8, run=BATCH),
        "weighted": Weighted(weights, seed=1),
        "without_replacement": Weighted(weights, replacement=False, seed=1),
        "shuffled_billions": Shuffled(10**12, 1),
    }
    places = np.random.default_rng(1).integers(0, SAMPLES - BATCH, 200).tolist()

    def batches(order: Order) -> None:
        for place in places:
            order.samples(0, place, BATCH)

    buckets = LengthBuckets(np.random.default_rng(2).integers(1, 2048, SAMPLES), BATCH)
    actions = {name: (lambda order=order: batches(order)) for name, order in orders.items()}
    actions["length_buckets"] = lambda: [buckets.batch(0, place // BATCH) for place in places]
    took = interleave(30, **actions)
    return [
        Result(f"a batch of {BATCH}: {name.replace('_', ' ')}", f"shuffled, {SAMPLES:,} samples",
               seconds / took["shuffled"], "", f"{seconds / len(places) * 1e6:.0f} us")
        for name, seconds in took.items()
        if name != "shuffled"
    ]  # fmt: skip


def main() -> list[Result]:
    """Mixing, reads and cost."""
    return mixing() + cost()
