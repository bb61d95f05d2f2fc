"""What ``fastloader simulate`` predicts is what a loader then asks a real server for."""

from __future__ import annotations

import json
import secrets
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from orders import in_order
from tests.stores.fault_proxy import Proxy, fault_proxy

import fastloader as fl
from fastloader.cli import main
from fastloader.testing.seaweed import S3Server

COUNT, SIZE, BATCH, WORLD = 360, 70_000, 8, 3


@pytest.fixture(scope="module")
def url(s3: S3Server) -> str:
    """Four shards of pages of 1 MiB."""
    to = f"s3://fetched/{secrets.token_hex(6)}"
    fields = {"data": fl.NDArrayField(np.uint8, (SIZE,))}
    with fl.DatasetWriter(to, fields, "1MiB", shard_size="7MB", storage_options=s3.storage_options()) as writer:
        writer.write_many({"data": np.random.default_rng(i).integers(0, 256, SIZE, np.uint8)} for i in range(COUNT))
    return to


def predicted(url: str, s3: S3Server, *options: str) -> dict[str, Any]:
    """What the command prints."""
    given = [part for name, value in s3.storage_options().items() for part in ("-o", f"{name}={value}")]
    run = CliRunner().invoke(main, ["simulate", url, "--json", *options, *given])
    assert run.exit_code == 0, run.output
    return dict(json.loads(run.stdout)["orders"])


def asked(proxy: Proxy) -> tuple[int, int]:
    """How many requests, for how many bytes."""
    spans = [span.removeprefix("bytes=").split("-") for _, _, span in proxy.requests]
    assert all(len(span) == 2 for span in spans)
    return len(spans), sum(int(end) - int(begin) + 1 for begin, end in spans)


@pytest.mark.parametrize("order", ["sequential", "quasi_random", "random"])
def test_requests_and_bytes_of_a_rank_are_as_predicted(url: str, s3: S3Server, order: Any) -> None:
    mixed = ("--window", "3") if order == "quasi_random" else ()
    options = ("--world", str(WORLD), "--batch-size", str(BATCH), "--order", order, *mixed)
    told = predicted(url, s3, *options, "--rank", "1")
    assert list(told) == [order]
    (rank,) = told[order]["ranks"]
    with fault_proxy(s3.endpoint) as proxy, fl.open(url, s3.storage_options(proxy.url, hedge_after=60.0)) as reader:
        loader = fl.DataLoader(
            reader, BATCH, **in_order(order, 3), rank=1, world_size=WORLD, num_workers=1, memory_limit="150MB"
        )
        for shard in range(len(reader.dataset.shards)):
            reader.dataset.file(shard).payloads(0)  # the tables
        proxy.requests.clear()
        batches = [len(batch["data"]) for batch in loader]
        requests, size = asked(proxy)
    assert (rank["steps"], rank["samples"]) == (len(batches), sum(batches))
    assert rank["bytes"] == pytest.approx(size, rel=0.001)  # places within a page are told from means
    if order == "quasi_random":  # pages that happen to be neighbours, and wanted at the same time, come together
        assert rank["requests"] / 2 <= requests <= rank["requests"]
    else:
        assert rank["requests"] == requests


def test_all_orders_are_told_in_words_and_numbers(url: str, s3: S3Server) -> None:
    told = predicted(url, s3, "--world", "2", "--batch-size", "16", "--window", "2")
    assert set(told) == {"sequential", "quasi_random", "random"}
    assert told["random"]["requests_per_rank"] > 3 * told["quasi_random"]["requests_per_rank"]
    assert told["random"]["mixing"]["displacement"] == pytest.approx(1, abs=0.2)
    assert told["sequential"]["mixing"]["displacement"] == 0
    assert told["random"]["cache_fits"] is None
    given = [part for name, value in s3.storage_options().items() for part in ("-o", f"{name}={value}")]
    run = CliRunner().invoke(main, ["simulate", url, *given, "--window", "2", "--cache", "20MB"])
    assert "random: what is read again soon does not fit into a cache of 19.1 MiB" in run.stdout
    assert "times fewer requests" not in run.stdout.partition("random asks")[0]
