"""Datasets and servers that tests of the viewer share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from viewed import Served, write_every, write_hostile


@pytest.fixture(scope="session")
def every_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of every kind of value."""
    return write_every(tmp_path_factory.mktemp("viewer") / "every.fld")


@pytest.fixture(scope="session")
def every(every_path: Path) -> Iterator[Served]:
    """The same, served."""
    with Served(every_path) as served:
        yield served


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A dataset that means harm, served."""
    with Served(write_hostile(tmp_path_factory.mktemp("viewer") / "hostile.fld")) as served:
        yield served
