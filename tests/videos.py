"""Short videos made by ffmpeg, and what ffmpeg itself decodes of them."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

HEIGHT, WIDTH, FRAMES, FPS = 64, 80, 40, 20
SOURCE = f"testsrc2=size={WIDTH}x{HEIGHT}:rate={FPS}:duration={FRAMES / FPS}"
NOISE = "noise=alls=10:allf=t:all_seed=3"
X264 = ["-c:v", "libx264", "-preset", "veryfast", "-bf", "3", "-b_strategy", "0"]
GROUPS = "keyint=10:min-keyint=10:scenecut=0:b-pyramid=normal:threads=1"

WAYS = {
    "h264.mp4": [*X264, "-x264-params", GROUPS],
    "h264_open.mp4": [*X264, "-x264-params", f"{GROUPS}:open-gop=1"],
    "h264_open.mkv": [*X264, "-x264-params", f"{GROUPS}:open-gop=1"],
    "h264_refresh.mp4": [*X264, "-x264-params", f"{GROUPS}:intra-refresh=1"],
    "h264.ts": [*X264, "-x264-params", GROUPS],
    "hevc_open.mp4": ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params",
                      "keyint=10:min-keyint=10:bframes=3:open-gop=1:scenecut=0:log-level=none"],
    "vp9.webm": ["-c:v", "libvpx-vp9", "-b:v", "200k", "-g", "10", "-cpu-used", "8", "-deadline", "realtime"],
    "vp8_hidden.webm": ["-c:v", "libvpx", "-b:v", "100k", "-auto-alt-ref", "1", "-lag-in-frames", "20",
                        "-arnr-maxframes", "7", "-arnr-strength", "5"],
    "av1.mp4": ["-c:v", "libsvtav1", "-preset", "12", "-g", "10"],
    "mpeg4.mp4": ["-c:v", "mpeg4", "-bf", "2", "-g", "10", "-qscale:v", "12"],
    "mpeg4.avi": ["-c:v", "mpeg4", "-bf", "2", "-g", "10", "-qscale:v", "4"],
    "mpeg2.ts": ["-c:v", "mpeg2video", "-bf", "2", "-g", "10", "-qscale:v", "4"],
    "h264_709.mp4": [*X264, "-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"],
}  # fmt: skip
VARIABLE_RATE = "h264_variable.mp4"
CUT = "h264_cut.mp4"
LEADING = "h264_leading.mkv"
SOUND = "sound.wav"
WITH_SOUND = "h264_sound.mp4"
ALL = (*WAYS, VARIABLE_RATE, CUT, LEADING, WITH_SOUND)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fastloader-videos-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def ffmpeg(*arguments: object) -> bytes:
    """What ffmpeg writes to its output."""
    done = subprocess.run(
        ["ffmpeg", "-v", "error", "-y", *map(str, arguments)],
        capture_output=True, check=False, env={**os.environ, "SVT_LOG": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@cache
def video(name: str) -> Path:
    """One of ``ALL``, made when first asked for."""
    path = _folder() / name
    made = ["-f", "lavfi", "-i", SOURCE, "-pix_fmt", "yuv420p", "-vf"]
    if name == CUT:  # with an edit list: what lies before the cut is there for decoders, and not shown
        ffmpeg("-ss", "0.7", "-i", video("h264.mp4"), "-c", "copy", path)
    elif name == LEADING:  # an open group without the one before it
        ffmpeg("-ss", "0.9", "-noaccurate_seek", "-i", video("h264_open.mkv"), "-c", "copy", path)
    elif name == SOUND:
        ffmpeg("-f", "lavfi", "-i", "sine=d=0.5", path)
    elif name == WITH_SOUND:
        ffmpeg("-f", "lavfi", "-i", "sine=d=2", "-i", video("h264.mp4"), "-c:v", "copy", "-c:a", "aac", path)
    elif name == VARIABLE_RATE:
        chosen = f"{NOISE},select='not(mod(n\\,3))+eq(mod(n\\,7)\\,1)'"
        ffmpeg(*made, chosen, "-fps_mode", "vfr", *WAYS["h264.mp4"], path)
    elif name == "vp8_hidden.webm":  # hidden frames come with two passes
        for number, to in ((1, ["-f", "null", "-"]), (2, [path])):
            ffmpeg(*made, NOISE, *WAYS[name], "-pass", number, "-passlogfile", _folder() / "vp8", *to)
    else:
        ffmpeg(*made, NOISE, *WAYS[name], path)
    return path


@cache
def planes(name: str) -> tuple[bytes, ...]:
    """Each frame as ffmpeg decodes it from the first to the last, before any conversion."""
    out = ffmpeg(
        "-flags", "bitexact", "-i", video(name), "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "rawvideo", "-"
    )
    size = HEIGHT * WIDTH * 3 // 2
    return tuple(out[i : i + size] for i in range(0, len(out), size))


@cache
def rgb(name: str) -> np.ndarray:
    """All frames as ``ffmpeg -pix_fmt rgb24`` makes them."""
    out = ffmpeg(
        "-flags", "bitexact", "-i", video(name), "-map", "0:v:0", "-fps_mode", "passthrough",
        "-pix_fmt", "rgb24", "-f", "rawvideo", "-",
    )  # fmt: skip
    return np.frombuffer(out, np.uint8).reshape(-1, HEIGHT, WIDTH, 3)


@cache
def times(name: str) -> np.ndarray:
    """When ffprobe says that frames are shown, from the first on."""
    asked = ["-select_streams", "v:0", "-show_entries", "frame=pts_time", "-of", "csv=p=0"]
    out = subprocess.run(["ffprobe", "-v", "error", *asked, video(name)], capture_output=True, text=True, check=True)
    found = np.array([float(line.strip(",")) for line in out.stdout.split()])
    return found - found[0]
