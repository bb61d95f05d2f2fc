"""How often which values occur: labels one by one, other numbers in bins."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.viewer.columns import Column
from fastloader.viewer.samples import BLOCK, FEW, Samples

MOST_QUICK, MOST_READ = 20_000_000, 20_000
"""Samples that are counted: where tables tell, and where values have to be read. Of more, as many at random places."""
MOST_REMOTE = 2_000_000
BARS = 40
LABELS, FEW_VALUES = 200, 8
"""Whole numbers of up to so many different values are counted one by one: labels, and sizes or lengths."""
RUN = 4096
"""Samples side by side that are taken together where not all are."""


def histogram(samples: Samples, column: Column, rows: NDArray[np.int64] | None, remote: bool = False) -> dict[str, Any]:
    """The counts of a column over ``rows``, or over all samples; ``counted`` and ``of`` say how many were looked at."""
    total = len(samples) if rows is None else len(rows)
    most = MOST_READ if not column.quick else MOST_REMOTE if remote else MOST_QUICK
    wanted = _sampled(total, most, RUN if column.quick else 16)
    blocks = []
    for begin in range(0, len(wanted), step := BLOCK if column.quick else FEW):
        part = wanted[begin : begin + step]
        blocks.append(samples.numbers.read(column, part if rows is None else rows[part]))
    values = np.concatenate([one for one, _ in blocks]) if blocks else np.zeros(0)
    valid = np.concatenate([good for _, good in blocks]) if blocks else np.zeros(0, np.bool_)
    told: dict[str, Any] = {
        "column": column.id, "label": column.label, "unit": column.unit, "counted": len(wanted), "of": total,
        "sampled": len(wanted) < total, "missing": int(len(valid) - valid.sum()),
    }  # fmt: skip
    if column.kind == "text":
        return told | _words(values[valid].tolist())
    return told | _numbers(values[valid], LABELS if column.measure == "value" else FEW_VALUES)


def _sampled(total: int, most: int, run: int) -> NDArray[np.int64]:
    """All numbers below ``total``, or about ``most`` of them in runs at places spread by chance, always the same."""
    if total <= most:
        return np.arange(total)
    pieces = max(1, most // run)
    chosen = np.sort(np.random.default_rng(0).choice(total // run, pieces, replace=False)) * run
    return (chosen[:, None] + np.arange(run)).reshape(-1)


def _words(texts: list[str]) -> dict[str, Any]:
    counts = Counter(texts)
    common = counts.most_common(BARS)
    bars = [{"text": text[:200], "value": text if len(text) <= 200 else None, "count": count} for text, count in common]
    rest = len(texts) - sum(count for _, count in common)
    return {"form": "values", "bars": bars, "others": rest, "different": len(counts)}


def _numbers(values: NDArray[Any], most: int) -> dict[str, Any]:
    values = values[np.isfinite(values)]
    if not len(values):
        return {"form": "values", "bars": [], "others": 0, "different": 0}
    low, high = values.min(), values.max()
    told = {
        "min": _plain(low), "max": _plain(high), "mean": float(values.mean(dtype=np.float64)),
        "median": float(np.median(values)),
    }  # fmt: skip
    if values.dtype.kind in "iu" and int(high) - int(low) < 1 << 20:
        counts = np.bincount(values - low)
        different = int(np.count_nonzero(counts))
        if different <= most:
            return told | _labels(counts, int(low), different)
    return told | _bins(values, float(low), float(high))


def _labels(counts: NDArray[Any], low: int, different: int) -> dict[str, Any]:
    chosen = np.flatnonzero(counts)
    if different > BARS:  # the most frequent ones, in order of their numbers
        chosen = np.sort(np.argsort(-counts, kind="stable")[:BARS])
    bars = [{"text": str(low + at), "value": low + at, "count": int(counts[at])} for at in chosen.tolist()]
    rest = int(counts.sum() - counts[chosen].sum())
    return {"form": "values", "bars": bars, "others": rest, "different": different}


def _bins(values: NDArray[Any], low: float, high: float) -> dict[str, Any]:
    """Bins with round edges."""
    if high <= low:
        bar = {"text": f"{low:g}", "value": low, "count": len(values)}
        return {"form": "values", "bars": [bar], "others": 0, "different": 1}
    if not math.isfinite(high - low) or high - low < 1e-300:  # beyond what can be counted with
        return {"form": "bins", "bars": [{"low": low, "high": high, "count": len(values)}]}
    width = _round((high - low) / BARS)
    if values.dtype.kind in "iu":
        width = max(1.0, math.ceil(width))
    first = math.floor(low / width) * width
    count = math.floor((high - first) / width) + 1
    counts = np.bincount(np.minimum(((values - first) / width).astype(np.int64), count - 1), minlength=count)
    edges = [first + at * width for at in range(count + 1)]
    bars = [
        {"low": float(f"{edges[at]:.12g}"), "high": float(f"{edges[at + 1]:.12g}"), "count": int(number)}
        for at, number in enumerate(counts.tolist())
    ]
    return {"form": "bins", "bars": bars}


def _round(width: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= width * (1 - 1e-9))


def _plain(number: Any) -> float | int:
    value: float | int = number.item()
    return value
