"""Every store keeps to the same contract."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.azurite import ACCOUNT, KEY, azure_server, executable
from tests.stores.http_server import web_server

import fastloader as fl
from fastloader.errors import StoreError
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


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Options for a client of azurite."""
    program = executable()
    if program is None:
        pytest.skip("azurite is missing: install npm, or azurite itself")
    with azure_server(program, tmp_path_factory.mktemp("azure"), "contract") as endpoint:
        yield {"endpoint": endpoint, "account_name": ACCOUNT, "account_key": KEY}


class TestAzureStore(StoreContract):
    """Azurite."""

    @pytest.fixture(autouse=True)
    def _server(self, azure: dict[str, str]) -> None:
        self._azure = azure

    def make_store(self) -> Store:
        """A container."""
        return open_store("az://contract", self._azure)[0]

    def test_a_dataset_goes_there_and_back(self, store: Store, folder: str) -> None:
        """With its manifest, which is put only if nobody else has put one."""
        url = f"az://contract/{folder}"
        fields = {"x": fl.BytesField()}
        with fl.DatasetWriter(url, fields, shard_size="50KB", storage_options=self._azure) as writer:
            writer.write_many({"x": bytes([i]) * 10_000} for i in range(20))
        loader = fl.DataLoader(fl.open(url, self._azure), batch_size=4)
        loaded = sorted(bytes(data) for batch in loader for data in batch["x"])
        assert loaded == [bytes([i]) * 10_000 for i in range(20)]


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

    def test_it_is_only_read_and_that_is_told_before_anything_is_made(self, store: Store, key: str) -> None:
        samples = fl.Dataset.from_sequence([{"x": 1}])
        for write in (
            lambda: store.put(key, b"x"),
            lambda: store.delete(key),
            lambda: fl.DatasetWriter(f"{self._url}/a.fld", {"x": fl.IntField()}),
            lambda: fl.DatasetWriter(f"{self._url}/a.fld", {"x": fl.IntField()}, shard_size="1MB"),
            lambda: samples.write(f"{self._url}/a.tar"),
            lambda: samples.write(f"{self._url}/a.fld", shard_size="1MB"),
        ):
            with pytest.raises(StoreError, match="only read here; write to a folder or a bucket"):
                write()


def test_the_server_of_tests_keeps_all_it_has_in_its_folder(s3: S3Server) -> None:
    port = s3.endpoint.rpartition(":")[2]
    assert not list(Path("/tmp").glob(f"seaweedfs-*-{port}.sock"))
    assert not list(Path(tempfile.gettempdir()).glob(f"weed.*.{s3.process}"))
