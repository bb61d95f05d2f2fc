"""Every format keeps to its contract in stores as it does on disk."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.formats import (
    test_array_files,
    test_arrow_files,
    test_beton_files,
    test_hdf5_files,
    test_line_files,
    test_litdata_chunks,
    test_mds_folders,
    test_raw_files,
    test_tfrecord_files,
)

from fastloader.dataset import open_dataset
from fastloader.stores import MemoryStore, Store, open_store
from fastloader.testing import FormatContract
from fastloader.testing.seaweed import S3Server

MODULES = (
    test_array_files, test_arrow_files, test_beton_files, test_hdf5_files, test_line_files, test_litdata_chunks,
    test_mds_folders, test_raw_files, test_tfrecord_files,
)  # fmt: skip
_numbers = itertools.count()


class InMemory:
    """Files copied into a store before they are opened, each time to a folder of its own."""

    store_options: dict[str, Any] | None = None

    @pytest.fixture(autouse=True)
    def _written(
        self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._root = tmp_path
        monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path_factory.mktemp("indexes")))

    def store(self) -> Store:
        """Where to."""
        return MemoryStore("formats")

    def open(self, path: Any, **more: Any) -> Any:
        """The copies, opened."""
        return open_dataset(self.place(path), self.store_options, **self.options, **more)  # type: ignore[attr-defined]

    def place(self, path: Any) -> Any:
        """Where the copies are."""
        store, folder = self.store(), f"{os.getpid()}-{next(_numbers)}"
        files = [file for file in self._root.rglob("*") if file.is_file()]
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(lambda f: store.put(f"{folder}/{f.relative_to(self._root)}", f.read_bytes()), files):
                pass

        def url(one: Path) -> str:
            return f"{store.url}/{folder}/{one.relative_to(self._root)}".removesuffix("/.")

        return [url(one) for one in path] if isinstance(path, list) else url(path)


class OnServer(InMemory):
    """The same on a real server, with less damage done, for each opening takes a while."""

    damages = 2

    @pytest.fixture(autouse=True)
    def _server(self, s3: S3Server) -> None:
        self.store_options = s3.storage_options()

    def store(self) -> Store:
        """A bucket."""
        return open_store("s3://formats", self.store_options)[0]


def _contracts() -> dict[str, type[FormatContract]]:
    """All classes of tests that know how to write files of a format."""
    found = [one for module in MODULES for one in vars(module).values() if isinstance(one, type)]
    return {one.__name__: one for one in found if issubclass(one, FormatContract) and one is not FormatContract}


for _name, _contract in _contracts().items():
    for _where in (InMemory, OnServer) if FormatContract in _contract.__bases__ else (InMemory,):
        globals()[f"{_name}{_where.__name__}"] = type(f"{_name}{_where.__name__}", (_where, _contract), {})


def test_no_format_is_left_out() -> None:
    """As many as there are, and more, for some are written in several ways."""
    assert len(_contracts()) >= 27
