"""Objects written to a store in parts."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fastloader.stores import client
from fastloader.stores.base import Stat, UploadBlock
from fastloader.types import Buffer, byte_view

if TYPE_CHECKING:
    from fastloader.stores.cloud import CloudStore

PART = 8 << 20
"""Bytes of a part of an upload; S3 allows 10,000 of them."""
PARTS_AT_ONCE = 4

_uploads: weakref.WeakSet[CloudUpload] = weakref.WeakSet()


@atexit.register
def _abort_uploads() -> None:
    for upload in list(_uploads):
        upload.abort()


class CloudUpload(UploadBlock):
    """An object sent in parts by a thread, while the next bytes are made."""

    def __init__(self, store: CloudStore, key: str) -> None:
        self._process = os.getpid()
        self._store, self._key = store, key
        self._parts: queue.Queue[bytes | BaseException | None] = queue.Queue(PARTS_AT_ONCE)
        self._pending = bytearray()
        self._size = 0
        self._result: Any = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._over = False

    def write(self, data: Buffer) -> None:
        """Add bytes; waits while enough are on their way."""
        if self._over:
            raise ValueError("this upload is over")
        view = byte_view(data)
        self._size += len(view)
        self._pending += view
        while len(self._pending) >= PART:
            part, self._pending = bytes(self._pending[:PART]), self._pending[PART:]
            self._send(part)

    def _send(self, part: bytes | BaseException | None) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fastloader-upload", daemon=True)
            self._thread.start()
            _uploads.add(self)
        while True:
            if self._failure is not None and not isinstance(part, BaseException):
                self.abort()
                raise self._failure
            try:
                return self._parts.put(part, timeout=0.1)
            except queue.Full:
                if not self._thread.is_alive():
                    return None

    def _run(self) -> None:
        def parts() -> Iterator[bytes]:
            while True:
                part = self._parts.get()
                if part is None:
                    return
                if isinstance(part, BaseException):
                    raise part
                yield part

        try:
            self._result = client.module().put(
                self._store.writer(), self._key, parts(), use_multipart=True, chunk_size=PART,
                max_concurrency=PARTS_AT_ONCE,
            )  # fmt: skip
        except _Abandoned:
            return
        except Exception as error:
            self._failure = self._store.explain(error, self._key, writing=True)

    def finish(self) -> Stat:
        """Send the rest and publish the object."""
        if self._over:
            raise ValueError("this upload is over")
        if self._thread is None:
            self._over = True
            return self._store.put(self._key, self._pending)
        if self._pending:
            self._send(bytes(self._pending))
        self._send(None)
        self._thread.join()
        self._over = True
        if self._failure is not None:
            raise self._failure
        return Stat(self._key, self._size, self._result["e_tag"], None)

    def abort(self) -> None:
        """Have the server forget the parts."""
        if not self._over and self._process == os.getpid():
            self._over = True
            self._pending.clear()
            if self._thread is not None:
                self._send(_Abandoned())
                self._thread.join()


class _Abandoned(Exception):
    """The writer gave up."""
