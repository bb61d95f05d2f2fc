"""The engine behind the loader: what it gives equals one by one, stays put, and survives what goes wrong."""

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest
from every_field import COUNT, FIELDS, fingerprint, sample
from left_behind import files, left, threads

import fastloader as fl
from fastloader.testing import identical


@pytest.fixture(
    scope="module",
    params=[{}, {"shard_size": 9000}, {"compression": "zstd", "missing": True}, {"shard_size": 9000, "missing": True}],
    ids=["file", "shards", "packed, some missing", "shards, some missing"],
)
def path(request, tmp_path_factory):
    options = dict(request.param)
    missing = options.pop("missing", False)
    target = tmp_path_factory.mktemp("engine") / "x.fld"
    with fl.DatasetWriter(target, FIELDS, **options) as writer:
        writer.write_many(sample(i, missing) for i in range(COUNT))
    return target


# The same as one by one, whoever makes it


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_equal_read_batch(workers, path):
    reader = fl.open(path)
    loader = fl.DataLoader(reader, 7, seed=5, num_workers=workers)
    for step, batch in enumerate(loader):
        wanted = reader.read_batch(loader.plan.batch(0, step))
        assert list(batch) == list(wanted)
        for name in wanted:
            assert identical(batch[name], wanted[name]), name


def test_batches_are_the_same_for_any_number_of_workers_and_after_a_restart(path):
    def run(workers, prefetch, stop=None):
        loader = fl.DataLoader(fl.open(path), 8, seed=3, num_workers=workers, prefetch_factor=prefetch)
        seen = []
        for batch in loader:
            seen.append(fingerprint(batch))
            if len(seen) == stop:
                resumed = fl.DataLoader(fl.open(path), 8, seed=3, num_workers=workers)
                resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
                return seen + [fingerprint(rest) for rest in resumed]
        return seen

    wanted = run(0, 1)
    assert len(set(wanted)) == len(wanted) == 12
    assert run(1, 2) == run(2, 1) == run(7, 3) == run(2, 2, stop=5) == run(0, 1, stop=12) == wanted


def test_a_state_restored_at_every_step_gives_the_identical_rest(path):
    loader = fl.DataLoader(fl.open(path), 8, seed=1, fields=["number"], num_workers=2)
    states = [loader.state_dict()]
    whole = []
    for epoch in range(2):
        for batch in loader:
            whole.append((epoch, np.ma.getdata(batch["number"]).tolist()))
            states.append(loader.state_dict())
    assert max(len(json.dumps(state)) for state in states) < 400
    for step, state in enumerate(states):
        resumed = fl.DataLoader(fl.open(path), 8, seed=1, fields=["number"], num_workers=1)
        resumed.load_state_dict(state)
        rest = []
        for _ in range(2):
            rest += [np.ma.getdata(batch["number"]).tolist() for batch in resumed]
        assert rest[: len(whole) - step] == [numbers for _, numbers in whole[step:]]


def test_a_run_resumed_on_another_number_of_ranks_sees_every_remaining_sample_once(path):
    for before, after in ((1, 3), (3, 2), (4, 1), (2, 5)):
        seen, state = [], None
        for rank in range(before):
            loader = fl.DataLoader(fl.open(path), 4, rank=rank, world_size=before, fields=["number"], num_workers=1)
            for step, batch in enumerate(loader):
                seen += loader.plan.batch(0, step).tolist()
                assert len(batch["number"]) == 4
                if step == 2:
                    state = loader.state_dict()
                    break
        for rank in range(after):
            loader = fl.DataLoader(fl.open(path), 4, rank=rank, world_size=after, fields=["number"], num_workers=1)
            loader.load_state_dict(state)
            done = state["done"]
            for step, _ in enumerate(loader):
                seen += loader.plan.batch(0, step, done).tolist()
        assert sorted(seen) == list(range(COUNT))


def test_digests_of_all_ranks_add_up_to_the_whole_epoch(path):
    digests = []
    for rank in range(3):
        loader = fl.DataLoader(fl.open(path), 4, rank=rank, world_size=3, fields=["number"], num_workers=1)
        list(loader)
        digests.append(loader.digest())
    expected = type(digests[0]).expected(loader.plan.order, 0)
    assert type(digests[0]).merge(digests).check(expected)
    assert not type(digests[0]).merge(digests[:2]).check(expected)


# Memory


def test_a_batch_stays_as_it_was_as_long_as_it_is_held(path):
    loader = fl.DataLoader(fl.open(path), 4, num_workers=3)
    held = [(batch, fingerprint(batch)) for _ in range(3) for batch in loader]
    loader.close()
    assert len(held) == 69
    for batch, before in held:
        assert fingerprint(batch) == before


def test_slots_are_reused_when_batches_are_let_go(path):
    loader = fl.DataLoader(fl.open(path), 4, num_workers=2, prefetch_factor=2)
    for _ in range(5):
        for _ in loader:
            pass
    assert loader.stats()["slots"] <= 2 * 2 + 3


def test_two_hundred_epochs_leave_nothing_behind(path):
    reader = fl.open(path)
    process = psutil.Process()

    def run(epochs):
        loader = fl.DataLoader(reader, 16, num_workers=3, transforms={"number": lambda n: n})
        for epoch in range(epochs):
            for step, _ in enumerate(loader):
                if epoch % 7 == 3 and step == 2:
                    break
        del loader
        gc.collect()
        return process.memory_info().rss

    run(40)
    memory = run(20)
    others, opened = threads(), files()
    assert run(200) < memory + (24 << 20)
    assert not left(threads, others)
    assert not left(files, opened)


# What goes wrong


def damage(path, number, field):
    """Flip a byte of one payload; returns the path of a copy."""
    reader = fl.open(path)
    pointer = reader.dataset.file(0).payloads(reader.field_names.index(field)).extent(number)[0]
    data = bytearray(path.read_bytes())
    data[pointer] ^= 1
    broken = path.with_name("broken.fld")
    broken.write_bytes(data)
    return broken


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    target = tmp_path_factory.mktemp("single") / "x.fld"
    with fl.DatasetWriter(target, FIELDS) as writer:
        writer.write_many(sample(i) for i in range(40))
    return target


BAD_FIELDS = ["fixed", "blob", "tree", "photo", "mask", "raw"]


@pytest.mark.parametrize("field", BAD_FIELDS)
def test_a_bad_sample_is_raised_with_its_place(field, single):
    loader = fl.DataLoader(fl.open(damage(single, 13, field)), 8, shuffle=False, num_workers=2)
    given = 0
    with pytest.raises(fl.ChecksumError) as caught:  # noqa: PT012
        for _ in loader:
            given += 1
    assert given == 1
    assert (caught.value.sample, caught.value.field) == (13, field)
    assert "broken.fld" in str(caught.value)


@pytest.mark.parametrize("field", BAD_FIELDS)
def test_skip_gives_the_row_of_the_next_good_sample_and_counts(field, single):
    good = list(fl.DataLoader(fl.open(single), 8, shuffle=False))
    for workers in (0, 3):
        loader = fl.DataLoader(
            fl.open(damage(single, 13, field)), 8, shuffle=False, num_workers=workers, on_error="skip"
        )
        batches = list(loader)
        assert [len(b["number"]) for b in batches] == [8] * 5
        assert batches[1]["number"].tolist() == [8, 9, 10, 11, 12, 14, 14, 15]
        for name in FIELDS:
            assert identical(batches[1][name][5], good[1][name][6]), name
            assert all(
                identical(b[name], g[name]) for i, (b, g) in enumerate(zip(batches, good, strict=True)) if i != 1
            )
        stats = loader.stats()
        assert stats["bad_values"] == 1
        assert [(bad["sample"], bad["field"]) for bad in stats["bad"]] == [(13, field)]


@pytest.mark.parametrize("field", BAD_FIELDS)
def test_replace_makes_only_the_bad_value_missing(field, single):
    loader = fl.DataLoader(fl.open(damage(single, 13, field)), 8, shuffle=False, num_workers=2, on_error="replace")
    batch = list(loader)[1]
    assert batch["number"].tolist() == list(range(8, 16))
    value = batch[field]
    assert value[5] is None if isinstance(value, list) else np.ma.getmaskarray(value)[5].all()
    assert value[4] is not None
    assert not np.ma.is_masked(value[4])
    assert loader.stats()["bad_values"] == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_others_stand_in_for_a_batch_with_nothing_good(workers, single):
    reader = fl.open(damage(single, 13, "raw"))
    loader = fl.DataLoader(reader, 1, shuffle=False, on_error="skip", num_workers=workers)
    numbers = [batch["number"].item() for batch in loader]
    assert numbers == [14 if i == 13 else i for i in range(len(reader))]
    assert [bad["sample"] for bad in loader.stats()["bad"]] == [13]


def test_what_stands_in_is_the_same_wherever_a_pass_began_and_whoever_makes_it(single):
    path = single
    for number in (1, 2, 5, 11, 12, 13, 14):
        path = damage(path, number, "raw")
    for size, world in ((1, 1), (1, 2), (2, 1), (2, 3)):
        for rank in range(world):
            options = {"seed": 4, "on_error": "skip", "rank": rank, "world_size": world}
            loader = fl.DataLoader(fl.open(path), size, **options)
            whole = [batch["number"].tolist() for batch in loader]
            for step in range(len(whole)):
                loader = fl.DataLoader(fl.open(path), size, num_workers=1, **options)
                passing = iter(loader)
                for _ in range(step):
                    next(passing)
                again = fl.DataLoader(fl.open(path), size, **options)
                again.load_state_dict(loader.state_dict())
                assert [batch["number"].tolist() for batch in again] == whole[step:]


def test_an_epoch_with_nothing_good_is_an_error_even_when_skipping(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"raw": fl.BytesField()}) as writer:
        writer.write_many({"raw": b"%d" % i} for i in range(5))
    path = tmp_path / "x.fld"
    for number in range(5):
        path = damage(path, number, "raw")
    with pytest.raises(fl.ChecksumError, match="sample 0, field 'raw'"):
        list(fl.DataLoader(fl.open(path), 2, shuffle=False, on_error="skip"))


def test_a_decoder_in_python_that_fails_follows_the_policy_too(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"n": fl.IntField(), "tree": fl.JSONField()}) as writer:
        writer.write_many({"n": i, "tree": [i]} for i in range(8))
    data = (tmp_path / "x.fld").read_bytes()
    sound = fl.open(tmp_path / "x.fld")
    spec = sound.dataset.file(0).payloads(1)
    pointer, size, *_ = spec.extent(5)
    assert data[pointer : pointer + size] == b"[5]"

    class Picky(fl.Decoder):
        def __call__(self, metadata, read):
            if bytes(read()) == b"[5]":
                raise ZeroDivisionError("not five")
            return bytes(read())

    reader = fl.open(tmp_path / "x.fld")
    original = fl.JSONField.get_decoder_class
    try:
        fl.JSONField.get_decoder_class = lambda self: Picky
        with pytest.raises(fl.DecodeError, match=r"x\.fld: sample 5, field 'tree': does not decode: ZeroDivisionError"):
            list(fl.DataLoader(reader, 8, shuffle=False))
        batch = next(iter(fl.DataLoader(reader, 8, shuffle=False, on_error="skip")))
        assert batch["tree"][4:7] == [b"[4]", b"[6]", b"[6]"]
    finally:
        fl.JSONField.get_decoder_class = original


@pytest.mark.parametrize("taken", ["never", "before", "between", "within"])
def test_a_file_that_becomes_shorter_under_a_running_loader_is_an_error(taken, tmp_path):
    """Whoever takes the signal for itself, and whenever: faulthandler puts back the handler it found."""
    program = """
    import sys, os, faulthandler
    taken, path = sys.argv[1:]
    if taken != "never":
        faulthandler.enable()
    import fastloader as fl
    reader = fl.open(path)
    loader = fl.DataLoader(reader, 2, shuffle=False, num_workers=2, prefetch_factor=1, io="mmap")
    if taken in ("between", "within"):
        assert sum(1 for _ in loader) == 20
    if taken == "between":
        faulthandler.disable()
    try:
        for step, batch in enumerate(loader):
            if step == 1 and taken == "within":
                faulthandler.disable()
            if step == 4:
                os.truncate(path, 4096)
        print("the end")
    except fl.FormatError as error:
        print("told:", error)
    """
    target = tmp_path / "x.fld"
    with fl.DatasetWriter(target, {"blob": fl.BytesField(), "photo": fl.JPEGImageField()}) as writer:
        noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3)).astype(np.uint8)
        writer.write_many({"blob": bytes(20_000), "photo": noise} for _ in range(40))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), taken, str(target)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "told:" in done.stdout
    assert "the file became shorter while it was read" in done.stdout


def test_ctrl_c_ends_a_waiting_loader_at_once(tmp_path):
    program = """
    import os, sys, threading
    import fastloader as fl
    held = threading.Event()
    def forever(value):
        os.write(1, b"in\\n")
        if not held.wait(300):
            os.write(1, b"gave up\\n")
        return value
    loader = fl.DataLoader(fl.open(sys.argv[1]), 4, num_workers=2, transforms={"n": forever})
    try:
        next(iter(loader))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        held.set()
    """
    with fl.DatasetWriter(tmp_path / "x.fld", {"n": fl.IntField()}) as writer:
        writer.write_many({"n": i} for i in range(100))
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "x.fld")],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        assert child.stdout.readline() == "in\n"
        child.send_signal(signal.SIGINT)
        rest = child.stdout.read()
    assert "interrupted" in rest
    assert "gave up" not in rest


# Processes


def numbers(loader, queue):
    queue.put([np.ma.getdata(batch["number"]).tolist() for batch in loader])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_works_in_children(method, path):
    loader = fl.DataLoader(fl.open(path), 8, seed=2, num_workers=2, fields=["number"])
    wanted = [np.ma.getdata(batch["number"]).tolist() for batch in loader]
    loader.set_epoch(0)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    children = [context.Process(target=numbers, args=(loader, queue)) for _ in range(2)]
    for child in children:
        child.start()
    assert [queue.get(timeout=300) for _ in children] == [wanted, wanted]
    for child in children:
        child.join(300)
        assert child.exitcode == 0
    assert [np.ma.getdata(batch["number"]).tolist() for batch in loader] == wanted


def test_a_child_forked_in_the_middle_of_an_epoch_can_load_for_itself(path):
    loader = fl.DataLoader(fl.open(path), 8, num_workers=2, fields=["number"])
    iterator = iter(loader)
    next(iterator)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loader.set_epoch(0)
            status = 0 if sum(len(batch["number"]) for batch in loader) == COUNT else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sum(len(batch["number"]) for batch in iterator) == COUNT - 8


# Options


def test_only_the_fields_asked_for_are_loaded(path):
    loader = fl.DataLoader(fl.open(path), 8, fields=["blob", "number"])
    assert list(next(iter(loader))) == ["number", "blob"]
    assert set(loader.stats()["fields"]) == {"number", "blob"}


def test_orders_and_samplers(path):
    def order(**options):
        loader = fl.DataLoader(fl.open(path), 8, fields=["number"], num_workers=1, **options)
        steps = range(len(loader))
        list(loader)
        return [i for step in steps for i in loader.plan.batch(0, step).tolist()]

    everything = list(range(COUNT))
    assert order(order="sequential") == order(shuffle=False) == everything
    assert order(order="random") == order() != everything
    assert sorted(order(order="quasi_random", window=2)) == everything != order(order="quasi_random", window=2)
    assert order(shuffle=False, indices=[5, 3, 9]) == [5, 3, 9]
    assert sorted(order(indices=np.arange(COUNT) % 2 == 0)) == everything[::2]
    assert order(sampler=[4, 4, 2]) == [4, 4, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "zigzag"}, "order='zigzag': one of sequential, random, quasi_random"),
        ({"on_error": "ignore"}, "on_error='ignore': one of raise, skip, replace"),
        ({"fields": ["nope"]}, "fields unknown fields nope"),
        ({"fields": []}, "fields: at least one"),
        ({"sampler": [1], "order": "random"}, "give either sampler= or order="),
        ({"seed": 2**64}, r"below 2\*\*64"),
        ({"rank": 3, "world_size": 2}, "rank"),
    ],
)
def test_wrong_options(options, message, path):
    with pytest.raises(ValueError, match=message):
        fl.DataLoader(fl.open(path), **options)


def test_a_state_of_another_loader_is_refused(path):
    state = fl.DataLoader(fl.open(path), 8, seed=1).state_dict()
    with pytest.raises(ValueError, match="seed is 1 in the state and 2 here"):
        fl.DataLoader(fl.open(path), 8, seed=2).load_state_dict(state)
    assert Path(path).exists()
