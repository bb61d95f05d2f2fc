r"""What every format must do that ``fastloader.open`` reads.

class TestLines(FormatContract):
    def write(self, folder):
        (folder / "a.jsonl").write_text('{"n": 1}\n')
        return folder

    def samples(self):
        return [{"n": 1}]
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fastloader.dataset import Dataset, IterDataset, MapDataset, open_dataset
from fastloader.dataset.dataset import as_node
from fastloader.dataset.opening import ReaderDataset
from fastloader.dataset.running import new_run
from fastloader.errors import FastLoaderError, KeyNotFoundError
from fastloader.reader import DatasetReader
from fastloader.testing.compare import identical
from fastloader.types import Sample

RANKS, WORKERS = 3, 2
BYTES = np.array([0, 1, 2, 34, 44, 127, 128, 200, 255], np.uint8)
ALIEN = b"\x00\x01these bytes are nothing that anybody knows\xff" * 5


class FormatContract:
    """Inherit, say how a dataset of the format is written and what is in it, and get its tests."""

    random_access = True
    """Whether it is map-style."""
    own_fields = False
    """Whether each sample has fields of its own, so that one that is nowhere is missing rather than an error."""
    finds_cuts = True
    """Whether a file that was cut short can be told from a whole one."""
    not_stored: ClassVar[tuple[str, ...]] = ()
    """Fields that no field of a ``.fld`` file can hold."""
    damages = 40
    """How many files with damaged bytes are tried."""
    options: ClassVar[dict[str, Any]] = {}
    """Given to ``fastloader.open``."""

    def write(self, folder: Path) -> Any:
        """Write the dataset, of several files where the format can, and return what is to be opened."""
        raise NotImplementedError("say how to write the dataset")

    def samples(self) -> list[Sample]:
        """What it holds: at least five samples, no two alike."""
        raise NotImplementedError("say what was written")

    def last_file(self, folder: Path) -> Path:
        """The file to be damaged: here, the last by name."""
        return max(path for path in folder.rglob("*") if path.is_file())

    def bad_files(self, folder: Path) -> Iterable[tuple[Any, str]]:
        """Files that must be refused, written one after the other, and a pattern that the error fits."""
        return ()

    def equal(self, written: Any, read: Any) -> bool:
        """Whether what was read is right."""
        return identical(written, read)

    def place(self, path: Any) -> Any:
        """What is opened where files were written at ``path``: themselves, or copies of them elsewhere."""
        return path

    def open(self, path: Any, **more: Any) -> Any:
        """What was written at ``path``, opened."""
        return open_dataset(self.place(path), **self.options, **more)

    def opened(self, folder: Path) -> Any:
        """The dataset, written and open."""
        return self.open(self.write(folder))

    def check(self, got: Iterable[Any], wanted: Sequence[Any]) -> None:
        """Compare sample by sample."""
        found = list(got)
        assert len(found) == len(wanted)
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert self.equal(other, one), f"sample {number}: wrote {other!r}, read {one!r}"

    def places(self, got: Iterable[Sample]) -> list[int]:
        """Which samples these are."""
        wanted = self.samples()
        return [next(i for i, one in enumerate(wanted) if self.equal(one, sample)) for sample in got]

    def test_samples_come_in_order(self, tmp_path: Path) -> None:
        """Each pass, with the length that is told, where one is."""
        dataset, wanted = self.opened(tmp_path), self.samples()
        style = MapDataset | ReaderDataset if self.random_access else IterDataset
        assert isinstance(dataset, style)
        for _ in range(2):
            self.check(dataset, wanted)
        if isinstance(dataset, MapDataset | ReaderDataset):
            assert len(dataset) == len(wanted)
            self.check([dataset[i] for i in reversed(range(len(wanted)))], wanted[::-1])
            self.check([dataset[-1], *dataset[1:3]], [wanted[-1], *wanted[1:3]])
            with pytest.raises(IndexError):
                dataset[len(wanted)]
        else:
            assert not hasattr(dataset, "__len__")

    def test_fields_are_those_told(self, tmp_path: Path) -> None:
        """By name, unless each sample has its own."""
        dataset = self.opened(tmp_path)
        if self.own_fields:
            assert dataset.field_names is None
        else:
            assert all(list(sample) == dataset.field_names for sample in dataset)

    def test_chosen_fields_alone_are_read(self, tmp_path: Path) -> None:
        """In the order in which they were asked for; an unknown one is an error."""
        path = self.write(tmp_path)
        for names in ([name] for name in self.samples()[0]):
            dataset = self.open(path, fields=names)
            self.check(dataset, [{name: sample.get(name) for name in names} for sample in self.samples()])
        backwards = list(self.samples()[0])[::-1]
        assert list(next(iter(self.open(path, fields=backwards)))) == backwards
        if self.own_fields:
            assert next(iter(self.open(path, fields="nowhere"))) == {"nowhere": None}
        else:
            with pytest.raises((KeyNotFoundError, FastLoaderError), match="nowhere"):
                self.open(path, fields=["nowhere"])
            with pytest.raises(FastLoaderError, match="none chosen"):
                self.open(path, fields=[])

    def test_ranks_and_workers_share_without_loss_or_repeats(self, tmp_path: Path) -> None:
        """Each sample goes to one of them, in an order that its seed alone decides."""
        dataset, count = self.opened(tmp_path), len(self.samples())
        shuffled = dataset.shuffle(3, seed=5)
        for whole in (dataset, shuffled):
            given = [
                self.places(whole.shard(RANKS, rank).shard(WORKERS, worker))
                for rank in range(RANKS)
                for worker in range(WORKERS)
            ]
            assert sorted(place for places in given for place in places) == list(range(count))
        orders = [self.places(dataset.shuffle(count, seed=seed)) for seed in (1, 1, 2)]
        assert orders[0] == orders[1]
        assert orders[0] != orders[2]
        assert sorted(orders[2]) == list(range(count))

    def test_every_step_can_be_resumed(self, tmp_path: Path) -> None:
        """From a state that went through JSON, in a dataset opened anew."""
        path = self.write(tmp_path)

        def make() -> list[Dataset[Any]]:
            dataset = self.open(path)
            return [dataset, dataset.shuffle(4, seed=3), dataset.batch(2, collate_fn=list), dataset.shard(2, 1)]

        for expression, again in zip(make(), make(), strict=True):
            wanted = list(expression)
            iterator = iter(expression)
            for step in range(len(wanted) + 1):
                state = json.loads(json.dumps(iterator.state_dict()))
                self.check(again.iterate(state=state), wanted[step:])
                next(iterator, None)

    def test_threads_change_nothing(self, tmp_path: Path) -> None:
        """Nor does a pass that runs ahead."""
        dataset, wanted = self.opened(tmp_path), self.samples()
        self.check(dataset.map(_itself, 3), wanted)
        self.check(dataset.map(_itself, 3).prefetch(2), wanted)

    def test_it_pickles(self, tmp_path: Path) -> None:
        """As do iterators, also after they were used."""
        dataset, wanted = self.opened(tmp_path), self.samples()
        self.check(pickle.loads(pickle.dumps(dataset)), wanted)
        iterator = iter(dataset)
        self.check([next(iterator)], wanted[:1])
        self.check(pickle.loads(pickle.dumps(iterator)), wanted[1:])
        self.check(pickle.loads(pickle.dumps(dataset)), wanted)

    def test_it_becomes_fld_and_says_the_same(self, tmp_path: Path) -> None:
        """With fields that are told from the samples."""
        (tmp_path / "from").mkdir()
        path, wanted = self.write(tmp_path / "from"), self.samples()
        names = list(dict.fromkeys(name for one in wanted for name in one if name not in self.not_stored))
        self.open(path, fields=names).write(tmp_path / "to.fld")
        reader = DatasetReader(tmp_path / "to.fld")
        assert len(reader) == len(wanted)
        for number, sample in enumerate(wanted):
            got = reader[number]
            for name in names:
                value = sample.get(name)
                assert _same(value, got[name]), f"sample {number}, field {name!r}: {value!r} became {got[name]!r}"

    def test_what_may_be_other_bytes_is_told_apart(self, tmp_path: Path) -> None:
        """So that a conversion does not go on with what was made of others."""
        path = self.write(tmp_path)

        def origin() -> str:
            return as_node(self.open(path)).origin(new_run())

        before = origin()
        assert before
        assert origin() == before
        last = self.last_file(tmp_path)
        data, written = last.read_bytes(), last.stat().st_mtime_ns
        for at in {len(data) * part // 9 for part in range(1, 9)}:
            last.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            os.utime(last, ns=(written, written + 1))
            with contextlib.suppress(FastLoaderError):
                assert origin() != before

    def test_a_file_cut_short_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        """Wherever it is cut: what comes before may be given, and never anything else."""
        (tmp_path / "whole").mkdir()
        path = self.write(tmp_path / "whole")
        last = self.last_file(tmp_path / "whole")
        data = last.read_bytes()
        for size in sorted({1, len(data) // 3, len(data) // 2, len(data) - 9, len(data) - 1} & set(range(len(data)))):
            last.write_bytes(data[:size])
            if self.finds_cuts:
                self._refused(path, last.name)

    def test_an_empty_file_is_no_sample_or_an_error_that_names_it(self, tmp_path: Path) -> None:
        """Never one with nothing in it."""
        path = self.write(tmp_path)
        last = self.last_file(tmp_path)
        last.write_bytes(b"")
        try:
            found = self.places(self.open(path))
        except FastLoaderError as error:
            told = str(error)
        else:
            told = last.name if len(found) < len(self.samples()) else "an empty sample was made up"
        assert last.name in told

    def test_a_file_of_another_kind_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        """When it is opened, or when it is read."""
        path = self.write(tmp_path)
        last = self.last_file(tmp_path)
        last.write_bytes(ALIEN)
        if self.finds_cuts:
            self._refused(path, last.name)

    def test_damaged_bytes_give_samples_or_an_error_that_names_a_file(self, tmp_path: Path) -> None:
        """Never another exception, and never the end of the process."""
        path = self.write(tmp_path)
        whole = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size}
        draw, told = np.random.default_rng(7), []
        for _ in range(self.damages):
            file = list(whole)[draw.integers(len(whole))]
            data = bytearray(whole[file])
            for _ in range(draw.integers(1, 4)):
                at = int(draw.integers(len(data)))
                data[at : at + int(draw.integers(9))] = draw.choice(BYTES, int(draw.integers(9))).tobytes()
            file.write_bytes(data)
            try:
                list(self.open(path))
            except FastLoaderError as error:
                told.append((error.path, str(error)))
            file.write_bytes(whole[file])
        assert [text for path, text in told if not path] == []

    def test_bad_files_are_refused_with_their_place(self, tmp_path: Path) -> None:
        """What each format adds."""
        for path, pattern in self.bad_files(tmp_path):
            with pytest.raises(FastLoaderError, match=pattern):
                list(self.open(path))

    def _refused(self, path: Any, name: str) -> None:
        with pytest.raises(FastLoaderError) as caught:
            list(self.open(path))
        assert name in str(caught.value), f"{caught.value} does not name {name}"


def _itself(value: Any) -> Any:
    return value


def _same(value: Any, stored: Any) -> bool:
    """Whether a field keeps a value, where narrow numbers have become wide ones and tuples lists."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, list | tuple) and not isinstance(stored, list):
        return bool(len(value) == len(stored))
    return identical(value, stored) or bool(
        isinstance(value, bytes) and value[:3] == b"\xff\xd8\xff" and getattr(stored, "ndim", 0) == 3
    )
