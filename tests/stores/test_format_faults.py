"""Formats of others behind a network that fails: a pass comes whole, or an error names the object; nothing hangs."""

from __future__ import annotations

import functools
import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.formats.test_tfrecord_files import record
from tests.stores.fault_proxy import QUICK, Fault, Proxy, fault_proxy, hurry

import fastloader as fl
from fastloader.stores import open_store
from fastloader.testing import identical
from fastloader.testing.seaweed import S3Server

COUNT = 60
BUCKET = "s3://foreign/faults"
MDS = Path(__file__).parents[1] / "vectors" / "formats" / "mds-plain"
HARMLESS: list[Fault] = ["500", "503", "429", "drip", "reset", "truncated", "short_length"]


def text(i: int) -> str:
    """Something as long as samples are, which hardly gets shorter when it is packed."""
    return np.random.default_rng(i).bytes(1000 + i).hex()


def written(write: Callable[[io.BytesIO], Any]) -> bytes:
    """What is written to a file."""
    file = io.BytesIO()
    write(file)
    return file.getvalue()


@functools.cache
def objects() -> dict[str, dict[str, bytes]]:
    """By format, the objects of a dataset."""
    rows = [{"i": i, "text": text(i)} for i in range(COUNT)]
    lines = "".join(f'{{"i": {row["i"]}, "text": "{row["text"]}"}}\n' for row in rows).encode()
    commas = ("i,text\n" + "".join(f"{row['i']},{row['text']}\n" for row in rows)).encode()
    table = pa.Table.from_pylist(rows)
    numbers = np.random.default_rng(0).integers(0, 1000, (COUNT, 500))

    def arrow(file: io.BytesIO) -> None:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=9)

    def stream(file: io.BytesIO) -> None:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=9)

    def hdf5(file: io.BytesIO) -> None:
        with h5py.File(file, "w") as target:
            target.create_dataset("x", data=np.tile(numbers, 10), chunks=(7, 5000))

    return {
        "raw": {f"{i:02d}.bin": text(i).encode() for i in range(COUNT)},
        "npz": {"a.npz": written(lambda file: np.savez(file, x=numbers))},
        "npy files": {f"{i:02d}.npy": written(lambda file, i=i: np.save(file, numbers[i])) for i in range(COUNT)},
        "hdf5": {"a.h5": written(hdf5)},
        "parquet": {"a.parquet": written(lambda file: pq.write_table(table, file, row_group_size=9))},
        "arrow": {"a.arrow": written(arrow)},
        "arrow stream": {"a.arrow": written(stream)},
        "jsonl": {f"{n}.jsonl": part + b"\n" for n, part in enumerate(lines.rstrip().split(b"\n"))}
        | {"z.jsonl": lines},
        "csv": {"a.csv": commas},
        "jsonl.gz": {"a.jsonl.gz": gzip.compress(lines), "b.jsonl.gz": gzip.compress(lines)},
        "tfrecord": {"a.tfrecord": b"".join(record(text(i).encode()) for i in range(COUNT))},
        "mds": {path.name: path.read_bytes() for path in MDS.iterdir()},
    }


FORMATS = sorted(objects())


@pytest.fixture(scope="module")
def samples(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Everything in a bucket, and what the same files on disk hold."""
    store, at = open_store(BUCKET, s3.storage_options())
    wanted = {}
    for name, parts in objects().items():
        folder = tmp_path_factory.mktemp("local")
        for key, data in parts.items():
            store.put(f"{at}/{name}/{key}", data)
            (folder / key).write_bytes(data)
        wanted[name] = list(fl.open(folder / next(iter(parts)) if len(parts) == 1 else folder))
    return wanted


@pytest.fixture
def proxy(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Between us and the server."""
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path))
    with fault_proxy(s3.endpoint) as one:
        yield one


def opened(name: str, s3: S3Server, proxy: Proxy, **options: Any) -> Any:
    """A dataset, through the proxy."""
    parts = list(objects()[name])
    return fl.open(
        "/".join([BUCKET, name, *(parts if len(parts) == 1 else [])]),
        s3.storage_options(proxy.url, **{**QUICK, **options}),
    )


@pytest.mark.parametrize("fault", [*HARMLESS, "silence"])
@pytest.mark.parametrize("name", FORMATS)
def test_one_request_in_three_fails_and_every_sample_comes_once(
    name: str, fault: Fault, samples: dict[str, list[Any]], s3: S3Server, proxy: Proxy
) -> None:
    proxy.fault, proxy.every, proxy.seen = fault, 3, 1
    if fault == "silence":
        proxy.every = 8 if len(objects()[name]) > 9 else 3
    dataset = opened(name, s3, proxy, **({"attempt_timeout": 0.3} if fault == "silence" else {}))
    assert identical(list(dataset), samples[name])
    assert proxy.spoilt


@pytest.mark.parametrize("fault", ["500", "503", "429", "silence"])
def test_questions_and_lists_are_asked_again_too(
    fault: Fault, samples: dict[str, list[Any]], s3: S3Server, proxy: Proxy
) -> None:
    proxy.fault, proxy.every, proxy.all_requests = fault, 2, True
    for name in ("parquet", "mds"):
        options = {"attempt_timeout": 0.2} if fault == "silence" else {}
        assert identical(list(opened(name, s3, proxy, **options)), samples[name])
    assert proxy.spoilt > 5


def test_a_server_that_never_answers_is_an_error_when_a_dataset_is_opened(s3: S3Server, proxy: Proxy) -> None:
    proxy.fault, proxy.all_requests = "silence", True
    for name in ("parquet", "raw"):
        with pytest.raises(fl.StoreError, match=f"{BUCKET}/{name}"):
            opened(name, s3, proxy, deadline=0.4, attempt_timeout=0.2)


@pytest.mark.parametrize("fault", ["503", "short_length", "silence"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_server_that_never_recovers_is_an_error_that_names_the_object(
    name: str, fault: Fault, samples: dict[str, list[Any]], s3: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened(name, s3, proxy)
    proxy.fault = fault
    hurry(monkeypatch)
    with pytest.raises(fl.StoreError, match=f"{BUCKET}/{name}/"):
        list(dataset)


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize("name", FORMATS)
def test_an_object_of_another_version_is_an_error_that_names_it(name: str, s3: S3Server, proxy: Proxy) -> None:
    dataset = opened(name, s3, proxy)
    proxy.fault = "etag"
    with pytest.raises(fl.StoreError, match=rf"{BUCKET}/{name}/.*is not the object it was"):
        list(dataset)
