"""Local files: whole or not there, whatever interrupts the writing."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from left_behind import files, left
from page_cache import is_resident, on_disk

import fastloader as fl
from fastloader.errors import StoreError
from fastloader.stores import AtomicFile, Directory, MappedFile, exchange, write_atomically
from fastloader.stores.local import Scratch, locked, remove, sweep

WRITER = """
import sys
from pathlib import Path
from fastloader.stores import AtomicFile, Directory

made = {kind}(Path(sys.argv[1]))
if isinstance(made, AtomicFile):
    made.write_at(0, b"half")
else:
    (made.aside / "half").write_bytes(b"half")
print("ready", flush=True)
sys.stdin.read()
"""


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def start_writer():
    """Starts another process that writes to a path and waits; stopped at the end of the test."""
    running = []

    def start(kind, path):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER.format(kind=kind.__name__), str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def kill(process) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_nothing_is_visible_before_publish(tmp_path):
    path = tmp_path / "file"
    file = AtomicFile(path)
    file.write_at(3, b"defgh")
    file.write_at(0, b"abc")
    assert not path.exists()
    file.publish(6)
    assert path.read_bytes() == b"abcdef"
    assert names(tmp_path) == ["file"]
    file.discard()
    assert names(tmp_path) == ["file"], "discarding after publishing is harmless"


def test_publishing_replaces_and_discarding_does_not(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    given_up = AtomicFile(path)
    given_up.write_at(0, b"never")
    given_up.discard()
    given_up.discard()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


def test_any_buffer_can_be_written(tmp_path):
    file = AtomicFile(tmp_path / "file")
    parts = [b"ab", bytearray(b"cd"), memoryview(b"ef"), np.arange(4, dtype="<u2"), np.zeros((0, 3), np.float32), b""]
    at = 0
    for part in parts:
        file.write_at(at, part)
        at += memoryview(part).nbytes
    file.publish(at)
    assert (tmp_path / "file").read_bytes() == b"abcdef\0\0\1\0\2\0\3\0"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:7], at))
    write_atomically(tmp_path / "file", bytes(range(100)))
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


def block(size, seed=0):
    """Bytes whose memory begins with a page."""
    memory = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    memory[:] = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return memory


def opened_directly(fd):
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


def test_writing_past_the_page_cache_gives_the_same_file(tmp_path, monkeypatch):
    data = block(1 << 20)
    real, ways = os.pwrite, []
    monkeypatch.setattr(os, "pwrite", lambda fd, part, at: ways.append(opened_directly(fd)) or real(fd, part, at))
    with on_disk(tmp_path) as folder:
        file = AtomicFile(folder / "file")
        file.write_at(0, b"head")
        file.write_directly(1 << 20, data)
        file.write_at(2 << 20, b"tail")
        file.publish((2 << 20) + 4)
        assert ways == [False, True, False]
        mapped = MappedFile(folder / "file").bytes
        assert not is_resident(mapped[1 << 20 : 2 << 20]).any()
        assert mapped.tobytes() == b"head".ljust(1 << 20, b"\0") + data.tobytes() + b"tail"


@pytest.mark.parametrize("call", ["open", "pwrite"])
def test_a_file_system_that_has_no_way_past_the_page_cache(call, tmp_path, monkeypatch):
    real = getattr(os, call)

    def refuse(target, *rest):
        if opened_directly(target) if call == "pwrite" else rest[0] & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(target, *rest)

    data = block(1 << 16)
    file = AtomicFile(tmp_path / "file")
    monkeypatch.setattr(os, call, refuse)
    file.write_directly(0, data[: 1 << 15])
    file.write_directly(1 << 15, data[1 << 15 :])
    monkeypatch.undo()
    file.publish(1 << 16)
    assert (tmp_path / "file").read_bytes() == data.tobytes()


def test_a_short_write_past_the_page_cache_is_continued_at_any_offset(tmp_path, monkeypatch):
    real = os.pwrite

    def short(fd, part, at):
        return real(fd, part[:4096], at) - 1000 if opened_directly(fd) else real(fd, part, at)

    data = block(1 << 16)
    monkeypatch.setattr(os, "pwrite", short)
    file = AtomicFile(tmp_path / "file")
    file.write_directly(0, data)
    file.publish(1 << 16)
    assert (tmp_path / "file").read_bytes() == data.tobytes()


def test_an_error_past_the_page_cache_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = AtomicFile(tmp_path / "file")
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="the disk is full"):
        file.write_directly(0, block(4096))
    file.discard()
    assert names(tmp_path) == []


def test_no_descriptor_is_left_open(tmp_path):
    before = files()
    for end in (AtomicFile.discard, lambda file: file.publish(4096)):
        file = AtomicFile(tmp_path / "file")
        file.write_directly(0, block(4096))
        end(file)
    assert not left(files, before)


def test_data_is_synced_before_it_is_renamed_and_the_folder_after(tmp_path, monkeypatch):
    done = []
    real_sync, real_replace = os.fsync, os.replace

    def note_sync(fd):
        done.append("folder" if os.path.isdir(f"/proc/self/fd/{fd}") else "file")
        real_sync(fd)

    def note_replace(*paths):
        done.append("rename")
        real_replace(*paths)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_atomically(tmp_path / "file", b"abc")
    assert done == ["file", "rename", "folder"]


def test_a_full_disk_is_a_store_error_that_says_so(tmp_path):
    """/dev/full stands in for a disk: writing to it fails as on one without room."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    file = AtomicFile(path)
    full = os.open("/dev/full", os.O_RDWR)
    os.dup2(full, file._fd)
    os.close(full)
    with pytest.raises(StoreError, match="disk is full; nothing was published") as caught:
        file.write_at(0, b"abc")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.path == str(path)
    assert isinstance(caught.value, OSError)
    file.discard()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("call", ["ftruncate", "fsync", "replace"])
def test_a_failure_while_publishing_publishes_nothing(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(StoreError, match="disk is full") as caught:
            write_atomically(path, b"new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_writer_stopped_by_a_size_limit_leaves_nothing(tmp_path):
    """A real refusal by the kernel, through the whole writer."""
    program = """
import errno, resource, sys
import fastloader as fl
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    with fl.DatasetWriter(sys.argv[1], {"b": fl.BytesField()}) as writer:
        for _ in range(64):
            writer.write_sample([bytes(1 << 20)])
except fl.StoreError as error:
    assert error.errno == errno.EFBIG, error
    print("refused")
"""
    path = tmp_path / "big.fld"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused\n", "")
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there_is_a_store_error(tmp_path):
    for make in (AtomicFile, Directory):
        with pytest.raises(StoreError) as caught:
            make(tmp_path / "absent" / "name")
        assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("kind", [AtomicFile, Directory])
def test_what_a_killed_writer_left_is_swept_by_the_next(tmp_path, start_writer, kind):
    path = tmp_path / "data.fld"
    kill(start_writer(kind, path))
    assert not path.exists()
    (left,) = names(tmp_path)
    assert left.startswith(".data.fld.writing-")
    following = kind(path)
    assert left not in names(tmp_path)
    following.publish(0) if kind is AtomicFile else following.publish()
    assert names(tmp_path) == ["data.fld"]


@pytest.mark.parametrize("kind", [AtomicFile, Directory])
def test_what_a_living_writer_holds_is_not_swept(tmp_path, start_writer, kind):
    path = tmp_path / "data.fld"
    living = start_writer(kind, path)
    (held,) = names(tmp_path)
    sweep(path)
    AtomicFile(path).discard()
    assert names(tmp_path) == [held]
    kill(living)
    sweep(path)
    assert names(tmp_path) == []


def test_one_of_our_own_writers_is_not_swept_by_another(tmp_path):
    one, other = AtomicFile(tmp_path / "data.fld"), AtomicFile(tmp_path / "data.fld")
    one.write_at(0, b"one")
    other.write_at(0, b"other")
    other.publish(5)
    one.publish(3)
    assert (tmp_path / "data.fld").read_bytes() == b"one"


@pytest.mark.parametrize("name", ["data.fld", "[a]*?.fld"])
def test_other_names_are_not_swept(tmp_path, start_writer, name):
    for other in ("other.fld", "xdata.fld", "a.fld"):
        kill(start_writer(AtomicFile, tmp_path / other))
    (tmp_path / ".data.fld").write_bytes(b"mine")
    before = names(tmp_path)
    sweep(tmp_path / name)
    assert names(tmp_path) == before


def test_names_with_pattern_characters_are_swept_too(tmp_path, start_writer):
    kill(start_writer(AtomicFile, tmp_path / "[a]*?.fld"))
    sweep(tmp_path / "[a]*?.fld")
    assert names(tmp_path) == []


def test_a_folder_appears_with_all_its_files(tmp_path):
    folder = Directory(tmp_path / "data.fld")
    (folder.aside / "a").write_bytes(b"1")
    assert not (tmp_path / "data.fld").exists()
    folder.publish()
    assert names(tmp_path / "data.fld") == ["a"]
    assert names(tmp_path) == ["data.fld"]
    folder.discard()
    assert names(tmp_path) == ["data.fld"]


@pytest.mark.parametrize("old", ["file", "folder"])
def test_a_folder_replaces_what_was_there(tmp_path, old):
    path = tmp_path / "data.fld"
    if old == "file":
        path.write_bytes(b"old")
    else:
        path.mkdir()
        (path / "old").write_bytes(b"old")
    folder = Directory(path)
    (folder.aside / "new").write_bytes(b"new")
    folder.publish()
    assert names(path) == ["new"]
    assert names(tmp_path) == ["data.fld"]


def test_a_folder_given_up_leaves_what_was_there(tmp_path):
    path = tmp_path / "data.fld"
    path.write_bytes(b"old")
    folder = Directory(path)
    (folder.aside / "new").write_bytes(b"new")
    folder.discard()
    folder.discard()
    assert names(tmp_path) == ["data.fld"]
    assert path.read_bytes() == b"old"


def test_exchange_swaps_a_file_and_a_folder(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").touch()
    exchange(tmp_path / "file", tmp_path / "folder")
    assert names(tmp_path / "file") == ["inside"]
    assert (tmp_path / "folder").read_bytes() == b"content"


def test_exchange_needs_both(tmp_path):
    (tmp_path / "one").touch()
    with pytest.raises(StoreError) as caught:
        exchange(tmp_path / "one", tmp_path / "absent")
    assert caught.value.errno == errno.ENOENT
    assert names(tmp_path) == ["one"]


def test_who_has_the_old_file_mapped_keeps_reading_it(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old content")
    mapped = MappedFile(path)
    write_atomically(path, b"new")
    assert mapped.bytes.tobytes() == b"old content"
    assert MappedFile(path).bytes.tobytes() == b"new"
    assert not mapped.bytes.flags.writeable


def test_an_empty_file_can_be_mapped(tmp_path):
    (tmp_path / "empty").touch()
    mapped = MappedFile(tmp_path / "empty")
    assert mapped.size == len(mapped.bytes) == 0


def test_the_lock_of_a_folder_keeps_others_out(tmp_path):
    ask = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", ask, str(tmp_path)]
    with locked(tmp_path):
        assert b"BlockingIOError" in subprocess.run(command, capture_output=True).stderr
    assert subprocess.run(command, capture_output=True).returncode == 0


CONVERSION = """
import sys, fastloader as fl

def slowly(sample):
    if sample["x"] == 3000:
        print("ready", flush=True)
        sys.stdin.read()
    return sample

samples = fl.Dataset.from_{source}([{{"x": i}} for i in range(5000)]).map(slowly)
samples.write("memory://scratch/{name}"{options})
"""


@pytest.mark.parametrize(
    ("name", "source", "options"),
    [
        ("one.fld", "sequence", ""), ("planned.fld", "sequence", ", shard_size='1MB'"), ("a.tar", "sequence", ""),
        ("streamed.fld", "iterable", ", shard_size='1MB'"),
    ],
)  # fmt: skip
def test_what_a_killed_writer_into_a_store_left_in_the_temporary_folder_goes_with_the_next(
    tmp_path, monkeypatch, name, source, options
):
    """Or disks fill up with shards of jobs that were killed."""
    program = CONVERSION.format(name=name, source=source, options=options)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        (living,) = tmp_path.iterdir()
        assert living.stat().st_mode & 0o777 == 0o700
        with Scratch() as mine:
            assert names(tmp_path) == sorted([living.name, mine.name])
        kill(process)
    assert names(tmp_path) == [living.name]
    with fl.DatasetWriter("memory://scratch/b.fld", {"x": fl.IntField()}) as writer:
        writer.write_sample({"x": 1})
    assert names(tmp_path) == []


def test_remove_takes_files_folders_and_nothing(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").touch()
    for name in ("file", "folder", "absent"):
        remove(tmp_path / name)
    assert names(tmp_path) == []
