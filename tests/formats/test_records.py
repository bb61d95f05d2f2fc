"""What holds for whatever format reads samples by number."""

from __future__ import annotations

import pytest

import fastloader as fl
from fastloader.dataset.opening import MapSource
from fastloader.dataset.records import FromRecords
from fastloader.formats.objects import Files, Places
from fastloader.formats.records import Records


class Stopping(Records):
    """Ten samples a file, and a reader that stops at one of them, or before all."""

    format = "stopping"
    names = ("n",)

    def __init__(self, count, at=None, short=False):
        super().__init__(Files(tuple(f"{number}.x" for number in range(count)), Places()))
        self.at, self.short = at, short

    def begin(self, number):
        return next(iter(())) if self.at == "begin" else 10

    def count(self, file):
        return file

    def samples(self, number, file, rows, names):
        if self.at in rows:
            next(iter(()))
        return [{"n": row} for row in rows][: len(rows) - self.short]


PASSES = {
    "one": lambda dataset: dataset[7],
    "samples": list,
    "batches": lambda dataset: list(dataset.batch(4)),
    "threads": lambda dataset: list(dataset.map(dict, 3).prefetch(2)),
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("run", PASSES.values(), ids=PASSES)
def test_a_reader_that_stops_early_is_an_error_and_no_end(count, run):
    dataset = MapSource(FromRecords(Stopping(count, at=7)))
    with pytest.raises(fl.FormatError, match=r"0\.x: sample 7: its reader stopped where there should be more"):
        run(dataset)
    skipped = [sample["n"] for sample in dataset.options(on_error="skip")]
    assert skipped == [n for n in range(10) if n != 7] * count


def test_one_that_stops_before_its_samples_is_an_error_too():
    with pytest.raises(fl.FormatError, match=r"0\.x: its reader stopped"):
        len(Stopping(1, at="begin"))


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_samples_than_asked_for_are_an_error(count):
    with pytest.raises(fl.FormatError, match=r"0\.x: .*0 samples were read where there should be 1"):
        list(MapSource(FromRecords(Stopping(count, short=True))))
