"""A whole epoch of 101 KB samples from an S3 server, against bare obstore and against others' loaders."""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from common import Result

import fastloader as fl
from fastloader.stores import Store, open_store
from fastloader.testing.seaweed import ACCESS, SECRET, S3Server, s3_server

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import environments  # noqa: E402

SAMPLES, SAMPLE = 3000, 101_000
OBJECT = 8_080_000
SHARD = "32MB"
BUCKET = "bench-storage"
ROUNDS = 5


def fill(s3: S3Server) -> list[tuple[str, int]]:
    """The same samples as .fld shards, as plain objects of 8 MB, and as tar files; the plain objects are returned."""
    rng = np.random.default_rng(0)
    store, _ = open_store(f"s3://{BUCKET}", s3.storage_options())
    samples = [rng.bytes(SAMPLE) for _ in range(SAMPLES)]
    with fl.DatasetWriter(
        f"s3://{BUCKET}/fld", {"data": fl.BytesField()}, shard_size=SHARD, storage_options=s3.storage_options()
    ) as writer:
        writer.write_many({"data": sample} for sample in samples)
    per_object = OBJECT // SAMPLE
    objects = []
    for first in range(0, SAMPLES, per_object):
        some = samples[first : first + per_object]
        key = f"plain/{first:05d}"
        objects.append((key, store.put(key, b"".join(some)).size))
        _put_tar(store, f"tar/{first:05d}.tar", first, some)
    return objects


def _put_tar(store: Store, key: str, first: int, samples: list[bytes]) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number, data in enumerate(samples, first):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    store.put(key, made.getvalue())


def run(peer: str, task: dict[str, Any], *more: str) -> dict[str, float]:
    """One pass by one contestant, in a process of its own."""
    command = [environments.python(peer), str(HERE / "peers" / f"{peer}.py"), json.dumps(task), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    if found["samples"] != SAMPLES:
        raise RuntimeError(f"{peer} gave {found['samples']} samples of {SAMPLES}")
    return found


def main() -> list[Result]:
    """Interleaved rounds; the first warms the server up."""
    peers = [name for name in os.environ.get("FASTLOADER_BENCH_PEERS", "").split(",") if name]
    for peer in peers:
        environments.make(peer)
    told: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder) / "s3") as s3:
        objects = fill(s3)
        task = {
            "endpoint": s3.endpoint, "access": ACCESS, "secret": SECRET, "bucket": BUCKET, "objects": objects,
            "sample": SAMPLE,
        }  # fmt: skip
        contestants = {
            "quasi_random": ("fastloader", "quasi_random"),
            "random": ("fastloader", "random"),
            "sequential": ("fastloader", "sequential"),
            "cached": ("fastloader", "random", str(Path(folder) / "cache")),
            "obstore, 8 MB objects": ("bare_obstore", "objects"),
            "obstore, a range a sample": ("bare_obstore", "samples"),
        } | {peer: (peer,) for peer in peers}
        for number in range(ROUNDS + 1):
            for name, (peer, *more) in contestants.items():
                found = run(peer, task, *more)
                if number:
                    told[name].append(found)
    return compare(told, peers)


def compare(told: dict[str, list[dict[str, float]]], peers: list[str]) -> list[Result]:
    """Times of ours in those of others, by the medians of rounds."""
    seconds = {name: statistics.median(one["seconds"] for one in rounds) for name, rounds in told.items()}
    cpu = {name: statistics.median(one["cpu"] for one in rounds) / SAMPLES * 1000 for name, rounds in told.items()}

    def row(ours: str, against: str, goal: str) -> Result:
        first = statistics.median(one["first"] for one in told[ours])
        said = (
            f"{SAMPLES / seconds[ours]:.0f} against {SAMPLES / seconds[against]:.0f} samples/s; CPU per 1,000 "
            f"{cpu[ours]:.3f} against {cpu[against]:.3f} s; first batch after {first:.2f} s"
        )
        return Result(f"{ours}, a whole epoch", against, seconds[ours] / seconds[against], goal, said)

    limit = "obstore, 8 MB objects"
    rows = [
        row("quasi_random", limit, "< 1.11"),
        row("sequential", limit, "< 1.11"),
        row("random", "obstore, a range a sample", "< 1.11"),
        row("cached", limit, "local speed"),
    ]
    return rows + [row("quasi_random", peer, "< 0.4") for peer in peers]
