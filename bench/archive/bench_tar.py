"""Rows of a tar from front to back: against WebDataset, Python's tarfile, and a bare read of the file.

A row is a sample of three members: a payload, a number, a few words of JSON. All give bytes. "hot" files are in the
page cache; "cold" ones the kernel has forgotten before each run, and the bare read (../loader/bare_uring.cc) goes past
it, 1 MiB at a time, 8 under way. Indexes are there, as they are from the second opening on; making one is a row of its
own.
"""

from __future__ import annotations

import io
import os
import random
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from common import Result, forget, interleave, resident

import fastloader as fl
from fastloader.formats.objects import open_object
from fastloader.formats.tar import scan

sys.path.insert(0, str(Path(__file__).parents[1] / "loader"))

from bench_cold import SEQUENTIAL, bare, compiled

CASES = {"4 KB": (4096, 60_000, 256), "100 KB": (102_400, 6_000, 64)}
"""Bytes of a payload, samples, samples of a batch."""


def write(path: Path, payload: int, samples: int) -> None:
    """Noise, the same few MB again and again."""
    noise = np.random.default_rng(0).bytes(8 << 20)
    draw = random.Random(1)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for number in range(samples):
            begin = draw.randrange(len(noise) - payload)
            words = b'{"caption": "a few words of sample %d"}' % number
            for ending, data in (
                ("jpg", noise[begin : begin + payload]),
                ("cls", b"%d" % (number % 10)),
                ("json", words),
            ):
                info = tarfile.TarInfo(f"train/{number:08d}.{ending}")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))


def by_loader(path: Path, batch: int, rows: int, cold: bool, **options: object) -> float:
    """Batches of a loader with one worker."""
    dataset = fl.open(path)
    if cold:
        forget(path)
    began = time.perf_counter()
    loader = fl.DataLoader(dataset, batch, shuffle=False, num_workers=1, **options)  # type: ignore[arg-type]
    seen = sum(len(one["__key__"]) for one in loader)
    took = time.perf_counter() - began
    loader.close()
    assert seen == rows
    return took


def by_samples(path: Path, rows: int) -> float:
    """Sample by sample, as dictionaries."""
    dataset = fl.open(path)
    began = time.perf_counter()
    assert sum(1 for _ in dataset) == rows
    return time.perf_counter() - began


def by_webdataset(path: Path, rows: int, cold: bool) -> float:
    """The same by WebDataset, in this process."""
    import webdataset

    if cold:
        forget(path)
    began = time.perf_counter()
    assert sum(1 for _ in webdataset.WebDataset(str(path), shardshuffle=False, empty_check=False)) == rows
    return time.perf_counter() - began


def by_tarfile(path: Path, rows: int, cold: bool) -> float:
    """The same by Python's tarfile, read as a stream."""
    if cold:
        forget(path)
    began = time.perf_counter()
    seen = 0
    with tarfile.open(path, "r|") as file:
        for info in file:
            member = file.extractfile(info)
            assert member is not None
            seen += len(member.read()) >= 0
    assert seen == 3 * rows
    return time.perf_counter() - began


def plain(path: Path) -> float:
    """The file read into one buffer, again and again."""
    buffer = bytearray(SEQUENTIAL)
    began = time.perf_counter()
    with open(path, "rb", 0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


def measure(path: Path, name: str, program: Path | None) -> list[Result]:
    """One payload size."""
    _, rows, batch = CASES[name]
    size = path.stat().st_size
    pad = {"jpg": "ragged", "cls": "ragged", "json": "ragged"}
    hot: dict[str, Callable[[], float]] = {
        "loader": partial(by_loader, path, batch, rows, False),
        "arrays": partial(by_loader, path, batch, rows, False, pad=pad),
        "samples": partial(by_samples, path, rows),
        "webdataset": partial(by_webdataset, path, rows, False),
        "tarfile": partial(by_tarfile, path, rows, False),
        "plain": partial(plain, path),
        "index": lambda: _indexed(path),
    }
    times = interleave(3, **hot)
    told = {key: f"{rows / took:,.0f} rows/s, {size / took / 1e9:.2f} GB/s" for key, took in times.items()}
    results = [
        Result(f"hot {name}, {what}", against, times[mine] / times[other], goal, f"{told[mine]}; {other} {told[other]}")
        for mine, what in (("loader", "batches of bytes"), ("arrays", "batches of arrays"), ("samples", "dictionaries"))
        for other, against, goal in (
            ("webdataset", "WebDataset", "< 0.5"), ("tarfile", "tarfile", "< 0.5"), ("plain", "reading the file", "-"),
        )
    ]  # fmt: skip
    results.append(
        Result(f"hot {name}, making the index", "tarfile", times["index"] / times["tarfile"], "-",
               f"{3 * rows / times['index']:,.0f} members/s")
    )  # fmt: skip
    forget(path)
    if program is None or resident(path) > 0.1:
        print(
            "Cold reads are left out: the kernel keeps the file, or there is no bare loop; TMPDIR says on which disk."
        )
        return results
    whole = np.arange(size // SEQUENTIAL) * SEQUENTIAL
    cold: dict[str, Callable[[], float]] = {
        "uring": partial(by_loader, path, batch, rows, True, io="uring", pad=pad),
        "auto": partial(by_loader, path, batch, rows, True, pad=pad),
        "webdataset": partial(by_webdataset, path, rows, True),
        "tarfile": partial(by_tarfile, path, rows, True),
        "bare": lambda: bare(program, path, SEQUENTIAL, whole, 8) * len(whole),
    }
    times = interleave(3, **cold)
    speed = {key: f"{rows / took:,.0f} rows/s, {size / took / 1e9:.2f} GB/s" for key, took in times.items()}
    return results + [
        Result(f"cold {name}, io={mode}", against, times[mode] / times[other], goal,
               f"{speed[mode]}; {other} {speed[other]}")
        for mode in ("uring", "auto")
        for other, against, goal in (
            ("bare", "a bare io_uring read of the file", "<= 1.18"), ("webdataset", "WebDataset", "< 0.5"),
            ("tarfile", "tarfile", "< 0.5"),
        )
    ]  # fmt: skip


def _indexed(path: Path) -> float:
    began = time.perf_counter()
    assert len(scan(open_object(str(path))))
    return time.perf_counter() - began


def main() -> list[Result]:
    """Both payload sizes, one file at a time."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTLOADER_CACHE"] = str(Path(folder) / "cache")
        program = compiled(Path(folder))
        for name, (payload, samples, _) in CASES.items():
            path = Path(folder) / "rows.tar"
            write(path, payload, samples)
            results += measure(path, name, program)
            path.unlink()
    return results
