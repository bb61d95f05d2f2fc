"""What holds a loader back and what to do about it, told from its statistics alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WAITING = 0.1
"""The consumer may wait this share of its time before it is worth a word."""
BUSY = 0.75
"""From this share of their time on, threads (or Python, which has one) are what limits."""
MEGABYTE = 1_000_000
BLOCKED = 0.3
"""From this share of their working time that threads wait for bytes on, reading is what limits."""


def advise(stats: Mapping[str, Any]) -> list[str]:
    """One or two lines on what limits the loader, with the numbers behind it; ``stats`` is ``DataLoader.stats()``."""
    if not stats["batches"] or not stats["running"]:
        return ["nothing was loaded yet"]
    running, threads = stats["running"], stats["threads"]
    waiting, consumer = stats["waiting"] / running, stats["consumer"] / running
    if waiting <= WAITING and consumer >= 1 - 2 * WAITING:
        return [f"consumer-bound: it waits {waiting:.0%} of its time for batches; loading is not what limits"]
    working = threads["seconds"] - threads["idle"]
    if working and threads["blocked"] / working >= BLOCKED:
        return [_reading(stats, threads["blocked"] / working)]
    if working < BUSY * threads["seconds"] and stats["io"].get("waiting", 0.0) / running >= BUSY:
        return [_disk(stats)]
    if threads["seconds"] and working / threads["seconds"] >= BUSY:
        return [_decoding(stats), *_about_threads(threads, running)]
    python, planning = stats["python"] / running, stats["planning"] / running
    # Without threads of its own, Python runs in the loop's, which is what limits where that never waits.
    alone = not threads["python"] and waiting <= WAITING
    if python >= BUSY or (alone and python >= planning):
        return [_python(stats)]
    if alone or planning >= 1 - BUSY:
        each = stats["samples"] / stats["batches"]
        return [
            f"planning-bound: choosing samples takes {planning:.0%} of the time"
            f" at {each:,.0f} samples a batch; raise batch_size"
        ]
    idle = 1 - working / threads["seconds"] if threads["seconds"] else 0.0
    return [
        f"nothing is at its limit: the consumer waits {waiting:.0%} of its time, threads lack work {idle:.0%}"
        f" of theirs; raise prefetch_factor ({count(stats['ahead'], 'batch', 'batches')} ahead) or batch_size"
    ]


def _reading(stats: Mapping[str, Any], blocked: float) -> str:
    rate = stats["io"]["bytes"] / stats["running"] / 1e6
    slowest = _most(stats, "blocked")
    return (
        f"I/O-bound: threads wait for bytes {blocked:.0%} of their working time, most of it for {slowest!r}"
        f" ({rate:,.1f} MB/s are read); use {_pages(stats)}more num_workers, a faster disk, or load fewer fields"
    )


def _disk(stats: Mapping[str, Any]) -> str:
    io, running = stats["io"], stats["running"]
    each = io["read_bytes"] / max(1, io["reads"]) / 1e3
    return (
        f"I/O-bound: {io['reads'] / running:,.0f} reads/s of {each:,.0f} kB,"
        f" {io['read_bytes'] / running / 1e6:,.1f} MB/s,"
        f" and batches wait for them while threads lack work; {_larger_reads(stats)}{_nearer(stats)}, or load fewer"
        " fields"
    )


def _nearer(stats: Mapping[str, Any]) -> str:
    return "a machine nearer to the store" if stats["io"]["mode"] == "remote" else "a faster disk"


def _larger_reads(stats: Mapping[str, Any]) -> str:
    io = stats["io"]
    return f"use {_pages(stats)}" if io["read_bytes"] < MEGABYTE * io["reads"] else "use "


def _pages(stats: Mapping[str, Any]) -> str:
    return "" if stats["io"]["window"] else 'order="quasi_random", '


def _decoding(stats: Mapping[str, Any]) -> str:
    threads = stats["threads"]
    slowest = _most(stats, "decode")
    told = stats["fields"][slowest]
    part = told["decode"] / threads["busy"] if threads["busy"] else 0.0
    return (
        f"decode-bound: {threads['busy'] / stats['running']:.1f} of {threads['cpus']} cores busy,"
        f" {part:.0%} of it with {slowest!r}; {_cheaper(told)}add cores"
    )


def _cheaper(told: Mapping[str, Any]) -> str:
    """How the values of a field could be stored so that less work is left."""
    grows = told["decoded_bytes"] > 2 * told["stored_bytes"]
    match told["type"]:
        case "JPEGImageField(seekable=False)":
            return "store seekable JPEG, of which only what a crop needs is decoded, or "
        case "PNGImageField" | "WebPImageField":
            return "store seekable JPEG, of which only what a crop needs is decoded, or raw images, or "
        case "JPEGImageField":
            return "store smaller images or " if grows else ""
        case _:
            return "store it less compressed or " if grows else ""


def _about_threads(threads: Mapping[str, Any], running: float) -> list[str]:
    """A second line where there are fewer threads than could work, or the CPUs are somebody else's."""
    native, cpus = threads["native"], threads["cpus"]
    if native < cpus:
        return [f"{count(native, 'thread')} on {cpus} CPUs, and always at work: raise num_workers"]
    if threads["busy"] / running < BUSY * cpus and threads["preempted"] > threads["busy"]:
        return ["threads wait for a CPU longer than they have one: other programs or threads use the CPUs"]
    return []


def _python(stats: Mapping[str, Any]) -> str:
    parts = {f"the transform of {name!r}": told["transform"] for name, told in stats["fields"].items()}
    parts |= {f"decoding {name!r}": told["python"] for name, told in stats["fields"].items()}
    parts["collate_fn"] = stats["collate"]
    slowest = max(parts, key=lambda name: parts[name])
    cure = "do it on whole arrays, or before writing"
    if slowest.startswith("decoding"):
        cure = 'pad="ragged" makes one array of samples of different lengths, fewer fields take less'
    return (
        f"Python-bound: Python code runs {stats['python'] / stats['running']:.0%} of the time, mostly {slowest}"
        f" ({parts[slowest] / stats['batches'] * 1000:.1f} ms a batch); {cure}"
    )


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _most(stats: Mapping[str, Any], what: str) -> str:
    """The field with the most of something."""
    return str(max(stats["fields"], key=lambda name: stats["fields"][name][what]))
