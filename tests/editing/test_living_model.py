"""Datasets that change, held against a plain Python model: every snapshot stays what the model said."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import fastloader as fl
from fastloader.stores import plain

FIELDS = {"n": fl.IntField(), "text": fl.TextField(), "data": fl.BytesField(), "score": fl.FloatField()}
NEW = {"i": fl.IntField, "t": fl.TextField, "b": fl.BytesField, "j": fl.JSONField}
NAMES = ("n", "text", "data", "score", "a", "b", "c")
_places = count()

Row = dict[str, Any]


def value_of(field: fl.Field, number: int) -> Any:
    """A value for a field, missing now and then."""
    if number % 5 == 4:
        return None
    if isinstance(field, fl.IntField):
        return number
    if isinstance(field, fl.FloatField):
        return number / 4
    if isinstance(field, fl.JSONField):
        return {"n": [number, "x"]}
    text = f"{number} " * (number % 40)
    return text.encode() if isinstance(field, fl.BytesField) else text


def samples_of(reader: fl.DatasetReader) -> list[tuple[str, Row]]:
    return [(reader.key_of(i), reader.read_sample(i)) for i in range(len(reader))]


def listed(batch: dict[str, Any], names: list[str]) -> list[Row]:
    """A batch as samples."""

    def plain_value(value: Any) -> Any:
        return (
            None if value is None or value is np.ma.masked else value.item() if isinstance(value, np.generic) else value
        )

    length = len(batch[names[0]])
    return [{name: plain_value(batch[name][i]) for name in names} for i in range(length)]


class Living(RuleBasedStateMachine):
    """A dataset beside a list of rows, changed in the same way."""

    in_store = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="living-"))
        self.name = f"living-{next(_places)}"
        self.where = f"memory://{self.name}/x.fld" if self.in_store else str(self.folder / "x.fld")
        self.rows: dict[str, Row] = {}
        self.fields: dict[str, fl.Field] = {}
        self.states: dict[int, tuple[list[str], list[tuple[str, Row]]]] = {}
        self.numbers = count()
        self.stored = 0

    @initialize(rows=st.integers(0, 12), shard_size=st.sampled_from([200, 800]), single=st.booleans())
    def write(self, rows: int, shard_size: int, single: bool) -> None:
        self.fields = dict(FIELDS)
        size = None if single and not self.in_store else shard_size
        with fl.DatasetWriter(self.where, self.fields, shard_size=size, keys=True, page_size=4096) as writer:
            self.append_to(writer, rows)
        self.note()

    def append_to(self, writer: fl.DatasetWriter, rows: int) -> None:
        for _ in range(rows):
            number = next(self.numbers)
            row = {name: value_of(field, number + i) for i, (name, field) in enumerate(self.fields.items())}
            writer.write_sample(row, f"k{number}")
            self.rows[f"k{number}"] = row

    def note(self) -> None:
        newest = fl.edit(self.where).snapshots()[0]
        self.states[newest.number] = (list(self.fields), copy.deepcopy(list(self.rows.items())))

    @rule(rows=st.integers(1, 6), shard_size=st.sampled_from([None, 150]))
    def append(self, rows: int, shard_size: int | None) -> None:
        with fl.DatasetWriter(self.where, None, mode="a", shard_size=shard_size) as writer:
            self.append_to(writer, rows)
        self.note()

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(sorted(self.rows)), min_size=1, max_size=5, unique=True))
        by_number = data.draw(st.booleans())
        places = {key: i for i, key in enumerate(self.rows)}
        made = fl.edit(self.where).delete(
            **{"indices": [places[key] for key in keys]} if by_number else {"keys": keys}  # type: ignore[arg-type]
        )
        self.rows = {key: row for key, row in self.rows.items() if key not in keys}
        assert made.num_samples == len(self.rows)
        self.note()

    @precondition(lambda self: any(isinstance(field, fl.IntField) for field in self.fields.values()))
    @rule(data=st.data(), limit=st.integers(0, 60))
    def delete_where(self, data: st.DataObject, limit: int) -> None:
        name = data.draw(st.sampled_from([n for n, field in self.fields.items() if isinstance(field, fl.IntField)]))
        low = limit - 3
        fl.edit(self.where).delete(where=[(name, ">=", low), (name, "<", limit)])
        self.rows = {key: row for key, row in self.rows.items() if row[name] is None or not low <= row[name] < limit}
        self.note()

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(sorted(self.rows)), min_size=1, max_size=4, unique=True))
        changes = {}
        for key in keys:
            names = data.draw(st.lists(st.sampled_from(sorted(self.fields)), min_size=1, max_size=2, unique=True))
            changes[key] = {name: value_of(self.fields[name], next(self.numbers)) for name in names}
        fl.edit(self.where).update(changes)
        for key, change in changes.items():
            self.rows[key] |= change
        self.note()

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from(sorted(NEW)), by_key=st.booleans())
    def add_column(self, name: str, kind: str, by_key: bool) -> None:
        editor, field = fl.edit(self.where), NEW[kind]()
        numbers = {key: next(self.numbers) for key in self.rows}
        values = {key: value_of(field, number) for key, number in numbers.items()}
        given: Any = values if by_key else list(values.values())
        if name in self.fields:
            with pytest.raises(ValueError, match="there is a field"):
                editor.add_column(name, field, given)
            return
        editor.add_column(name, field, given)
        self.fields[name] = field
        for key, row in self.rows.items():
            row[name] = values[key]
        self.note()

    @rule(data=st.data(), new=st.sampled_from(NAMES))
    def rename(self, data: st.DataObject, new: str) -> None:
        old = data.draw(st.sampled_from(sorted(self.fields)))
        if new in self.fields:
            return
        fl.edit(self.where).rename_column(old, new)
        self.fields = {new if name == old else name: field for name, field in self.fields.items()}
        self.rows = {
            key: {new if name == old else name: value for name, value in row.items()} for key, row in self.rows.items()
        }
        self.note()

    @precondition(lambda self: len(self.fields) > 1)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.fields)))
        fl.edit(self.where).drop_column(name)
        del self.fields[name]
        for row in self.rows.values():
            del row[name]
        self.note()

    @rule(shard_size=st.sampled_from([None, None, 500]))
    def compact(self, shard_size: int | None) -> None:
        fl.edit(self.where).compact(shard_size=shard_size)
        dataset = fl.open(self.where).dataset
        assert not dataset.removed
        assert not dataset.manifest.beside
        self.note()

    @rule(keep=st.integers(1, 3))
    def forget(self, keep: int) -> None:
        gone, _ = fl.edit(self.where).drop_snapshots(keep)
        for number in gone:
            del self.states[number]
            with pytest.raises(fl.NotFoundError, match="has no snapshot"):
                fl.open(self.where, snapshot=number)

    @invariant()
    def the_newest_is_what_the_model_says(self) -> None:
        if self.fields:
            reader = fl.open(self.where)
            assert samples_of(reader) == list(self.rows.items())
            assert reader.field_names == list(self.fields)
            assert all(reader.index_of(key) == i for i, key in enumerate(self.rows))

    def teardown(self) -> None:
        try:
            if self.fields:
                self.look_at_all()
        finally:
            shutil.rmtree(self.folder)
            plain._shelves.pop(self.name, None)

    def look_at_all(self) -> None:
        assert {one.number for one in fl.edit(self.where).snapshots()} == set(self.states)
        for number, (names, rows) in self.states.items():
            reader = fl.open(self.where, snapshot=number)
            assert reader.field_names == names
            assert samples_of(reader) == rows
            values = [row for _, row in rows]
            assert listed(reader.read_batch(np.arange(len(rows))), names) == values
            if rows:
                io = "auto" if self.in_store else "pread"
                with fl.DataLoader(reader, 4, order="quasi_random", window=2, io=io, seed=number) as loader:
                    found = [sample for batch in loader for sample in listed(batch, names)]
                assert sorted(map(repr, found)) == sorted(map(repr, values))
        assert fl.verify(self.where, decode=True, num_workers=0).ok


class LivingInAStore(Living):
    """The same among objects, with conditional puts in place of renames."""

    in_store = True


@pytest.mark.parametrize("machine", [Living, LivingInAStore])
def test_every_snapshot_stays_what_the_model_said(machine: type[Living], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # no power cut is tried here
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15, stateful_step_count=12, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
