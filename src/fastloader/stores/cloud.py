"""Object stores through obstore: S3, Google Cloud Storage, Azure, HTTP.

obstore gives short bytes without a word when a server's Content-Length is too small, and does not look at ETags. So
length and version are checked here on every range, and repeating is decided here too. Where a server has no TLS, a
range is first asked for over connections of our own (``stores.direct``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from fastloader.errors import FastLoaderError, NotFoundError, StoreError
from fastloader.stores import client
from fastloader.stores.asking import Asked, Told, askers
from fastloader.stores.base import ChangedError, Done, RefusedError, Stat, full_url
from fastloader.stores.connecting import configuration, connect
from fastloader.stores.direct import NotDirectError, direct_reads
from fastloader.stores.explaining import changed, explained, lacks_credentials, worth_repeating
from fastloader.stores.retrying import Pace, RetryPolicy
from fastloader.stores.uploading import CloudUpload
from fastloader.stores.urls import parse_url
from fastloader.types import Buffer, byte_view

T = TypeVar("T")
Found = tuple[memoryview, Stat]


SMALL = 512 << 10
"""Bytes of a range that is asked for by a thread: larger ones gain nothing by it, and can be called off by a loop."""
_FOR_CREDENTIALS = 3
"""Attempts of who has no credentials: most often nobody gives any, and the user waits to be told."""


class _Short(Exception):
    """A reply that is not what was asked for; it is worth asking again."""


@dataclass(frozen=True, slots=True)
class Range:
    """What is asked for: ``size`` bytes from ``begin`` on, or as many of them as there are (``at_most``), or all."""

    key: str
    begin: int = 0
    size: int | None = None
    version: str | None = None
    at_most: bool = False

    @property
    def options(self) -> dict[str, Any] | None:
        """For obstore."""
        options: dict[str, Any] = {}
        if self.size is not None:
            options["range"] = (self.begin, self.begin + self.size)
        elif self.begin:
            options["range"] = {"offset": self.begin}
        if self.version and self.version.startswith('"'):  # only such can be compared by the server
            options["if_match"] = self.version
        return options or None


class CloudStore:
    """A bucket, a container, or a web server. ``storage_options`` are described in ``docs/reference/stores.md``."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        location = parse_url(url)
        self.url = location.root
        self.kind = location.kind
        self._options = dict(storage_options or {})
        rest = dict(self._options)
        self.policy = RetryPolicy.take_from(rest)
        direct = rest.pop("direct", True)
        if not isinstance(direct, bool):
            raise ValueError(f"direct={direct!r}: True or False")
        self._config = configuration(self.kind, rest)
        self.hedged = 0
        self._pace = Pace()
        self._small_objects = False
        self._process = 0
        self._readers: Any = None
        self._listers: Any = None
        self._writers: Any = None
        self._reader()  # an option that is unknown is told now
        # An attempt that goes another way is one of those that are allowed: where there is one alone, obstore makes it.
        self._direct = None
        if direct and self.policy.attempts > 1:
            self._direct = direct_reads(self.kind, self.url, self._config, self._reader)

    def __reduce__(self) -> tuple[type[CloudStore], tuple[str, dict[str, Any]]]:
        return CloudStore, (self.url, self._options)

    def __repr__(self) -> str:  # never the options: there are secrets among them
        return f"CloudStore({self.url!r})"

    def _reader(self) -> Any:
        """The client that reads, whose requests are repeated here."""
        self._be_in_this_process()
        if self._readers is None:
            self._readers = connect(self.kind, self.url, self._config, self.policy, repeats=False)
        return self._readers

    def _lister(self) -> Any:
        """The client that lists, and repeats itself."""
        self._be_in_this_process()
        if self._listers is None:
            self._listers = connect(self.kind, self.url, self._config, self.policy, repeats=True)
        return self._listers

    def writer(self) -> Any:
        """The client that writes, and repeats itself; a part of an object may take long."""
        if self.kind == "http":
            raise RefusedError("web servers are only read here", path=self.url, hint="write to a folder or a bucket")
        self._be_in_this_process()
        if self._writers is None:
            self._writers = connect(self.kind, self.url, self._config, self.policy, repeats=True, patient=True)
        return self._writers

    def _be_in_this_process(self) -> None:
        if self._process != os.getpid():
            self._readers = self._listers = self._writers = None
            self._process = os.getpid()

    def stat(self, key: str) -> Stat:
        """Size and version of an object."""
        return self._wait(self._persist(key, lambda: self._head(key)))

    def read(self, key: str, begin: int = 0, size: int | None = None, *, version: str | None = None) -> memoryview:
        """A range, checked."""
        return self._wait(self._read(Range(key, begin, size, version)))[0]

    def read_with_stat(self, key: str, begin: int, size: int) -> Found:
        """At most ``size`` bytes from ``begin`` on, and what the object is, in one request."""
        return self._wait(self._read(Range(key, begin, size, at_most=True)))

    def read_ends(self, key: str, head: int, size: int, tail: int) -> tuple[memoryview, memoryview, Stat]:
        """At most ``head`` bytes from the beginning and the last ``tail`` of ``size``, asked for at the same time.

        The last are left out where they are of another version.
        """
        ends = [Range(key, 0, head, at_most=True), Range(key, size - tail, tail, at_most=True)]
        (first, found), (last, other) = self._wait(self._all(ends))
        return first, last if other.version == found.version else memoryview(b""), found

    def begin_whole(self, key: str, size: int) -> Future[Found]:
        """The same from the beginning on, asked for now and waited for by whoever needs it."""
        coming: Future[Found] = Future()

        def done(found: Found | None, error: BaseException | None) -> None:
            if found is None:
                coming.set_exception(error)
            else:
                self._small_objects = len(found[0]) < SMALL
                coming.set_result(found)

        self._ask(Range(key, 0, size, at_most=True), self._small_objects, done)
        return coming

    def read_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[memoryview]:
        """Several ranges at once."""
        found = self._wait(self._all([Range(key, begin, size, version) for begin, size in ranges]))
        return [data for data, _ in found]

    def begin_read(self, key: str, begin: int, size: int, version: str | None, done: Done) -> None:
        """Ask for a range and go on."""
        self._ask(
            Range(key, begin, size, version), size < SMALL,
            lambda found, error: done(None if found is None else found[0], error),
        )  # fmt: skip

    def list(self, prefix: str = "") -> Iterator[Stat]:
        """Objects below a folder, or the object of just this key."""
        folder = prefix.strip("/")
        try:
            if folder:
                with contextlib.suppress(NotFoundError):
                    yield self.stat(folder)
            for page in client.module().list(self._lister(), folder or None):
                # What lies below a folder and is called like it, is called so with a slash behind it: it marks it.
                yield from self._without_markers([self._listed(meta) for meta in page if meta["path"] != folder])
        except FastLoaderError:
            raise
        except Exception as error:
            raise self.explain(error, prefix) from error

    def _listed(self, meta: Mapping[str, Any]) -> Stat:
        found = _stat_of(meta)
        if self.kind == "az" and found.etag and not found.etag.endswith('"'):  # Azure quotes ETags in headers alone
            return replace(found, etag=f'"{found.etag}"')
        return found

    def _without_markers(self, listed: Sequence[Stat]) -> Iterator[Stat]:
        """Objects of a list but the empty ones that mark folders: their keys end with a slash, as no file's do.

        The client takes the slash away, so of whatever is empty the server is asked if there is an object of that key.
        """
        empty = [one for one in listed if not one.size]
        real = self._wait(self._of_them(empty)) if empty else set()
        return (one for one in listed if one.size or one.key in real)

    async def _of_them(self, empty: Sequence[Stat]) -> set[str]:
        """The keys of those that are there and are empty; or may be, where we must not look."""

        async def is_one(key: str) -> bool:
            try:
                return not (await self._persist(key, lambda: self._head(key))).size
            except NotFoundError:
                return False
            except RefusedError:
                return True

        found = await asyncio.gather(*(is_one(one.key) for one in empty))
        return {one.key for one, there in zip(empty, found, strict=True) if there}

    def put(self, key: str, data: Buffer, *, if_absent: bool = False, if_match: str | None = None) -> Stat:
        """Write an object in one request."""
        content = bytes(byte_view(data))
        mode: Any = "create" if if_absent else "overwrite"
        try:
            if if_match is not None:
                mode = self._in_place_of(key, if_match)
            put = client.module().put(self.writer(), key, content, mode=mode, use_multipart=False)
        except Exception as error:
            # A first attempt may have been done though its answer was lost: then what is there is ours.
            if type(error).__name__ in ("AlreadyExistsError", "PreconditionError") and self._is_there(key, content):
                return self.stat(key)
            raise self.explain(error, key, writing=True) from error
        return Stat(key, len(content), put["e_tag"], None)

    def _in_place_of(self, key: str, version: str) -> dict[str, Any]:
        """What the client calls the object that is to be replaced."""
        if self.kind != "gs":
            return {"e_tag": version}
        found = client.module().head(self.writer(), key)  # Google compares generations, not ETags
        if found["e_tag"] != version:
            raise ChangedError("was changed by another writer in the meantime", path=full_url(self.url, key))
        return {"e_tag": version, "version": found["version"]}

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
            client.module().delete(self.writer(), key)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self.explain(error, key, writing=True) from error

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, client.event_loop()).result()

    async def _head(self, key: str) -> Stat:
        return _stat_of(await client.module().head_async(self._reader(), key))

    def _ask(self, wanted: Range, small: bool, done: Told) -> None:
        """Ask for a range and go on; ``done`` is told."""
        if wanted.begin < 0 or (wanted.size or 0) < 0:
            done(None, self._no_range(wanted))
            return
        if self._ask_directly(wanted, done):
            return
        if wanted.size == 0 or not small:
            self._ask_on_the_loop(wanted, done)
            return

        askers().ask(self._asked(wanted, partial(self._get_now, wanted), done))

    def _asked(self, wanted: Range, attempt: Callable[[], Found] | None, done: Told) -> Asked:
        def again(failure: BaseException | None, end: float) -> Coroutine[Any, Any, Found]:
            self.hedged += failure is None
            return self._persist(wanted.key, lambda: self._get(wanted), failure, end)

        return Asked(wanted.size or 0, attempt, again, self.policy, self._pace, done)

    def _ask_directly(self, wanted: Range, done: Told) -> bool:
        """Whether it is asked for without obstore, which is asked if that fails or takes long."""
        if self._direct is None or not wanted.size:
            return False
        asked = self._asked(wanted, None, done)

        def told(found: Found | None, error: BaseException | None) -> None:
            if found is not None and wanted.version not in (None, found[1].version):
                error = changed(self.url, wanted.key, f"its version is {found[1].version}, not {wanted.version}")
            if error is not None:
                asked.call_off = None
                asked.failed(error)
            else:
                asked.came(found)

        call_off = self._direct.ask(wanted.key, wanted.begin, wanted.size, wanted.at_most, wanted.version, told)
        if call_off is None:
            return False
        if not asked.is_over:
            asked.call_off = call_off
        askers().watch(asked)
        return True

    def _ask_on_the_loop(self, wanted: Range, done: Told) -> None:
        async def read() -> None:
            try:
                found = await self._read(wanted)
            except BaseException as error:
                done(None, error)
            else:
                done(found, None)

        loop = client.event_loop()
        loop.call_soon_threadsafe(lambda: client.keep(loop.create_task(read())))

    async def _all(self, wanted: Sequence[Range]) -> Sequence[Found]:
        reads = [asyncio.ensure_future(self._read(one)) for one in wanted]
        try:
            return await asyncio.gather(*reads)
        finally:
            for read in reads:
                read.cancel()

    def _no_range(self, wanted: Range) -> StoreError:
        return StoreError(
            f"{wanted.size} bytes from {wanted.begin} on were asked for, and there are none before the first",
            path=full_url(self.url, wanted.key),
        )

    async def _read(self, wanted: Range) -> Found:
        if wanted.begin < 0 or (wanted.size or 0) < 0:
            raise self._no_range(wanted)
        if wanted.size == 0:
            return memoryview(b""), Stat(wanted.key, 0)
        if self._direct is not None:
            loop = asyncio.get_running_loop()
            coming: asyncio.Future[Found] = loop.create_future()
            if self._ask_directly(wanted, partial(_tell, loop, coming)):
                return await coming
        return await self._persist(wanted.key, lambda: self._hedged(wanted))

    async def _persist(
        self,
        key: str,
        attempt: Callable[[], Coroutine[Any, Any, T]],
        failure: BaseException | None = None,
        end: float | None = None,
    ) -> T:
        """The result of ``attempt``, made again until it works, is hopeless, or takes too long.

        ``failure`` is that of a first attempt, made elsewhere; ``end`` is when it takes too long.
        """
        policy = self.policy
        end = time.monotonic() + policy.deadline if end is None else end
        tried = 0
        while True:
            if failure is not None:
                tried += 1
                wait = 0.0 if isinstance(failure, NotDirectError) and failure.at_once else policy.wait(tried - 1)
                attempts = min(policy.attempts, _FOR_CREDENTIALS) if lacks_credentials(failure) else policy.attempts
                hopeless = not worth_repeating(failure)
                if hopeless or tried >= attempts or time.monotonic() + wait >= end:
                    raise self.explain(failure, key, tried=tried) from failure
                await asyncio.sleep(wait)
            left = end - time.monotonic()
            try:
                async with asyncio.timeout(min(policy.attempt_timeout, max(left, 0.001))):
                    return await attempt()
            except ChangedError:
                raise
            except TimeoutError as error:
                failure = _Short(f"no answer within {min(policy.attempt_timeout, left):.3g} s")
                failure.__cause__ = error
            except Exception as error:
                failure = error

    async def _hedged(self, wanted: Range) -> Found:
        """One read, asked for a second time when it takes longer than others."""
        size = wanted.size or 0
        patience = self.policy.hedge_after or self._pace.hedge_after(size)
        began = time.monotonic()
        if patience is None:
            found = await self._get(wanted)
        else:
            reads = {asyncio.create_task(self._get(wanted))}
            try:
                done, _ = await asyncio.wait(reads, timeout=patience)
                if not done and (self.policy.hedge_after is not None or self._pace.may_hedge()):
                    self.hedged += 1
                    reads.add(asyncio.create_task(self._get(wanted)))
                found = done.pop().result() if done else await _first_good(reads)
            finally:
                for read in reads:
                    read.cancel()
        self._pace.took(size, time.monotonic() - began)
        return found

    async def _get(self, wanted: Range) -> Found:
        reply = await client.module().get_async(self._reader(), wanted.key, options=wanted.options)
        found = self._same_version(wanted, reply)
        return self._complete(wanted, reply, memoryview(await reply.bytes_async()), found)

    def _get_now(self, wanted: Range) -> Found:
        reply = client.module().get(self._reader(), wanted.key, options=wanted.options)
        found = self._same_version(wanted, reply)
        return self._complete(wanted, reply, memoryview(reply.bytes()), found)

    def _same_version(self, wanted: Range, reply: Any) -> Stat:
        found = _stat_of(reply.meta)
        if wanted.version is not None and found.version != wanted.version:
            raise changed(self.url, wanted.key, f"its version is {found.version}, not {wanted.version}")
        return found

    def _complete(self, wanted: Range, reply: Any, data: memoryview, found: Stat) -> Found:
        begin = wanted.begin
        size = found.size - begin if wanted.size is None else wanted.size
        if wanted.at_most:
            size = min(size, found.size - begin)
        if size < 0 or begin + size > found.size:
            raise StoreError(
                f"has {found.size} bytes; {size} from {begin} on were asked for", path=full_url(self.url, wanted.key)
            )
        if len(data) != size or tuple(reply.range) != (begin, begin + size):
            raise _Short(f"{size} bytes from {begin} on were asked for, {len(data)} came")
        return data, found

    def explain(self, error: BaseException, key: str, *, writing: bool = False, tried: int = 1) -> StoreError:
        """What the client or the server said, shortened to what helps, with the object it concerns."""
        return explained(error, self.url, self.kind, key, writing=writing, tried=tried)


def _tell(
    loop: asyncio.AbstractEventLoop, coming: asyncio.Future[Found], found: Found | None, error: BaseException | None
) -> None:
    """From any thread, to who waits for it on the loop."""

    def settle() -> None:
        if coming.done():  # nobody waits any more
            return
        if found is not None:
            coming.set_result(found)
        elif error is not None:
            coming.set_exception(error)

    loop.call_soon_threadsafe(settle)


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


def _stat_of(meta: Mapping[str, Any]) -> Stat:
    return Stat(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"].timestamp())
