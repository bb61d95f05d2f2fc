"""``fastloader simulate``: what the ranks of a world would read, predicted from tables alone."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, get_args

import click

from fastloader.cli.output import count, printable, say, say_table, to_json
from fastloader.cli.places import open_reader, store_options, usage_errors
from fastloader.errors import KeyNotFoundError

if TYPE_CHECKING:
    from fastloader.simulation import Simulation

ORDERS = ("sequential", "quasi_random", "random")


@click.command("simulate")
@click.argument("dataset", type=click.Path())
@click.option("--world", type=click.IntRange(min=1), default=1, metavar="N", help="Ranks; 1.")
@click.option("--batch-size", type=click.IntRange(min=1), default=256, metavar="N", help="Samples a batch; 256.")
@click.option("--order", type=click.Choice(ORDERS), multiple=True, help="All three unless given; may be given again.")
@click.option("--window", type=click.IntRange(min=1), metavar="N", help="Pages mixed by quasi_random; 64.")
@click.option("--cache", metavar="SIZE", help="Read through a cache of this size, like 50GB, and tell whether it fits.")
@click.option("--in-store", is_flag=True, help="Take local files as if they lay in a store.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="This rank alone; else up to eight of them.")
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Of the shuffle; 0.")
@click.option("--epoch", type=click.IntRange(min=0), default=0, metavar="N", help="Which epoch; 0.")
@click.option("--latency", type=click.FloatRange(min=0), metavar="MS", help="Of a request, to predict the first batch.")
@click.option("--bandwidth", metavar="SIZE", help="Bytes a second to a rank, like 1GB, to predict the first batch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_options
def command(
    dataset: str, world: int, batch_size: int, order: tuple[str, ...], window: int | None, cache: str | None,
    in_store: bool, rank: int | None, seed: int, epoch: int, latency: float | None, bandwidth: str | None,
    as_json: bool, **store: Any,
) -> None:  # fmt: skip
    """Predict what each rank of a world would read of DATASET in an epoch. No sample is read.

    Tells requests and bytes, the cache that would be needed, and how well each order mixes, a plain shuffle being 1.
    """
    from fastloader.simulation import Layout, simulate
    from fastloader.simulation.simulation import OrderName
    from fastloader.types import parse_size

    if rank is not None and rank >= world:
        raise click.UsageError(f"--rank {rank}: the ranks of a world of {world} are numbered 0 to {world - 1}")
    if window is not None and order and "quasi_random" not in order:
        raise click.UsageError("--window is for quasi_random alone; leave it out, or add --order quasi_random")
    with usage_errors():
        limit = None if cache is None else parse_size(cache, "--cache")
        pace = None if bandwidth is None else parse_size(bandwidth, "--bandwidth")
    if (latency is None) != (pace is None):
        raise click.UsageError("--latency and --bandwidth go together: both tell when the first batch comes")
    assert set(ORDERS) == set(get_args(OrderName))
    with open_reader(dataset, store) as reader:
        if not len(reader):
            raise KeyNotFoundError("there are no samples to load", path=reader.path)
        layout = Layout.of(reader.dataset)
    layout = replace(layout, is_remote=layout.is_remote or in_store)
    if limit is not None and not layout.is_remote:
        raise click.UsageError("--cache is for datasets in stores; --in-store takes local files as if they were in one")
    found = [
        simulate(
            layout, world_size=world, batch_size=batch_size, order=one, rank=rank, seed=seed,  # type: ignore[arg-type]
            window=window if one == "quasi_random" else None, epoch=epoch, cache_limit=limit,
        )
        for one in ORDERS if one in (order or ORDERS)
    ]  # fmt: skip
    link = None if latency is None or pace is None else (latency / 1000, pace)
    if as_json:
        say(to_json({"path": dataset, "orders": {one.order: _facts(one, link) for one in found}}, indent=2))
    else:
        _show(dataset, found, link)


def _facts(told: Simulation, link: tuple[float, int] | None) -> dict[str, Any]:
    """A prediction for JSON."""
    facts = asdict(told) | {
        "samples_per_rank": told.samples_per_rank, "steps_per_rank": told.steps_per_rank,
        "requests_per_rank": told.requests_per_rank, "bytes_per_rank": told.bytes_per_rank,
        "first_batch_bytes": told.first_batch_bytes, "cache_fits": told.cache_fits,
    }  # fmt: skip
    return facts if link is None else facts | {"first_batch_seconds": _first(told, link)}


def _first(told: Simulation, link: tuple[float, int]) -> float:
    from fastloader.simulation import Link

    return told.first_batch_seconds(Link(*link))


def _show(path: str, found: list[Simulation], link: tuple[float, int] | None) -> None:
    from fastloader.types import format_size

    first = found[0]
    say(
        f"{printable(path)}: {count(first.num_samples, 'sample')} in {count(first.num_shards, 'shard')}, "
        f"{format_size(first.num_bytes)}; {count(first.world_size, 'rank')}, batches of {first.batch_size:,}"
    )
    say(f"{_whose(first)}:")
    say()
    titles = ["order", "batches", "samples", "requests", "bytes", "first batch", "cache needed"]
    if link is not None:
        titles.append("first batch after")
    rows = []
    for told in found:
        row = [
            told.order, f"{told.steps_per_rank:,}", f"{told.samples_per_rank:,}", f"{told.requests_per_rank:,}",
            format_size(told.bytes_per_rank), format_size(told.first_batch_bytes), format_size(told.cache_bytes),
        ]  # fmt: skip
        rows.append(row if link is None else [*row, f"{_first(told, link):,.2f} s"])
    say_table(titles, rows, right=titles[1:])
    say()
    say("how well it mixes (1 = a plain shuffle; labels as if written sorted by 1,000 of them, the worst case):")
    say()
    titles = ["order", "displacement", "pages in a batch", "labels in a batch", "labels in a step"]
    say_table(titles, [_mixed(told) for told in found], right=titles[1:])
    for line in _words(found):
        say(printable(line))


def _whose(told: Simulation) -> str:
    """Whose figures they are."""
    if told.world_size == 1:
        return "in an epoch"
    return f"rank {told.ranks[0].rank} in an epoch" if len(told.ranks) == 1 else "the rank that has most, in an epoch"


def _mixed(told: Simulation) -> list[str]:
    found = told.mixing
    return [told.order, *(f"{value:.2f}" for value in (
        found.displacement, found.pages_in_batch, found.label_spread, found.step_label_spread
    ))]  # fmt: skip


def _words(found: list[Simulation]) -> list[str]:
    """What follows for whoever chooses."""
    from fastloader.types import format_size

    said = []
    for told in found:
        if told.cache_fits is not None:
            fits = "fits into" if told.cache_fits else "does not fit into"
            limit = format_size(told.cache_limit or 0)
            said.append(f"{told.order}: what is read again soon {fits} a cache of {limit}")
    by_order = {told.order: told for told in found}
    if {"random", "quasi_random"} <= by_order.keys():
        quasi, plain = by_order["quasi_random"], by_order["random"]
        if quasi.requests_per_rank and plain.requests_per_rank > 2 * quasi.requests_per_rank:
            times = plain.requests_per_rank / quasi.requests_per_rank
            said.append(f"quasi_random asks for what random does in {times:,.0f} times fewer requests")
    return ["", *said] if said else []
