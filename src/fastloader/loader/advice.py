"""What holds a loader back and what to do about it, told from its statistics alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WAITING = 0.1
"""The consumer may wait this share of its time before it is worth a word."""
BUSY = 0.75
"""From this share of the CPUs or threads on, they are what limits."""
BLOCKED = 0.3
"""The share of the threads' time without a CPU, waiting for bytes, from which reading limits."""


def advise(stats: Mapping[str, Any]) -> list[str]:
    """One or two lines on what limits the loader, with the numbers behind it; ``stats`` is ``DataLoader.stats()``."""
    if not stats["batches"] or not stats["running"]:
        return ["nothing was loaded yet"]
    share = stats["waiting"] / stats["running"]
    own = stats["consumer"] / stats["running"]
    if share <= WAITING and own >= 1 - 2 * WAITING:
        return [f"consumer-bound: it waits {share:.0%} of its time for batches; loading is not what limits"]
    return [_bottleneck(stats, share), *_more_threads(stats)]


def _bottleneck(stats: Mapping[str, Any], share: float) -> str:
    running, threads = stats["running"], stats["threads"]
    working = threads["seconds"] - threads["idle"]
    cpus = threads["busy"] / running
    python = stats["python"] / running
    blocked = threads["blocked"] / working if working else 0.0
    native = min(threads["native"], threads["cpus"])
    if blocked >= BLOCKED:
        return _reading(stats, blocked)
    if cpus + python >= BUSY * native and cpus >= python:
        return _decoding(stats, cpus)
    if python >= BUSY:
        return _python(stats, python)
    if cpus >= BUSY * native:
        return _decoding(stats, cpus)
    idle = threads["idle"] / threads["seconds"] if threads["seconds"] else 0.0
    return (
        f"nothing is at its limit: the consumer waits {share:.0%} of its time, threads lack work {idle:.0%} of theirs;"
        f" raise prefetch_factor ({stats['ahead']} batches are made ahead) or batch_size"
    )


def _reading(stats: Mapping[str, Any], blocked: float) -> str:
    rate = stats["io"]["bytes"] / stats["running"] / 1e6
    slowest = _most(stats, "blocked")
    return (
        f"I/O-bound: threads wait for bytes {blocked:.0%} of their working time, most of it for {slowest!r}"
        f' ({rate:,.1f} MB/s are read); use order="quasi_random", more num_workers, a faster disk, or load fewer fields'
    )


def _decoding(stats: Mapping[str, Any], cpus: float) -> str:
    slowest = _most(stats, "decode")
    part = stats["fields"][slowest]["decode"] / max(stats["threads"]["busy"], 1e-9)
    told = stats["fields"][slowest]
    shrinks = told["decoded_bytes"] > 2 * told["stored_bytes"]
    cure = "store smaller images or add cores" if shrinks else "load fewer fields or add cores"
    return (
        f"decode-bound: {cpus:.1f} of {stats['threads']['cpus']} cores busy, {part:.0%} of it with {slowest!r}; {cure}"
    )


def _python(stats: Mapping[str, Any], python: float) -> str:
    parts = {f"the transform of {name!r}": told["transform"] for name, told in stats["fields"].items()}
    parts |= {f"decoding {name!r} in Python": told["python"] for name, told in stats["fields"].items()}
    parts["collate_fn"] = stats["collate"]
    slowest = max(parts, key=lambda name: parts[name])
    each = parts[slowest] / stats["batches"] * 1000
    return (
        f"Python-bound: Python runs {python:.0%} of the time, mostly {slowest} ({each:.1f} ms a batch);"
        " make it vectorised, or do it before writing"
    )


def _more_threads(stats: Mapping[str, Any]) -> list[str]:
    """A second line where fewer threads work than could."""
    threads = stats["threads"]
    working = threads["seconds"] - threads["idle"]
    if threads["native"] < threads["cpus"] and working >= BUSY * threads["seconds"]:
        return [f"only {threads['native']} threads on {threads['cpus']} CPUs, and they are busy: raise num_workers"]
    if threads["preempted"] > 0.5 * max(working, 1e-9) and threads["native"] > threads["cpus"]:
        return [f"{threads['native']} threads share {threads['cpus']} CPUs: fewer would do"]
    return []


def _most(stats: Mapping[str, Any], what: str) -> str:
    """The field with the most of something."""
    return str(max(stats["fields"], key=lambda name: stats["fields"][name][what]))
