"""Runs peers in their environments: each run a process of its own, watched from here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from environments import HERE, HOME, OURS, python
from numpy.typing import NDArray
from PIL import Image
from task import SIZE, VARIANTS, Box, Task, compared
from tree import Memory, memory

WATCH_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed."""

    images_per_second: float
    cpu_per_1000: float
    others: float
    version: str
    memory: Memory


def task_of(peer: str, variant: str) -> Task:
    """The photos, and where the peer keeps its own form of them."""
    return Task(HOME / "photos" / VARIANTS[variant], HOME / "packed" / f"{peer}-{variant}")


def command(job: str, peer: str, task: Task, *rest: str) -> list[str]:
    """One job in the peer's environment."""
    return [python(peer), str(HERE / "one.py"), job, peer, str(task.source), str(task.packed), *rest]


def environ() -> dict[str, str]:
    """Ours, less what would make a peer find our packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def failed(peer: str, job: str, told: str) -> RuntimeError:
    """With the end of what the peer said."""
    return RuntimeError(f"{peer}: {job} failed:\n{told[-2000:]}")


def prepare(peer: str, variant: str) -> None:
    """Have the peer write its own format: aside, then renamed. Once for peers, anew for us, whose writer changes."""
    task = task_of(peer, variant)
    if task.packed.exists() and peer != OURS:
        return
    aside = task.packed.with_name(task.packed.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    done = subprocess.run(
        command("prepare", peer, Task(task.source, aside)), env=environ(), capture_output=True, text=True
    )
    if done.returncode:
        raise failed(peer, "prepare", done.stderr)
    shutil.rmtree(task.packed, ignore_errors=True)
    aside.rename(task.packed)


def speed(peer: str, variant: str) -> Run:
    """One run; the peak of its memory is seen from outside."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command("speed", peer, task_of(peer, variant)), env=environ(), stdout=subprocess.PIPE, stderr=errors
        )
        total = own = 0
        while True:
            try:
                printed, _ = process.communicate(timeout=WATCH_EVERY)
                break
            except subprocess.TimeoutExpired:
                now = memory(process.pid)
                total, own = max(total, now.total), max(own, now.own)
        if process.returncode:
            errors.seek(0)
            raise failed(peer, "speed", errors.read())
    told_json: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return Run(memory=Memory(total, own), **told_json)


def wanted_crops() -> list[tuple[int, Box]]:
    """The crops that quality is compared on."""
    sizes = []
    for path in task_of("", "jpeg").paths:
        with Image.open(path) as image:
            sizes.append(image.size)
    return compared(sizes)


def reference(wanted: list[tuple[int, Box]]) -> NDArray[np.uint8]:
    """Pillow's antialiased bilinear resize of the crop alone."""
    paths, out = task_of("", "jpeg").paths, []
    for number, (left, top, width, height) in wanted:
        with Image.open(paths[number]) as image:
            cropped = image.convert("RGB").crop((left, top, left + width, top + height))
            out.append(np.asarray(cropped.resize((SIZE, SIZE), Image.Resampling.BILINEAR)))
    return np.stack(out)


def psnr(found: NDArray[np.uint8], truth: NDArray[np.uint8]) -> tuple[float, float]:
    """Mean and 5th percentile over the crops, in dB; equal crops count as 100."""
    error = ((found.astype(np.float64) - truth) ** 2).mean(axis=(1, 2, 3))
    each = np.minimum(100.0, 10 * np.log10(255**2 / np.maximum(error, 1e-12)))
    return float(each.mean()), float(np.percentile(each, 5))


def quality(peer: str, wanted: list[tuple[int, Box]], truth: NDArray[np.uint8]) -> tuple[float, float]:
    """A peer's crops against Pillow's."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "crops.npy"
        done = subprocess.run(
            command("quality", peer, task_of(peer, "jpeg"), str(out)),
            input=json.dumps(wanted), env=environ(), capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise failed(peer, "quality", done.stderr)
        return psnr(np.load(out), truth)
