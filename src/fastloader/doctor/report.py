"""The diagnosis as one HTML file: no scripts, nothing from elsewhere, light and dark. All names are hostile input."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from importlib.resources import files

from fastloader import kernels
from fastloader.doctor.diagnosis import Diagnosis, Verdict
from fastloader.doctor.findings import Findings
from fastloader.doctor.pace import Pace
from fastloader.doctor.plots import Bar, bars, curves, safe, stacked
from fastloader.doctor.words import bytes_of, per_second, rate_of, time_of

_MEANINGS = {
    "disk": "bytes do not come from the disk fast enough",
    "network": "bytes do not come from the store fast enough",
    "decode": "the CPUs are busy decoding",
    "resize": "the CPUs are busy resizing",
    "operations": "the CPUs are busy with operations",
    "copy": "memory is as fast as it gets: bytes are only copied",
    "consumer": "loading is fast enough: what takes the batches is slower",
    "loader": "no part of the way explains it",
}


def page(found: Findings, told: Diagnosis) -> str:
    """All of it."""
    style = files("fastloader.doctor").joinpath("report.css").read_text()
    body = "\n".join(_sections(found, told))
    title = safe(f"fastloader doctor: {found.path}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _sections(found: Findings, told: Diagnosis) -> Iterator[str]:
    size = f"{found.num_samples:,} samples, {bytes_of(found.num_bytes)}"
    facts = f"{size}; {found.order} order, batches of {found.batch_size:,}"
    yield f'<header><p class="kicker">fastloader doctor</p><h1>{safe(found.path)}</h1><p>{safe(facts)}</p></header>'
    for verdict in told.verdicts:
        yield _verdict(verdict)
    yield _section("Every part by itself", "samples a second, if nothing else took time", _parts(found, told))
    yield _section("Where the CPU time of a sample goes", "by field", _fields(found))
    yield _section("What the loader's threads did", "shares of their time", _threads(found))
    if found.disk is not None:
        yield _section("The disk", "these very files, past the page cache, by a bare loop of reads", _disk(found))
    if found.network is not None:
        yield _section("The network", "these very objects, by how many were asked for at a time", _network(found))
    yield _section("The machine", "", _table((), _machine(found)))


def _verdict(verdict: Verdict) -> str:
    cures = "".join(f"<li>{safe(cure)}</li>" for cure in verdict.cures)
    return (
        f'<section class="verdict {verdict.bound}"><p class="kicker">{safe(verdict.when)}</p>'
        f"<h2>{verdict.bound}-bound <span>{safe(per_second(verdict.limit))}</span></h2>"
        f'<p class="meaning">{safe(_MEANINGS[verdict.bound])}</p><p>{safe(_sentence(verdict.text))}.</p>'
        f"<h3>What to change</h3><ul>{cures}</ul></section>"
    )


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _section(title: str, said: str, inner: str) -> str:
    below = f'<p class="said">{safe(said)}</p>' if said else ""
    return f"<section><h2>{safe(title)}</h2>{below}{inner}</section>"


def _parts(found: Findings, told: Diagnosis) -> str:
    lowest = min(stage.samples_per_second for stage in told.stages if stage.counts)
    rows = [
        Bar(
            stage.name, stage.samples_per_second, f"{stage.samples_per_second:,.0f}/s",
            "limit" if stage.counts and stage.samples_per_second == lowest else "part" if stage.counts else "alone",
        )
        for stage in told.stages
    ]  # fmt: skip
    rows += [
        Bar(name, run.samples_per_second, f"{run.samples_per_second:,.0f}/s", "loader") for name, run in found.runs
    ]
    key = _key(
        (("limit", "the lowest"), ("part", "a limit"), ("alone", "a part of the CPU's work"), ("loader", "the loader"))
    )
    said = _table(("part", "measured"), [(stage.name, stage.said) for stage in told.stages])
    return _wide(bars(rows, "samples a second of every part")) + key + said


def _fields(found: Findings) -> str:
    rows = sorted(found.fields, key=lambda field: -field.cpu)
    drawn = bars(
        [Bar(field.name, field.cpu, f"{time_of(field.cpu)}") for field in rows if field.cpu > 0],
        "CPU by field",
        powers=False,
    )
    table = _table(
        ("field", "type", "as it is loaded", "decoding alone", "resizing alone", "stored", "in a batch"),
        [
            (
                field.name, field.type, time_of(field.cpu), time_of(field.alone),
                "" if field.resize is None or field.resize_to is None
                else f"{time_of(field.resize)} to {field.resize_to[0]} x {field.resize_to[1]}",
                bytes_of(field.stored_bytes), bytes_of(field.decoded_bytes),
            )
            for field in rows
        ],
    )  # fmt: skip
    return _wide(drawn) + table


def _threads(found: Findings) -> str:
    names = {"busy": "work", "blocked": "wait for bytes", "preempted": "wait for a CPU", "idle": "lack work"}
    rows = [(name, [(word, run.stats["threads"][key]) for key, word in names.items()]) for name, run in found.runs]
    key = _key(tuple((word.replace(" ", "-"), word) for word in names.values()))
    said = [(name, ". ".join(run.advice)) for name, run in found.runs]
    return _wide(stacked(rows, "what threads did")) + key + _table(("run", "what the loader says of it"), said)


def _disk(found: Findings) -> str:
    disk = found.disk
    assert disk is not None
    names = {"sequential": "one behind the other", "pages": "pages anywhere", "random": "samples anywhere"}
    rows = [
        Bar(f"{pattern}, {pace.at_once} at once", pace.bytes_per_second, rate_of(pace), f"c{number}")
        for number, pattern in enumerate(names)
        for pace in getattr(disk, pattern)
    ]
    reading = sum(field.stored_bytes for field in found.fields) * found.cold.samples_per_second
    rows.append(Bar("the loader, cold", reading, f"{bytes_of(reading)}/s", "loader"))
    note = (
        ""
        if disk.is_cold
        else f'<p class="note">{disk.resident:.0%} of the files stayed in memory: it was not the disk.</p>'
    )
    table = _table(
        ("reads", "of", "at once", "a second", "bytes"),
        [
            (word, bytes_of(pace.bytes / pace.count), str(pace.at_once), f"{pace.per_second:,.0f}", rate_of(pace))
            for pattern, word in names.items() for pace in getattr(disk, pattern)
        ],
    )  # fmt: skip
    return note + _wide(bars(rows, "bytes a second from disk")) + table


def _network(found: Findings) -> str:
    network = found.network
    assert network is not None
    series = [
        (f"ranges of {bytes_of(network.range_bytes)}", _points(network.ranges)),
        (f"samples of {bytes_of(network.sample_bytes)}", _points(network.random)),
    ]
    latency = sorted(network.latency)
    between = f"from {time_of(latency[0])} to {time_of(latency[-1])}"
    told = f"a request of a few bytes takes {time_of(network.median)} ({between})"
    table = _table(
        ("reads", "at once", "requests a second", "bytes"),
        [
            (word, str(pace.at_once), f"{pace.per_second:,.0f}", rate_of(pace))
            for word, paces in (("ranges", network.ranges), ("samples", network.random)) for pace in paces
        ],
    )  # fmt: skip
    drawn = curves(series, "requests at a time", "bytes a second", "bytes a second by requests at a time")
    return f"<p>{safe(_sentence(told))}.</p>" + _wide(drawn) + table


def _points(paces: Sequence[Pace]) -> list[tuple[float, float]]:
    return [(pace.at_once, pace.bytes_per_second) for pace in paces]


def _machine(found: Findings) -> list[tuple[str, str]]:
    from fastloader import __version__

    levels = ", ".join(kernels.simd_levels())
    system = f"{platform.system()} {platform.release()}"
    return [
        ("CPUs", f"{found.cpus} usable of {os.cpu_count()}; {platform.machine()}, {levels}"),
        ("memory", f"{bytes_of(found.memory_available)} of {bytes_of(found.memory_total)} free"),
        ("copies", f"{rate_of(found.copying.one)} a CPU second, {rate_of(found.copying.all)} by all CPUs"),
        ("threads", f"{found.threads} of the loader; bytes come by {found.cold.stats['io']['mode']}"),
        ("software", f"fastloader {__version__}, Python {platform.python_version()}, {system}"),
        ("measured in", time_of(found.seconds)),
    ]  # fmt: skip


def _key(parts: Sequence[tuple[str, str]]) -> str:
    return (
        '<p class="key">' + "".join(f'<span><i class="{kind}"></i>{safe(word)}</span>' for kind, word in parts) + "</p>"
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{safe(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{safe(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if titles else ""
    return _wide(f"<table>{top}<tbody>{body}</tbody></table>")


def _wide(inner: str) -> str:
    """What is scrolled by itself where a page is narrow."""
    return f'<div class="wide">{inner}</div>'
