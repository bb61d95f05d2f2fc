"""Every store keeps to the same contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.http_server import web_server

from fastloader.stores import LocalStore, MemoryStore, Store, open_store
from fastloader.testing import ReadableStoreContract, StoreContract
from fastloader.testing.seaweed import S3Server
from fastloader.testing.stores import CONTENT


class TestLocalStore(StoreContract):
    """A folder."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._root = tmp_path

    def make_store(self) -> Store:
        """A fresh folder."""
        return LocalStore(self._root)


class TestMemoryStore(StoreContract):
    """Memory."""

    def make_store(self) -> Store:
        """Shared by all tests, as a bucket is."""
        return MemoryStore("contract")


class TestS3Store(StoreContract):
    """SeaweedFS."""

    @pytest.fixture(autouse=True)
    def _server(self, s3: S3Server) -> None:
        self._s3 = s3

    def make_store(self) -> Store:
        """A bucket that the first object makes."""
        return open_store("s3://contract-bucket", self._s3.storage_options())[0]


class TestHttpStore(ReadableStoreContract):
    """A web server, which has no ETags."""

    @pytest.fixture(autouse=True)
    def _server(self, tmp_path: Path) -> Iterator[None]:
        (tmp_path / "read-me").mkdir()
        (tmp_path / "read-me/a").write_bytes(CONTENT)
        with web_server(tmp_path) as url:
            self._url = url
            yield

    def make_store(self) -> Store:
        """The server."""
        return open_store(self._url)[0]
