"""Shards made by two workers of a Ray cluster, against one process with two threads: the same bytes."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Result, interleave

FILES, KINDS, SIDE = 2400, 24, 420
SHARD = 16 << 20
ROUNDS = 5


def photos(folder: Path) -> int:
    """JPEG files of about 85 KB, in folders; how many bytes."""
    from PIL import Image

    folder.mkdir()
    random = np.random.default_rng(0)
    made = []
    for kind in range(KINDS):
        y, x = np.mgrid[:SIDE, :SIDE]
        waves = 60 * np.sin((x * (1 + kind % 5) + y * (kind % 7)) / 30)[..., None] + 128
        noise = random.normal(0, 22, (SIDE, SIDE, 3))
        path = folder / f"{kind}.jpg"
        Image.fromarray(np.clip(waves + noise, 0, 255).astype(np.uint8)).save(path, quality=88)
        made.append(path.read_bytes())
        path.unlink()
    for number in range(FILES):
        place = folder / f"{number // 100:03d}"
        place.mkdir(exist_ok=True)
        (place / f"{number:06d}.jpg").write_bytes(made[number % KINDS])
    return sum(len(made[number % KINDS]) for number in range(FILES))


def same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files."""
    names = sorted(path.name for path in one.iterdir())
    return names == sorted(path.name for path in other.iterdir()) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


def cpu() -> float:
    """Seconds of CPU time of this process and of all that it started, which are still there."""
    import psutil

    total = 0.0
    for one in (own := psutil.Process(), *own.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += sum(one.cpu_times()[:2])
    return total


def main() -> list[Result]:
    """Creating an archive, converting a folder, and what the plan costs."""
    import ray

    import fastloader as fl
    from fastloader.archive.folders import FolderSource
    from fastloader.archive.planning import plan_shards
    from fastloader.archive.writer import ArchiveWriter
    from fastloader.ray.converting import convert_dataset
    from fastloader.ray.creating import create_archive

    with tempfile.TemporaryDirectory(prefix="fastloader-bench-") as name:
        home = Path(name)
        size = photos(home / "in")
        began = time.perf_counter()
        ray.init(
            address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
            object_store_memory=128 << 20,
        )  # fmt: skip
        up = time.perf_counter() - began

        def fresh(path: str) -> str:
            shutil.rmtree(home / path, ignore_errors=True)
            return str(home / path)

        def create_here() -> None:
            with ArchiveWriter(fresh("a.fld"), shard_size=SHARD, workers=2) as writer:
                writer.add_folder(FolderSource(home / "in"))

        def create_there() -> None:
            create_archive(fresh("b.fld"), FolderSource(home / "in"), shard_size=SHARD, at_once=3)

        def convert_here() -> None:
            fl.open(home / "in").write(fresh("c.fld"), shard_size=SHARD, threads=2, show_progress=False)

        def convert_there() -> None:
            dataset: Any = fl.open(home / "in")
            convert_dataset(dataset, fresh("d.fld"), shard_size=SHARD, at_once=3, show_progress=False)

        def plan() -> None:
            list(plan_shards(FolderSource(home / "in"), SHARD))

        used: dict[str, list[float]] = {}

        def counted(action: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                before = cpu()
                action()
                used.setdefault(action.__name__, []).append(cpu() - before)

            return run

        actions = (create_here, create_there, convert_here, convert_there, plan)
        try:
            took = interleave(ROUNDS, **{action.__name__: counted(action) for action in actions})
            agree = same(home / "a.fld", home / "b.fld") and same(home / "c.fld", home / "d.fld")
        finally:
            ray.shutdown()
    if not agree:
        raise AssertionError("the cluster's shards are not those of one process")
    busy = {name: f"{statistics.median(seconds[1:]):.1f} s" for name, seconds in used.items()}
    rate = {name: size / 1e6 / seconds for name, seconds in took.items()}
    return [
        Result("create: Ray, 2 workers", "one process, 2 threads", took["create_there"] / took["create_here"], "< 1.2",
               f"{rate['create_there']:.0f} against {rate['create_here']:.0f} MB/s, {size / 1e6:.0f} MB of JPEG files; "
               f"CPU {busy['create_there']} against {busy['create_here']}"),
        Result("convert: Ray, 2 workers", "one process, 2 threads", took["convert_there"] / took["convert_here"],
               "< 1.2", f"{rate['convert_there']:.0f} against {rate['convert_here']:.0f} MB/s; CPU "
               f"{busy['convert_there']} against {busy['convert_here']}"),
        Result("the plan of an archive", "creating it, one process", took["plan"] / took["create_here"], "low",
               f"{took['plan'] / FILES * 1e6:.1f} us a file"),
        Result("starting a cluster here", "creating, one process", up / took["create_here"], "",
               f"{up:.1f} s, not in the above"),
    ]  # fmt: skip
