"""The main job in small: one dataset, kept as loose files and as one ``.fld``, written and loaded both ways.

Nothing is downloaded. Both ways get the same samples, the same number of workers and the same batches, and what they
give back is compared before it is timed. Try ``--help``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

import fastloader as fl
from fastloader.progress import progress

HEIGHT, WIDTH, RATE = 288, 384, 16_000
QUALITY = 90
BATCH = 64
WRITE_ROUNDS, LOAD_ROUNDS = 2, 3
CLOSE_PIXELS = 24
"""JPEG is lossy and two encoders round differently: no channel of any pixel may differ by more than this."""

PLACES = ("harbour", "meadow", "canyon", "orchard", "glacier", "market", "forest", "desert", "lagoon", "quarry")
BALLS = {"red": (205, 45, 40), "yellow": (235, 200, 60), "blue": (40, 80, 190), "white": (240, 240, 235)}
TIMES = ("at dawn", "at noon", "in the evening", "after the rain")

Sample = dict[str, Any]
Batch = dict[str, Any]


class Scenes:
    """Samples by number: a view of one of ten places with a ball in it, a chord, a caption, the place's number."""

    def __init__(self, count: int, side: int = 1024) -> None:
        self.count = count
        rng = np.random.default_rng(1)
        self._places = [_landscape(rng, side) for _ in PLACES]
        seconds = np.arange(RATE, dtype=np.float32) / RATE
        pitches = 110 * 2 ** (np.arange(48) / 12)
        self._tones = [(np.sin(2 * np.pi * hz * seconds) * np.exp(-hz / 90 * seconds)).astype("f4") for hz in pitches]
        y, x = np.mgrid[-1:1:72j, -1:1:72j]
        self._disc = np.clip((1 - np.hypot(x, y)) * 24, 0, 1)[:, :, None]
        self._shade = np.clip(1.1 - 0.5 * np.hypot(x + 0.4, y + 0.4), 0.3, 1)[:, :, None]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Sample:
        rng = np.random.default_rng(number)
        label, colour = number % len(PLACES), str(rng.choice(list(BALLS)))
        top, left = rng.integers(0, 1024 - HEIGHT), rng.integers(0, 1024 - WIDTH)
        image = self._places[label][top : top + HEIGHT, left : left + WIDTH].copy()
        y, x = rng.integers(0, HEIGHT - 72), rng.integers(0, WIDTH - 72)
        spot = image[y : y + 72, x : x + 72]
        spot[:] = spot * (1 - self._disc) + np.array(BALLS[colour]) * self._shade * self._disc
        sound = sum(self._tones[i] for i in rng.integers(0, len(self._tones), 3)) / np.float32(3)
        side = "left" if x + 36 < WIDTH / 2 else "right"
        caption = f"a {colour} ball on the {side}, in the {PLACES[label]} {rng.choice(TIMES)}"
        return {"image": image, "sound": sound, "text": {"caption": caption}, "label": label}


def _landscape(rng: np.random.Generator, side: int) -> np.ndarray:
    """Light falling from above, clouds and grain with the 1/f spectrum of photographs, and some hard edges."""
    fy, fx = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]
    amplitude = np.maximum(np.hypot(fy, fx), 1 / side) ** -1.3

    def clouds(strength: float) -> np.ndarray:
        phases = rng.uniform(0, 2 * np.pi, amplitude.shape)
        noise = np.fft.irfft2(amplitude * np.exp(1j * phases), (side, side))
        return (noise * (strength / noise.std()))[:, :, None]

    light = np.linspace(rng.uniform(140, 200), rng.uniform(50, 110), side)[:, None, None]
    scene = light + clouds(38) + rng.uniform(-30, 30, 3) + np.concatenate([clouds(7) for _ in range(3)], axis=2)
    for _ in range(60):
        top, left = rng.integers(0, side - 40, 2)
        height, width = rng.integers(12, 120, 2)
        scene[top : top + height, left : left + width] += rng.uniform(-35, 35, 3)
    return np.clip(scene, 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Folder:
    """The usual way: a folder for each class, and in it a file for each sample and kind of data."""

    root: Path

    def write(self, scenes: Scenes, workers: int, advance: Callable[[int], None]) -> None:
        """One .jpg, one .npy and one .json a sample, written by ``workers`` threads."""
        for place in PLACES:
            (self.root / place).mkdir(parents=True)

        def write_some(numbers: range) -> int:
            for number in numbers:
                sample = scenes[number]
                stem = self.root / PLACES[sample["label"]] / f"{number:09d}"
                Image.fromarray(sample["image"]).save(f"{stem}.jpg", quality=QUALITY)
                np.save(f"{stem}.npy", sample["sound"])
                Path(f"{stem}.json").write_text(json.dumps(sample["text"]))
            return len(numbers)

        parts = (range(first, min(first + 16, len(scenes))) for first in range(0, len(scenes), 16))
        with closing(ahead(write_some, parts, workers)) as written:  # no thread writes on after Ctrl-C
            for count in written:
                advance(count)

    def load(self, order: np.ndarray, workers: int) -> Iterator[Batch]:
        """Batches of the samples in this order."""
        stems = sorted(
            (name.removesuffix(".jpg"), label)
            for label, place in enumerate(PLACES)
            for name in os.listdir(self.root / place)
            if name.endswith(".jpg")
        )

        def load_batch(numbers: np.ndarray) -> Batch:
            images, sounds, texts, labels = [], [], [], []
            for number in numbers:
                name, label = stems[number]
                stem = self.root / PLACES[label] / name
                with Image.open(f"{stem}.jpg") as image:
                    images.append(np.asarray(image))
                sounds.append(np.load(f"{stem}.npy"))
                texts.append(json.loads(Path(f"{stem}.json").read_text()))
                labels.append(label)
            return {"image": np.stack(images), "sound": np.stack(sounds), "text": texts, "label": np.array(labels)}

        return ahead(load_batch, (order[i : i + BATCH] for i in range(0, len(order), BATCH)), workers)


def ahead(work: Callable[[Any], Any], items: Iterable[Any], workers: int) -> Generator[Any, None, None]:
    """``map`` in threads, in order, a few items ahead: what ``fl.DataLoader`` does as well."""
    running: deque[Future[Any]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for item in items:
            running.append(pool.submit(work, item))
            if len(running) >= 2 * workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def write_fld(path: Path, scenes: Scenes, workers: int, advance: Callable[[int], None]) -> None:
    """The other way: everything in one file."""
    fields = {
        "image": fl.JPEGImageField(quality=QUALITY),
        "sound": fl.NDArrayField("float32", (RATE,)),
        "text": fl.JSONField(),
        "label": fl.IntField(),
    }
    with fl.DatasetWriter(path, fields, num_workers=workers) as writer:
        for number in range(len(scenes)):
            writer.write_sample(scenes[number])
            advance(1)


def compare(ours: Iterable[Batch], theirs: Iterable[Batch], advance: Callable[[int], None]) -> int:
    """By how much pixels differ at most. Anything else that differs is an error."""
    largest = 0
    for one, other in zip(ours, theirs, strict=True):
        for name in ("sound", "text", "label"):
            if not np.array_equal(one[name], other[name]):
                raise click.ClickException(f"the two ways disagree on {name}")
        difference = np.maximum(one["image"], other["image"]) - np.minimum(one["image"], other["image"])
        largest = max(largest, int(difference.max()))
        advance(len(one["label"]))
    if largest > CLOSE_PIXELS:
        raise click.ClickException(f"the two ways disagree on image: pixels differ by up to {largest}")
    return largest


@dataclass(frozen=True)
class Times:
    """Seconds, one of each for a round."""

    write: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)


@contextmanager
def timed(times: list[float]) -> Iterator[None]:
    """Adds the seconds the block took."""
    began = time.perf_counter()
    yield
    times.append(time.perf_counter() - began)


def files_and_bytes(path: Path) -> tuple[int, int]:
    """How many files there are, and the disk space they take (whole blocks)."""
    found = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return len(found), sum(file.stat().st_blocks * 512 for file in found)


@contextmanager
def working_folder(keep: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards; with ``keep`` it stays, but only when all went well."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="fastloader-demo-") as folder:
            yield Path(folder)
        return
    if keep.exists():
        raise click.ClickException(f"{keep} exists already; name a new folder, or remove it first")
    keep.mkdir(parents=True)
    try:
        yield keep
    except BaseException:
        shutil.rmtree(keep)
        raise


@click.command()
@click.option(
    "--samples", type=click.IntRange(min=1), default=3000, show_default=True, help="How many samples to make."
)
@click.option("--workers", type=click.IntRange(min=1), default=os.cpu_count(), show_default=True, help="Threads.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the data, in this new folder.")
def main(samples: int, workers: int, keep: Path | None) -> None:
    """Write and load one multimodal dataset, as loose files and as .fld, and compare."""
    console = Console(highlight=False, markup=False)
    console.print(
        f"{samples} samples: a {WIDTH}x{HEIGHT} photo-like image (JPEG, quality {QUALITY}), one second of sound "
        f"({RATE // 1000} kHz float32), a caption, a label. {workers} threads, batches of {BATCH}."
    )
    sys.stdout.flush()
    with working_folder(keep) as folder:
        run(console, folder, samples, workers)
    if keep is not None:
        fld = keep / "demo.fld"
        console.print(f"\nKept in {keep}. Try next:", soft_wrap=True)
        for command in (f"fastloader info {fld}", f"fastloader ls {fld}", f"fastloader verify {fld}"):
            console.print(f"    .venv/bin/{command}", soft_wrap=True)


def run(console: Console, folder: Path, samples: int, workers: int) -> None:
    """Write, compare, load, report."""
    scenes = Scenes(samples)
    files, fld = Folder(folder / "files"), folder / "demo.fld"
    theirs, ours = Times(), Times()

    for _ in range(WRITE_ROUNDS):
        if files.root.exists():
            shutil.rmtree(files.root)
            fld.unlink()
        # A .fld is on disk when its writer closes; for loose files the system has to be asked.
        os.sync()
        with progress("writing loose files", samples) as advance, timed(theirs.write):
            files.write(scenes, workers, advance)
            os.sync()
        with progress("writing .fld", samples) as advance, timed(ours.write):
            write_fld(fld, scenes, workers, advance)

    with fl.open(fld) as reader:
        in_order = fl.DataLoader(reader, BATCH, shuffle=False, num_workers=workers)
        with progress("comparing", samples) as advance:
            pixels = compare(in_order, files.load(np.arange(samples), workers), advance)

        shuffled = fl.DataLoader(reader, BATCH, shuffle=True, seed=7, num_workers=workers)
        with progress("loading", 2 * LOAD_ROUNDS * samples) as advance:
            for epoch in range(LOAD_ROUNDS):
                order = np.random.default_rng(epoch).permutation(samples)
                for batches, times in ((files.load(order, workers), theirs.load), (shuffled, ours.load)):
                    with timed(times):
                        for batch in batches:
                            advance(len(batch["label"]))

    console.print(table(samples, theirs, ours, files_and_bytes(files.root), files_and_bytes(fld)))
    console.print(
        "Loose files: Pillow and numpy in a thread pool. One .fld: fl.DataLoader, native JPEG codec, CRC32C checked.\n"
        "Writing ends when all is on disk. Loading is shuffled, from the page cache, and decodes every image in full.\n"
        "Compared: sound, text and labels are identical; "
        + ("so are all pixels." if pixels == 0 else f"pixels differ by {pixels} of 255 at most.")
    )


def table(samples: int, theirs: Times, ours: Times, their_disk: tuple[int, int], our_disk: tuple[int, int]) -> Table:
    """The two ways side by side; a ratio above 1 is in favour of the .fld."""
    result = Table("", title="One dataset, kept two ways")
    for heading in ("loose files", "one .fld", "ratio"):
        result.add_column(heading, justify="right")

    def row(title: str, their: float, our: float, shown: str, ratio: float) -> None:
        result.add_row(title, shown.format(their), shown.format(our), f"{ratio:,.{0 if ratio >= 100 else 2}f}x")

    write, load = (min(theirs.write), min(ours.write)), (min(theirs.load), min(ours.load))
    row(f"writing, best of {WRITE_ROUNDS}", *write, "{:.2f} s", write[0] / write[1])
    row(f"loading, best of {LOAD_ROUNDS}", *load, "{:.2f} s", load[0] / load[1])
    row("samples/s loaded", samples / load[0], samples / load[1], "{:,.0f}", load[0] / load[1])
    row("files", their_disk[0], our_disk[0], "{:,}", their_disk[0] / our_disk[0])
    row("size on disk", their_disk[1] / 1e6, our_disk[1] / 1e6, "{:,.1f} MB", their_disk[1] / our_disk[1])
    return result


if __name__ == "__main__":
    main()
