"""An expression being iterated over: what the user holds, with its position, its counters and its end."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastloader.dataset.base import Cursor, Node, Place
from fastloader.dataset.running import new_run
from fastloader.dataset.streaming import IterShard
from fastloader.samplers import StateError
from fastloader.samplers.checks import checksum, whole
from fastloader.samplers.position import check_state

VERSION = 1
LONGEST = 240
"""Characters of an expression that are kept in a state; of longer ones, the beginning and a checksum."""


class DatasetIterator(Iterator[Any]):
    """One pass over a dataset. It can say where it is at any time, and go on from there.

    After an error, or Ctrl-C, the next ``next()`` tries again behind the element that was given last. In a forked child
    it goes on from where the parent was. ``close`` ends its threads; so does dropping it.
    """

    def __init__(self, node: Node, epoch: int = 0, state: Mapping[str, Any] | None = None) -> None:
        self._cursor: Cursor | None = None
        self._node = node
        self._epoch = whole("epoch", epoch)
        self._place: Place = None
        self._over = False
        self._run = new_run()
        self._process = os.getpid()
        if state is not None:
            self.load_state_dict(state)

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        began = time.perf_counter()
        if self._process != os.getpid():
            self._adopt()
        try:
            if self._cursor is None:
                self._cursor = self._run.start(self._node, self._epoch, self._place)
            value = next(self._cursor)
        except StopIteration:
            self._over = True
            self._let_go()
            raise
        except KeyboardInterrupt:
            self._let_go(wait=False)  # a function may be stuck for good
            raise
        except BaseException:
            self._let_go()
            raise
        self._place = self._cursor.place
        stats = self._run.stats
        stats.elements += 1
        stats.waiting += time.perf_counter() - began
        return value

    def _adopt(self) -> None:
        """In a forked child: the parent's threads are not here, and its locks may be held for ever."""
        self._inherited = self._cursor  # never closed here
        self._cursor = None
        self._run = new_run()
        self._process = os.getpid()

    def state_dict(self) -> dict[str, Any]:
        """Where the iterator is, ready for JSON: behind the element that was given last."""
        return {
            "version": VERSION,
            "expression": self._expression(),
            "epoch": self._epoch,
            "place": _lists(self._place),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        epoch, place = self._checked(state)
        self._let_go()
        self._epoch, self._place, self._over = epoch, place, False
        self._cursor = self._run.start(self._node, epoch, place)

    def _expression(self) -> str:
        text = self._node.signature(replace(self._run, any_world=_dealt(self._node)))
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 20]}... {_short(text)}"

    def _checked(self, state: Mapping[str, Any]) -> tuple[int, Place]:
        check_state(state, {"expression", "epoch", "place"}, VERSION)
        here = self._expression()
        if state["expression"] != here:
            raise StateError(
                f"the state is of another expression: {state['expression']} in the state and {here} here",
                hint="write the dataset as it was when the state was saved, with open(..., snapshot=...) where it was "
                "changed since then, or start without the state",
            )
        try:
            return whole("epoch", state["epoch"]), _tuples(state["place"])
        except (TypeError, ValueError) as error:
            raise StateError(f"in the state, {error}") from error

    def stats(self) -> dict[str, Any]:
        """What was done, ready for JSON.

        ``elements`` given, seconds spent ``waiting`` for them, how many were ``skipped``, and the first thousand that
        were ``bad``. ``native``: batches, samples and bad values of native engines. ``engines``: for each of these, the
        last few that ended included, what ``DataLoader.stats`` tells.
        """
        return self._run.stats.to_dict()

    def close(self) -> None:
        """End the pass and its threads. Elements already given stay valid."""
        self._over = True
        self._let_go()

    def _let_go(self, wait: bool = True) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None and self._process == os.getpid():
            if not wait:
                self._run = self._run.halted()
            cursor.close(wait)
            self._run.stats.loaders.end()

    def __enter__(self) -> DatasetIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._let_go(wait=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _resumed, (self._node, self._epoch, self._place, self._over)


def _resumed(node: Node, epoch: int, place: Place, over: bool) -> DatasetIterator:
    made = DatasetIterator(node, epoch)
    made._place, made._over = place, over
    return made


def _dealt(node: Node) -> bool:
    """Whether all shards stand at the same place after as many elements, so that the rest can be dealt anew."""
    while node.in_step:
        (node,) = node.parts()
    return isinstance(node, IterShard)


def _short(text: str) -> str:
    return checksum(np.frombuffer(text.encode(), np.uint8))


def _lists(place: Place) -> Any:
    return [_lists(part) for part in place] if isinstance(place, tuple) else place


def _tuples(place: Any) -> Place:
    return tuple(_tuples(part) for part in place) if isinstance(place, list | tuple) else place
