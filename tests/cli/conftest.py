"""Datasets to look into, and three ways to run the program: in this process, in another, and on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastloader as fl
from fastloader.cli import main
from fastloader.fields import BY_TYPE_ID

HOSTILE_KEY = "new\nline\x1b[2J\x07"
HOSTILE_NAME = "te\x1b[31mxt [bold]"

FIELDS: dict[str, fl.Field] = {
    "image": fl.JPEGImageField(quality=80),
    "depth": fl.PNGImageField(),
    "pixels": fl.RawImageField(2, 3),
    "sound": fl.NDArrayField("float32"),
    "label": fl.IntField(),
    "weight": fl.FloatField(),
    "text": fl.BytesField(),
    "meta": fl.JSONField(),
}


def sample(i: int) -> dict[str, Any]:
    """Sample ``i``: everything in it follows from the number."""
    return {
        "image": np.full((8 + i, 16, 3), 7 * i, np.uint8),
        "depth": np.full((5, 6, 1), 300 + i, np.uint16),
        "pixels": np.full((2, 3, 3), i, np.uint8),
        "sound": np.arange(12, dtype=np.float32).reshape(2, 6) + i,
        "label": 10 * i,
        "weight": i / 4,
        "text": b"plain text %d" % i if i else b"\xff\x00\xfe binary",
        "meta": {"number": i, "words": ["one", "two"]} if i != 2 else None,
    }


def write(path: Path, samples: list[dict[str, Any]], fields: dict[str, fl.Field], **options: Any) -> Path:
    """Write a dataset; with ``keys``, a list of them."""
    keys = options.pop("keys", None)
    with fl.DatasetWriter(path, fields, num_workers=0, keys=keys is not None, **options) as writer:
        writer.write_many(samples, keys)
    return path


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five samples of all fields, with keys, one of them hostile and one like a number; text is compressed."""
    path = tmp_path_factory.mktemp("data") / "everything.fld"
    keys = ["a/0.jpg", HOSTILE_KEY, "c", "4", "e"]
    samples = [sample(i) for i in range(5)]
    samples[3]["text"] = b"very " * 200
    return write(path, samples, FIELDS, keys=keys, compression={"text": "zstd:9"})


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 samples without keys."""
    path = tmp_path_factory.mktemp("data") / "numbers.fld"
    return write(path, [{"n": i, "square": i * i} for i in range(60)], {"n": fl.IntField(), "square": fl.IntField()})


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of several shards."""
    path = tmp_path_factory.mktemp("data") / "shards.fld"
    samples = [{"n": i, "data": bytes([i]) * 3000} for i in range(20)]
    return write(path, samples, {"n": fl.IntField(), "data": fl.BytesField()}, shard_size=16384, page_size=4096)


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No samples at all."""
    return write(tmp_path_factory.mktemp("data") / "empty.fld", [], FIELDS, keys=[])


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many samples: a listing far larger than a pipe holds, a decoding check that takes a while."""
    path = tmp_path_factory.mktemp("data") / "large.fld"
    fields: dict[str, fl.Field] = {name: fl.IntField() for name in "abcdef"}
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(40_000):
            writer.write_sample([i] * 6)
    return path


@pytest.fixture
def unregistered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two samples with a field whose type nobody here knows."""

    class ForeignField(fl.BytesField):
        type_id = 4321

        def to_binary(self) -> bytes:
            return b'{"secret":"\x1b[0m"}'

        @classmethod
        def from_binary(cls, data: bytes) -> ForeignField:
            return cls()

    with monkeypatch.context() as patch:
        patch.setitem(BY_TYPE_ID, 4321, ForeignField)
        samples = [{"foreign": b"\x00\x01\x02", "n": 1}, {"foreign": None, "n": 2}]
        return write(tmp_path / "foreign.fld", samples, {"foreign": ForeignField(), "n": fl.IntField()})


def spoil_payload(source: Path, target: Path, row: int, field: str) -> Path:
    """A copy of ``source`` with one bit of one payload changed."""
    reader = fl.open(source)
    payloads = reader.dataset.file(0).payloads(reader.field_names.index(field))
    assert payloads is not None
    pointer, size, *_ = payloads.extent(row)
    return spoil_byte(source, target, pointer + size // 2)


def spoil_byte(source: Path, target: Path, offset: int) -> Path:
    """A copy of ``source`` with one bit changed."""
    data = bytearray(source.read_bytes())
    data[offset] ^= 1
    target.write_bytes(data)
    return target


@pytest.fixture
def damaged(everything: Path, tmp_path: Path) -> Path:
    """``everything`` with the text of sample 3 damaged."""
    return spoil_payload(everything, tmp_path / "damaged.fld", 3, "text")


Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Run the program in this process. An exception that the program did not foresee fails the test."""

    def invoke(*args: object) -> Result:
        result = CliRunner().invoke(main, [str(arg) for arg in args], prog_name="fastloader")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


def command(*args: object) -> list[str]:
    """The command line of the program as a process of its own."""
    return [sys.executable, "-m", "fastloader", *map(str, args)]


def buffered() -> dict[str, str]:
    """An environment in which output is held back until there is enough of it, as it is by default."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run_on_terminal(argv: list[str]) -> tuple[int, str]:
    """Exit status of a process on a terminal of its own, and all that appears there."""
    master, slave = pty.openpty()
    environment = buffered() | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        shown = b"".join(_until_closed(master))
        status = process.wait()
    os.close(master)
    return status, shown.decode("utf-8", "backslashreplace").replace("\r\n", "\n")


def _until_closed(master: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(master, 65536)
        except OSError:  # how Linux says that nobody holds the other end any more
            return
