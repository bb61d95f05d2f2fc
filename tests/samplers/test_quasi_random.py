"""The quasi-random order: a bijection that stays within windows of pages, with lanes for ranks."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.samplers import Pages, QuasiRandom, Schedule, Shuffled, quasi_random
from fastloader.samplers.hashing import Stream, fold

counts = st.lists(st.integers(0, 12), max_size=40)


def pages_with(count):
    count = np.array(count, np.int64)
    return Pages(np.cumsum(count) - count, count)


def order_slowly(count, window, seed, epoch, lanes, run):
    """The whole epoch from its description, one sample at a time."""
    spans, start = [], 0
    for n in count:
        spans += [range(start, start + n)] if n else []
        start += n
    sequence = [(number, sample) for number in Shuffled(len(spans), seed).samples(epoch, 0, len(spans)).tolist()
                for sample in spans[number]]  # fmt: skip
    lengths = [0] * lanes
    for position in range(len(sequence)):
        lengths[position // run % lanes] += 1
    streams, number = [], 0
    for length in lengths:
        lane, sequence = sequence[:length], sequence[length:]
        stream = []
        while lane:
            in_window = list(dict.fromkeys(page for page, _ in lane))[:window]
            part = [sample for page, sample in lane if page in in_window]
            lane = lane[len(part) :]
            places = np.arange(len(part))
            kernels.permute(len(part), fold(seed, Stream.WINDOW, number), epoch, places, places)
            stream += [part[place] for place in places]
            number += 1
        streams.append(stream)
    return [streams[position // run % lanes].pop(0) for position in range(sum(lengths))]


@given(counts, st.integers(1, 6), st.integers(0, 2**64 - 1), st.integers(0, 99), st.integers(1, 5), st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_it_agrees_with_its_slow_twin_and_gives_each_sample_once(count, window, seed, epoch, lanes, run):
    order = QuasiRandom(pages_with(count), window, seed, lanes, run)
    samples = order.samples(epoch, 0, len(order)).tolist()
    assert samples == order_slowly(count, window, seed, epoch, lanes, run)
    assert sorted(samples) == list(range(sum(count)))


@given(counts.filter(any), st.integers(1, 5), st.data())
@settings(max_examples=50, deadline=None)
def test_any_part_of_an_epoch_is_that_part_of_the_whole(count, lanes, data):
    order = QuasiRandom(pages_with(count), 3, 1, lanes, 4)
    first = data.draw(st.integers(0, len(order)))
    size = data.draw(st.integers(0, len(order) - first))
    whole = order.samples(5, 0, len(order))
    assert order.samples(5, first, size).tolist() == whole[first : first + size].tolist()


@pytest.mark.parametrize("window", [1, 4, 7])
def test_a_window_holds_the_pages_it_should(window):
    order = QuasiRandom(pages_with([10] * 50), window, seed=3)
    pages = order.samples(0, 0, 500) // 10
    seen = set()
    for first in range(0, 500, window * 10):
        here = set(pages[first : first + window * 10].tolist())
        assert len(here) == min(window, 50 - first // 10)
        assert not here & seen
        seen |= here


def test_one_window_over_everything_is_a_plain_shuffle_of_all():
    samples = QuasiRandom(pages_with([10] * 20), window=20).samples(0, 0, 200)
    assert sorted(samples.tolist()) == list(range(200))
    assert np.abs(np.diff(samples // 10)).mean() > 5  # neighbours are of pages that are far apart


def test_seeds_and_epochs_give_other_orders():
    orders = {
        tuple(QuasiRandom(pages_with([5] * 20), 4, seed).samples(epoch, 0, 100))
        for seed in range(10)
        for epoch in range(10)
    }
    assert len(orders) == 100


def test_with_a_lane_for_each_rank_no_page_is_read_by_two_but_where_lanes_meet():
    pages = pages_with([16] * 64)
    batch_size, ranks = 8, 4

    def readers(order):
        seen = [set() for _ in range(64)]
        for rank in range(ranks):
            schedule = Schedule(order, batch_size, rank=rank, world_size=ranks)
            for step in range(schedule.steps()):
                for page in (schedule.batch(0, step) // 16).tolist():
                    seen[page].add(rank)
        return [len(ranks_of_page) for ranks_of_page in seen]

    assert sum(readers(QuasiRandom(pages, 4, lanes=ranks, run=batch_size))) <= 64 + ranks - 1
    assert sum(readers(QuasiRandom(pages, 4))) > 3 * 64


def test_the_order_is_the_same_for_ever():
    """A checkpoint of today must resume tomorrow: these numbers never change."""
    pages = Pages([0, 5, 8, 8, 20], [5, 3, 0, 12, 4])
    assert QuasiRandom(pages, 2, 7).samples(3, 0, 24).tolist() == [
        23, 7, 5, 6, 22, 20, 21, 1, 19, 0, 14, 17, 8, 15, 4, 9, 2, 13, 3, 16, 12, 11, 18, 10,
    ]  # fmt: skip
    assert QuasiRandom(pages, 2, 7, lanes=2, run=3).samples(3, 0, 24).tolist() == [
        23, 7, 5, 19, 13, 4, 6, 22, 20, 1, 3, 14, 21, 9, 11, 16, 0, 17, 12, 8, 10, 18, 2, 15,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Two shards, of which one has samples that span several pages."""
    folder = tmp_path_factory.mktemp("shards")
    for name, sizes in (("a", [300] * 40), ("b", [9000, 100, 20000, 100, 100])):
        with fl.DatasetWriter(folder / f"{name}.fld", {"x": fl.BytesField()}, page_size=4096) as writer:
            for size in sizes:
                writer.write_sample({"x": bytes(size)})
    fl.concatenate(folder / "both", [folder / "a.fld", folder / "b.fld"])
    return folder


def test_pages_are_taken_from_a_datasets_files(shards):
    reader = fl.open(shards / "both")
    pages = Pages.of(reader.dataset)
    assert pages.count.min() > 0
    assert pages.first.tolist() == (np.cumsum(pages.count) - pages.count).tolist()
    assert pages.count.sum() == len(reader) == 45
    first = [row for table in (reader.dataset.file(0).pages(), reader.dataset.file(1).pages()) for row in table]
    assert pages.count.tolist() == [row["num_samples"] for row in first if row["num_samples"]]
    assert len(first) > len(pages)  # pages that only continue a sample are left out
    order = QuasiRandom(pages, 3)
    assert sorted(order.samples(0, 0, 45).tolist()) == list(range(45))


def test_a_dataset_without_samples_has_no_pages(tmp_path):
    with fl.DatasetWriter(tmp_path / "none.fld", {"x": fl.IntField()}):
        pass
    pages = Pages.of(fl.open(tmp_path / "none.fld").dataset)
    assert len(pages) == 0
    for lanes in (1, 3):
        assert QuasiRandom(pages, lanes=lanes).samples(0, 0, 0).tolist() == []


def test_neighbours_are_merged_when_there_are_too_many_and_the_window_still_counts_pages(shards):
    reader = fl.open(shards / "a.fld")
    single, merged = Pages.of(reader.dataset), Pages.of(reader.dataset, at_most=2)
    assert (len(single), single.merged) == (3, 1)
    assert (len(merged), merged.merged) == (2, 2)
    assert merged.count.tolist() == [single.count[:2].sum(), single.count[2]]
    uneven = pages_with([1, 2, 3, 4, 5]).in_runs(2)
    assert (uneven.first.tolist(), uneven.count.tolist(), uneven.merged) == ([0, 6], [6, 9], 3)
    many = pages_with([10] * 60)
    in_windows = QuasiRandom(many.in_runs(20), window=6, seed=1).samples(0, 0, 60) // 10
    assert len(set(in_windows.tolist())) == 6
    smallest = QuasiRandom(many.in_runs(20), window=1, seed=1).samples(0, 0, 30) // 10
    assert len(set(smallest.tolist())) == 3


def test_it_survives_pickling():
    order = QuasiRandom(pages_with([5] * 20), 4, 7, 2, 3)
    before = order.samples(1, 0, 100)
    assert pickle.loads(pickle.dumps(order)).samples(1, 0, 100).tolist() == before.tolist()


@pytest.mark.parametrize(
    ("first", "count", "message"),
    [
        ([0, 5], [5], "there are 2 first samples and 1 counts"),
        ([0, 4], [5, 5], "a page begins with sample 4, but the one before has samples 0 to 4"),
        ([5, 0], [5, 5], "a page begins with sample 0, but"),
        ([0], [-1], r"count\[0\]=-1: at least 0"),
    ],
)
def test_wrong_pages_are_refused(first, count, message):
    with pytest.raises(ValueError, match=message):
        Pages(first, count)


def test_pages_apart_are_fine_but_not_merged():
    pages = Pages([0, 10], [5, 5])
    assert sorted(QuasiRandom(pages, 1).samples(0, 0, 10).tolist()) == [*range(5), *range(10, 15)]
    with pytest.raises(ValueError, match="left out between them"):
        pages.in_runs(1)


@pytest.mark.parametrize("name", ["window", "lanes", "run"])
def test_options_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name}=0: at least 1"):
        QuasiRandom(pages_with([5]), **{name: 0})


def test_positions_outside_are_refused():
    with pytest.raises(IndexError, match="positions 3 to 6 of an order that has 5"):
        QuasiRandom(pages_with([5])).samples(0, 3, 3)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 200_000)), max_size=30), st.integers(1, 200),
    st.sampled_from([4096, 65536]),
)  # fmt: skip
def test_pages_told_from_a_manifest_hold_every_sample_once(shards, at_most, page_size):
    starts = np.cumsum([0, *(count for count, _ in shards)], dtype=np.int64)
    sizes = np.array([size for _, size in shards], np.int64)
    pages = Pages.of_shards(starts, sizes, page_size, at_most)
    assert pages.count.sum() == starts[-1]
    assert np.array_equal(pages.first[1:], pages.first[:-1] + pages.count[:-1])
    whole = sum(max(1, -(-size // page_size)) for _, size in shards)
    assert pages.merged == max(16, -(-whole // at_most))
    assert len(pages) <= at_most + len(shards)
    for start in starts[:-1][np.diff(starts) > 0].tolist():  # none lies in two shards
        assert start in pages.first
    order = QuasiRandom(pages, 3, 1, 2, 5)
    assert sorted(order.samples(0, 0, len(order)).tolist()) == list(range(int(starts[-1])))


def test_shards_of_a_vast_dataset_are_not_opened_for_their_pages(tmp_path, monkeypatch):
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.BytesField()}, page_size=4096, shard_size=20_000) as writer:
        for _ in range(400):
            writer.write_sample({"x": bytes(900)})
    monkeypatch.setattr(quasi_random, "MANY_SHARDS", 5)
    with fl.open(tmp_path / "x.fld") as reader:
        loader = fl.DataLoader(reader, 16, order="quasi_random", window=2, seed=1, num_workers=1, rank=0, world_size=9)
        assert len(loader) == 3
        assert list(reader.dataset._files) == [0]  # which tells the fields
        assert len(Pages.of(reader.dataset)) == len(reader.dataset.shards)  # of five pages each
    seen = []
    for rank in range(3):
        with fl.open(tmp_path / "x.fld") as reader:
            seen += samples_of(reader, rank)
    assert sorted(seen) == list(range(400))


def samples_of(reader, rank):
    plan = fl.DataLoader(reader, 16, order="quasi_random", window=2, seed=1, rank=rank, world_size=3).plan
    return [int(sample) for step in range(plan.steps()) for sample in plan.batch(0, step)]
