"""Object stores through obstore: S3, Google Cloud Storage, Azure, HTTP.

obstore gives short bytes without a word when a server's Content-Length is too small, and does not look at ETags. So
length and version are checked here on every range, and repeating is decided here too.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import queue
import re
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from fastloader.errors import FastLoaderError, NotFoundError, StoreError
from fastloader.stores import client
from fastloader.stores.base import ChangedError, Done, RefusedError, Stat, UploadBlock, full_url
from fastloader.stores.profiles import aws_profile
from fastloader.stores.retrying import Pace, RetryPolicy
from fastloader.stores.urls import parse_url
from fastloader.types import Buffer, byte_view

T = TypeVar("T")

PART = 8 << 20
"""Bytes of a part of an upload; S3 allows 10,000 of them."""
PARTS_AT_ONCE = 4
CONNECT_TIMEOUT = 10

_STATUS = re.compile(r"status code: (\d{3})")
_REFUSED = {"PermissionDeniedError", "UnauthenticatedError", "NotSupportedError", "NotImplementedError"}
_REFUSED |= {"UnknownConfigurationKeyError", "InvalidPathError"}
_HINTS = {
    "s3": "check the bucket's name, the credentials (AWS_ACCESS_KEY_ID, AWS_PROFILE or storage_options), and the "
    "endpoint; storage_options={'anonymous': True} reads public buckets",
    "gs": "check the bucket's name and the credentials (GOOGLE_APPLICATION_CREDENTIALS or storage_options)",
    "az": "check the container's name and the credentials (AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY or "
    "storage_options)",
    "http": "check the URL",
}


class _Short(Exception):
    """A reply that is not what was asked for; it is worth asking again."""


class CloudStore:
    """A bucket, a container, or a web server. ``storage_options`` are described in ``docs/reference/stores.md``."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        location = parse_url(url)
        self.url = location.root
        self.kind = location.kind
        self._options = dict(storage_options or {})
        rest = dict(self._options)
        self.policy = RetryPolicy.take_from(rest)
        self._config = _configuration(self.kind, rest)
        self.hedged = 0
        self._pace = Pace()
        self._process = 0
        self._readers: Any = None
        self._writers: Any = None
        self._clients()  # an option that is unknown is told now

    def __reduce__(self) -> tuple[type[CloudStore], tuple[str, dict[str, Any]]]:
        return CloudStore, (self.url, self._options)

    def __repr__(self) -> str:  # never the options: there are secrets among them
        return f"CloudStore({self.url!r})"

    def _clients(self) -> tuple[Any, Any]:
        """The client that reads, whose requests are repeated here, and the one that writes, which repeats itself."""
        if self._process != os.getpid():
            self._readers = _connect(self.kind, self.url, self._config, self.policy, repeats=False)
            self._writers = _connect(self.kind, self.url, self._config, self.policy, repeats=True)
            self._process = os.getpid()
        return self._readers, self._writers

    def stat(self, key: str) -> Stat:
        """Size and version of an object."""
        return self._wait(self._persist(key, lambda: self._head(key)))

    def read(self, key: str, begin: int = 0, size: int | None = None, *, version: str | None = None) -> memoryview:
        """A range, checked."""
        return self._wait(self._read(key, begin, size, version))[0]

    def read_with_stat(self, key: str, begin: int, size: int) -> tuple[memoryview, Stat]:
        """At most ``size`` bytes from ``begin`` on, and what the object is, in one request."""
        return self._wait(self._read(key, begin, size, None, at_most=True))

    def read_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[memoryview]:
        """Several ranges at once."""

        async def all_of_them() -> list[memoryview]:
            reads = [asyncio.ensure_future(self._read(key, begin, size, version)) for begin, size in ranges]
            try:
                return [data for data, _ in await asyncio.gather(*reads)]
            finally:
                for read in reads:
                    read.cancel()

        return self._wait(all_of_them())

    def begin_read(self, key: str, begin: int, size: int, version: str | None, done: Done) -> None:
        """Ask for a range and go on."""

        async def read() -> None:
            try:
                data, _ = await self._read(key, begin, size, version)
            except BaseException as error:
                done(None, error)
            else:
                done(data, None)

        loop = client.event_loop()
        loop.call_soon_threadsafe(lambda: _keep(loop.create_task(read())))

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """Objects below a folder, or the object of just this key."""
        folder = prefix.strip("/")
        try:
            if folder:
                with contextlib.suppress(NotFoundError):
                    yield self.stat(folder)
            for page in client.module().list(self._clients()[1], folder or None):
                for meta in page:
                    yield _stat_of(meta)
        except FastLoaderError:
            raise
        except Exception as error:
            raise self._explain(error, prefix) from error

    def put(self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None) -> Stat:
        """Write an object in one request."""
        content = bytes(byte_view(data))
        mode: Any = "create" if if_absent else {"e_tag": if_match} if if_match is not None else "overwrite"
        try:
            put = client.module().put(self._clients()[1], key, content, mode=mode, use_multipart=False)
        except Exception as error:
            # A first attempt may have been done though its answer was lost: then what is there is ours.
            if type(error).__name__ in ("AlreadyExistsError", "PreconditionError") and self._is_there(key, content):
                return self.stat(key)
            raise self._explain(error, key, writing=True) from error
        return Stat(key, len(content), put["e_tag"], None)

    def _is_there(self, key: str, content: bytes) -> bool:
        try:
            return self.stat(key).size == len(content) and bytes(self.read(key)) == content
        except StoreError:
            return False

    def upload(self, key: str) -> CloudUpload:
        """Write an object in parts."""
        return CloudUpload(self, key)

    def delete(self, key: str) -> None:
        """Remove an object."""
        try:
            client.module().delete(self._clients()[1], key)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._explain(error, key, writing=True) from error

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, client.event_loop()).result()

    async def _head(self, key: str) -> Stat:
        return _stat_of(await client.module().head_async(self._clients()[0], key))

    async def _read(
        self, key: str, begin: int, size: int | None, version: str | None, *, at_most: bool = False
    ) -> tuple[memoryview, Stat]:
        if size == 0:
            return memoryview(b""), Stat(key, 0)
        return await self._persist(key, lambda: self._hedged(key, begin, size, version, at_most))

    async def _persist(self, key: str, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of ``attempt``, made again until it works, is hopeless, or takes too long."""
        policy = self.policy
        end = time.monotonic() + policy.deadline
        tried = 0
        while True:
            left = end - time.monotonic()
            try:
                async with asyncio.timeout(min(policy.attempt_timeout, max(left, 0.001))):
                    return await attempt()
            except ChangedError:
                raise
            except TimeoutError as error:
                failure: Exception = _Short(f"no answer within {min(policy.attempt_timeout, left):.3g} s")
                failure.__cause__ = error
            except Exception as error:
                failure = error
            tried += 1
            wait = policy.wait(tried - 1)
            hopeless = not _worth_repeating(failure)
            if hopeless or tried >= policy.attempts or time.monotonic() + wait >= end:
                raise self._explain(failure, key, tried=tried) from failure
            await asyncio.sleep(wait)

    async def _hedged(
        self, key: str, begin: int, size: int | None, version: str | None, at_most: bool
    ) -> tuple[memoryview, Stat]:
        """One read, asked for a second time when it takes longer than others."""
        patience = self.policy.hedge_after or self._pace.hedge_after(size or 0)
        began = time.monotonic()
        if patience is None:
            found = await self._get(key, begin, size, version, at_most)
        else:
            reads = {asyncio.create_task(self._get(key, begin, size, version, at_most))}
            try:
                done, _ = await asyncio.wait(reads, timeout=patience)
                if not done and (self.policy.hedge_after is not None or self._pace.may_hedge()):
                    self.hedged += 1
                    reads.add(asyncio.create_task(self._get(key, begin, size, version, at_most)))
                found = await _first_good(reads)
            finally:
                for read in reads:
                    read.cancel()
        self._pace.took(size or 0, time.monotonic() - began)
        return found

    async def _get(
        self, key: str, begin: int, size: int | None, version: str | None, at_most: bool
    ) -> tuple[memoryview, Stat]:
        options: dict[str, Any] = {}
        if size is not None:
            options["range"] = (begin, begin + size)
        elif begin:
            options["range"] = {"offset": begin}
        etag = version if version and version.startswith('"') else None  # only such can be compared by the server
        if etag is not None:
            options["if_match"] = etag
        reply = await client.module().get_async(self._clients()[0], key, options=options or None)
        found = _stat_of(reply.meta)
        if version is not None and found.version != version:
            raise self._changed(key, f"its version is {found.version}, not {version}")
        data = memoryview(await reply.bytes_async())
        wanted = found.size - begin if size is None else size
        if at_most:
            wanted = min(wanted, found.size - begin)
        if wanted < 0 or begin + wanted > found.size:
            raise StoreError(
                f"has {found.size} bytes; {wanted} from {begin} on were asked for", path=full_url(self.url, key)
            )
        if len(data) != wanted or tuple(reply.range) != (begin, begin + wanted):
            raise _Short(f"{wanted} bytes from {begin} on were asked for, {len(data)} came")
        return data, found

    def _changed(self, key: str, how: str) -> ChangedError:
        return ChangedError(
            f"is not the object it was when it was opened: {how}", path=full_url(self.url, key), hint="open it again"
        )

    def _explain(self, error: Exception, key: str, *, writing: bool = False, tried: int = 1) -> StoreError:
        """What the client or the server said, shortened to what helps, with the object it concerns."""
        where = full_url(self.url, key)
        kind = type(error).__name__
        if isinstance(error, StoreError):
            return error
        if isinstance(error, FileNotFoundError):
            return NotFoundError("there is no such object", path=where, hint=_HINTS[self.kind])
        if kind == "AlreadyExistsError":
            return ChangedError("is there already", path=where)
        if kind == "PreconditionError":
            if writing:
                return ChangedError("was changed by another writer in the meantime", path=where, hint="read it again")
            return self._changed(key, "the server says so")
        said = _shortened(error)
        if kind in ("PermissionDeniedError", "UnauthenticatedError"):
            return RefusedError(f"access is refused: {said}", path=where, hint=_HINTS[self.kind])
        often = f" {tried} times" if tried > 1 else ""
        return StoreError(f"the request failed{often}: {said}", path=where, hint=_HINTS[self.kind])


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
                self._store._clients()[1], self._key, parts(), use_multipart=True, chunk_size=PART,
                max_concurrency=PARTS_AT_ONCE,
            )  # fmt: skip
        except _Abandoned:
            return
        except Exception as error:
            self._failure = self._store._explain(error, self._key, writing=True)

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


_tasks: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    """The loop holds tasks weakly; somebody must hold them."""
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _first_good(reads: set[asyncio.Task[T]]) -> T:
    """The first of the results; a failure only when all have failed."""
    failure: BaseException | None = None
    while reads:
        done, reads = await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
        for read in done:
            failure = read.exception()
            if failure is None:
                for other in reads:
                    other.cancel()
                return read.result()
            if isinstance(failure, ChangedError):
                raise failure
    assert failure is not None
    raise failure


def _worth_repeating(error: Exception) -> bool:
    if isinstance(error, FileNotFoundError | StoreError) or type(error).__name__ in _REFUSED:
        return False
    if type(error).__name__ in ("PreconditionError", "AlreadyExistsError"):
        return False
    status = _STATUS.search(str(error))
    return status is None or int(status[1]) >= 500 or int(status[1]) in (408, 425, 429)


def _shortened(error: Exception) -> str:
    """What was said, without what only the client's makers need, and of a server's page its message alone."""
    said = str(error).split("\n\nDebug source:")[0].strip()
    page = re.search(r"<Message>(.*?)</Message>", said, re.DOTALL)
    return f"{said.partition('<?xml')[0].partition('<Error>')[0].strip()} {page[1]}" if page else said


def _stat_of(meta: Mapping[str, Any]) -> Stat:
    return Stat(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"].timestamp())


def _configuration(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """The client's configuration: what was asked for, and for S3 what the profile says besides."""
    found: dict[str, Any] = {}
    if kind == "s3":
        named = options.pop("profile", None)
        if not options.get("anonymous"):
            found |= aws_profile(named)
    if options.pop("anonymous", False):
        found["skip_signature"] = True
    for name, value in options.items():
        found[name.removeprefix("aws_") if kind == "s3" else name] = value
    if "endpoint_url" in found:
        found["endpoint"] = found.pop("endpoint_url")
    return found


def _connect(kind: str, url: str, config: Mapping[str, Any], policy: RetryPolicy, *, repeats: bool) -> Any:
    stores = client.module()._store
    settings = dict(config)
    endpoint = str(settings.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL" if kind == "s3" else "", ""))
    plain = endpoint.startswith("http://") or url.startswith("http://") or bool(settings.get("use_emulator"))
    limits = {
        "timeout": timedelta(seconds=policy.deadline if repeats else policy.attempt_timeout),
        "connect_timeout": timedelta(seconds=min(CONNECT_TIMEOUT, policy.attempt_timeout)),
    }
    shared = {
        "client_options": {"allow_http": plain, **limits, **settings.pop("client_options", {})},
        "retry_config": {
            "max_retries": policy.attempts - 1 if repeats else 0,
            "retry_timeout": timedelta(seconds=policy.deadline),
            "backoff": {
                "init_backoff": timedelta(seconds=policy.first_wait),
                "max_backoff": timedelta(seconds=policy.longest_wait),
                "base": 2,
            },
        },
    }
    bucket = parse_url(url).root.partition("://")[2].partition("@")[0]
    try:
        if kind == "http":
            if settings:
                raise ValueError(f"unknown options for http: {', '.join(settings)}")
            return stores.HTTPStore.from_url(url, **shared)
        if kind == "az" and url.startswith("abfss://"):
            return stores.AzureStore.from_url(url, **shared, **settings)
        made = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[kind]
        return made(bucket, **shared, **settings)
    except StoreError:
        raise
    except Exception as error:
        said = _shortened(error)
        raise StoreError(f"storage_options are not understood: {said}", path=url, hint=_HINTS[kind]) from error
