"""A script being run in LuaJIT, in a thread of its own, with nothing but what it is lent."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FastLoaderError, MissingExtraError
from fastloader.formats.objects import Object, Places
from fastloader.stores.urls import is_url

ALLOWED = ("debug", "ffi", "io", "os", "package")
"""What ``allow`` may name: with any of these a script can do whatever the process can."""
MEMORY = 1 << 30
"""Bytes that a script may have at a time."""
_PIECE = 1 << 20
_OURS = '[string "<python>"]'


class LuaError(FastLoaderError, RuntimeError):
    """A script failed; the message ends with the traceback of Lua."""


@dataclass(frozen=True)
class Script:
    """A script, and what it is told."""

    source: str
    name: str = "script"
    config: Mapping[str, Any] | None = None
    rank: int = 0
    world_size: int = 1
    debug: bool = False
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned:
    """Some rows as they were planned: for each entry its file (-1: a literal), place, size and key; entries a row."""

    entries: NDArray[np.int64]
    counts: NDArray[np.int64]
    keys: tuple[str, ...]
    literals: tuple[bytes, ...]


class Files:
    """What a script reads itself: indexes and folders, local or in a store."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._open: dict[str, Object] = {}

    def open(self, path: str) -> Object:
        """An object, kept."""
        if path not in self._open:
            self._open[path] = self._places.open(path)
        return self._open[path]

    def lines(self, path: str) -> Iterator[Any]:
        """The values of a file with a JSON value a line."""
        source, rest, at = self.open(path), b"", 0
        number = 0
        while at < source.size or rest:
            piece = source.read(at, min(_PIECE, source.size - at)) if at < source.size else b""
            at += len(piece)
            lines = (rest + piece).split(b"\n")
            rest = lines.pop() if piece else b""
            for line in lines:
                number += 1
                if line.strip():
                    try:
                        value = json.loads(line)
                    except ValueError as error:
                        raise LuaError(f"line {number} is no JSON: {error}", path=path) from error
                    if value is None:
                        raise LuaError(f"line {number} is null, which would end the iteration", path=path)
                    yield value


def listed(path: str, places: Places) -> list[str]:
    """The full paths of what lies in a folder, sorted; of a store, of the objects within."""
    if is_url(path):
        return places.of(path).within(path)
    return sorted(str(one) for one in Path(path).iterdir())


class Running:
    """A script in its thread.

    ``deliver`` is given rows as they are planned and returns when more may be; ``open`` and ``close`` are asked for
    files, and give a number and a size.
    """

    def __init__(
        self,
        script: Script,
        epoch: int,
        places: Places,
        *,
        deliver: Callable[[Planned], None],
        open: Callable[[str], tuple[int, int]],
        close: Callable[[int], None],
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._script, self._epoch = script, epoch
        self._deliver, self._open, self._close, self._ended = deliver, open, close, ended
        self._places = places
        self._files = Files(places)
        self._keys: list[str] = []
        self._stopping = False
        self._error: BaseException | None = None
        self._lost: str | None = None
        self._planned = 0
        self._lua: Any = None
        self._runtime = _runtime()  # a missing extra is told at once
        self._thread = threading.Thread(target=self._run, name="fastloader-lua", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, wait: float = 1.0) -> None:
        """End it at its next instruction. One that is within a long call of Lua's own library ends behind that."""
        self._stopping = True
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(wait)

    def _run(self) -> None:
        try:
            said = self._play()
            error: BaseException | None = None
            if self._stopping:
                error = None
            elif self._lost is not None:
                error = self._told(self._lost)
            elif said is not None:  # what went wrong and was caught by the script is its own affair
                error = self._told(said)
        except BaseException as raised:
            error = None if self._stopping else raised
        self._ended(error)

    def _play(self) -> str | None:
        script = self._script
        lua = self._lua = self._runtime(
            encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False, max_memory=MEMORY,
            attribute_filter=_no_attribute,
        )  # fmt: skip
        host = lua.table_from(self._host(lua))
        lua.globals()[b"python"] = None
        allowed = lua.table_from({name.encode(): True for name in script.allow})
        prelude = files("fastloader.lua").joinpath("prelude.lua").read_bytes()
        run = lua.execute(prelude, host, allowed)
        said = run(script.source.encode(), b"@" + script.name.encode(), script.rank, script.world_size)
        return None if said is None else _without_ours(said.decode(errors="backslashreplace"))

    def _told(self, said: str) -> LuaError:
        error = LuaError(said, path=self._script.name if self._script.name != "script" else None)
        error.__cause__ = self._error
        return error

    def _host(self, lua: Any) -> dict[bytes, Any]:
        def excused(function: Callable[..., Any]) -> Callable[..., Any]:
            """What went wrong becomes text, and an error of the script at the line that asked; it is kept as the cause.

            An exception must never pass through Lua: a script that caught it would have an object of Python's, and by
            that all of Python.
            """

            def called(*arguments: Any) -> Any:
                try:
                    return function(*arguments)
                except Exception as error:
                    self._error = error
                    kind = "" if isinstance(error, LuaError) else f"{type(error).__name__}: "
                    return None, f"{kind}{error}".encode(errors="backslashreplace")

            return called

        return {
            b"config": _lua_value(lua, dict(self._script.config or {})),
            b"epoch": self._epoch,
            b"stopped": lambda: self._stopping,
            b"deliver": self._delivered,
            b"open": excused(self._opened),
            b"close": excused(lambda number: self._close(int(number))),
            b"size": excused(lambda path: self._files.open(_text(path)).size),
            b"read": excused(self._read),
            b"lines": excused(lambda path: excused(self._lines(lua, _text(path)))),
            b"list": excused(lambda path: lua.table_from([_raw(one) for one in listed(_text(path), self._places)])),
            b"print": excused(lambda text: print(text.decode(errors="backslashreplace"))),
        }

    def _opened(self, path: bytes) -> tuple[int, int]:
        number, size = self._open(_text(path))
        self._note(f"open_file({_text(path)!r}): {size} bytes")
        return number, size

    def _read(self, path: bytes, offset: float, size: float) -> bytes:
        source = self._files.open(_text(path))
        begin = min(int(offset), source.size)
        return source.read(begin, min(int(size), source.size - begin))

    def _lines(self, lua: Any, path: str) -> Callable[[], Any]:
        rows = self._files.lines(path)

        return lambda: _lua_value(lua, next(rows, None))

    def _delivered(self, numbers: bytes, used: float, keys: Any, literals: Any, anew: bool) -> bytes | None:
        try:
            self._keys = [*(() if anew else self._keys), *(_text(key) for key in keys.values())]
            told = np.frombuffer(numbers, np.int64)
            planned = Planned(
                told[: 4 * int(used)].reshape(-1, 4), told[4 * int(used) :], tuple(self._keys), tuple(literals.values())
            )
            self._planned += len(planned.counts)
            self._note(f"{self._planned} rows planned")
            self._deliver(planned)
        except Exception as error:
            self._error = error
            self._lost = f"rows that were planned can't be read: {type(error).__name__}: {error}"
            return self._lost.encode()
        return None

    def _note(self, what: str) -> None:
        if self._script.debug:
            print(f"lua: rank {self._script.rank}: {what}", file=sys.stderr)


def _no_attribute(_: Any, name: Any, __: bool) -> Any:
    """What a script may have of an object of Python's, should it ever get one."""
    raise AttributeError(f"{name!r} is not for scripts")


def _without_ours(said: str) -> str:
    """A traceback without the frames that are not the script's."""
    return "\n".join(line for line in said.split("\n") if _OURS not in line and "function 'xpcall'" not in line)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _raw(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")


def _lua_value(lua: Any, value: Any) -> Any:
    """A value of Python's as Lua knows it: text as bytes, lists and dictionaries as tables."""
    if isinstance(value, str):
        return _raw(value)
    if isinstance(value, Mapping):
        return lua.table_from({_lua_value(lua, key): _lua_value(lua, one) for key, one in value.items()})
    if isinstance(value, list | tuple):
        return lua.table_from([_lua_value(lua, one) for one in value])
    if value is None or isinstance(value, bool | int | float | bytes):
        return value
    return str(value).encode()


def _runtime() -> Any:
    try:
        from lupa import luajit21
    except ImportError as error:
        raise MissingExtraError("LuaJIT comes with lupa, which is not installed", extra="lua") from error
    return luajit21.LuaRuntime
