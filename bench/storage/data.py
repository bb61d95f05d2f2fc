"""The samples of this benchmark in all forms that contestants want, in a bucket of an S3 server and on the disk."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from peer_environments import Peers
from peers.task import samples

import fastloader as fl
from fastloader.stores import Store, open_store
from fastloader.testing.seaweed import ACCESS, SECRET, S3Server

HERE = Path(__file__).parent
PEERS = Peers(HERE)
SAMPLE = 101_000
A_FILE = 80
"""Samples of an object of 8 MB."""
SHARD = "256MB"
BUCKET = "bench-storage"
OWN_FORM = ("litdata", "streaming")
"""Peers that write the samples in a form of their own."""

Task = dict[str, Any]


def task_for(s3: S3Server, count: int) -> Task:
    """What contestants are told of the server."""
    return {
        "endpoint": s3.endpoint, "access": ACCESS, "secret": SECRET, "bucket": BUCKET, "sample": SAMPLE,
        "samples": count,
    }  # fmt: skip


@contextlib.contextmanager
def told(task: Task) -> Iterator[str]:
    """The task as a file for contestants."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(task, file)
        file.flush()
        yield file.name


def put_shards(s3: S3Server, task: Task, folder: Path) -> None:
    """``.fld`` shards in the bucket and on the disk; ``ranges`` of the task are of a sample's size, in these."""
    url = f"s3://{BUCKET}/fld"
    for path, options in ((url, s3.storage_options()), (str(folder / "fld"), None)):
        fields = {"data": fl.NDArrayField(np.uint8, (SAMPLE,))}
        with fl.DatasetWriter(path, fields, "8MiB", shard_size=SHARD, storage_options=options) as writer:
            writer.write_many({"data": np.frombuffer(data, np.uint8)} for data in samples(task))
    store = open_store(f"s3://{BUCKET}", s3.storage_options())[0]
    shards = [(one.key, one.size) for one in store.list("fld") if one.key.endswith(".fld")]
    ranges = [(key, at) for key, size in shards for at in range(0, size - SAMPLE, SAMPLE)]
    task["ranges"] = ranges[: task["samples"]]


def put_files(s3: S3Server, task: Task) -> None:
    """Objects of 8 MB, and tar files with as many samples, as ``plain`` and ``tar`` of the task."""
    store = open_store(f"s3://{BUCKET}", s3.storage_options())[0]
    task["plain"], task["tar"] = [], []
    for number, some in enumerate(_groups(samples(task))):
        task["plain"].append(_put(store, f"plain/{number:05d}", b"".join(some)))
        task["tar"].append(_put(store, f"tar/{number:05d}.tar", _tar(number * A_FILE, some)))


def put_small(s3: S3Server, task: Task) -> None:
    """Each sample an object, as ``small`` of the task."""
    store = open_store(f"s3://{BUCKET}", s3.storage_options())[0]
    task["small"] = [_put(store, f"small/{number:05d}.bin", data) for number, data in enumerate(samples(task))]


def put_own_form(s3: S3Server, task: Task, peer: str, folder: Path) -> None:
    """What a peer makes of the samples."""
    with told(task) as path:
        command = [PEERS.python(peer), str(HERE / "peers" / f"{peer}.py"), path, "prepare", str(folder)]
        subprocess.run(command, check=True, timeout=600)
    store = open_store(f"s3://{BUCKET}", s3.storage_options())[0]
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(f"{peer}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def _put(store: Store, key: str, data: bytes) -> tuple[str, int]:
    return key, store.put(key, data).size


def _groups(all_of_them: Iterator[bytes]) -> Iterator[list[bytes]]:
    while some := list(islice(all_of_them, A_FILE)):
        yield some


def _tar(first: int, some: list[bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number, data in enumerate(some, first):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()
