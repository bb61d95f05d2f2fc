"""The examples that train: they learn, go on behind a kill, and run on several ranks."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """What all of them would make first."""
    folder = tmp_path_factory.mktemp("pictures")
    code = f"import sys, pathlib; sys.path.insert(0, {str(EXAMPLES)!r}); from pictures import written; written"
    ended(started("-c", f"{code}(pathlib.Path({str(folder)!r}))"))
    return folder


def started(*command, **variables):
    return subprocess.Popen(
        [sys.executable, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )  # fmt: skip


def ended(process):
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    return out


def accuracy(printed):
    return float(re.search(r"accuracy on unseen images: ([\d.]+)", printed)[1])


def losses(printed):
    return dict(re.findall(r"step (\d+): loss ([\d.]+)", printed))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("example", ["train_torch.py", "train_jax.py"])
def test_training_goes_on_behind_a_kill_as_if_nothing_had_been(tmp_path, pictures, example):
    for name in ("whole", "killed"):
        shutil.copytree(pictures, tmp_path / name)
    whole = ended(started(EXAMPLES / example, tmp_path / "whole", "--epochs", "3"))
    assert accuracy(whole) >= 0.9
    killed = started(EXAMPLES / example, tmp_path / "killed", "--epochs", "3")
    for line in killed.stdout:
        if line.startswith("step 40:"):  # in the second epoch
            killed.send_signal(signal.SIGKILL)
            break
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    rest = ended(started(EXAMPLES / example, tmp_path / "killed", "--epochs", "3"))
    behind = int(re.search(r"goes on behind step (\d+)", rest)[1])
    assert behind >= 40
    assert accuracy(rest) == accuracy(whole)
    assert losses(rest) == {step: loss for step, loss in losses(whole).items() if int(step) > behind}


@pytest.mark.timeout(900)
def test_training_on_two_ranks(tmp_path):
    printed = ended(
        started(
            "-m", "torch.distributed.run", "--nproc-per-node", 2, "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "127.0.0.1:0", EXAMPLES / "train_torch.py", tmp_path / "run", "--epochs", 2,
        )
    )  # fmt: skip
    assert accuracy(printed) >= 0.9


def test_training_with_tensorflow(pictures):
    assert accuracy(ended(started(EXAMPLES / "train_tf.py", pictures, "--epochs", 3))) >= 0.9


def test_pretraining_learns(tmp_path):
    printed = ended(started(EXAMPLES / "pretrain_tokens.py", tmp_path, "--steps", 40))
    before, after = map(float, re.search(r"loss ([\d.]+) before, ([\d.]+) after 40 steps", printed).groups())
    assert after < before * 0.8
