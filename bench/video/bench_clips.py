"""Random clips of 8 frames from H.264 files of 10 seconds, as RGB: seconds a clip, against decoding from files.

Files are 640x360 at 30 frames a second, with a key frame every second or every 250 frames, as x264 does by itself.
torchcodec takes part where it can be imported, which needs FFmpeg's libraries (0.13 for a torch without CUDA).
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
from common import Result, interleave

import fastloader as fl
from fastloader.pipeline import compile_clips

HEIGHT, WIDTH, RATE, SECONDS, FILES, CLIP, BATCH, ROUNDS = 360, 640, 30, 10, 8, 8, 8, 5
FRAMES = RATE * SECONDS


def make(folder: Path, keyint: int) -> list[Path]:
    """Files of moving patterns and some noise; each begins elsewhere."""
    made = []
    for i in range(FILES):
        made.append(folder / f"{keyint}-{i}.mp4")
        source = f"testsrc2=size={WIDTH}x{HEIGHT}:rate={RATE}:duration={SECONDS + i}"
        subprocess.run(
            ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-vf", f"noise=alls=6:allf=t:all_seed={i}",
             "-ss", str(i), "-pix_fmt", "yuv420p", "-c:v", "libx264", "-preset", "fast", "-g", str(keyint), made[-1]],
            check=True,
        )  # fmt: skip
    return made


def from_the_start(path: Path, start: int) -> np.ndarray:
    """Every frame up to the last of the clip is decoded."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_count = 1
        frames = []
        for number, frame in enumerate(container.decode(stream)):
            if number >= start:
                frames.append(frame.to_ndarray(format="rgb24"))
            if len(frames) == CLIP:
                break
        return np.stack(frames)


def by_seeking(path: Path, start: int) -> np.ndarray:
    """Decoded from the key frame before the clip on."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_count = 1
        wanted = start * round(1 / (RATE * stream.time_base))
        container.seek(wanted, stream=stream)
        frames = []
        for frame in container.decode(stream):
            if frame.pts >= wanted:
                frames.append(frame.to_ndarray(format="rgb24"))
            if len(frames) == CLIP:
                break
        return np.stack(frames)


def by_torchcodec(mode: str) -> Callable[[Path, int], Any]:
    """A decoder for each clip, of one thread."""
    from torchcodec.decoders import VideoDecoder

    def clip(path: Path, start: int) -> Any:
        decoder = VideoDecoder(path, num_ffmpeg_threads=1, dimension_order="NHWC", seek_mode=mode)
        return decoder.get_frames_in_range(start, start + CLIP).data.numpy()

    return clip


class Ours:
    """A loader over the dataset; one epoch a call. Where its clips begin is known, so that others do the same ones."""

    def __init__(self, path: Path, workers: int) -> None:
        self.pipeline = [fl.ops.ClipSampler(CLIP), fl.ops.DecodeResize((HEIGHT, WIDTH))]
        self.reader = fl.open(path)
        self.loader = fl.DataLoader(self.reader, BATCH // 2, num_workers=workers, pipelines={"clip": self.pipeline})
        self.epoch = -1

    def __call__(self) -> None:
        self.epoch += 1
        for batch in self.loader:
            assert batch["clip"].shape[1:] == (CLIP, HEIGHT, WIDTH, 3)

    def starts(self) -> list[int]:
        """The first frame of each file's clip in the epoch that was run last."""
        compiled = compile_clips("clip", self.reader.fields["clip"], self.pipeline, 0)
        return [int(compiled.choose(self.reader[i]["clip"], self.epoch, i)[0]) for i in range(FILES)]


def check(files: list[Path], dataset: Path, ways: dict[str, Callable[[Path, int], Any]]) -> None:
    """All must give the same frames, but for the rounding of their conversions to RGB."""
    reader = fl.open(dataset)
    for start in (0, 17, FRAMES - CLIP):
        wanted = from_the_start(files[1], start).astype(int)
        assert np.array_equal(reader[1]["clip"].clip(start, CLIP), wanted)
        for name, way in ways.items():
            assert np.abs(way(files[1], start) - wanted).mean() < 2, name


def main() -> list[Result]:
    """One thread each, and two."""
    others: dict[str, Callable[[Path, int], Any]] = {
        "PyAV from the start": from_the_start,
        "PyAV seeking": by_seeking,
    }
    try:
        others["torchcodec, exact"] = by_torchcodec("exact")
        others["torchcodec, approximate"] = by_torchcodec("approximate")
    except (ImportError, RuntimeError, OSError) as error:
        print(f"without torchcodec: {str(error).splitlines()[0]}")
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for keyint in (RATE, 250):
            files = make(folder, keyint)
            dataset = folder / f"{keyint}.fld"
            with fl.DatasetWriter(dataset, {"clip": fl.VideoCompressedField()}) as writer:
                writer.write_many([file] for file in files)
            check(files, dataset, others)
            for threads in (1, 2):
                results += compare(files, dataset, others, keyint, threads)
    return results


def compare(
    files: list[Path], dataset: Path, others: dict[str, Callable[[Path, int], Any]], keyint: int, threads: int
) -> list[Result]:
    """An epoch of ours against the same clips by others, in as many threads."""
    ours = Ours(dataset, threads if threads > 1 else 0)
    spent: dict[str, list[float]] = {name: [] for name in ("ours", *others)}

    def counted(name: str, action: Callable[[], object]) -> float:
        busy, began = time.process_time(), time.perf_counter()
        action()
        spent[name].append(time.process_time() - busy)
        return time.perf_counter() - began

    def run(way: Callable[[Path, int], Any]) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(way, files, ours.starts()))

    actions = {name: (lambda name=name, way=way: counted(name, lambda: run(way))) for name, way in others.items()}
    times = interleave(ROUNDS, ours=lambda: counted("ours", ours), **actions)
    ours.loader.close()
    busy = {name: sum(values[1:]) / len(values[1:]) / FILES * 1e3 for name, values in spent.items()}
    return [
        Result(
            f"clips, a key frame every {keyint}, threads: {threads}", name, times["ours"] / times[name], "< 1",
            f"ms of CPU a clip: {busy['ours']:.1f} against {busy[name]:.1f}, ratio {busy['ours'] / busy[name]:.2f}",
        )
        for name in others
    ]  # fmt: skip
