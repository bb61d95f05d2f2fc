"""Shards that are known before samples are read: about as large as asked for, and the same however they are made."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.dataset.dataset import as_node
from fastloader.dataset.planning import plan_shards
from fastloader.dataset.running import new_run
from fastloader.dataset.shards import Recipe, dictionaries_of, shard_at
from fastloader.dataset.writing import Elements, fields_of
from fastloader.formats.fld import shard_name
from fastloader.writer.intake import size_of

COUNT = 600


def elements_of(source: Any) -> Elements:
    """Looked at."""
    elements = Elements(as_node(fl.open(source) if isinstance(source, Path | str | list) else source), new_run())
    fields_of(elements, None)
    return elements


def payload(i: int) -> bytes:
    """Small ones first, large ones last: a mean would be far off."""
    return np.random.default_rng(i).bytes(50 + i * 5)


def as_files(folder: Path) -> Path:
    (folder / "files").mkdir()
    for i in range(COUNT):
        (folder / "files" / f"{i:04d}.bin").write_bytes(payload(i))
    return folder / "files"


def as_tar(folder: Path) -> Path:
    with tarfile.open(folder / "x.tar", "w") as tar:
        for i in range(COUNT):
            info = tarfile.TarInfo(f"{i:04d}.bin")
            info.size = len(payload(i))
            tar.addfile(info, io.BytesIO(payload(i)))
    return folder / "x.tar"


def as_fld(folder: Path) -> Path:
    with fl.DatasetWriter(folder / "x.fld", {"data": fl.BytesField()}) as writer:
        writer.write_many({"data": payload(i)} for i in range(COUNT))
    return folder / "x.fld"


def as_parquet(folder: Path) -> str:
    for i in range(6):
        rows = [payload(j) for j in range(i * 100, i * 100 + 100)]
        pq.write_table(pa.table({"data": rows}), folder / f"{i}.parquet")
    return str(folder / "*.parquet")


def as_lines(folder: Path) -> Path:
    with (folder / "x.jsonl").open("w") as file:
        for _ in range(COUNT):
            file.write(json.dumps({"data": "x" * 800}) + "\n")
    return folder / "x.jsonl"


@pytest.mark.parametrize("make", [as_files, as_tar, as_fld, as_parquet, as_lines])
def test_shards_are_about_as_large_as_asked_for(tmp_path: Path, make: Any) -> None:
    elements = elements_of(make(tmp_path))
    plan = elements.plan(60_000)
    assert plan is not None
    sizes = [size_of(sample) for sample in elements.samples(0, None)]
    held = [sum(sizes[first : first + count]) for first, count in map(plan.run, range(len(plan)))]
    assert sum(held) == sum(sizes)
    assert len(plan) > 5
    exact = make in (as_files, as_tar, as_fld)
    assert all((0.95 if exact else 0.7) < one / 60_000 < (1.1 if exact else 1.6) for one in held[:-1])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 500), max_size=60), st.integers(1, 2000), st.integers(1, 7))
def test_a_plan_deals_every_sample_once_and_fills_its_shards(sizes: list[int], size: int, at_once: int) -> None:
    node = as_node(fl.Dataset.from_sequence([{"x": bytes(one)} for one in sizes]))
    looked = [(i, {"x": bytes(one)}) for i, one in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastloader.dataset.planning.weights", lambda node, run, places: np.array(sizes, float)[places])
        patch.setattr("fastloader.dataset.planning.AT_ONCE", at_once)
        plan = plan_shards(node, new_run(), size, looked)
    assert plan.edges[0] == 0
    assert plan.edges[-1] == len(sizes)
    weights = [max(1, one) for one in sizes]
    for number in range(len(plan)):
        first, count = plan.run(number)
        assert count or not sizes
        assert sum(weights[first : first + count - 1]) < size  # no sample before the last fills it
        assert number == len(plan) - 1 or sum(weights[first : first + count]) >= size


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_shards_made_in_any_order_are_those_of_one_run(tmp_path: Path, compression: str | None) -> None:
    texts = [f"the {i}th text tells of {i * i} things, as the others do" for i in range(6000)]
    dataset = fl.Dataset.from_sequence([{"text": text, "i": i} for i, text in enumerate(texts)])
    named: Any = {"text": fl.TextField(dictionary=1024) if compression else fl.TextField()}
    fields = dataset.write(tmp_path / "one.fld", named, shard_size="60KB", compression=compression)
    elements = Elements(as_node(dataset), new_run())
    fields_of(elements, None)
    plan = elements.plan(60_000)
    assert plan is not None
    assert len(plan) > 3
    recipe = Recipe.to(tmp_path, fields, compression, 1)
    known: dict[int, bytes] = {}
    (tmp_path / "apart").mkdir()
    for number in (0, *reversed(range(1, len(plan)))):  # the first tells the dictionaries
        first, count = plan.run(number)
        path = tmp_path / "apart" / shard_name(number)
        samples = ({"text": texts[i], "i": i} for i in range(first, first + count))
        recipe.make(path, samples, first, known, lambda count: None)
        known = known or dictionaries_of(tmp_path / "apart")
        assert shard_at(path, path.name) == fl.open(tmp_path / "one.fld").dataset.shards[number]
    assert bool(known) == bool(compression)
    for path in (tmp_path / "apart").iterdir():
        assert path.read_bytes() == (tmp_path / "one.fld" / path.name).read_bytes()


def test_a_conversion_goes_on_where_shards_are_missing_and_with_the_same_shards_only(tmp_path: Path) -> None:
    dataset = fl.Dataset.from_sequence([{"x": bytes(100), "i": i} for i in range(500)])
    dataset.write(tmp_path / "whole.fld", shard_size=3000)

    class Stopped(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastloader.dataset.writing.name_all", stop)
        with pytest.raises(Stopped):
            dataset.write(tmp_path / "a.fld", shard_size=3000)
    aside = tmp_path / ".a.fld.converting" / "data.fld"
    kept = (aside / shard_name(7)).stat().st_ino
    for number in (0, 3, 4):
        (aside / shard_name(number)).unlink()
    (aside / shard_name(5)).write_bytes(b"damaged")
    (aside / ".shard-00003.fld.writing-left").write_bytes(b"by a killed writer")
    with pytest.raises(fl.StoreError, match="another conversion has left"):
        dataset.write(tmp_path / "a.fld", shard_size=4000)
    dataset.write(tmp_path / "a.fld", shard_size=3000)
    files = {path.name: path.read_bytes() for path in (tmp_path / "a.fld").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "whole.fld").iterdir()}
    assert (tmp_path / "a.fld" / shard_name(7)).stat().st_ino == kept


def test_errors_name_the_sample_by_its_number_in_the_dataset(tmp_path: Path) -> None:
    samples: list[Any] = [{"x": bytes(100)} for _ in range(500)]
    samples[430] = {"x": "no bytes"}
    with pytest.raises(fl.SampleError, match="sample 430"):
        fl.Dataset.from_sequence(samples).write(tmp_path / "a.fld", {"x": fl.BytesField()}, shard_size=3000)
