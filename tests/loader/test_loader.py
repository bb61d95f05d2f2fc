import subprocess
import sys
import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from left_behind import left, python_threads, threads, until

import fastloader as fl
from fastloader.fields import BY_TYPE_ID
from fastloader.samplers import LengthBuckets
from fastloader.types import distinct

COUNT = 53


OTHERS = set()
"""Threads of loaders that tests elsewhere have left."""


def all_loader_threads():
    return threads("fl-engine") | python_threads("fastloader-loader")


def loader_threads():
    """Threads of loaders of this test, native and Python's."""
    return all_loader_threads() - OTHERS


@pytest.fixture(autouse=True)
def _others():
    OTHERS.clear()
    OTHERS.update(all_loader_threads())


@pytest.fixture(params=[{}, {"shard_size": 500}], ids=["file", "shards"])
def reader(request, tmp_path):
    fields = {"n": fl.IntField(), "a": fl.NDArrayField("float32", (2, 3)), "text": fl.JSONField()}
    with fl.DatasetWriter(tmp_path / "x.fld", fields, **request.param) as writer:
        writer.write_many((i, np.full((2, 3), i, np.float32), f"number {i}") for i in range(COUNT))
    return fl.open(tmp_path / "x.fld")


def orders(loader, epochs=1):
    return [[int(n) for batch in loader for n in batch["n"]] for _ in range(epochs)]


# Order


def test_in_order_without_shuffling(reader):
    assert orders(fl.DataLoader(reader, 8, shuffle=False), 2) == [list(range(COUNT))] * 2


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_every_sample_once_an_epoch(workers, reader):
    for order in orders(fl.DataLoader(reader, 8, num_workers=workers), 3):
        assert Counter(order) == Counter(range(COUNT))


def test_the_order_is_a_matter_of_seed_and_epoch_alone(reader):
    def run(seed, workers, batch_size=8, prefetch=2):
        return orders(
            fl.DataLoader(reader, batch_size, seed=seed, num_workers=workers, prefetch_factor=prefetch), epochs=3
        )

    wanted = run(7, 0)
    assert run(7, 1) == run(7, 3) == run(7, 3, prefetch=5) == run(7, 2, batch_size=5) == wanted
    assert len({tuple(order) for order in wanted}) == 3
    assert run(8, 0) != wanted
    assert wanted[0] != sorted(wanted[0])


def test_an_epoch_can_be_chosen(reader):
    loader = fl.DataLoader(reader, 8, seed=7)
    first, second, third = orders(loader, 3)
    loader.set_epoch(1)
    assert orders(loader, 2) == [second, third]
    loader.set_epoch(0)
    assert orders(loader) == [first]


def test_choosing_the_epoch_of_a_state_keeps_its_place(reader):
    """As training programs do that call set_epoch in every pass of their loop, the resumed one too."""
    loader = fl.DataLoader(reader, 8, seed=7)
    whole = [[batch["n"].tolist() for batch in loader] for _ in range(3)]
    loader.set_epoch(1)
    for _, _batch in zip(range(2), loader, strict=False):
        pass
    state = loader.state_dict()
    for epoch, wanted in ((1, whole[1][2:]), (2, whole[2]), (0, whole[0])):
        resumed = fl.DataLoader(reader, 8, seed=7)
        resumed.load_state_dict(state)
        resumed.set_epoch(epoch)
        assert resumed.state_dict()["epoch"] == epoch
        assert [batch["n"].tolist() for batch in resumed] == wanted
        resumed.set_epoch(1)  # the place was taken
        assert [batch["n"].tolist() for batch in resumed] == whole[1]


def test_two_iterators_at_once_are_two_epochs(reader):
    one, two, three = orders(fl.DataLoader(reader, 8, seed=7), 3)
    loader = fl.DataLoader(reader, 8, seed=7, num_workers=2)
    got = [[], []]
    for pair in zip(loader, loader, strict=True):
        for order, batch in zip(got, pair, strict=True):
            order += batch["n"].tolist()
    assert got == [one, two]
    assert orders(loader) == [three]


# Batches


@pytest.mark.parametrize("batch_size", [1, 8, 52, 53, 54, 1000])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_lengths(batch_size, drop_last, workers, reader):
    loader = fl.DataLoader(reader, batch_size, drop_last=drop_last, num_workers=workers)
    sizes = [len(batch["n"]) for batch in loader]
    whole, rest = divmod(COUNT, batch_size)
    assert sizes == [batch_size] * whole + ([rest] if rest and not drop_last else [])
    assert len(loader) == len(sizes)


def test_batches_are_what_the_reader_gives(reader):
    (batch,) = fl.DataLoader(reader, COUNT, seed=1)
    order = batch["n"]
    assert batch["a"].shape == (COUNT, 2, 3)
    assert (batch["a"][:, 0, 0] == order).all()
    assert batch["text"] == [f"number {i}" for i in order]


def test_a_dataset_of_nothing(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"n": fl.IntField()}):
        pass
    for workers in (0, 2):
        loader = fl.DataLoader(fl.open(tmp_path / "x.fld"), num_workers=workers)
        assert (list(loader), len(loader)) == ([], 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_by_field_then_collate(workers, reader):
    loader = fl.DataLoader(
        reader, 8, shuffle=False, num_workers=workers,
        transforms={"a": lambda a: a / 2, "text": lambda texts: [len(t) for t in texts]},
        collate_fn=lambda batch: (batch["n"], batch["a"], batch["text"]),
    )  # fmt: skip
    n, a, text = next(iter(loader))
    assert (a[:, 0, 0] == n / 2).all()
    assert text == [len(f"number {i}") for i in range(8)]


def test_reading_ahead_is_bounded(reader):
    started = []
    loader = fl.DataLoader(
        reader, 1, num_workers=2, prefetch_factor=3, transforms={"n": lambda n: started.append(int(n[0])) or n}
    )
    iterator = iter(loader)
    assert started == []
    for taken in range(1, 20):
        next(iterator)
        assert len(started) <= taken + 2 * 3
    iterator.close()


# Errors


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_error_in_a_transform_names_sample_and_field(workers, reader):
    def fail(a):
        if 20.0 in a:
            raise ZeroDivisionError("no twenties")
        return a

    loader = fl.DataLoader(reader, 8, shuffle=False, num_workers=workers, transforms={"a": fail})
    seen = []
    with pytest.raises(fl.FastLoaderError) as caught:
        seen.extend(batch["n"][0] for batch in loader)
    assert seen == [0, 8]
    assert (caught.value.sample, caught.value.field) == (20, "a")
    assert str(reader.path) in str(caught.value)
    assert "sample 20, field 'a': the transform failed: ZeroDivisionError: no twenties" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not left(loader_threads)


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("place", ["transforms", "collate_fn"])
def test_a_stop_iteration_does_not_end_the_epoch_quietly(workers, place, reader):
    def stop(_):
        raise StopIteration

    options = {"transforms": {"n": stop}} if place == "transforms" else {"collate_fn": stop}
    with pytest.raises(fl.DecodeError, match="StopIteration"):
        list(fl.DataLoader(reader, 8, num_workers=workers, **options))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_damaged_payload_reaches_the_consumer_with_its_place(workers, reader):
    number, position = reader.dataset.where(30)
    file = reader.dataset.file(number)
    with file.path.open("r+b") as raw:
        raw.seek(file.payloads(1).extent(position)[0])
        raw.write(b"\xff\xff")
    loader = fl.DataLoader(fl.open(reader.path), 8, shuffle=False, num_workers=workers)
    seen = []
    with pytest.raises(fl.ChecksumError) as caught:
        seen.extend(batch["n"][0] for batch in loader)
    assert seen == [0, 8, 16]
    assert (caught.value.sample, caught.value.field, caught.value.path) == (30, "a", str(file.path))
    assert not left(loader_threads)


def test_an_error_ends_the_epoch_and_the_next_one_starts_anew(reader):
    broken = True

    def fail(n):
        if broken:
            raise ValueError("once")
        return n

    loader = fl.DataLoader(reader, 8, seed=7, transforms={"n": fail})
    with pytest.raises(fl.FastLoaderError):
        list(loader)
    broken = False
    assert orders(loader) == orders(fl.DataLoader(reader, 8, seed=7), 2)[1:]


# Threads


def test_leaving_early_leaves_no_thread(reader):
    for batch in fl.DataLoader(reader, 4, num_workers=3):
        assert len(batch["n"]) == 4
        until(loader_threads)
        break
    assert not left(loader_threads)


def test_the_end_of_an_epoch_leaves_no_thread(reader):
    list(fl.DataLoader(reader, 4, num_workers=3))
    assert not left(loader_threads)


def test_an_iterator_never_used_starts_no_thread(reader):
    iterator = iter(fl.DataLoader(reader, 4, num_workers=3))
    assert not loader_threads()
    del iterator


def test_an_interrupt_in_the_loop_leaves_no_thread(reader):
    def train():
        for _ in fl.DataLoader(reader, 4, num_workers=3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert not left(loader_threads)


def test_without_workers_everything_runs_in_the_callers_thread(reader):
    seen = set()
    list(fl.DataLoader(reader, 8, num_workers=0, transforms={"n": lambda n: seen.add(threading.get_ident()) or n}))
    assert seen == {threading.get_ident()}


def test_with_workers_transforms_run_in_them(reader):
    seen = set()
    list(fl.DataLoader(reader, 8, num_workers=2, transforms={"n": lambda n: seen.add(threading.get_ident()) or n}))
    assert threading.get_ident() not in seen


# Arguments and other fields


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: at least 1"),
        ({"num_workers": -1}, "num_workers=-1: at least 0"),
        ({"prefetch_factor": 0}, "prefetch_factor=0: at least 1"),
        ({"seed": -1}, "seed=-1: at least 0"),
        ({"num_workers": 10**7}, "num_workers=10000000: at most 1,024 threads"),
        ({"prefetch_factor": 2**21}, r"prefetch_factor=2097152: below 2\*\*21"),
        ({"transforms": {"nope": abs}}, "transforms for unknown fields nope; there are n, a, text"),
    ],
)
def test_wrong_arguments(options, message, reader):
    with pytest.raises(ValueError, match=message):
        fl.DataLoader(reader, **options)


def test_a_private_pool_is_bounded_too():
    with pytest.raises(ValueError, match="private_threadpool_size=5000: at most 1,024 threads"):
        fl.ThreadingOptions(private_threadpool_size=5000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": "x"}, "batch_size='x': a whole number is needed"),
        ({"batch_size": 2.5}, "batch_size=2.5: a whole number is needed"),
        ({"num_workers": "4"}, "num_workers='4': a whole number is needed"),
        ({"num_workers": 2.5}, "num_workers=2.5: a whole number is needed"),
        ({"prefetch_factor": "2"}, "prefetch_factor='2': a whole number is needed"),
        ({"prefetch_factor": 1.5}, "prefetch_factor=1.5: a whole number is needed"),
        ({"seed": "a"}, "seed='a': a whole number is needed"),
        ({"seed": None}, "seed=None: a whole number is needed"),
        ({"window": 1.5}, "window=1.5: a whole number is needed"),
        ({"shuffle": "no"}, "shuffle='no': True or False is needed"),
        ({"shuffle": None}, "shuffle=None: True or False is needed"),
        ({"drop_last": "false"}, "drop_last='false': True or False is needed"),
        ({"drop_last": 2}, "drop_last=2: True or False is needed"),
        ({"auto_tune": "yes"}, "auto_tune='yes': True or False is needed"),
        ({"fields": 5}, "fields=5: names of fields are needed, not a int"),
        ({"fields": [5]}, r"fields=\[5\]: names of fields are needed, not a int"),
        ({"fields": ["n", b"a"]}, "names of fields are needed, not a bytes"),
        (
            {"transforms": len},
            "transforms=.*: a dictionary of functions by the names of fields is needed, not a builtin",
        ),
        (
            {"transforms": [len]},
            "transforms=.*: a dictionary of functions by the names of fields is needed, not a list",
        ),
        ({"transforms": {"n": 5}}, r"transforms\['n'\]=5: a function is needed, not a int"),
        ({"transforms": {5: len}}, "transforms=.*: names of fields are needed, not a int"),
        ({"collate_fn": 5}, "collate_fn=5: a function is needed, not a int"),
        ({"pipelines": [1]}, r"pipelines=\[1\]: a dictionary of lists of operations by the names of fields"),
        ({"pipelines": {"n": 5}}, r"pipelines\['n'\]=5: a list of operations is needed, not a int"),
        ({"batch_ops": 5}, "batch_ops=5: a list of operations is needed, not a int"),
        ({"threading": 5}, "threading=5: a fastloader.ThreadingOptions is needed"),
        ({"threading": [("private_threadpool_size", 3)]}, "a fastloader.ThreadingOptions is needed"),
    ],
)
def test_arguments_of_the_wrong_type_are_told_when_they_are_given(options, message, reader):
    with pytest.raises(TypeError, match=message):
        fl.DataLoader(reader, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 4}, "window=4: only order='quasi_random' has one"),
        ({"window": 4, "order": "random"}, "window=4: only order='quasi_random' has one"),
        ({"shuffle": False, "order": "random"}, "shuffle=False, order='random': these contradict each other"),
        ({"shuffle": False, "order": "quasi_random"}, "shuffle=False, order='quasi_random': these contradict"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(options, message, reader):
    with pytest.raises(ValueError, match=message):
        fl.DataLoader(reader, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": np.int64(8), "num_workers": np.uint8(2), "prefetch_factor": np.int32(2), "seed": np.uint64(3)},
        {"shuffle": np.False_, "drop_last": np.True_, "auto_tune": np.False_},
        {"shuffle": 1, "drop_last": 0},
        {"fields": "n"},
        {"fields": ("n", "a")},
        {"fields": {"n": 1}.keys()},
        {"fields": np.array(["n", "a"])},
        {"transforms": None, "pipelines": None, "threading": None, "collate_fn": None},
        {"threading": fl.ThreadingOptions(private_threadpool_size=np.int64(2))},
    ],
    ids=str,
)
def test_arguments_of_other_fitting_types_are_taken(options, reader):
    assert sum(len(batch["n"]) for batch in fl.DataLoader(reader, **options)) > 0


def test_a_loader_is_no_dataset_of_another(reader):
    with pytest.raises(TypeError, match="not a DataLoader"):
        fl.DataLoader(fl.DataLoader(reader, 4, seed=3), 2)


@pytest.mark.parametrize("change", ["done", "negative"])
def test_a_state_past_the_end_of_its_epoch_is_refused(change, reader):
    loader = fl.DataLoader(reader, 8)
    next(iter(loader))
    state = loader.state_dict() | {"done": len(reader) + 1 if change == "done" else -1}
    with pytest.raises(fl.StateError, match="in the state, done="):
        loader.load_state_dict(state)


def test_an_order_of_batches_is_told_itself_to_drop_the_last(reader):
    lengths = np.arange(len(reader))
    with pytest.raises(
        ValueError, match="drop_last=True: a LengthBuckets decides the batches by itself; give drop_last"
    ):
        fl.DataLoader(reader, sampler=LengthBuckets(lengths, 7), drop_last=True)
    dropping = LengthBuckets(lengths, 7, drop_last=True)
    assert {len(b["n"]) for b in fl.DataLoader(reader, sampler=dropping, drop_last=True)} <= {7}


def test_a_field_of_ones_own_without_a_batch_decoder(tmp_path, monkeypatch):
    class Squared(fl.Field):
        type_id = 6_300_000

        def encode(self, value):
            return fl.Encoded(payload=b"%d" % value**2)

        def get_decoder_class(self):
            class SquaredDecoder(fl.Decoder):
                def __call__(self, metadata, read):
                    return int(bytes(read()))

            return SquaredDecoder

    monkeypatch.setitem(BY_TYPE_ID, 6_300_000, Squared)
    with fl.DatasetWriter(tmp_path / "x.fld", {"s": Squared()}) as writer:
        writer.write_many([i] for i in range(10))
    (batch,) = fl.DataLoader(fl.open(tmp_path / "x.fld"), 10, shuffle=False)
    assert batch["s"].tolist() == [i**2 for i in range(10)]


@given(st.lists(st.integers(-3, 9), max_size=40))
def test_distinct_values_are_those_of_numpy(values):
    found = distinct(np.array(values, np.int64))
    assert found.dtype == np.int64
    assert found.tolist() == np.unique(values).tolist()


def test_a_first_batch_imports_no_masked_arrays(tmp_path):
    """They take as long as a hundred batches, and only missing values need them."""
    with fl.DatasetWriter(tmp_path / "x", {"n": fl.IntField()}, shard_size="4KB") as writer:
        writer.write_many({"n": i} for i in range(2000))
    program = """
import sys, fastloader as fl
for order in ("sequential", "random", "quasi_random"):
    next(iter(fl.DataLoader(fl.open(sys.argv[1]), 32, order=order)))
next(iter(fl.open(sys.argv[1]).shuffle(seed=1).batch(4)))
print("numpy.ma" in sys.modules)
"""
    command = [sys.executable, "-c", program, str(tmp_path / "x")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
