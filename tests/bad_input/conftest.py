"""What the tests of bad input share: the datasets, and the sanitized build of the native module."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import sanitized
from .datasets import Base, make_bases


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Base]:
    """The valid datasets."""
    return make_bases(tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="session")
def sanitized_folder() -> Path:
    """Where fastloader can be imported from with a sanitized native module."""
    return sanitized.build()
