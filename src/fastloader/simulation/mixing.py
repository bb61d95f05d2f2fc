"""How well an order mixes, against a plain shuffle: a few of its steps looked at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastloader.samplers import Order, Pages

LABELS = 1000
"""Labels of the worst case: a dataset that was written sorted by them."""
STEPS = 16
MOST_AT_ONCE = 1 << 18
"""Samples of a step that are looked at."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """Measures of an order, 1.0 being those of a plain shuffle; docs/explanation/order.md says what they mean.

    ``displacement`` is how far samples come from where they were written. ``pages_in_batch`` counts different pages in
    a rank's batch. ``label_spread`` is the noise of labels of a batch, and ``step_label_spread`` that of the batches of
    all ranks together, where the dataset was written sorted by 1,000 labels: the worst case. Of a dataset written in
    no order both are those of a shuffle.
    """

    displacement: float
    pages_in_batch: float
    label_spread: float
    step_label_spread: float


def mixing(order: Order, pages: Pages, batch_size: int, world_size: int, epoch: int = 0) -> Mixing:
    """The measures of some steps of an epoch, evenly chosen."""
    total = len(order)
    if total == 0:
        return Mixing(1.0, 1.0, 1.0, 1.0)
    batch = min(batch_size, total)
    step = min(batch * world_size, total - total % batch, max(batch, MOST_AT_ONCE // batch * batch))
    places = np.unique(np.linspace(0, total - step, STEPS).astype(np.int64))
    moved, held, spread, step_spread = [], [], [], []
    for place in places.tolist():
        samples = order.samples(epoch, place, step)
        moved.append(np.abs(samples - np.arange(place, place + step)).mean())
        labels = samples * LABELS // total
        step_spread.append(_spread(labels[None], total))
        spread.append(_spread(labels.reshape(-1, batch), total))
        found = np.sort(np.searchsorted(pages.first, samples, "right").reshape(-1, batch))
        held.append(1 + np.count_nonzero(np.diff(found), axis=1).mean())
    chance = pages.count / total
    expected = float(-np.expm1(batch * np.log1p(-np.minimum(chance, 1 - 1e-12))).sum())
    # A shuffle moves a sample by a third of the dataset, on average over all places; here, over those looked at.
    at = (places + step / 2) / total
    shuffled = total * float(np.mean((at**2 + (1 - at) ** 2) / 2))
    return Mixing(
        float(np.mean(moved)) / max(shuffled, 1e-12), float(np.mean(held)) / expected, float(np.mean(spread)),
        float(np.mean(step_spread)),
    )  # fmt: skip


def _spread(labels: NDArray[np.int64], total: int) -> float:
    """The mean over rows of squared differences between counts of labels and what is expected, against a shuffle."""
    rows, size = labels.shape
    edges = -(-np.arange(LABELS + 1) * total // LABELS)
    share = np.diff(edges) / total
    counts = np.zeros((rows, LABELS))
    np.add.at(counts, (np.arange(rows)[:, None], labels), 1)
    found = float(((counts - size * share) ** 2).sum(axis=1).mean())
    drawn = size * float((share * (1 - share)).sum()) * (total - size) / max(1, total - 1)
    return found / drawn if drawn else 1.0
