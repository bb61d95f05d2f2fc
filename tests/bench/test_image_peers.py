"""What the image benchmark measures with: boxes, PSNR, the use of a process tree, and which peers run."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "bench" / "image"


@pytest.fixture(scope="module", autouse=True)
def _bench_on_path():
    added = [str(ROOT / "bench"), str(IMAGE)]
    sys.path[:0] = added
    yield
    for path in added:
        sys.path.remove(path)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_a_drawn_box_lies_in_the_image(width, height, seed):
    from task import draw_box

    left, top, w, h = draw_box(np.random.default_rng(seed), width, height)
    assert w >= 1
    assert h >= 1
    assert 0 <= left <= width - w
    assert 0 <= top <= height - h


def test_drawn_boxes_have_the_areas_and_shapes_of_random_resized_crop():
    from task import draw_box

    rng = np.random.default_rng(0)
    boxes = np.array([draw_box(rng, 4000, 4000)[2:] for _ in range(2000)], float)
    area, ratio = boxes.prod(axis=1) / 4000**2, boxes[:, 0] / boxes[:, 1]
    assert 0.079 < area.min() < 0.09
    assert 0.45 < np.median(area) < 0.51  # below the middle of 0.08 and 1: large boxes of odd shape do not fit
    assert ratio.min() > 0.74
    assert ratio.max() < 1.34
    assert abs(np.log(ratio).mean()) < 0.02


def test_an_image_too_long_for_any_box_gives_its_middle():
    from task import draw_box

    left, top, width, height = draw_box(np.random.default_rng(0), 4000, 10)
    assert (left, top, width, height) == ((4000 - 13) // 2, 0, 13, 10)


def test_the_compared_crops_are_the_same_every_time():
    from task import COMPARED, compared

    sizes = [(500 + number, 375) for number in range(1024)]
    assert compared(sizes) == compared(sizes)
    assert len({number for number, _ in compared(sizes)}) == COMPARED


def test_psnr_of_a_known_error():
    from measure import psnr

    truth = np.full((20, 4, 4, 3), 100, np.uint8)
    found = truth.copy()
    assert psnr(found, truth) == (100, 100)
    found[0] += 10
    one = 10 * math.log10(255**2 / 100)
    mean, low = psnr(found, truth)
    assert mean == pytest.approx((one + 19 * 100) / 20)
    assert low == pytest.approx(np.percentile([one] + [100] * 19, 5))


def test_a_tree_counts_what_a_child_uses():
    from tree import cpu_seconds, members, memory

    work = "import time\nheld = bytearray(b'x') * (64 << 20)\nwhile time.process_time() < .3: pass"
    before, held = cpu_seconds(os.getpid()), memory(os.getpid()).own
    with subprocess.Popen(
        [sys.executable, "-c", f"{work}\nprint('now', flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "now\n"
        assert child.pid in members(os.getpid())
        alive = cpu_seconds(os.getpid()) - before
        assert memory(os.getpid()).own - held > 60 << 20
        child.communicate("\n")
    assert alive >= 0.25
    assert cpu_seconds(os.getpid()) - before >= 0.25  # it ended, and still counts


def test_every_peer_has_its_versions_pinned():
    import environments

    for peer in [*environments.peers(), "tools"]:
        lines = [line for line in environments.pins(peer).splitlines() if line and not line.startswith("#")]
        pinned = {line.partition("==")[0] for line in lines if "==" in line}
        assert {line.partition("==")[0] for line in lines} <= pinned, peer


def run(tmp_path, *arguments):
    environ = os.environ | {"FASTLOADER_BENCH_HOME": str(tmp_path)}
    environ.pop("FASTLOADER_BENCH_PEERS", None)
    command = [sys.executable, str(ROOT / "bench" / "run.py"), "image/image", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_without_environments_peers_are_left_out_and_named(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    left_out = re.search(r"Left out: (.*?)\. --peers", done.stdout)
    assert left_out is not None, done.stdout
    assert {"dali", "ffcv", "litdata", "spdl", "streaming", "tfdata", "torch_pil"} <= set(left_out[1].split(", "))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("image/nothing",), ("nothing",), ("--save",)])
def test_what_cant_be_run_is_refused(arguments, tmp_path):
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert ("no such topic" in done.stderr) == (arguments != ("--save",))


def test_an_unknown_peer_is_refused_before_anything_is_made(tmp_path):
    done = run(tmp_path, "--peers", "dali,ffvc")
    assert done.returncode != 0
    assert "no such peer: ffvc" in done.stderr
    assert not list(tmp_path.iterdir())
