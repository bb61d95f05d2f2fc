"""Documents packed into sequences of 2,048: how full they are, and how long it takes against a plain loop in Python.

Lengths are log-normal with a median of 245 tokens, as web pages have them.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, insort
from pathlib import Path

import numpy as np
from common import Result, interleave

import fastloader as fl

SEQ, DOCUMENTS = 2048, 20_000


def plain_best_fit(sizes: list[int]) -> list[int]:
    """Best fit with a sorted list of the room that is left."""
    open_: list[tuple[int, int]] = []
    count, where = 0, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        found = bisect_left(open_, (sizes[i], 0))
        left, number = open_.pop(found) if found < len(open_) else (SEQ, count)
        count += number == count
        if left > sizes[i]:
            insort(open_, (left - sizes[i], number))
        where[i] = number
    return where


def main() -> list[Result]:
    """Seconds, and shares of the room that hold tokens."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.lognormal(5.5, 1, DOCUMENTS).astype(np.int64) + 1, SEQ)
    documents = [rng.integers(0, 50_257, size) for size in sizes.tolist()]
    reports = {}

    def pack(strategy: str) -> None:
        packing = fl.pack(documents, SEQ, strategy)  # type: ignore[arg-type]
        for _ in packing:
            pass
        reports[strategy] = packing.report

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "packed.fld"
        with fl.DatasetWriter(path, {"text": fl.PackedTextField(SEQ, 50_257)}) as writer:
            writer.write_many([one] for one in fl.pack(documents, SEQ, "best_fit"))
        with fl.DatasetWriter(Path(name) / "rows.fld", {"text": fl.NDArrayField("uint16", (SEQ,))}) as writer:
            for one in fl.pack(documents, SEQ, "best_fit"):
                writer.write_sample([np.pad(one.tokens, (0, SEQ - len(one.tokens))).astype(np.uint16)])
        packed, rows = fl.open(path), fl.open(Path(name) / "rows.fld")

        def load(reader: fl.DatasetReader) -> None:
            for _ in fl.DataLoader(reader, 32, num_workers=1):
                pass

        times = interleave(
            6,
            greedy=lambda: pack("greedy"),
            best=lambda: pack("best_fit"),
            plain=lambda: plain_best_fit(sizes.tolist()),
            load=lambda: load(packed),
            rows=lambda: load(rows),
        )
    full = {name: f"{report.efficiency:.2%} full" for name, report in reports.items()}

    def result(name: str, what: str, other: str, against: str, more: str = "") -> Result:
        rate = f"{int(sizes.sum()) / times[name] / 1e6:.0f} million tokens a second"
        return Result(what, against, times[name] / times[other], "", f"{more}{rate}")

    return [
        result("best", "packing, best fit, sequences made", "plain", "best fit in Python, numbers alone",
               f"{full['best_fit']}; "),
        result("greedy", "packing, greedy", "best", "best fit", f"{full['greedy']}; "),
        result("load", "packed sequences with positions, documents and ends", "rows", "the same tokens alone, as rows"),
    ]  # fmt: skip
