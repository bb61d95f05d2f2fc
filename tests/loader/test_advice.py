"""Advice, case by case, from statistics made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fastloader.loader import advise

FIELD = {
    "lookup": 0.0, "read": 0.0, "decode": 0.0, "blocked": 0.0, "preempted": 0.0, "python": 0.0, "transform": 0.0,
    "stored_bytes": 1_000_000, "decoded_bytes": 1_000_000, "type": "IntField",
}  # fmt: skip


def stats(**changes: Any) -> dict[str, Any]:
    """Ten seconds, 100 batches of 32, four threads on four CPUs that had nothing to do."""
    threads = {
        "native": 4, "python": 0, "cpus": 4, "seconds": 40.0, "busy": 0.0, "blocked": 0.0, "preempted": 0.0,
        "idle": 40.0, "most_in_one_batch": 4,
    } | changes.pop("threads", {})  # fmt: skip
    fields = {"image": dict(FIELD), "label": dict(FIELD)}
    for name, told in changes.pop("fields", {}).items():
        fields[name] |= told
    return {
        "batches": 100, "samples": 3200, "running": 10.0, "waiting": 9.0, "consumer": 0.5, "planning": 0.1,
        "python": 0.2, "transform": 0.0, "collate": 0.0, "ahead": 8,
        "io": {"mode": "mmap", "window": 0, "bytes": 500_000_000},
        "threads": threads, "fields": fields,
    } | changes  # fmt: skip


def test_nothing_loaded_yet():
    assert advise(stats(batches=0)) == ["nothing was loaded yet"]


def test_a_consumer_that_does_not_wait():
    (line,) = advise(stats(waiting=0.3, consumer=9.5, threads={"busy": 10.0, "idle": 30.0}))
    assert line.startswith("consumer-bound: it waits 3% of its time")


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        ("JPEGImageField", "store smaller images or add cores"),
        (
            "JPEGImageField(seekable=False)",
            "store seekable JPEG, of which only what a crop needs is decoded, or add cores",
        ),
        (
            "PNGImageField",
            "store seekable JPEG, of which only what a crop needs is decoded, or raw images, or add cores",
        ),
        ("NDArrayField", "store it less compressed or add cores"),
    ],
)
def test_decoding_that_keeps_all_cores_busy(kind, cure):
    images = {"decode": 36.0, "stored_bytes": 10**8, "decoded_bytes": 10**9, "type": kind}
    (line,) = advise(stats(threads={"busy": 39.0, "idle": 0.5}, fields={"image": images}))
    assert line == f"decode-bound: 3.9 of 4 cores busy, 92% of it with 'image'; {cure}"


def test_a_seekable_jpeg_that_is_cropped_has_nothing_to_spare():
    images = {"decode": 36.0, "type": "JPEGImageField"}
    (line,) = advise(stats(threads={"busy": 39.0, "idle": 0.5}, fields={"image": images}))
    assert line.endswith("with 'image'; add cores")


def test_reading_at_its_limit_without_images():
    told = {"decode": 39.0}
    (line,) = advise(stats(threads={"busy": 39.0, "idle": 0.5}, fields={"label": told}))
    assert line.endswith("100% of it with 'label'; add cores")


def test_fewer_threads_than_cpus():
    threads = {"native": 1, "seconds": 10.0, "busy": 9.8, "idle": 0.1}
    first, second = advise(stats(threads=threads, fields={"image": {"decode": 9.8}}))
    assert first.startswith("decode-bound: 1.0 of 4 cores busy")
    assert second == "1 thread on 4 CPUs, and always at work: raise num_workers"


def test_cpus_that_others_use():
    _, line = advise(stats(threads={"busy": 10.0, "preempted": 29.0, "idle": 1.0}, fields={"image": {"decode": 10.0}}))
    assert line.startswith("threads wait for a CPU longer than they have one")


def test_bytes_that_come_from_a_slow_disk():
    (line,) = advise(stats(threads={"busy": 4.0, "blocked": 35.0, "idle": 1.0}, fields={"image": {"blocked": 35.0}}))
    assert line.startswith("I/O-bound: threads wait for bytes 90% of their working time, most of it for 'image'")
    assert "(50.0 MB/s are read)" in line


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"fields": {"label": {"transform": 8.0}}}, "the transform of 'label' (80.0 ms a batch)"),
        ({"fields": {"label": {"python": 7.0}}}, "decoding 'label' (70.0 ms a batch)"),
        ({"collate": 6.0}, "collate_fn (60.0 ms a batch)"),
    ],
)
def test_python_that_never_rests(changes, what):
    (line,) = advise(stats(python=9.0, **changes))
    assert line.startswith(f"Python-bound: Python code runs 90% of the time, mostly {what}")


def test_python_that_leaves_the_loop_no_time_to_wait():
    parts = {"python": 5.0, "fields": {"label": {"python": 4.0}}}
    (line,) = advise(stats(waiting=0.6, consumer=0.4, planning=3.0, **parts))
    assert line.startswith("Python-bound: Python code runs 50% of the time, mostly decoding 'label' (40.0 ms a batch)")
    assert 'pad="ragged"' in line
    (line,) = advise(stats(waiting=0.6, consumer=0.4, planning=3.0, threads={"python": 2}, **parts))
    assert line.startswith("planning-bound")


def test_batches_too_small_to_plan():
    (line,) = advise(stats(planning=5.0, waiting=4.0))
    assert line.startswith("planning-bound: choosing samples takes 50% of the time at 32 samples a batch")


def test_nothing_at_its_limit():
    (line,) = advise(stats(waiting=3.0, consumer=6.0, threads={"busy": 10.0, "idle": 28.0}))
    assert line == (
        "nothing is at its limit: the consumer waits 30% of its time, threads lack work 70% of theirs;"
        " raise prefetch_factor (8 batches ahead) or batch_size"
    )


def test_a_disk_that_gives_small_pieces_one_by_one():
    io = {"mode": "uring", "window": 0, "bytes": 0, "reads": 200_000, "read_bytes": 819_200_000, "waiting": 30.0}
    (line,) = advise(stats(io=io, threads={"busy": 2.0, "idle": 38.0}))
    assert line.startswith("I/O-bound: 20,000 reads/s of 4 kB, 81.9 MB/s, and batches wait for them")
    assert 'use order="quasi_random", a faster disk' in line
    (line,) = advise(stats(io=io | {"window": 64}, threads={"busy": 2.0, "idle": 38.0}))
    assert "lack work; use a faster disk" in line


def test_a_disk_that_gives_large_pieces():
    io = {"mode": "uring", "window": 0, "bytes": 0, "reads": 1000, "read_bytes": 2_000_000_000, "waiting": 30.0}
    (line,) = advise(stats(io=io, threads={"busy": 2.0, "idle": 38.0}))
    assert "use a faster disk" in line


def test_a_store_that_is_far_away():
    io = {"mode": "remote", "window": 0, "bytes": 10**8, "waiting": 9.9, "reads": 100, "read_bytes": 4 * 10**8}
    (line,) = advise(stats(io=io, threads={"busy": 1.0, "idle": 39.0}))
    assert "use a machine nearer to the store" in line
