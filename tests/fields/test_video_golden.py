"""A file with videos that was written once is read as it was then."""

import json
import runpy
from pathlib import Path

import numpy as np

import fastloader as fl
from fastloader.testing import identical

VECTORS = Path(__file__).parents[1] / "vectors"
MAKE = runpy.run_path(str(VECTORS / "make_video.py"))


def test_the_golden_video_is_read_as_it_was():
    sample, missing = fl.open(VECTORS / "video.fld")
    told = json.loads((VECTORS / "video.json").read_text())
    video = sample["video"]
    assert (video.num_frames, video.height, video.width, video.duration, video.codec) == (20, 32, 32, 2.0, "h264")
    assert video.times.tolist() == told["times"]
    assert video.index.keys.tolist() == told["keys"]
    assert MAKE["planes"](video) == told["frames"]
    assert all(value is None for value in missing.values())


def test_the_golden_frames_and_flow_are_read_as_they_were():
    reader = fl.open(VECTORS / "video.fld")
    assert reader.fields == MAKE["FIELDS"]
    sample = reader[0]
    for name in ("frames", "pixels"):
        assert np.array_equal(sample[name].frames(), MAKE["frames"]())
    assert sample["frames"].times.tolist() == [0, 0.1, 0.2]
    for name in ("flow", "half"):
        assert identical(sample[name], MAKE["flow"]())
    assert fl.verify(reader.path, decode=True).ok
