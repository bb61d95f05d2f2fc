"""Videos and flow on the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import videos

import fastloader as fl

from .conftest import Run, write


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fields = {
        "video": fl.VideoCompressedField(),
        "frames": fl.VideoFramesField("png", fps=10),
        "flow": fl.OpticalFlowField(),
    }
    sample = {
        "video": videos.video("h264.mp4"),
        "frames": np.zeros((5, 8, 16, 3), np.uint8),
        "flow": np.ones((4, 8, 16, 2)),
    }
    return write(tmp_path_factory.mktemp("cli") / "v.fld", [sample], fields)


def test_ls_and_cat_tell_frames_size_seconds_and_codec(run: Run, dataset: Path) -> None:
    (line,) = run("ls", dataset).stdout.splitlines()
    assert "video=40 frames of 64x80x3, 2.00 s, h264" in line
    assert "frames=5 frames of 8x16x3, 0.50 s, png" in line
    assert "flow=float32[4,8,16,2]" in line
    shown = run("cat", dataset, 0).stdout
    assert "  video   40 frames of 64x80x3, 2.00 s, h264, " in shown
    assert "  flow    float32[4,8,16,2]  min 1, max 1, [1," in shown
    facts = json.loads(run("cat", dataset, 0, "--json").stdout)["fields"]["video"]
    assert {name: facts[name] for name in ("frames", "seconds", "codec", "height")} == {
        "frames": 40, "seconds": 2.0, "codec": "h264", "height": 64,
    }  # fmt: skip


def test_info_names_the_types(run: Run, dataset: Path) -> None:
    shown = run("info", dataset).stdout
    assert all(name in shown for name in ("VIDEO_COMPRESSED", "VIDEO_FRAMES", "VIDEO_OPTICAL_FLOW", "zstd:3"))


def test_cat_gives_the_file_or_all_its_frames(run: Run, dataset: Path) -> None:
    assert run("cat", dataset, 0, "video").stdout_bytes == videos.video("h264.mp4").read_bytes()
    made = np.load(io.BytesIO(run("cat", dataset, 0, "video", "--npy").stdout_bytes))
    assert np.array_equal(made, videos.rgb("h264.mp4"))
