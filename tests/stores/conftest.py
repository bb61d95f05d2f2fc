"""A real S3 server for the tests of a session."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastloader.stores import open_store
from fastloader.testing.seaweed import S3Server, s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server, running."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what all tests of a session share."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def hundred(s3: S3Server) -> tuple[str, dict[str, Any]]:
    """A hundred NPZ objects in a bucket, and options to read them."""
    store, at = open_store("s3://foreign/hundred", s3.storage_options())
    for i in range(100):
        file = io.BytesIO()
        np.savez(file, x=np.full((4, 4), i, np.float32), y=np.int64(i))
        store.put(f"{at}/npz/{i:03d}.npz", file.getvalue())
    return f"{store.url}/{at}/npz", s3.storage_options()
