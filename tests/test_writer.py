import contextlib
import errno
import gc
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from left_behind import python_threads

import fastloader as fl
from fastloader.stores import local

FIELDS = {"n": fl.IntField(), "data": fl.BytesField()}


def samples(count, start=0):
    return [{"n": i, "data": bytes([i % 251]) * (i * 37 % 5000)} for i in range(start, start + count)]


def write(path, items, **options):
    keys = options.pop("sample_keys", None)
    with fl.DatasetWriter(path, options.pop("fields", FIELDS), **options) as writer:
        writer.write_many(items, keys)
    return fl.open(path)


def failing(count, error=RuntimeError):
    """That many samples, and then an exception."""
    yield from samples(count)
    raise error


def left_in(folder):
    return sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*"))


def in_child(code, *args, **options):
    """A Python process that runs ``code``, its standard streams as pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


# What comes out


def test_samples_come_back_in_order(tmp_path):
    given = samples(700)
    assert list(write(tmp_path / "x.fld", given)) == given


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"page_size": 4096}, {"keys": True}], ids=str)
def test_the_same_input_gives_the_same_bytes(options, tmp_path):
    digests = set()
    for number, workers in enumerate((0, 1, 3, None, 3)):
        keys = map(str, range(700)) if options.get("keys") else None
        write(tmp_path / f"{number}.fld", samples(700), num_workers=workers, sample_keys=keys, **options)
        digests.add(hashlib.sha256((tmp_path / f"{number}.fld").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_how_samples_are_handed_over_does_not_show(tmp_path):
    given = samples(300)
    write(tmp_path / "many.fld", given)
    with fl.DatasetWriter(tmp_path / "single.fld", FIELDS) as writer:
        for sample in given:
            writer.write_sample(list(sample.values()))
    fl.DatasetWriter.from_dataset(given, tmp_path / "dataset.fld", FIELDS)
    columns = {"data": [sample["data"] for sample in given], "n": np.array([sample["n"] for sample in given])}
    with fl.DatasetWriter(tmp_path / "columns.fld", FIELDS) as writer:
        writer.write_many(columns)
    names = ("many.fld", "single.fld", "dataset.fld", "columns.fld")
    assert len({(tmp_path / name).read_bytes() for name in names}) == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": [1, 2]}, "sample 3: lacks 'data'"),
        ({"n": [1], "data": [b"a"], "more": [1]}, "sample 3: has unknown fields 'more'"),
        ({"n": [1, 2], "data": [b"a"]}, "sample 3: the columns differ in length: 'n' has 2, 'data' has 1"),
        ({"n": [1], "data": b"a"}, "sample 3, field 'data': a column is a list or an array of values, not a bytes"),
        ({"n": 1, "data": [b"a"]}, "field 'n': a column is a list or an array of values, not a int; write_sample"),
        ({"n": {5: 1}, "data": [b"a"]}, "field 'n': a column is a list or an array of values, not a dict"),
    ],
)
def test_columns_of_the_wrong_form(columns, message, tmp_path):
    writer = fl.DatasetWriter(tmp_path / "x.fld", FIELDS)
    writer.write_many({"n": range(3), "data": [b"", None, b"c"]})
    for call in (lambda: writer.write_many(columns), writer.close):
        with pytest.raises(fl.SampleError, match=message):
            call()
    assert left_in(tmp_path) == []


def test_a_bad_value_in_a_column_is_named(tmp_path):
    def run():
        with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as writer:
            writer.write_many({"n": [1, "two", 3], "data": [b"a", b"b", b"c"]})

    with pytest.raises(fl.SampleError, match="sample 1, field 'n'"):
        run()


def test_columns_with_keys(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS, keys=True) as writer:
        writer.write_many({"n": [1, 2], "data": [b"a", b"b"]}, ["one", "two"])
    assert fl.open(tmp_path / "x.fld")["two"] == {"n": 2, "data": b"b"}


def test_shards_too_are_the_same_bytes(tmp_path):
    for number, workers in enumerate((0, 2)):
        write(tmp_path / f"{number}.fld", samples(300), num_workers=workers, shard_size=50_000)
    first, second = (
        {p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("0.fld", "1.fld")
    )  # fmt: skip
    assert first == second
    assert len(first) > 5


def test_a_dataset_of_nothing(tmp_path):
    reader = write(tmp_path / "x.fld", [])
    assert len(reader) == 0
    assert list(reader) == []
    assert reader.field_names == ["n", "data"]


def test_num_samples_counts(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as writer:
        for i in range(3):
            assert writer.num_samples == i
            writer.write_sample((i, b""))


def test_the_caller_may_reuse_one_array(tmp_path):
    buffer = np.zeros(1000, np.float32)
    with fl.DatasetWriter(tmp_path / "x.fld", {"a": fl.NDArrayField("float32", (1000,))}) as writer:
        for i in range(600):
            buffer[:] = i
            writer.write_sample({"a": buffer})
    assert (fl.open(tmp_path / "x.fld").read_batch(range(600))["a"][:, 0] == np.arange(600)).all()


@pytest.mark.parametrize("page_size", [4096, "64KiB", 1 << 20, "2MiB"])
def test_page_sizes_are_stored_and_work(page_size, tmp_path):
    given = samples(100)
    reader = write(tmp_path / "x.fld", given, page_size=page_size)
    assert list(reader) == given
    assert reader.dataset.file(0).header.page_size == local_size(page_size)


def local_size(size):
    return {"64KiB": 65536, "2MiB": 2 << 20}.get(size, size)


# Samples that are wrong


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("position", [0, 5, 255, 256, 999])
def test_a_bad_sample_is_named_and_nothing_is_published(workers, position, tmp_path):
    given = samples(1000)
    given[position]["data"] = "text"
    with pytest.raises(fl.SampleError, match="expected bytes, got str") as caught:
        write(tmp_path / "x.fld", given, num_workers=workers)
    assert (caught.value.sample, caught.value.field) == (position, "data")
    assert left_in(tmp_path) == []


class Late(fl.BytesField):
    """Refuses a value only when it is encoded, in a worker."""

    def encode(self, value):
        if value == b"bad":
            raise ValueError("too bad")
        return super().encode(value)


@pytest.fixture
def late():
    from fastloader.fields import BY_TYPE_ID

    fl.register_type(6_000_000)(Late)
    yield Late()
    del BY_TYPE_ID[6_000_000]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("caught_and_ignored", [False, True])
def test_an_error_in_a_worker_is_told_even_if_it_was_ignored_once(workers, caught_and_ignored, late, tmp_path):
    def run():
        with fl.DatasetWriter(tmp_path / "x.fld", {"b": late}, num_workers=workers) as writer:
            for i in range(3000):
                try:
                    writer.write_sample([b"bad" if i == 700 else b"good"])
                except fl.SampleError:
                    if not caught_and_ignored:
                        raise

    with pytest.raises(fl.SampleError, match="too bad") as caught:
        run()
    assert (caught.value.sample, caught.value.field) == (700, "b")
    assert left_in(tmp_path) == []


def refused(path, sample, key=None, **options):
    """The error that a writer raises for its second sample, at once or when it is encoded. Nothing is left."""
    writer = fl.DatasetWriter(path, FIELDS, **options)
    writer.write_sample((0, b""), "first" if options.get("keys") else None)

    def go_on():
        writer.write_sample(sample, key)
        writer.close()

    with pytest.raises(fl.SampleError) as caught:
        go_on()
    assert caught.value.sample == 1
    assert left_in(path.parent) == []
    return caught.value


def test_a_failed_writer_raises_its_error_again(tmp_path):
    writer = fl.DatasetWriter(tmp_path / "x.fld", FIELDS)
    calls = [lambda: writer.write_sample((1, "not bytes")), lambda: writer.write_sample((1, b""))]
    calls += [lambda: writer.write_many([]), writer.close]
    errors = []
    for call in calls:
        with pytest.raises(fl.SampleError, match="sample 0, field 'data'") as caught:
            call()
        errors.append(caught.value)
    assert len(set(map(id, errors))) == 1
    writer.close()
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("sample", "field"), [((1, "not bytes"), "data"), (("no number", b""), "n"), ((1,), None)])
def test_any_bad_sample_ends_the_writing_even_if_it_is_ignored(sample, field, workers, tmp_path):
    assert refused(tmp_path / "x.fld", sample, num_workers=workers).field == field


def test_ignoring_a_bad_sample_does_not_publish_the_others(tmp_path):
    def run():
        with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as writer:
            for value in (b"a", "not bytes", b"c"):
                with contextlib.suppress(fl.SampleError):
                    writer.write_sample((1, value))

    with pytest.raises(fl.SampleError, match="sample 1, field 'data': expected bytes, got str"):
        run()
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"n": 1}, "lacks 'data'"),
        ({"n": 1, "data": b"", "extra": 1, "more": 2}, "has unknown fields 'extra', 'more'"),
        ({"n": 1, "date": b""}, "lacks 'data' and has unknown fields 'date'"),
        ({}, "lacks 'data', 'n'; a missing value is given as None"),
        ((1,), "has 1 values for 2 fields"),
        ((1, b"", 3), "has 3 values for 2 fields"),
        ("text", "is a str; give a mapping or the values in order"),
        (b"bytes", "is a bytes"),
        (5, "is a int"),
        (None, "is a NoneType"),
    ],
)
def test_samples_of_the_wrong_form(sample, message, tmp_path):
    assert message in str(refused(tmp_path / "x.fld", sample))


def test_values_may_be_missing(tmp_path):
    reader = write(tmp_path / "x.fld", [(None, b"a"), (2, None), (None, None)])
    assert list(reader) == [{"n": None, "data": b"a"}, {"n": 2, "data": None}, {"n": None, "data": None}]


# Leaving early


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("options", [{}, {"shard_size": 1000}], ids=str)
def test_leaving_the_block_by_an_exception_publishes_nothing(error, options, tmp_path):
    with pytest.raises(error):
        write(tmp_path / "x.fld", failing(500, error), **options)
    assert left_in(tmp_path) == []


def test_what_was_there_before_stays_when_the_new_one_fails(tmp_path):
    old = write(tmp_path / "x.fld", samples(3))
    with pytest.raises(RuntimeError):
        write(tmp_path / "x.fld", failing(500))
    assert list(fl.open(tmp_path / "x.fld")) == list(old) == samples(3)
    assert left_in(tmp_path) == ["x.fld"]


def test_nothing_is_there_before_close(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as writer:
        writer.write_many(samples(2000))
        assert not (tmp_path / "x.fld").exists()
    assert (tmp_path / "x.fld").exists()


def test_no_thread_outlives_the_writer(tmp_path):
    before = python_threads()
    write(tmp_path / "x.fld", samples(500), num_workers=4)
    with pytest.raises(RuntimeError):
        write(tmp_path / "y.fld", failing(500), num_workers=4)
    assert not python_threads() - before


def test_closing_twice_and_writing_after(tmp_path):
    writer = fl.DatasetWriter(tmp_path / "x.fld", FIELDS)
    writer.write_sample((1, b"a"))
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="this writer is closed"):
        writer.write_sample((2, b"b"))
    with pytest.raises(ValueError, match="this writer is closed"):
        writer.write_many([])
    assert len(fl.open(tmp_path / "x.fld")) == 1


def test_giving_up(tmp_path):
    writer = fl.DatasetWriter(tmp_path / "x.fld", FIELDS)
    writer.write_many(samples(500))
    writer.abort()
    writer.abort()
    writer.close()
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("filter_", ["error", "always"])
def test_a_forgotten_writer_warns_and_leaves_nothing(filter_, tmp_path, monkeypatch):
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: raised.append(unraisable.exc_value))
    with warnings.catch_warnings(record=filter_ == "always") as told:
        warnings.simplefilter(filter_)
        writer = fl.DatasetWriter(tmp_path / "x.fld", FIELDS, num_workers=2)
        writer.write_many(samples(300))
        del writer
        gc.collect()
    messages = [w.message for w in told] if told is not None else raised
    assert [str(m) for m in messages] == ["a DatasetWriter was never closed; nothing was published"]
    assert isinstance(messages[0], ResourceWarning)
    assert left_in(tmp_path) == []


WRITE_FOREVER = """
import sys
import fastloader as fl
path, options = sys.argv[1], eval(sys.argv[2])
fields = None if options.get("mode") == "a" else {"n": fl.IntField(), "data": fl.BytesField()}
with fl.DatasetWriter(path, fields, num_workers=2, **options) as writer:
    number = 0
    while True:
        writer.write_sample((number, bytes(20_000)))
        number += 1
        if number == 2000:
            print("writing", flush=True)
"""


@pytest.mark.parametrize("options", [{}, {"shard_size": 1_000_000}, {"mode": "a"}], ids=str)
def test_kill_9_leaves_nothing_readable_and_the_next_writer_sweeps(options, tmp_path):
    path = tmp_path / "x.fld"
    if options.get("mode") == "a":
        write(path, samples(5))
    with in_child(WRITE_FOREVER, path, options) as child:
        assert child.stdout.readline() == "writing\n"
        child.kill()
    left = set(os.listdir(tmp_path)) - {"x.fld"}
    assert len(left) == 1
    if options.get("mode") == "a":
        assert list(fl.open(path)) == samples(5)
    else:
        assert not path.exists()
        for candidate in tmp_path.iterdir():  # a shard in a folder may well be whole, even if not yet renamed
            with pytest.raises(fl.FormatError):
                fl.open(candidate)
    again = write(path, samples(7), **options)
    assert list(again)[-7:] == samples(7)
    assert os.listdir(tmp_path) == ["x.fld"]


def test_a_living_writer_is_not_swept(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as one:
        one.write_many(samples(300))
        write(tmp_path / "x.fld", samples(2))
        one.write_many(samples(10, 300))
    assert len(fl.open(tmp_path / "x.fld")) == 310
    assert left_in(tmp_path) == ["x.fld"]


@pytest.mark.parametrize("name", ["a[1].fld", "b*.fld", "c?.fld", "ü 日.fld"])
def test_odd_file_names_are_swept_too(name, tmp_path):
    (tmp_path / f".{name}.writing-1-00000000").write_bytes(b"left by a killed writer")
    write(tmp_path / name, samples(2))
    assert left_in(tmp_path) == [name]


def test_ctrl_c_leaves_nothing(tmp_path):
    with in_child(WRITE_FOREVER, tmp_path / "x.fld", {}) as child:
        assert child.stdout.readline() == "writing\n"
        child.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in child.communicate()[1]
    assert left_in(tmp_path) == []


# Disks


def full_after(limit):
    """A pwrite for a disk that has room for ``limit`` bytes."""
    real = os.pwrite
    written = 0

    def pwrite(fd, data, offset):
        nonlocal written
        written += len(data)
        if written > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    return pwrite


@pytest.mark.parametrize("limit", [0, 10_000, 700_000])
@pytest.mark.parametrize("options", [{}, {"shard_size": 100_000}, {"num_workers": 0}], ids=str)
def test_a_full_disk_is_a_clear_error(limit, options, tmp_path, monkeypatch):
    monkeypatch.setattr(local.os, "pwrite", full_after(limit))
    with pytest.raises(
        fl.StoreError, match="No space left on device; the disk is full; nothing was published"
    ) as caught:
        write(tmp_path / "x.fld", samples(400), **options)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value).startswith(str(tmp_path / "x.fld"))
    assert "writing" not in str(caught.value)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("options", [{}, {"shard_size": 100_000}], ids=str)
def test_a_full_disk_while_appending_names_the_dataset(options, tmp_path, monkeypatch):
    write(tmp_path / "x.fld", samples(5))
    monkeypatch.setattr(local.os, "pwrite", full_after(10_000))
    with pytest.raises(fl.StoreError, match="the disk is full") as caught:
        write(tmp_path / "x.fld", samples(400), mode="a", **options)
    assert str(caught.value).startswith(str(tmp_path / "x.fld"))
    assert ".append" not in str(caught.value)
    assert left_in(tmp_path) == ["x.fld"]


@pytest.mark.parametrize("call", ["ftruncate", "fsync"])
def test_a_disk_that_fails_at_the_end_publishes_nothing(call, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(local.os, call, fail)
    with pytest.raises(fl.StoreError, match="Input/output error") as caught:
        write(tmp_path / "x.fld", samples(10))
    assert caught.value.errno == errno.EIO
    assert left_in(tmp_path) == []


def test_tables_that_do_not_fit_on_disk_are_a_clear_error_too(tmp_path, monkeypatch):
    from fastloader.formats.fld import spill

    monkeypatch.setattr(spill, "MEMORY_LIMIT", 10)
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(spill.tempfile, "TemporaryFile", lambda **_: os.fdopen(os.dup(full), "wb", buffering=0))
    with pytest.raises(fl.StoreError, match="the disk is full") as caught:
        write(tmp_path / "x.fld", samples(300))
    os.close(full)
    assert caught.value.errno == errno.ENOSPC
    assert str(caught.value).startswith(str(tmp_path / "x.fld"))
    assert left_in(tmp_path) == []


FILE_LIMIT = """
import resource, signal, sys
import fastloader as fl
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    with fl.DatasetWriter(sys.argv[1], {"b": fl.BytesField()}) as writer:
        for _ in range(1000):
            writer.write_sample([bytes(10_000)])
except fl.StoreError as error:
    print(error.errno, error)
"""


def test_a_file_size_limit_is_a_clear_error(tmp_path):
    out, err = in_child(FILE_LIMIT, tmp_path / "x.fld").communicate()
    assert err == ""
    assert out.startswith(f"{errno.EFBIG} {tmp_path / 'x.fld'}: File too large")
    assert left_in(tmp_path) == []


FULL_TMPFS = """
import os, subprocess, sys
import fastloader as fl
where, kind = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", where], check=True)
field, value = (fl.BytesField(), bytes(100_000)) if kind == "data" else (fl.NDArrayField("u1"), [])
try:
    with fl.DatasetWriter(where + "/x.fld", {"it": field}, num_workers=0) as writer:
        for _ in range(200_000):
            writer.write_sample([value])
except fl.StoreError as error:
    print(error.errno, error)
    print(os.listdir(where))
"""


def can_mount():
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"]
    return shutil.which("unshare") and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("kind", ["data", "tables"])
def a_disk_that_is_really_full(kind, tmp_path):
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", FULL_TMPFS, str(tmp_path), kind],
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = done.stdout.splitlines()
    assert first.startswith(f"{errno.ENOSPC} {tmp_path}")
    assert "the disk is full" in first
    assert second == "[]"


if can_mount():  # the tests above need no privilege and cover the same errors
    test_a_disk_that_is_really_full = a_disk_that_is_really_full


MUCH = """
import sys
from pathlib import Path
import numpy as np
import fastloader as fl
payload = np.random.default_rng(0).bytes(1 << 20)
def peak():  # getrusage may tell that of the process which started this one
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) >> 10
before = peak()
with fl.DatasetWriter(sys.argv[1], {"b": fl.BytesField(), "n": fl.IntField()}, keys=True, num_workers=2) as writer:
    for i in range(400):
        writer.write_sample((payload[i:], i), str(i))
    for i in range(400, 100_000):
        writer.write_sample((b"", i), str(i))
print(peak() - before)
"""


def test_memory_stays_bounded(tmp_path):
    out, err = in_child(MUCH, tmp_path / "x.fld").communicate()
    assert err == ""
    assert int(out) < 150, "MiB, for 400 MiB of payloads"
    assert (tmp_path / "x.fld").stat().st_size > 400 << 20
    assert len(fl.open(tmp_path / "x.fld")) == 100_000


# Overwriting


def test_overwriting_replaces_and_an_old_reader_keeps_reading_the_old(tmp_path):
    old = write(tmp_path / "x.fld", samples(50))
    untouched = fl.open(tmp_path / "x.fld")
    old[3]
    write(tmp_path / "x.fld", samples(20, 1000))
    assert list(old) == list(untouched) == samples(50)
    assert list(fl.open(tmp_path / "x.fld")) == samples(20, 1000)


def test_a_reader_always_finds_one_or_the_other(tmp_path):
    path = tmp_path / "x.fld"
    write(path, samples(1))
    stop = threading.Event()
    failures = []

    def keep_opening():
        while not stop.is_set():
            try:
                if len(list(fl.open(path))) not in (1, 2):
                    failures.append("a strange length")
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=keep_opening)
    thread.start()
    for i in range(40):
        write(path, samples(1 + i % 2))
    stop.set()
    thread.join()
    assert failures == []


# Arguments


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"page_size": 3000}, ValueError, "page_size=3000: a power of two from 4096"),
        ({"page_size": 2048}, ValueError, "page_size=2048"),
        ({"page_size": 0}, ValueError, "page_size=0"),
        ({"page_size": 1 << 32}, ValueError, "page_size"),
        ({"page_size": "big"}, ValueError, "page_size='big' is not a size; write it like 4096"),
        ({"page_size": 2e6}, ValueError, "page_size=2000000: a power of two"),
        ({"page_size": True}, TypeError, "page_size=True is a bool"),
        ({"shard_size": 1.5}, ValueError, "shard_size=1.5: a whole number of bytes"),
        ({"shard_size": float("inf")}, ValueError, "shard_size=inf: a whole number of bytes"),
        ({"shard_size": [5]}, TypeError, r"shard_size=\[5\] is a list; write it like"),
        ({"num_workers": 1.5}, TypeError, "num_workers=1.5 is a float; a number of threads is an int"),
        ({"num_workers": "2"}, TypeError, "num_workers='2' is a str"),
        ({"compression": 3}, TypeError, "compression=3: a compression is None, 'lz4', .* not a int"),
        ({"compression": {"data": 3}}, TypeError, "a compression is None, 'lz4', .* not a int"),
        ({"compression": {5: "lz4"}}, ValueError, "compression names unknown fields: 5"),
        ({"compression": "gzip"}, ValueError, "unknown compression 'gzip'; choose one of none, lz4, zstd"),
        ({"compression": "zstd:99"}, ValueError, "zstd takes levels -7 to 22"),
        ({"compression": "lz4:x"}, ValueError, "the level is a whole number"),
        ({"compression": {"other": "lz4"}}, ValueError, "compression names unknown fields: other"),
        ({"fields": {}}, ValueError, "at least one field"),
        ({"fields": None}, ValueError, "fields=None"),
        ({"fields": {"x": 5}}, TypeError, "field 'x' is a int; give an instance of a Field"),
        ({"fields": {"x": fl.IntField}}, TypeError, "give an instance of a Field"),
        ({"fields": [fl.IntField()]}, TypeError, "fields is a list; give a mapping"),
        ({"fields": {5: fl.IntField()}}, TypeError, "field name 5 is a int"),
        ({"fields": {"": fl.IntField()}}, ValueError, "1 to 64 bytes of UTF-8"),
        ({"fields": {"a\0b": fl.IntField()}}, ValueError, "without NUL"),
        ({"fields": {"x" * 65: fl.IntField()}}, ValueError, "1 to 64 bytes of UTF-8"),
        ({"fields": {"日" * 22: fl.IntField()}}, ValueError, "1 to 64 bytes of UTF-8"),
        ({"mode": "x"}, ValueError, "mode='x': 'w' writes anew, 'a' adds"),
        ({"shard_size": -1}, ValueError, "shard_size=-1: at least one byte"),
        ({"shard_size": 0}, ValueError, "shard_size=0"),
        ({"num_workers": -1}, ValueError, "num_workers=-1: 0 or more"),
        ({"fields": {f"f{i}": fl.IntField() for i in range(65_535)}}, ValueError, "65535 fields; at most"),
        ({"fields": {f"f{i}": fl.IntField() for i in range(65_535)}, "shard_size": 5}, ValueError, "65535 fields"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else None,
)
def test_wrong_arguments(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        fl.DatasetWriter(tmp_path / "x.fld", **{"fields": FIELDS, **options})
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("size", [1e5, np.int64(100_000), np.float32(1e5), "100kB"], ids=repr)
def test_sizes_are_whole_numbers_of_any_type(size, tmp_path):
    assert len(write(tmp_path / "x.fld", samples(100), shard_size=size, page_size=np.int32(4096)).dataset.shards) == 2


@pytest.mark.parametrize("name", ["x" * 64, "日" * 21 + "x", "ü" * 32, "with space", "a/b.c"])
def test_names_of_up_to_64_bytes_come_back_whole(name, tmp_path):
    reader = write(tmp_path / "x.fld", [[1]], fields={name: fl.IntField()})
    assert reader.field_names == [name]
    assert reader[0] == {name: 1}


def test_a_folder_that_is_not_there(tmp_path):
    for options in ({}, {"shard_size": 100}):
        with pytest.raises(fl.StoreError, match="No such file or directory") as caught:
            fl.DatasetWriter(tmp_path / "none" / "x.fld", FIELDS, **options)
        assert caught.value.errno == errno.ENOENT


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "x.fld").mkdir()
    with pytest.raises(fl.StoreError, match="is a folder"):
        fl.DatasetWriter(tmp_path / "x.fld", FIELDS)
    assert left_in(tmp_path) == ["x.fld"]


def test_text_and_paths_are_both_paths(tmp_path):
    write(str(tmp_path / "x.fld"), samples(2))
    write(tmp_path / "y.fld", samples(2))
    assert list(fl.open(str(tmp_path / "y.fld"))) == list(fl.open(tmp_path / "x.fld"))


# Datasets


class Squares:
    def __init__(self, count, form, bad=None):
        self.count, self.form, self.bad = count, form, bad

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == self.bad:
            raise KeyError("not today")
        return self.form(index)


@pytest.mark.parametrize(
    "form", [lambda i: {"n": i * i, "data": b"%d" % i}, lambda i: (i * i, b"%d" % i), lambda i: [i * i, b"%d" % i]]
)
@pytest.mark.parametrize("workers", [0, 3])
def test_map_style_datasets_keep_their_order(form, workers, tmp_path):
    fl.DatasetWriter.from_dataset(Squares(333, form), tmp_path / "x.fld", FIELDS, num_workers=workers)
    assert [tuple(s.values()) for s in fl.open(tmp_path / "x.fld")] == [(i * i, b"%d" % i) for i in range(333)]


@pytest.mark.parametrize("workers", [0, 3])
def test_a_dataset_that_fails_is_told_with_the_sample(workers, tmp_path):
    dataset = Squares(333, lambda i: (i, b""), bad=222)
    with pytest.raises(
        fl.SampleError, match="sample 222: the dataset failed to give it: KeyError: 'not today'"
    ) as caught:
        fl.DatasetWriter.from_dataset(dataset, tmp_path / "x.fld", FIELDS, num_workers=workers)
    assert caught.value.sample == 222
    assert isinstance(caught.value.__cause__, KeyError)
    assert left_in(tmp_path) == []


def test_a_dataset_with_a_bad_value_is_told_with_sample_and_field(tmp_path):
    dataset = Squares(100, lambda i: (i, b"" if i != 77 else 5))
    with pytest.raises(fl.SampleError) as caught:
        fl.DatasetWriter.from_dataset(dataset, tmp_path / "x.fld", FIELDS)
    assert (caught.value.sample, caught.value.field) == (77, "data")
    assert left_in(tmp_path) == []


@pytest.fixture
def switch_often():
    """Threads take turns at every opportunity, so that those that could race do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("workers", [0, 3])
def test_a_dataset_is_asked_in_the_callers_thread_only(workers, tmp_path):
    asked = []

    def form(index):
        asked.append((index, threading.get_ident()))
        return index, b""

    fl.DatasetWriter.from_dataset(Squares(700, form), tmp_path / "x.fld", FIELDS, num_workers=workers)
    assert asked == [(i, threading.get_ident()) for i in range(700)]


def test_a_dataset_with_one_open_file_is_written_right(tmp_path, switch_often):
    (tmp_path / "source").write_bytes(b"".join(b"%05d" % i for i in range(2000)))
    busy = threading.Lock()
    with open(tmp_path / "source", "rb") as file:

        def form(index):
            assert busy.acquire(blocking=False), "two threads share the file's position"
            file.seek(5 * index)
            value = file.read(5)
            busy.release()
            return index, value

        fl.DatasetWriter.from_dataset(Squares(2000, form), tmp_path / "x.fld", FIELDS, num_workers=4)
    assert [s["data"] for s in fl.open(tmp_path / "x.fld")] == [b"%05d" % i for i in range(2000)]


@pytest.mark.parametrize("count", [0, 1, 5, 333])
def test_fetching_in_threads_keeps_the_order_and_uses_them(count, tmp_path):
    both = threading.Barrier(2, timeout=60)
    seen = set()

    def form(index):
        if count == 333 and index in (1, 17):  # the first is fetched alone, the others 16 in one go
            both.wait()  # passes only when two threads are here
        seen.add(threading.get_ident())
        return index, b"%d" % index

    fl.DatasetWriter.from_dataset(Squares(count, form), tmp_path / "x.fld", FIELDS, fetch_workers=2)
    assert [tuple(s.values()) for s in fl.open(tmp_path / "x.fld")] == [(i, b"%d" % i) for i in range(count)]
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("bad", [0, 222, 332])
def test_a_dataset_that_fails_in_a_thread_is_told_with_the_sample(bad, tmp_path):
    before = python_threads()
    with pytest.raises(fl.SampleError, match=f"sample {bad}: the dataset failed to give it: KeyError: 'not today'"):
        fl.DatasetWriter.from_dataset(
            Squares(333, lambda i: (i, b""), bad), tmp_path / "x.fld", FIELDS, fetch_workers=3
        )
    dataset = Squares(333, lambda i: (i, 5 if i == bad else b""))
    with pytest.raises(fl.SampleError, match=f"sample {bad}, field 'data'"):
        fl.DatasetWriter.from_dataset(dataset, tmp_path / "x.fld", FIELDS, fetch_workers=3)
    assert not python_threads() - before
    assert left_in(tmp_path) == []


def test_wrong_numbers_of_fetching_threads(tmp_path):
    for count, error in ((-1, ValueError), (1.5, TypeError)):
        with pytest.raises(error, match=f"fetch_workers={count}"):
            fl.DatasetWriter.from_dataset([], tmp_path / "x.fld", FIELDS, fetch_workers=count)
    assert left_in(tmp_path) == []


LARGE_SAMPLES = """
import sys
from pathlib import Path
import numpy as np
import fastloader as fl
class Large:
    def __len__(self):
        return 60
    def __getitem__(self, index):
        return [np.full(20_000_000, index, np.uint8)]
def peak():  # getrusage may tell that of the process which started this one
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) >> 10
before = peak()
options = {"num_workers": 8, "fetch_workers": int(sys.argv[2])}
fl.DatasetWriter.from_dataset(Large(), sys.argv[1], {"a": fl.NDArrayField("uint8")}, **options)
print(peak() - before)
"""


@pytest.mark.parametrize(("fetch_workers", "most"), [(0, 300), (8, 500)])
def test_memory_stays_bounded_for_datasets_of_large_samples(fetch_workers, most, tmp_path):
    out, err = in_child(LARGE_SAMPLES, tmp_path / "x.fld", fetch_workers).communicate()
    assert err == ""
    assert int(out) < most, "MiB, for 1,200 MB of samples"
    assert [s["a"][-1] for s in fl.open(tmp_path / "x.fld")] == list(range(60))


def test_from_dataset_takes_the_writers_options(tmp_path):
    dataset = Squares(100, lambda i: (i, bytes(1000)))
    fl.DatasetWriter.from_dataset(dataset, tmp_path / "x.fld", FIELDS, shard_size=20_000)
    assert len(fl.open(tmp_path / "x.fld").dataset.shards) > 3
    fl.DatasetWriter.from_dataset(dataset, tmp_path / "x.fld", None, mode="a")
    assert [s["n"] for s in fl.open(tmp_path / "x.fld")] == [*range(100), *range(100)]


def test_from_dataset_gives_no_keys(tmp_path):
    with pytest.raises(ValueError, match="from_dataset gives no keys"):
        fl.DatasetWriter.from_dataset(Squares(3, lambda i: (i, b"")), tmp_path / "x.fld", FIELDS, keys=True)
    assert left_in(tmp_path) == []


# Keys


def test_every_sample_has_a_key_or_none_has(tmp_path):
    assert "sample 1: has no key; pass key=" in str(refused(tmp_path / "x.fld", (1, b""), keys=True))
    unasked = refused(tmp_path / "x.fld", (1, b""), "one")
    assert "sample 1: has a key, 'one', in a dataset without keys; open the writer" in str(unasked)


@pytest.mark.parametrize(
    ("key", "message"), [(5, "a key is text or bytes"), ("\ud800", "is no UTF-8"), (("a",), "a key is")]
)
def test_what_is_no_key(key, message, tmp_path):
    assert message in str(refused(tmp_path / "x.fld", (1, b""), key, keys=True))


@pytest.mark.parametrize("options", [{}, {"shard_size": 10_000}], ids=str)
@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, 299), (120, 125), (3, 290)])
def test_a_key_given_twice_is_told(options, first, second, tmp_path):
    keys = [f"k{i}" for i in range(300)]
    keys[second] = keys[first]
    with pytest.raises(fl.SampleError, match=f"key 'k{first}' was given to") as caught:
        write(tmp_path / "x.fld", samples(300), keys=True, sample_keys=keys, **options)
    assert caught.value.sample == second
    assert left_in(tmp_path) == []


def test_appending_a_known_key_is_told(tmp_path):
    write(tmp_path / "x.fld", samples(3), keys=True, sample_keys="abc")
    with pytest.raises(fl.SampleError, match="key 'b' is in the dataset already") as caught:
        write(tmp_path / "x.fld", samples(2), mode="a", sample_keys="db")
    assert caught.value.sample == 4
    with pytest.raises(fl.SampleError, match="key 'e' was given to") as caught:
        write(tmp_path / "x.fld", samples(3), mode="a", sample_keys="ede")
    assert caught.value.sample == 5
    assert len(fl.open(tmp_path / "x.fld")) == 3
    assert left_in(tmp_path) == ["x.fld"]


def test_text_and_bytes_are_one_key(tmp_path):
    with pytest.raises(fl.SampleError, match="'ü' was given to"):
        write(tmp_path / "x.fld", samples(2), keys=True, sample_keys=["ü", "ü".encode()])


def test_as_many_keys_as_samples(tmp_path):
    for keys in ("ab", "abcd"):
        with pytest.raises(ValueError, match="zip"):
            write(tmp_path / "x.fld", samples(3), keys=True, sample_keys=keys)
    assert left_in(tmp_path) == []


# Compression


def extents(reader, field):
    file = reader.dataset.file(0)
    names = ("pointer", "size", "raw_size", "crc", "codec")
    return [dict(zip(names, file.payloads(field).extent(i), strict=True)) for i in range(len(reader))]


@pytest.mark.parametrize(
    ("compression", "codec"), [("lz4", 1), ("zstd", 2), ("lz4:9", 1), ("zstd:-5", 2), ("zstd:19", 2)]
)
def test_compression_is_kept_only_where_it_makes_smaller(compression, codec, tmp_path):
    noise = np.random.default_rng(0).bytes(5000)
    given = [bytes(5000), noise, b"", b"a", b"ab" * 500]
    reader = write(tmp_path / "x.fld", [[v] for v in given], fields={"b": fl.BytesField()}, compression=compression)
    rows = extents(reader, 0)
    assert [row["codec"] for row in rows] == [codec, 0, 0, 0, codec]
    assert [row["raw_size"] for row in rows] == [len(v) for v in given]
    assert all(row["size"] < row["raw_size"] if row["codec"] else row["size"] == row["raw_size"] for row in rows)
    assert [s["b"] for s in reader] == given


def test_higher_levels_make_smaller(tmp_path):
    text = " ".join(f"{i * i % 977} bottles of {i % 13} beer" for i in range(3000)).encode()
    sizes = [
        extents(write(tmp_path / "x.fld", [[text]], fields={"b": fl.BytesField()}, compression=c), 0)[0]["size"]
        for c in ("zstd:-7", "zstd:3", "zstd:19")
    ]
    assert sizes[0] > sizes[1] > sizes[2]


def test_compression_by_field(tmp_path):
    fields = {"a": fl.BytesField(), "b": fl.BytesField(), "c": fl.BytesField(), "n": fl.IntField()}
    compression = {"a": "lz4", "b": "zstd:9", "n": "zstd"}
    reader = write(tmp_path / "x.fld", [(bytes(900),) * 3 + (1,)], fields=fields, compression=compression)
    assert [extents(reader, i)[0]["codec"] for i in range(3)] == [1, 2, 0]
    assert [(d.codec, d.level) for d in reader.dataset.descriptors] == [(1, 1), (2, 9), (0, 0), (2, 3)]
    assert reader[0] == {"a": bytes(900), "b": bytes(900), "c": bytes(900), "n": 1}


def test_the_header_says_whether_anything_is_compressed(tmp_path):
    from fastloader.formats.fld.layout import Flags

    def flags(value, compression):
        reader = write(tmp_path / "x.fld", [[value]], fields={"b": fl.BytesField()}, compression=compression)
        return bool(reader.dataset.file(0).header.flags & Flags.COMPRESSED)

    assert flags(bytes(900), "lz4")
    assert not flags(bytes(900), None)
    assert not flags(b"a", "lz4")


def test_a_forked_child_that_drops_the_writer_leaves_the_parents_file(tmp_path):
    writer = fl.DatasetWriter(tmp_path / "x.fld", FIELDS)
    writer.write_many(samples(10))
    child = os.fork()
    if child == 0:
        del writer
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    writer.write_many(samples(10))
    writer.close()
    assert len(fl.open(tmp_path / "x.fld")) == 20


def test_threads_are_used_by_default_where_they_pay(tmp_path):
    def threads(fields, **options):
        with fl.DatasetWriter(tmp_path / "x.fld", fields, **options) as writer:
            for i in range(600):
                writer.write_sample([bytes(100)] if "b" in fields else [np.full((8, 8, 3), i % 251, np.uint8)])
            return sum(t.name.startswith("fastloader-writer") for t in threading.enumerate())

    plain, image = {"b": fl.BytesField()}, {"i": fl.JPEGImageField()}
    assert threads(plain) == threads(image, num_workers=0) == 0
    assert threads(plain, num_workers=1) == threads(image, num_workers=1) == 1
    assert threads(plain, compression="zstd") >= 1
    assert threads(image) >= 1
