"""Makes ``video.fld`` in this folder, and what reading it must give: ``python tests/vectors/make_video.py``.

The H.264 file in it was encoded once: encoders differ between versions. Decoders do not, so each frame has a checksum.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import fastloader as fl
from fastloader.fields import libav

HERE = Path(__file__).parent
FIELDS = {
    "video": fl.VideoCompressedField(),
    "frames": fl.VideoFramesField("png", fps=10),
    "pixels": fl.VideoFramesField("raw"),
    "flow": fl.OpticalFlowField("int16"),
    "half": fl.OpticalFlowField(),
}


def frames() -> np.ndarray:
    """Three small pictures."""
    return (np.arange(3 * 4 * 6 * 3).reshape(3, 4, 6, 3) * 7 % 256).astype(np.uint8)


def flow() -> np.ndarray:
    """Flow that 16 bits hold exactly, with a hole."""
    made = (np.arange(2 * 3 * 4 * 2).reshape(2, 3, 4, 2) - 20).astype(np.float32) / 16
    made[0, 1, 2] = np.nan
    return made


def planes(video: Any) -> list[str]:
    """A checksum of each frame, as it comes out of the decoder."""
    made = libav.decode(video.index, memoryview(video.bytes), np.arange(len(video)))
    return [sha256(frame.to_ndarray().tobytes()).hexdigest()[:16] for _, frame in sorted(made, key=lambda one: one[0])]


def main() -> None:
    """Writes both."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "open.mp4"
        subprocess.run(
            ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=32x32:rate=10:duration=2", "-pix_fmt",
             "yuv420p", "-c:v", "libx264", "-bf", "2", "-x264-params", "keyint=6:min-keyint=6:scenecut=0:open-gop=1",
             path],
            check=True,
        )  # fmt: skip
        with fl.DatasetWriter(HERE / "video.fld", FIELDS, 4096) as writer:
            sample = {"video": path, "frames": frames(), "pixels": frames(), "flow": flow(), "half": flow()}
            writer.write_sample(sample)
            writer.write_sample(dict.fromkeys(FIELDS))
    video = fl.open(HERE / "video.fld")[0]["video"]
    told = {"times": video.times.tolist(), "keys": video.index.keys.tolist(), "frames": planes(video)}
    (HERE / "video.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
