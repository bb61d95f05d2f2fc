"""``fastloader simulate`` on local files: what it takes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastloader as fl
from fastloader.cli import main


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred samples of 20 kB."""
    path = tmp_path_factory.mktemp("simulated") / "some.fld"
    with fl.DatasetWriter(path, {"x": fl.NDArrayField(np.uint8, (20_000,))}, "64KiB") as writer:
        writer.write_many({"x": np.full(20_000, i, np.uint8)} for i in range(200))
    return path


def simulate(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def orders(*arguments: object) -> dict[str, Any]:
    """What it prints as JSON."""
    run = simulate(*arguments, "--json")
    assert run.exit_code == 0, run.output
    return dict(json.loads(run.stdout)["orders"])


def test_ranks_share_the_epoch(dataset: Path) -> None:
    told = orders(dataset, "--world", 2, "--batch-size", 10)
    for one in told.values():
        assert sum(rank["samples"] for rank in one["ranks"]) == 200
        assert one["steps_per_rank"] == 10
    assert orders(dataset, "--order", "random").keys() == {"random"}
    (rank,) = orders(dataset, "--world", 4, "--rank", 3, "--order", "sequential")["sequential"]["ranks"]
    assert rank["rank"] == 3


def test_options_have_an_effect(dataset: Path) -> None:
    usual = orders(dataset, "--batch-size", 10)
    assert orders(dataset, "--batch-size", 10, "--window", 2)["quasi_random"] != usual["quasi_random"]
    seeded = orders(dataset, "--batch-size", 10, "--seed", 1)["random"]
    assert seeded["mixing"] != usual["random"]["mixing"]
    assert orders(dataset, "--batch-size", 10, "--epoch", 1)["random"]["mixing"] != usual["random"]["mixing"]
    there = orders(dataset, "--in-store")["random"]["ranks"][0]
    assert (there["opening_requests"], usual["random"]["ranks"][0]["opening_requests"]) == (2, 0)
    far, near = (
        orders(dataset, "--in-store", "--latency", latency, "--bandwidth", "1GB")["random"]["first_batch_seconds"]
        for latency in (1000, 1)
    )
    assert far > near + 1
    assert orders(dataset, "--in-store", "--cache", "100GB")["random"]["cache_fits"] is True


def test_wrong_usage_is_told(dataset: Path, tmp_path: Path) -> None:
    with fl.DatasetWriter(tmp_path / "empty.fld", {"x": fl.IntField()}):
        pass
    for arguments, said in (
        ((dataset, "--world", 2, "--rank", 2), "the ranks of a world of 2 are numbered 0 to 1"),
        ((dataset, "--cache", "1GB"), "--cache is for datasets in stores; --in-store takes"),
        ((dataset, "--cache", "much"), "--cache"),
        ((dataset, "--latency", 3), "--latency and --bandwidth go together"),
        ((tmp_path / "none.fld",), "there is no such file"),
        ((tmp_path / "empty.fld",), "there are no samples to load"),
    ):
        run = simulate(*arguments)
        assert run.exit_code == 2
        assert said in run.stderr


def test_the_table_says_whose_figures_they_are(dataset: Path) -> None:
    assert "\nin an epoch:\n" in simulate(dataset).stdout
    assert "the rank that has most, in an epoch:" in simulate(dataset, "--world", 3).stdout
    assert "rank 2 in an epoch:" in simulate(dataset, "--world", 3, "--rank", 2).stdout
    run = simulate(dataset, "--in-store", "--latency", 30, "--bandwidth", "100MB", "--batch-size", 10, "--window", 4)
    assert "first batch after" in run.stdout
    assert "times fewer requests" in run.stdout
