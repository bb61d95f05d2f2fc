"""Random 3-second segments from 30-second FLAC files at 16 kHz, batches of 16: against soundfile over the same files.

Whole: soundfile reads a file and the segment is cut from it. Seek: soundfile reads just the segment. Both in a plain
loop, in as many threads as the loader has, and in torch's DataLoader with as many worker processes. All alternatives
make batches (16, 48000) of float32; every round has the same number of segments.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import soundfile
import torch
from common import Result, interleave_counting
from numpy.typing import NDArray

import fastloader as fl
from fastloader import ops

RATE, SECONDS, FILES, PART, BATCH, WORKERS = 16_000, 30, 96, 3, 16, 2
FRAMES = PART * RATE
ROUNDS = 5


def sound(seed: int) -> NDArray[np.float32]:
    """Tones that glide over coloured noise, in phrases: compresses about as speech does."""
    rng = np.random.default_rng(seed)
    time_ = np.arange(SECONDS * RATE) / RATE
    loudness = np.interp(time_, np.arange(0, SECONDS + 1, 0.2), rng.random(SECONDS * 5 + 5) ** 2)
    pitch = np.interp(time_, np.arange(0, SECONDS + 1, 0.5), rng.uniform(90, 220, SECONDS * 2 + 2))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(k * phase) / k for k in range(1, 12))
    noise = np.convolve(rng.normal(size=len(time_)), np.hanning(9) / 4, "same") * 0.05
    return (0.2 * loudness * (voice + noise)).astype(np.float32)


class Files(torch.utils.data.Dataset[Any]):
    """A segment of each file, at another place each time."""

    def __init__(self, paths: list[Path], seek: bool) -> None:
        self.paths, self.seek = paths, seek

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> NDArray[np.float32]:
        start = int(np.random.randint(0, SECONDS * RATE - FRAMES + 1))
        if self.seek:
            return soundfile.read(self.paths[i], FRAMES, start, dtype="float32")[0]
        return soundfile.read(self.paths[i], dtype="float32")[0][start : start + FRAMES]


def in_threads(files: Files) -> None:
    """Batches by a pool of threads."""
    with ThreadPoolExecutor(WORKERS) as pool:
        for begin in range(0, len(files), BATCH):
            np.stack(list(pool.map(files.__getitem__, range(begin, begin + BATCH))))


def in_a_loop(files: Files, finish: Callable[[NDArray[np.float32]], Any] = lambda sound: sound) -> None:
    """Batches by one thread."""
    for begin in range(0, len(files), BATCH):
        np.stack([finish(files[i]) for i in range(begin, begin + BATCH)])


def passes(loader: Any) -> Callable[[], float]:
    """Each call is an epoch."""

    def run() -> float:
        began = time.perf_counter()
        for _ in loader:
            pass
        return time.perf_counter() - began

    return run


def by_torch(files: Files) -> Iterator[Any]:
    """The loader of torch, whose workers stay from epoch to epoch."""
    return torch.utils.data.DataLoader(files, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)  # type: ignore[return-value]


def librosa_mel(part: NDArray[np.float32]) -> NDArray[np.float32]:
    """80 bands in decibels."""
    made = librosa.feature.melspectrogram(y=part, sr=RATE, n_fft=1024, hop_length=256, n_mels=80)
    return librosa.power_to_db(made)


def main() -> list[Result]:
    """Ratios to ours, for segments of files, of waveforms, and for spectrograms."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"{i}.flac" for i in range(FILES)]
        for i, path in enumerate(paths):
            soundfile.write(path, sound(i), RATE)
        fields = {"audio": fl.AudioCompressedField(sample_rate=RATE, channels=1)}
        with fl.DatasetWriter(folder / "files.fld", fields) as writer:
            writer.write_many({"audio": path} for path in paths)
        with fl.DatasetWriter(folder / "waves.fld", {"audio": fl.AudioWaveformField(RATE, dtype="int16")}) as writer:
            writer.write_many({"audio": path} for path in paths)

        def ours(dataset: str, *more: ops.SoundOp) -> fl.DataLoader:
            pipelines = {"audio": [ops.RandomSegment(PART), *more]}
            return fl.DataLoader(fl.DatasetReader(folder / dataset), BATCH, num_workers=WORKERS, pipelines=pipelines)

        whole, seek = Files(paths, False), Files(paths, True)
        mel = ops.MelSpectrogram(n_fft=1024, hop_length=256, n_mels=80)
        seconds, cpu = interleave_counting(
            ROUNDS,
            files=passes(ours("files.fld")),
            waves=passes(ours("waves.fld")),
            mel=passes(ours("waves.fld", mel)),
            whole=lambda: in_a_loop(whole),
            seek=lambda: in_a_loop(seek),
            whole_threads=lambda: in_threads(whole),
            seek_threads=lambda: in_threads(seek),
            whole_torch=passes(by_torch(whole)),
            seek_torch=passes(by_torch(seek)),
            librosa=lambda: in_a_loop(seek, librosa_mel),
            rest=lambda: time.sleep(0.5),  # the threads of librosa's libraries spin for a while
        )
    told = f"segments/s: {FILES / seconds['files']:,.0f}, "

    def cpu_of(name: str) -> str:
        """The ratio of CPU times, where all of it was spent in this process."""
        return "" if name.endswith("torch") else f"; CPU time {cpu[name] / cpu['files']:.2f}"

    results = [
        Result("soundfile, " + what, "RandomSegment(3) of FLAC files", seconds[name] / seconds["files"], "> 1",
               told + f"other {FILES / seconds[name]:,.0f}" + cpu_of(name))
        for name, what in (
            ("whole", "whole files, a loop"), ("whole_threads", f"whole files, {WORKERS} threads"),
            ("whole_torch", f"whole files, torch's DataLoader, {WORKERS} workers"), ("seek", "seeking, a loop"),
            ("seek_threads", f"seeking, {WORKERS} threads"),
            ("seek_torch", f"seeking, torch's DataLoader, {WORKERS} workers"),
        )
    ]  # fmt: skip
    results.append(
        Result("RandomSegment(3) of FLAC files", "the same of waveforms", seconds["files"] / seconds["waves"], "-",
               f"segments/s of waveforms: {FILES / seconds['waves']:,.0f}")
    )  # fmt: skip
    results.append(
        Result("soundfile seeking and librosa, a loop", "RandomSegment(3) and MelSpectrogram of waveforms",
               seconds["librosa"] / seconds["mel"], "> 1",
               f"segments/s: {FILES / seconds['mel']:,.0f}; CPU time {cpu['librosa'] / cpu['mel']:.2f}")
    )  # fmt: skip
    return results


if __name__ == "__main__":
    for one in main():
        print(one)
