"""Which rank this process is, of how many: from arguments, from Ray Train, or from what launchers put into the
environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NamedTuple

from fastloader.samplers.checks import whole

# Slurm comes last: a program started by mpirun or torchrun within a Slurm job sees the job's variables as well.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, and many others that follow it
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH and its relatives
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # srun
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


class World(NamedTuple):
    """A process's rank and the number of ranks."""

    rank: int
    world_size: int


def world_from_environment(
    rank: int | None = None, world_size: int | None = None, environment: Mapping[str, str] | None = None
) -> World:
    """Rank and world size: what is given, and what is not given from the launcher's variables; else rank 0 of 1.

    A function that Ray Train runs gets those of its worker, whatever variables there are. With ``environment``, only
    that counts.

    A batch script of Slurm is one process, whatever number of tasks its job asked for, so job variables alone do not
    count: programs started with ``srun`` have those of a step too.

    >>> world_from_environment(environment={"RANK": "3", "WORLD_SIZE": "8"})
    World(rank=3, world_size=8)
    """
    found = None
    if (rank is None or world_size is None) and world_size != 1:
        found = _in_ray_train() if environment is None else None
        found = found or _launched(os.environ if environment is None else environment)
    if found is None:
        if rank is not None and world_size is None:
            raise ValueError(f"rank={rank} is given but world_size is not, and the environment does not tell")
        if world_size not in (None, 1) and rank is None:
            raise ValueError(f"world_size={world_size} is given but rank is not, and the environment does not tell")
        found = World(0, 1)
    rank = found.rank if rank is None else whole("rank", rank)
    world_size = found.world_size if world_size is None else whole("world_size", world_size, 1)
    return checked(rank, world_size)


def checked(rank: int, world_size: int) -> World:
    """Both, if they go together."""
    world = World(whole("rank", rank), whole("world_size", world_size, 1))
    if world.rank >= world.world_size:
        raise ValueError(f"rank={rank}: below world_size={world_size}, ranks count from 0")
    return world


def _in_ray_train() -> World | None:
    """The worker of Ray Train that runs here, if one does: then the module is there, and knows."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
    except (RuntimeError, AttributeError):  # not within such a function
        return None
    return None if rank is None or size is None else checked(rank, size)


def _launched(environment: Mapping[str, str]) -> World | None:
    for rank_name, size_name in LAUNCHERS:
        rank, size = environment.get(rank_name), environment.get(size_name)
        if rank_name == "SLURM_PROCID":
            if rank is None or size is None or (size_name == "SLURM_NTASKS" and "SLURM_JOB_ID" in environment):
                continue
        elif rank is None and size is None:
            continue
        if rank is None or size is None:
            there, missing = (rank_name, size_name) if size is None else (size_name, rank_name)
            raise ValueError(
                f"{there}={environment[there]} is in the environment but {missing} is not; set both, or give rank= and "
                "world_size="
            )
        return checked(_number(rank_name, rank), _number(size_name, size))
    return None


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} in the environment is no whole number") from None
