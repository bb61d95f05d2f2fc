"""The examples that train: they learn, go on behind a kill, and run on several ranks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


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
def test_training_goes_on_behind_a_kill_as_if_nothing_had_been(tmp_path):
    whole = ended(started(EXAMPLES / "train_torch.py", tmp_path / "whole", "--epochs", "3"))
    assert accuracy(whole) >= 0.9
    killed = started(EXAMPLES / "train_torch.py", tmp_path / "killed", "--epochs", "3")
    for line in killed.stdout:
        if line.startswith("step 40:"):  # in the second epoch
            killed.send_signal(signal.SIGKILL)
            break
    killed.communicate()
    rest = ended(started(EXAMPLES / "train_torch.py", tmp_path / "killed", "--epochs", "3"))
    behind = int(re.search(r"goes on behind step (\d+)", rest)[1])
    assert behind >= 40
    assert accuracy(rest) == accuracy(whole)
    assert losses(rest) == {step: loss for step, loss in losses(whole).items() if int(step) > behind}


@pytest.mark.timeout(900)
def test_training_on_two_ranks(tmp_path):
    printed = ended(
        started(
            "-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", 29513,
            EXAMPLES / "train_torch.py", tmp_path / "run", "--epochs", 2,
        )
    )  # fmt: skip
    assert accuracy(printed) > 0.5


def test_pretraining_learns(tmp_path):
    printed = ended(started(EXAMPLES / "pretrain_tokens.py", tmp_path, "--steps", 40))
    before, after = map(float, re.search(r"loss ([\d.]+) before, ([\d.]+) after 40 steps", printed).groups())
    assert after < before * 0.8
