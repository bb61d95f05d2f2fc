"""``LuaLoader``: a dataset whose rows a script plans."""

from __future__ import annotations

import os
import threading
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastloader.dataset.base import Cursor, IterNode, Place, Run, position
from fastloader.dataset.dataset import IterDataset
from fastloader.formats.objects import Places
from fastloader.loader.reading import Io
from fastloader.lua.reading import MEMORY, Asked, EntryBytes, HowToRead, PlanReader
from fastloader.lua.rows import Row
from fastloader.lua.script import ALLOWED, Planned, Running, Script
from fastloader.samplers.checks import whole
from fastloader.types import parse_size


class LuaLoader(IterDataset):
    """Rows in the order a Lua script plans them, each a mapping from key to bytes.

    The script returns ``{init_ctx = function(rank, world_size, config), row_generator = function(ctx)}``; the second
    opens files with ``g_loader:open_file(path)``, names bytes of them with ``g_loader:add_entry(handle, key, offset,
    size)`` and ends each row with ``g_loader:finish_row()``. It runs ahead in a thread of its own, and the engine reads
    along its plan. ``config`` is its ``g_config``.

    It is an iterable dataset: ``LuaLoader(script).map(decode).shuffle(1000).batch(32)``. A script that plans the same
    rows each time, given the same config, rank and ``g_epoch``, resumes anywhere.

    ``debug`` tells on stderr what the script opens and plans. ``allow`` names libraries it has besides: "io", "os",
    "ffi", "debug", "package". ``storage_options`` are for the stores of URLs that it opens, reads or lists. ``io`` says
    how files are read, as for ``DataLoader``, and ``memory_limit`` how many bytes may be read ahead; rows that are held
    count beyond it.
    """

    def __init__(
        self,
        src: str,
        config: Mapping[str, Any] | None = None,
        rank: int = 0,
        world_size: int = 1,
        debug: bool = False,
        *,
        allow: Sequence[str] = (),
        io: Io = "auto",
        memory_limit: int | str = MEMORY,
        storage_options: Mapping[str, Any] | None = None,
        name: str = "script",
    ) -> None:
        if not isinstance(src, str):
            raise TypeError(f"src: the text of a script, not a {type(src).__name__}; LuaLoader.from_file takes a path")
        if config is not None and not isinstance(config, Mapping):
            raise TypeError(f"config: a mapping, not a {type(config).__name__}")
        world = whole("world_size", world_size, 1)
        mine = whole("rank", rank)
        if mine >= world:
            raise ValueError(f"rank={mine}: below world_size={world}")
        allowed = (allow,) if isinstance(allow, str) else tuple(allow)
        unknown = [one for one in allowed if one not in ALLOWED]
        if unknown:
            raise ValueError(f"allow: unknown {', '.join(map(repr, unknown))}; there are {', '.join(ALLOWED)}")
        script = Script(src, name, None if config is None else dict(config), mine, world, bool(debug), allowed)
        options = None if storage_options is None else dict(storage_options)
        super().__init__(FromLua(script, HowToRead(io, parse_size(memory_limit), options)))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *arguments: Any, **options: Any) -> LuaLoader:
        """The script in a file; the other arguments are those of ``LuaLoader``."""
        return cls(Path(path).read_text(), *arguments, **{"name": os.fspath(path), **options})


@dataclass(frozen=True, eq=False)
class FromLua(IterNode):
    """The rows of a script."""

    script: Script
    how: HowToRead = field(default_factory=HowToRead)

    def label(self) -> str:
        """The script by its text, and whose rows these are: a state of another is refused."""
        script = self.script
        told = zlib.crc32(repr((script.source, sorted((script.config or {}).items(), key=str))).encode())
        return f"LuaLoader({Path(script.name).name}, {told:08x}, rank {script.rank} of {script.world_size})"

    def where(self, run: Run) -> str:
        """Its own thread."""
        return "planned in a thread of Lua's, read ahead"

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The place is the number of rows given: on resuming they are planned again, and not read."""
        return PlannedRows(self, epoch, position(place))


class Feed:
    """What lies between the script, which plans, and whoever takes its rows."""

    def __init__(self, node: FromLua, epoch: int, skip: int) -> None:
        self._reader = PlanReader(node.how)
        self._window = node.how.memory // 2
        self._skip = skip
        self._changed = threading.Condition()
        self._asked: deque[Asked] = deque()
        self._ahead = 0
        self._ended = False
        self._stopping = False
        self._error: BaseException | None = None
        self._script = Running(
            node.script, epoch, Places(node.how.storage_options), deliver=self._deliver, open=self._reader.open,
            close=self._reader.close, ended=self._end,
        )  # fmt: skip
        self._script.start()

    def next(self) -> tuple[Planned, EntryBytes] | None:
        """The next rows that belong together, or nothing where the script has ended."""
        with self._changed:
            while not self._asked and not self._ended:
                self._changed.wait(0.1)  # a signal is looked for in between
            if not self._asked:
                if self._error is not None:
                    raise self._error
                return None
            asked = self._asked.popleft()
        there = asked.wait()
        with self._changed:
            self._ahead -= asked.size
            self._changed.notify_all()
        return asked.planned, there

    def stop(self) -> None:
        """End the script, and forget what it planned."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._script.stop()
        for asked in self._asked:
            asked.forget()
        self._asked.clear()
        self._reader.end()

    def _deliver(self, planned: Planned) -> None:
        """Called by the script's thread; comes back when there is room for more."""
        planned = self._rest(planned)
        if not len(planned.counts):
            return
        asked = Asked(self._reader, planned)
        with self._changed:
            self._asked.append(asked)
            self._ahead += asked.size
            self._changed.notify_all()
            while self._ahead > self._window and len(self._asked) > 1 and not self._stopping:
                self._changed.wait()

    def _rest(self, planned: Planned) -> Planned:
        """Without the rows that are not wanted again."""
        over = min(self._skip, len(planned.counts))
        if not over:
            return planned
        self._skip -= over
        return Planned(
            planned.entries[int(planned.counts[:over].sum()) :], planned.counts[over:], planned.keys, planned.literals
        )

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self._error, self._ended = error, True
            self._changed.notify_all()


class PlannedRows(Cursor):
    """Rows one after the other."""

    def __init__(self, node: FromLua, epoch: int, given: int) -> None:
        self._node, self._epoch, self._given = node, epoch, given
        self._feed: Feed | None = None
        self._process = os.getpid()
        self._rows: deque[tuple[Row, Exception | None]] = deque()
        self.place = given or None

    def __next__(self) -> Row:
        if self._process != os.getpid():  # the thread is not here: plan again, from where this stands
            self._feed, self._process = None, os.getpid()
        if self._feed is None:
            self._rows.clear()
            self._feed = Feed(self._node, self._epoch, self._given)
        while not self._rows:
            some = self._feed.next()
            if some is None:
                raise StopIteration
            self._rows.extend(_rows(*some))
        row, error = self._rows[0]
        if error is not None:
            raise error
        self._rows.popleft()
        self._given += 1
        self.place = self._given
        return row

    def close(self, wait: bool = True) -> None:
        """End the script."""
        if self._feed is not None and self._process == os.getpid():
            self._feed.stop()
        self._feed = None
        self._rows.clear()

    def __del__(self) -> None:
        self.close(wait=False)


def _rows(planned: Planned, there: EntryBytes) -> list[tuple[Row, Exception | None]]:
    made, first = [], 0
    numbers = planned.entries[:, 3].tolist()
    for count in planned.counts.tolist():
        entries = range(first, first + count)
        error = next((there.failed[one] for one in entries if one in there.failed), None) if there.failed else None
        made.append((Row([planned.keys[numbers[one]] for one in entries], there, first), error))
        first += count
    return made
