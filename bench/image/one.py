"""One peer, one job, in its own environment: ``python one.py speed|quality|prepare PEER SOURCE PACKED [OUT]``.

``speed`` prints one line of JSON. Warm-up ends with the first pass over the photos; the clock and the CPU clocks of the
process and its workers stop as the last batch arrives. ``quality`` writes the crops to OUT as .npy.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from task import BATCH, SIZE, Task
from tree import cpu_seconds, machine_seconds


def check(images: Any) -> None:
    """A batch of what was asked for, and of photos rather than of nothing."""
    array = np.asarray(images)
    if sorted(array.shape) != sorted((BATCH, SIZE, SIZE, 3)) or array.dtype != np.uint8:
        raise ValueError(f"a batch of {array.shape} {array.dtype}")
    if array.std() < 20 or (array[0] == array[1]).all():
        raise ValueError("the batch has no photos in it")


def clocks() -> tuple[float, float, float]:
    """Wall time, CPU time of this tree, CPU time of the machine."""
    return time.perf_counter(), cpu_seconds(os.getpid()), machine_seconds()


def speed(peer: Any, task: Task) -> dict[str, Any]:
    """Images a second, CPU seconds, and how much of the machine others took, after the first pass."""
    count = len(task)
    warm, total = count // BATCH, count * task.passes // BATCH
    before = after = clocks()
    seen = 0
    for images in peer.batches(task):
        if seen == 0:
            check(images)
        seen += 1
        if seen == warm:
            before = clocks()
        elif seen == total:
            after = clocks()
    if seen != total:
        raise RuntimeError(f"{seen} batches came, not {total}")
    wall, own, machine = (b - a for a, b in zip(before, after, strict=True))
    measured = (total - warm) * BATCH
    return {
        "images_per_second": measured / wall,
        "cpu_per_1000": own / measured * 1000,
        "others": max(0.0, machine - own) / wall / (os.cpu_count() or 1),
        "version": peer.VERSION,
    }


def main() -> None:
    """Run the job."""
    job, name, source, packed, *rest = sys.argv[1:]
    if importlib.util.find_spec("torchvision"):
        importlib.import_module("vision")  # before a peer imports torchvision
    peer = importlib.import_module(f"peers.{name}")
    task = Task(Path(source), Path(packed))
    if job == "prepare":
        if hasattr(peer, "prepare"):
            peer.prepare(task)
    elif job == "speed":
        print(json.dumps(speed(peer, task)), flush=True)
    elif job == "quality":
        wanted = [(number, tuple(box)) for number, box in json.loads(sys.stdin.read())]
        np.save(rest[0], peer.crops(task, wanted))
    else:
        raise SystemExit(f"no such job: {job}")


if __name__ == "__main__":
    main()
