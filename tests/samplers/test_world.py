"""Rank and world size: from arguments, then from the launcher's variables."""

import sys

import pytest

from fastloader.samplers import world_from_environment
from fastloader.samplers.world import LAUNCHERS

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8"}
BATCH_SCRIPT = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(("rank", "size"), LAUNCHERS)
def test_each_launcher_is_understood(rank, size):
    assert world_from_environment(environment={rank: "2", size: "5"}) == (2, 5)


def test_the_process_environment_is_read(monkeypatch):
    for pair in LAUNCHERS:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    assert world_from_environment() == (0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert world_from_environment() == (1, 2)


def test_without_a_launcher_there_is_one_process():
    assert world_from_environment(environment={}) == (0, 1)


def test_arguments_win():
    assert world_from_environment(1, 2, TORCHRUN) == (1, 2)
    assert world_from_environment(1, None, TORCHRUN) == (1, 8)
    assert world_from_environment(None, 4, TORCHRUN) == (3, 4)
    assert world_from_environment(None, 1, TORCHRUN) == (0, 1)


def test_what_runs_inside_a_slurm_job_wins_over_the_job():
    assert world_from_environment(environment=BATCH_SCRIPT | TORCHRUN) == (3, 8)
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    assert world_from_environment(environment=BATCH_SCRIPT | mpi) == (1, 2)


def test_a_batch_script_of_slurm_is_one_process_and_a_step_has_its_own_size():
    assert world_from_environment(environment=BATCH_SCRIPT) == (0, 1)
    step = BATCH_SCRIPT | {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    assert world_from_environment(environment=step) == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, {"RANK": "1"}), "RANK=1 is in the environment but WORLD_SIZE is not; set both"),
        ((None, None, {"PMI_SIZE": "2"}), "PMI_SIZE=2 is in the environment but PMI_RANK is not"),
        ((None, None, {"RANK": "one", "WORLD_SIZE": "2"}), "RANK='one' in the environment is no whole number"),
        ((None, None, {"RANK": "2", "WORLD_SIZE": "2"}), "rank=2: below world_size=2, ranks count from 0"),
        ((None, None, {"RANK": "-1", "WORLD_SIZE": "2"}), "rank=-1: at least 0"),
        ((None, 2, TORCHRUN), "rank=3: below world_size=2"),
        ((1, None, {}), "rank=1 is given but world_size is not, and the environment does not tell"),
        ((None, 2, {}), "world_size=2 is given but rank is not, and the environment does not tell"),
        ((0, 0, {}), "world_size=0: at least 1"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        world_from_environment(*arguments)


class FakeTrain:
    """As ``ray.train`` is: within a function that it runs, and elsewhere. Ray itself is tested in tests/cluster."""

    def __init__(self, context):
        self.context = context

    def get_context(self):
        if self.context is None:
            raise RuntimeError("Ray Train function utilities not initialized.")
        return self

    def get_world_rank(self):
        return self.context[0]

    def get_world_size(self):
        return self.context[1]


@pytest.mark.parametrize(
    ("context", "found"), [((2, 5), (2, 5)), (None, (1, 4)), ((None, None), (1, 4))], ids=["worker", "driver", "older"]
)
def test_a_worker_of_ray_train_knows_its_rank_whatever_variables_say(monkeypatch, context, found):
    monkeypatch.setitem(sys.modules, "ray.train", FakeTrain(context))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert world_from_environment() == found
    assert world_from_environment(rank=0, world_size=3) == (0, 3)
    assert world_from_environment(world_size=1) == (0, 1)
    assert world_from_environment(environment={}) == (0, 1)
