"""What every store keeps to. A subclass says how to make one."""

from __future__ import annotations

import os
import pickle
import secrets
import threading
from queue import SimpleQueue
from typing import Any, ClassVar

import pytest

from fastloader.errors import NotFoundError, StoreError
from fastloader.stores import ChangedError, Store

CONTENT = bytes(range(256)) * 40


class ReadableStoreContract:
    """Of a store that is only read. Subclass it, give it ``make_store``, and pytest tests the store.

    ``make_store`` has ``CONTENT`` under ``read-me/a``.
    """

    writable: ClassVar[bool] = False

    def make_store(self) -> Store:
        """A store to try."""
        raise NotImplementedError

    @pytest.fixture
    def store(self) -> Store:
        """The store of this test."""
        return self.make_store()

    @pytest.fixture
    def folder(self) -> str:
        """A prefix that no other test has used."""
        return f"contract-{secrets.token_hex(6)}"

    @pytest.fixture
    def key(self, store: Store, folder: str) -> str:
        """An object with ``CONTENT``."""
        if not self.writable:
            return "read-me/a"
        store.put(f"{folder}/a", CONTENT)
        return f"{folder}/a"

    def test_stat_tells_size_and_version(self, store: Store, key: str) -> None:
        """Size and version."""
        found = store.stat(key)
        assert (found.key, found.size) == (key, len(CONTENT))
        assert store.stat(key).version == found.version

    def test_ranges_have_all_their_bytes(self, store: Store, key: str) -> None:
        """Ranges, alone and together."""
        assert bytes(store.read(key)) == CONTENT
        assert bytes(store.read(key, 7, 100)) == CONTENT[7:107]
        assert bytes(store.read(key, 5000)) == CONTENT[5000:]
        assert bytes(store.read(key, 0, 0)) == b""
        ranges = [(0, 1), (9000, 1240), (300, 4096)]
        assert [bytes(one) for one in store.read_ranges(key, ranges)] == [CONTENT[b : b + n] for b, n in ranges]

    def test_a_range_past_the_end_is_an_error(self, store: Store, key: str) -> None:
        """Never fewer bytes than asked for."""
        with pytest.raises(StoreError, match=r"/a"):
            store.read(key, len(CONTENT) - 10, 20)
        with pytest.raises(StoreError, match=r"/a"):
            store.read(key, len(CONTENT) + 10, 20)

    def test_a_range_that_is_none_is_an_error(self, store: Store, key: str) -> None:
        """Nothing lies before the first byte, or has less than no bytes."""
        for begin, size in ((-1, 1), (-1, None), (5, -1)):
            with pytest.raises(StoreError, match=r"/a"):
                store.read(key, begin, size)
        with pytest.raises(StoreError, match=r"/a"):
            store.read_ranges(key, [(0, 1), (-1, 1)])
        told: SimpleQueue[BaseException | None] = SimpleQueue()
        store.begin_read(key, -1, 1, None, lambda data, error: told.put(error))
        assert isinstance(told.get(timeout=120), StoreError)

    def test_reads_that_are_begun_tell_when_they_are_done(self, store: Store, key: str) -> None:
        """Bytes or an error, once each."""
        told: list[tuple[Any, BaseException | None]] = []
        over = threading.Semaphore(0)

        def done(data: Any, error: BaseException | None) -> None:
            told.append((None if data is None else bytes(data), error))
            over.release()

        version = store.stat(key).version
        store.begin_read(key, 3, 50, version, done)
        assert over.acquire(timeout=120)
        store.begin_read(key + "-not-there", 3, 50, None, done)
        assert over.acquire(timeout=120)
        assert told[0] == (CONTENT[3:53], None)
        assert isinstance(told[1][1], NotFoundError)

    def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        """NotFoundError is a FileNotFoundError too, and names the object."""
        for call in (store.stat, store.read):
            with pytest.raises(NotFoundError, match=r"read-me/nothing") as caught:
                call("read-me/nothing")
            assert isinstance(caught.value, FileNotFoundError)

    def test_another_version_is_an_error(self, store: Store, key: str) -> None:
        """An object that was replaced is not read as the one before."""
        if not self.writable:
            with pytest.raises(ChangedError, match=r"read-me/a"):
                store.read(key, 0, 10, version='"another"')
            return
        before = store.stat(key).version
        store.put(key, CONTENT[::-1] + b"longer")
        assert store.stat(key).version != before
        with pytest.raises(ChangedError, match=r"/a"):
            store.read(key, 0, 10, version=before)

    def test_a_copy_in_a_pickle_reads_the_same(self, store: Store, key: str) -> None:
        """As a spawned process does."""
        assert bytes(pickle.loads(pickle.dumps(store)).read(key, 1, 9)) == CONTENT[1:10]

    def test_a_forked_child_reads_the_same(self, store: Store, key: str) -> None:
        """Though its parent has used the store, with all its threads."""
        assert bytes(store.read(key, 1, 9)) == CONTENT[1:10]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, bytes(store.read(key, 2, 20)))
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read() == CONTENT[2:22]
        os.waitpid(child, 0)
        assert bytes(store.read(key, 1, 9)) == CONTENT[1:10]


class StoreContract(ReadableStoreContract):
    """Of a store that is written to as well."""

    writable: ClassVar[bool] = True

    def test_objects_are_listed_by_folders_in_order(self, store: Store, folder: str) -> None:
        """A prefix is folders, not letters."""
        for name in ("b/2", "b/10", "a", "bb/1"):
            store.put(f"{folder}/{name}", name.encode())
        assert [one.key for one in store.list(folder)] == [f"{folder}/{n}" for n in ("a", "b/10", "b/2", "bb/1")]
        assert [(one.key, one.size) for one in store.list(f"{folder}/b")] == [
            (f"{folder}/b/10", 4), (f"{folder}/b/2", 3),
        ]  # fmt: skip
        assert [one.key for one in store.list(f"{folder}/a")] == [f"{folder}/a"]
        assert list(store.list(f"{folder}/nothing")) == []

    def test_a_list_tells_the_versions_that_are_read(self, store: Store, key: str, folder: str) -> None:
        """So that what was listed can be insisted on."""
        (listed,) = store.list(folder)
        assert listed.version == store.stat(key).version
        assert bytes(store.read(key, 3, 4, version=listed.version)) == CONTENT[3:7]

    def test_put_can_insist_on_what_is_there(self, store: Store, folder: str) -> None:
        """Two writers: one of them is told."""
        key = f"{folder}/manifest"
        store.put(key, b"one", if_absent=True)
        with pytest.raises(ChangedError, match="manifest"):
            store.put(key, b"two", if_absent=True)
        version = store.stat(key).version
        store.put(key, b"three", if_match=version)
        with pytest.raises(ChangedError, match="manifest"):
            store.put(key, b"four", if_match=version)
        assert bytes(store.read(key)) == b"three"

    def test_an_upload_appears_when_it_is_finished(self, store: Store, folder: str) -> None:
        """In parts, and not before."""
        key = f"{folder}/large"
        upload = store.upload(key)
        piece = os.urandom(1 << 20)
        for _ in range(18):
            upload.write(piece)
        with pytest.raises(NotFoundError):
            store.stat(key)
        found = upload.finish()
        assert (found.size, store.stat(key).size) == (18 << 20, 18 << 20)
        assert bytes(store.read(key, (17 << 20) + 5, 100)) == piece[5:105]

    def test_an_upload_that_is_given_up_leaves_nothing(self, store: Store, folder: str) -> None:
        """Large or small."""
        for size in (10, 18 << 20):
            upload = store.upload(f"{folder}/given-up")
            upload.write(bytes(size))
            upload.abort()
            upload.abort()
        assert list(store.list(folder)) == []

    def test_deleting_is_final_and_may_be_repeated(self, store: Store, folder: str) -> None:
        """No error where there is nothing."""
        store.put(f"{folder}/x", b"x")
        store.delete(f"{folder}/x")
        store.delete(f"{folder}/x")
        with pytest.raises(NotFoundError):
            store.stat(f"{folder}/x")
