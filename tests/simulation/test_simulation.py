"""What is predicted of an epoch is what a loader then asks the store for."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orders import in_order

import fastloader as fl
from fastloader.formats.fld import Manifest, Shard
from fastloader.samplers import Pages, QuasiRandom, Schedule, Sequential, Shuffled
from fastloader.simulation import Layout, Link, simulate
from fastloader.simulation.mixing import mixing
from fastloader.simulation.simulation import GAP

COUNT, MEAN, BATCH = 500, 60_000, 16


def write(path: str, count: int = COUNT, mean: int = MEAN, **options: Any) -> None:
    """Samples of different sizes, in pages of 1 MiB."""
    random = np.random.default_rng(1)
    fields = {"data": fl.BytesField(), "n": fl.IntField()}
    with fl.DatasetWriter(path, fields, page_size="1MiB", **options) as writer:
        for i in range(count):
            writer.write_sample({"data": random.bytes(int(random.integers(mean // 2, mean * 3 // 2))), "n": i})


@pytest.fixture(scope="module")
def url() -> str:
    """Shards in a store of this process."""
    to = f"memory://simulated/{secrets.token_hex(6)}"
    write(to, shard_size="7MB")
    return to


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize(("order", "near"), [("sequential", 0.15), ("random", 0.02), ("quasi_random", 0.1)])
def test_a_loader_asks_for_what_was_predicted(url: str, order: Any, near: float, world_size: int) -> None:
    with fl.open(url) as reader:
        told = simulate(reader, world_size=world_size, batch_size=BATCH, **in_order(order, 4), seed=5)
        for rank in (told.ranks[0], told.ranks[-1]):
            loader = fl.DataLoader(
                reader, BATCH, **in_order(order, 4), seed=5, rank=rank.rank, world_size=world_size, num_workers=1,
                memory_limit="70MB",
            )  # fmt: skip
            got = [len(batch["n"]) for batch in loader]
            assert (sum(got), len(got)) == (rank.samples, rank.steps)
            io = loader.stats()["io"]
            assert abs(rank.requests - io["requests"]) <= max(1, near * io["requests"])
            assert rank.bytes == pytest.approx(io["fetched_bytes"], rel=0.06)


def test_a_cache_is_asked_for_whole_blocks_and_must_have_the_room_that_was_told(url: str, tmp_path: Path) -> None:
    with fl.open(url, cache_dir=tmp_path) as reader:
        told = simulate(reader, world_size=1, batch_size=BATCH, cache_limit=1 << 20)
        loader = fl.DataLoader(reader, BATCH, shuffle=True, num_workers=1)
        assert sum(len(batch["n"]) for batch in loader) == COUNT
        assert loader.stats()["io"]["requests"] == pytest.approx(told.requests_per_rank, abs=5)  # ends held tables
    assert told.cache_fits is False
    assert simulate(fl.open(url), world_size=1, batch_size=BATCH, cache_limit=told.cache_bytes).cache_fits is True
    with fl.open(url, cache_dir=tmp_path / "enough", cache_size=told.cache_bytes) as reader:
        fl.DataLoader(reader, BATCH, shuffle=True)
    with (
        fl.open(url, cache_dir=tmp_path / "less", cache_size=told.cache_bytes - 1) as reader,
        pytest.raises(ValueError, match="cache_size"),
    ):
        fl.DataLoader(reader, BATCH, shuffle=True)


def test_local_files_are_told_like_objects_but_for_opening(tmp_path: Path) -> None:
    write(str(tmp_path / "local.fld"), 60)
    told = simulate(fl.open(tmp_path / "local.fld"), world_size=2, batch_size=8)
    assert [rank.opening_requests for rank in told.ranks] == [0, 0]
    assert sum(rank.samples for rank in told.ranks) == 60
    assert 0.9 < sum(rank.bytes for rank in told.ranks) / (60 * MEAN) < 1.1


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3_000_000)), min_size=1, max_size=6),
    st.integers(1, 5), st.integers(1, 40), st.sampled_from(["sequential", "random", "quasi_random"]), st.booleans(),
)  # fmt: skip
def test_ranks_together_have_every_sample_whatever_the_manifest(
    shards: list[tuple[int, int]], world_size: int, batch_size: int, order: Any, cached: bool
) -> None:
    manifest = Manifest(tuple(Shard(str(i), count, size, i) for i, (count, size) in enumerate(shards)))
    layout = Layout.of_manifest(manifest, page_size=65536)
    told = simulate(
        layout, world_size=world_size, batch_size=batch_size, **in_order(order, 2), cache_limit=1 if cached else None
    )
    assert sum(rank.samples for rank in told.ranks) == manifest.num_samples
    for rank in told.ranks:
        one = simulate(
            layout, world_size=world_size, batch_size=batch_size, **in_order(order, 2), rank=rank.rank,
            cache_limit=1 if cached else None,
        )  # fmt: skip
        assert one.ranks == (rank,)
        assert rank.bytes <= sum(size for _, size in shards) + rank.samples * 2 * GAP
        assert (rank.requests > 0) == (rank.bytes > 0)
        assert rank.first_batch_bytes <= rank.bytes + 1


def test_pages_of_a_manifest_are_those_of_a_dataset_with_equal_samples(tmp_path: Path) -> None:
    with fl.DatasetWriter(tmp_path / "even.fld", {"x": fl.BytesField()}, page_size="64KiB", shard_size="1MB") as writer:
        for _ in range(400):
            writer.write_sample({"x": bytes(10_000)})
    dataset = fl.open(tmp_path / "even.fld").dataset
    real, guessed = Pages.of(dataset), Layout.of_manifest(Manifest(dataset.shards), page_size=65536).pages()
    assert int(guessed.count.sum()) == int(real.count.sum()) == 400
    assert abs(len(real) - len(guessed)) <= 0.1 * len(real)
    assert np.array_equal(Layout.of(dataset).pages().first, real.first)


def test_a_long_epoch_is_told_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest(tuple(Shard(str(i), 1_000, 50_000_000, i) for i in range(40)))
    for order in ("sequential", "random", "quasi_random"):
        options: Any = {"world_size": 2, "batch_size": 50, "rank": 0, **in_order(order, 4)}
        whole = simulate(manifest, **options)
        with monkeypatch.context() as patch:
            patch.setattr("fastloader.simulation.simulation.MOST_WALKED", 4_000)
            part = simulate(manifest, **options)
        assert (whole.ranks[0].walked, part.ranks[0].walked) == (1.0, 0.2)
        for name in ("bytes", "requests", "shards", "samples", "opening_bytes"):
            assert getattr(part.ranks[0], name) == pytest.approx(getattr(whole.ranks[0], name), rel=0.15), name


def test_mixing_is_one_for_a_shuffle_and_tells_the_others_apart() -> None:
    pages = Pages(np.arange(512) * 100, np.full(512, 100))
    shuffled = mixing(Shuffled(51_200, 3), pages, 64, 4)
    assert [shuffled.displacement, shuffled.pages_in_batch, shuffled.label_spread, shuffled.step_label_spread] == (
        pytest.approx([1.0] * 4, rel=0.1)
    )
    small, large = (mixing(QuasiRandom(pages, window, 3, 4, 64), pages, 64, 4) for window in (2, 32))
    as_written = mixing(Sequential(51_200), pages, 64, 4)
    assert as_written.displacement == 0.0
    assert as_written.label_spread > small.label_spread > large.label_spread > shuffled.label_spread
    assert small.label_spread < 1 + 63 / 2 + 1  # the bound that docs/explanation/order.md gives
    assert as_written.pages_in_batch < small.pages_in_batch < large.pages_in_batch < 1


def test_the_first_batch_waits_for_what_must_be_opened() -> None:
    manifest = Manifest(tuple(Shard(str(i), 1_000, 50_000_000, i) for i in range(400)))
    link = Link(latency=1.0, bandwidth=1e12, at_once=32)
    quasi, plain = (
        simulate(manifest, world_size=8, batch_size=64, order=order)  # type: ignore[arg-type]
        for order in ("quasi_random", "random")
    )
    assert quasi.ranks[0].first_batch_shards == 400
    assert quasi.first_batch_seconds(link) == pytest.approx(2 * 13 + 2 + quasi.planning_seconds, abs=0.6)
    assert 2 * 2 <= plain.first_batch_seconds(link) - plain.planning_seconds <= 2 * 2 + 2.5
    samples = np.concatenate([Schedule(Shuffled(400_000), 64, rank=r, world_size=8).batch(0, 0) for r in range(8)])
    assert max(len(np.unique(part // 1_000)) for part in samples.reshape(8, 64)) == max(
        rank.first_batch_shards for rank in plain.ranks
    )


def test_what_is_given_is_checked() -> None:
    manifest = Manifest((Shard("0", 10, 1_000, 0),))
    with pytest.raises(ValueError, match="one of sequential, random, quasi_random"):
        simulate(manifest, world_size=1, batch_size=1, order="zigzag")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rank"):
        simulate(manifest, world_size=2, batch_size=1, rank=2)
    with pytest.raises(ValueError, match="world_size"):
        simulate(manifest, world_size=0, batch_size=1)


def test_the_code_of_the_page_on_scale_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs/explanation/scale.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(code, "scale.md", "exec"), {})
