"""Short sound files made by other programs: ffmpeg, sox and espeak-ng."""

from __future__ import annotations

import subprocess
from pathlib import Path

TEXT = "Time comes first, then the channels."


def run(*command: object) -> None:
    """Run a program to its end."""
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def ffmpeg(source: Path, to: Path, *options: object) -> Path:
    """Convert a file, without anything in it that depends on the machine."""
    run("ffmpeg", "-v", "error", "-y", "-i", source, *options, "-bitexact", to)
    return to


def make_sounds(folder: Path) -> dict[str, Path]:
    """Speech at 22,050 Hz, music in stereo at 44,100, each in every codec, by more than one encoder."""
    speech, music = folder / "speech.wav", folder / "music.wav"
    run("espeak-ng", "-w", speech, TEXT)
    run(
        "sox",
        "-n",
        "-r",
        44100,
        "-c",
        2,
        "-b",
        16,
        music,
        "synth",
        2,
        "pluck",
        "C3",
        "synth",
        2,
        "sine",
        "mix",
        "300-3000",
        "gain",
        -3,
    )
    made = {"speech.wav": speech, "music.wav": music}
    for name, source in (("speech", speech), ("music", music)):
        made[f"{name}.flac"] = ffmpeg(source, folder / f"{name}.flac")
        made[f"{name}.mp3"] = ffmpeg(source, folder / f"{name}.mp3", "-c:a", "libmp3lame", "-b:a", "64k", "-ar", 44100)
        made[f"{name}.ogg"] = ffmpeg(source, folder / f"{name}.ogg", "-c:a", "libvorbis")
        made[f"{name}.opus"] = ffmpeg(source, folder / f"{name}.opus", "-c:a", "libopus")
        for ending in ("flac", "ogg"):
            run("sox", source, folder / f"{name}.sox.{ending}")
            made[f"{name}.sox.{ending}"] = folder / f"{name}.sox.{ending}"
    made["music24.wav"] = ffmpeg(music, folder / "music24.wav", "-c:a", "pcm_s24le")
    made["music.aiff"] = ffmpeg(music, folder / "music.aiff")
    return made
