"""What bounds a loader, and what to change, told from findings alone: no clock, nothing assumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from fastloader.doctor.findings import FieldWork, Findings
from fastloader.doctor.words import bytes_of, number, per_second, rate_of, time_of

Bound = Literal["disk", "network", "decode", "resize", "operations", "copy", "consumer", "loader"]

COPIES = 4.0
"""A field that takes up to this many times as long as a plain copy of its bytes is copied, and not decoded."""
A_NUMBER = 2e-6
"""Seconds that any field takes, a number too."""
EXPLAINED = 0.5
"""A loader that is slower than this share of what its parts allow is held back by something else."""
BUSY = 0.7
"""Threads that have work this share of their time are what limits."""
FREE = 0.25
"""With less than this share of the CPUs idle, a loader may be slow for want of them."""
CLOSE = 0.8
"""Limits closer than this to each other are worth a word."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the way: samples a second that it could do, were it alone. ``counts``: whether it may be the limit."""

    name: str
    samples_per_second: float
    said: str
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What bounds, in which epochs; ``limit`` is in samples a second, and ``next`` is what would bound without it."""

    bound: Bound
    when: str
    limit: float
    text: str
    cures: tuple[str, ...]
    next_bound: str | None = None
    next_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The stages, and a verdict for the first epoch and one for later ones, or one for all."""

    stages: tuple[Stage, ...]
    verdicts: tuple[Verdict, ...]


def diagnose(found: Findings) -> Diagnosis:
    """What limits, from the numbers."""
    stages = tuple(_stages(found))
    limits = {stage.name: stage for stage in stages if stage.counts}
    if not found.fits:
        return Diagnosis(stages, (_verdict(found, limits, "every epoch"),))
    later = {name: stage for name, stage in limits.items() if name != "disk"}
    first, others = _verdict(found, limits, "the first epoch"), _verdict(found, later, "later epochs")
    if first.bound == others.bound:
        return Diagnosis(stages, (replace(others, when="every epoch"),))
    return Diagnosis(stages, (first, others))


def _stages(found: Findings) -> Iterator[Stage]:
    if found.disk is not None:
        yield _disk(found)
    if found.network is not None:
        yield _network(found)
    cpus = found.cpus
    unpacking = [field for field in found.fields if not is_copied(field, found)]
    if unpacking:
        alone = sum(field.alone for field in unpacking)
        names = ", ".join(field.name for field in unpacking)
        yield Stage("decode", cpus / max(alone, 1e-12), f"{names}: {time_of(alone)} of a CPU a sample", counts=False)
    resized = [field for field in found.fields if field.resize is not None]
    if resized:
        taken = sum(field.resize or 0.0 for field in resized)
        what = ", ".join(f"{field.name} to {_size(field)}" for field in resized)
        said = f"{what}: {time_of(taken)} of a CPU a sample"
        if not any(field.resize_is_used for field in resized):
            said += "; nothing asks for it here"
        yield Stage("resize", cpus / max(taken, 1e-12), said, counts=False)
    pace = found.copying.all
    done = 0.0 if found.hot is None else found.hot.samples_per_second  # what was done is possible
    yield Stage(
        "copy", max(done, pace.bytes_per_second / max(found.decoded_bytes, 1e-9)),
        f"{rate_of(pace)} by {number(pace.at_once, 'thread')}, {bytes_of(found.decoded_bytes)} a sample",
    )  # fmt: skip
    said = f"all of it: {time_of(_cpu(found))} of one of {number(cpus, 'CPU')} a sample"
    yield Stage("CPU", cpus / max(_cpu(found), 1e-12), said)
    if found.consumption is not None:
        taken = found.consumption.seconds
        said = f"{time_of(taken)} a batch of {found.batch_size:,}, {found.consumption.said}"
        yield Stage("consumer", found.batch_size / max(taken, 1e-9), said)


def _cpu(found: Findings) -> float:
    return sum(field.cpu for field in found.fields)


def _disk(found: Findings) -> Stage:
    disk = found.disk
    assert disk is not None
    pattern = {"sequential": "sequential", "quasi_random": "pages"}.get(found.order, "random")
    pace = disk.best(pattern)
    rate = pace.per_second if pattern == "random" else pace.bytes_per_second / max(found.stored_bytes, 1e-9)
    what = {"sequential": "one behind the other", "pages": "pages anywhere", "random": "samples anywhere"}[pattern]
    said = f"{what}: {rate_of(pace)}, {number(pace.at_once, 'read')} at a time"
    return _at_least("disk", found, rate, said + ("" if disk.is_cold else "; its file system keeps files in memory"))


def _network(found: Findings) -> Stage:
    network = found.network
    assert network is not None
    pattern = "random" if found.order == "random" else "ranges"
    pace = network.best(pattern)
    rate = pace.per_second if pattern == "random" else pace.bytes_per_second / max(found.stored_bytes, 1e-9)
    what = "samples anywhere" if pattern == "random" else f"ranges of {bytes_of(network.range_bytes)}"
    said = f"{what}: {rate_of(pace)}, {number(pace.at_once, 'request')} at a time"
    return _at_least("network", found, rate, said)


def _at_least(name: str, found: Findings, rate: float, said: str) -> Stage:
    """What brings the bytes. The loader keeps more reads in flight than a loop of threads does, and may get more.

    Where it did, and was held back by something else, what brings the bytes is no limit.
    """
    done = found.cold.samples_per_second
    if done <= rate:
        return Stage(name, rate, said)
    return Stage(name, done, f"the loader itself got more than a bare loop ({said})", counts=found.cold.awaits_bytes)


def is_copied(field: FieldWork, found: Findings) -> bool:
    """Whether bringing a field to memory takes about what a copy of its bytes takes."""
    copy = field.unpacked_bytes / max(found.copying.one.bytes_per_second, 1e-9)
    grows = field.unpacked_bytes > 1.5 * field.stored_bytes > 0
    return not grows and field.alone <= COPIES * copy + A_NUMBER


def _verdict(found: Findings, limits: dict[str, Stage], when: str) -> Verdict:
    ordered = sorted(limits.values(), key=lambda stage: stage.samples_per_second)
    lowest = ordered[0]
    following = ordered[1] if len(ordered) > 1 else None
    # What the loader really did, where only what bounds could hold it back: files in memory, or a store.
    done = found.hot or found.cold
    crowd = ""
    if lowest.name in ("CPU", "copy") and done.samples_per_second < EXPLAINED * lowest.samples_per_second:
        if done.working < BUSY and done.idle >= FREE:
            return _unexplained(lowest, done.samples_per_second, done.advice, when)
        crowd = (
            f". The loader itself gets {per_second(done.samples_per_second)}: its threads have a CPU "
            f"{done.has_cpu:.0%} of the time they have work, for other programs use the CPUs too"
        )
    bound, text, cures = {
        "disk": _disk_bound, "network": _network_bound, "CPU": _cpu_bound, "copy": _copy_bound,
        "consumer": _consumer_bound,
    }[lowest.name](found, lowest)  # fmt: skip
    text += crowd
    if following is not None:
        near = ", and close to it," if lowest.samples_per_second > CLOSE * following.samples_per_second else ""
        text += f". The next limit{near} is {following.name}: {per_second(following.samples_per_second)}"
    return Verdict(
        bound, when, lowest.samples_per_second, text, tuple(cures),
        None if following is None else following.name, None if following is None else following.samples_per_second,
    )  # fmt: skip


def _unexplained(lowest: Stage, done: float, advice: tuple[str, ...], when: str) -> Verdict:
    text = (
        f"the loader gives {per_second(done)}, and its parts would allow {per_second(lowest.samples_per_second)}: "
        "what holds it back lies between them"
    )
    return Verdict("loader", when, done, text, advice, lowest.name, lowest.samples_per_second)


Told = tuple[Bound, str, list[str]]

_LESS_TO_COPY = (
    "less to copy: a smaller type (float16, or uint8 that is cast on the device), or fewer fields",
    "compression would put unpacking in the place of copying: it helps against slow disks and networks alone",
)


def _disk_bound(found: Findings, stage: Stage) -> Told:
    disk = found.disk
    assert disk is not None
    cures = []
    pages = disk.best("pages").bytes_per_second / max(found.stored_bytes, 1e-9)
    if found.order == "random" and pages > stage.samples_per_second / CLOSE:
        cures.append(
            f'order="quasi_random" reads whole pages: this disk gives {rate_of(disk.best("pages"))} of them, good for '
            f"{per_second(pages)}"
        )
    if found.fits:
        cures.append(
            f"it concerns the first epoch alone: {bytes_of(found.num_bytes)} fit into memory, where "
            f"{bytes_of(found.memory_available)} are free"
        )
    else:
        cures.append(
            f"{bytes_of(found.num_bytes)} do not stay in memory, where {bytes_of(found.memory_available)} are free: "
            "less data or more memory would spare the disk from the second epoch on"
        )
    cures.append("a faster disk, fewer fields, or smaller ones (compression=, a lower quality)")
    return "disk", f"the disk gives {per_second(stage.samples_per_second)} ({stage.said})", cures


def _network_bound(found: Findings, stage: Stage) -> Told:
    network = found.network
    assert network is not None
    cures = []
    ranges = network.best("ranges")
    whole = ranges.bytes_per_second / max(found.stored_bytes, 1e-9)
    if found.order == "random" and whole > stage.samples_per_second / CLOSE:
        cures.append(
            f'order="quasi_random" or "sequential" asks for whole pages: ranges of {bytes_of(network.range_bytes)} '
            f"come at {rate_of(ranges)}, good for {per_second(whole)}"
        )
    first, last = network.ranges[0], network.ranges[-1]
    if last.bytes_per_second > 2 * first.bytes_per_second:
        times = last.bytes_per_second / max(first.bytes_per_second, 1e-9)
        cures.append(
            f"it is latency ({time_of(network.median)} a request), not bandwidth: {last.at_once} requests at a time "
            f"give {times:.1f} times what one gives; auto_tune=True finds how many"
        )
    else:
        cures.append(
            f"it is bandwidth: {last.at_once} requests at a time give {rate_of(last)}, one gives {rate_of(first)}; a "
            "machine nearer to the store, or fewer bytes"
        )
    cures.append(
        f"cache_dir= keeps what was fetched on a local disk: later epochs need {bytes_of(found.num_bytes)} there and "
        "no network"
    )
    return "network", f"the store gives {per_second(stage.samples_per_second)} ({stage.said})", cures


def _cpu_bound(found: Findings, stage: Stage) -> Told:
    most = max(found.fields, key=lambda field: field.cpu)
    share = most.cpu / max(_cpu(found), 1e-12)
    text = (
        f"{number(found.cpus, 'CPU')} can make {per_second(stage.samples_per_second)}, and {share:.0%} of their time "
        f"goes to {most.name!r} ({most.type}: {time_of(most.cpu)} a sample"
    )
    cures = []
    if found.threads < found.cpus:
        cures.append(f"num_workers={found.cpus}: there are {number(found.threads, 'thread')} on {found.cpus} CPUs")
    if is_copied(most, found) and not most.has_operations:
        one = found.copying.one
        pace = bytes_of(most.unpacked_bytes / max(most.cpu, 1e-12))
        text += f", a copy: {bytes_of(most.unpacked_bytes)} at {pace}/s; memory gives one thread {rate_of(one)})"
        return "copy", text, [*cures, *_LESS_TO_COPY]
    used = most.resize if most.resize_is_used and most.resize is not None else 0.0
    if most.has_operations and most.cpu > 2 * (most.alone + used):
        text += f"; decoding all of it takes {time_of(most.alone)}{_resized(most)}, its operations the rest)"
        cures.append("cheaper operations, or some of them on the device; each is told by DataLoader.explain()")
        return "operations", text, cures
    if used > most.alone:
        text += f"; decoding all of it takes {time_of(most.alone)}{_resized(most)})"
        cures.append(f"images that are stored nearer to {_size(most)}: resized once, before they are written")
        return "resize", text, cures
    text += f"; decoding all of it takes {time_of(most.alone)}{_resized(most)})" if most.has_operations else ")"
    cures += list(_about_decoding(most))
    return "decode", text, cures


def _copy_bound(found: Findings, stage: Stage) -> Told:
    text = f"memory lets {per_second(stage.samples_per_second)} through ({stage.said}): bytes are copied, little else"
    return "copy", text, list(_LESS_TO_COPY)


def _about_decoding(field: FieldWork) -> Iterator[str]:
    if field.resize_is_used and field.resize_to is not None:
        yield f"images stored nearer to {_size(field)}: what is decoded and thrown away is not needed"
    if field.type.startswith("PNG"):
        yield (
            f"PNG is slow to unpack: JPEGImageField decodes only what a crop needs, RawImageField only copies; stored "
            f"are {bytes_of(field.stored_bytes)} of {bytes_of(field.unpacked_bytes)} a sample"
        )
    if not field.has_operations and field.resize is not None:
        yield "a pipeline that crops or resizes: of a JPEG only what it needs is decoded (--pipeline measures it)"
    yield "smaller values, fewer fields, or more CPUs"


def _consumer_bound(found: Findings, stage: Stage) -> Told:
    cures = ["nothing about loading: a faster loader would not be noticed"]
    cpu = _cpu(found) * stage.samples_per_second
    cures.append(f"to keep it busy, loading takes {cpu:.1f} of {number(found.cpus, 'CPU')}")
    return "consumer", f"the consumer takes {per_second(stage.samples_per_second)} ({stage.said})", cures


def _resized(field: FieldWork) -> str:
    if not field.resize or not field.resize_is_used:
        return ""
    return f", resizing that to {_size(field)} {time_of(field.resize)}"


def _size(field: FieldWork) -> str:
    height, width = field.resize_to or (0, 0)
    return f"{height} x {width}"
