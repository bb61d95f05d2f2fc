"""The doctor on a real server behind a slow way: the network is what bounds."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from tests.stores.fault_proxy import fault_proxy

import fastloader as fl
from fastloader.cli import main
from fastloader.testing.seaweed import S3Server


def test_a_slow_way_to_a_store_is_what_bounds(s3: S3Server, tmp_path: Path) -> None:
    url = f"s3://fetched/{secrets.token_hex(6)}"
    fields = {"x": fl.NDArrayField(np.uint8, (20_000,))}
    with fl.DatasetWriter(url, fields, shard_size="4MB", storage_options=s3.storage_options()) as writer:
        writer.write_many({"x": np.random.default_rng(i).integers(0, 256, 20_000, np.uint8)} for i in range(300))
    with fault_proxy(s3.endpoint) as proxy:
        proxy.fault = "drip"  # each answer takes a sixth of a second
        options = [
            part
            for name, value in s3.storage_options(proxy.url, hedge_after=60.0).items()
            for part in ("-o", f"{name}={value}")
        ]
        report = tmp_path / "report.html"
        arguments = ["--batch-size", "8", "--seconds", "4", "--json", "-q", "--html", str(report)]
        run = CliRunner().invoke(main, ["doctor", url, *arguments, *options])
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    (verdict,) = told["diagnosis"]["verdicts"]
    assert (verdict["bound"], verdict["when"]) == ("network", "every epoch")
    assert any("it is latency" in cure for cure in verdict["cures"])
    network = told["findings"]["network"]
    assert min(network["latency"]) > 0.1
    assert [pace["at_once"] for pace in network["ranges"]] == [1, 4, 16, 64]
    assert network["random"][-1]["count"] > network["random"][0]["count"]
    assert told["findings"]["disk"] is None
    assert "network-bound" in report.read_text()
