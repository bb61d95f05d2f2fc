"""Which samples are shown: those whose keys and numbers are as asked for, found in the background."""

from __future__ import annotations

import fnmatch
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.types import key_bytes, key_text
from fastloader.viewer.columns import Column
from fastloader.viewer.samples import BLOCK, FEW, KeyBlock, Samples
from fastloader.viewer.telling import explained

OPERATIONS = ("=", "!=", "<", "<=", ">", ">=", "contains", "missing")
IDLE = 20.0
"""Seconds after which nobody waits for what is being looked for."""
KEPT = 8
_SPECIAL = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Condition:
    """A column compared with a value."""

    column: Column
    operation: str
    value: Any

    def holds(self, values: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """For which of the values it holds; for none that is missing, unless that is what is asked for."""
        if self.operation == "missing":
            return ~valid
        if self.operation == "contains":
            found = np.fromiter((str(self.value) in str(one) for one in values), np.bool_, len(values))
            return found & valid
        compare = {
            "=": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater,
            ">=": np.greater_equal,
        }[self.operation]  # fmt: skip
        return np.asarray(compare(values, self.value), np.bool_) & valid


@dataclass(frozen=True)
class Choice:
    """What samples must be like; all are, where nothing is asked for."""

    key: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def is_all(self) -> bool:
        """Whether all samples are meant."""
        return not self.key and not self.conditions


def parse_choice(samples: Samples, key: str, where: list[str]) -> Choice:
    """A choice from what a page asks for; ``ValueError`` says what is wrong with it."""
    if key and not samples.has_keys:
        raise ValueError("the samples have no keys")
    conditions = []
    for one in where:
        try:
            name, operation, value = json.loads(one)
        except (ValueError, TypeError):
            raise ValueError(f"{one!r}: expected [column, operation, value]") from None
        column = samples.numbers.column(str(name))
        if column is None:
            raise ValueError(f"there is no column {name!r}")
        if operation not in OPERATIONS:
            raise ValueError(f"{operation!r}: one of {', '.join(OPERATIONS)}")
        conditions.append(Condition(column, operation, _operand(column, operation, value)))
    return Choice(key, tuple(conditions))


def _operand(column: Column, operation: str, value: Any) -> Any:
    if operation == "missing":
        return None
    if column.kind == "text":
        if operation not in ("=", "!=", "contains"):
            raise ValueError(f"{column.label} is text, which is compared by = != or contains")
        return str(value)
    if operation == "contains":
        raise ValueError(f"{column.label} is a number, which contains nothing")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{column.label}: {value!r} is no number")
    for kind in (int, float):
        try:
            number = kind(value) if isinstance(value, str) else value
        except ValueError:
            continue
        if isinstance(number, int) and abs(number) >= 2**63:
            number = float(number)
        return number
    raise ValueError(f"{column.label}: {value!r} is no number")


class Search:
    """Looks for samples in a thread of its own, which ends when it is done, told to stop, or nobody asks any more."""

    def __init__(self, samples: Samples, choice: Choice) -> None:
        self._samples = samples
        self._choice = choice
        self._rows = np.zeros(1024, np.int64)
        self._stopped = False
        self._asked = time.monotonic()
        self.found = self.done = 0
        self.total = len(samples)
        self.error: str | None = None
        self.finished = False
        self._thread = threading.Thread(target=self._run, name="fastloader-view-search", daemon=True)
        self._thread.start()

    def rows(self) -> NDArray[np.int64]:
        """Those found so far, ascending."""
        return self._rows[: self.found]

    def wait(self, seconds: float) -> None:
        """Until it is done, but no longer than this."""
        self._asked = time.monotonic()
        self._thread.join(seconds)
        self._asked = time.monotonic()

    def stop(self) -> None:
        """Give up."""
        self._stopped = True

    @property
    def given_up(self) -> bool:
        """Whether it ended before it was done."""
        return self._stopped and not self.finished

    def _run(self) -> None:
        try:
            for rows, done in self._blocks():
                self._add(rows)
                self.done = done
                if self._stopped or time.monotonic() - self._asked > IDLE:
                    self._stopped = True
                    return
            self.done, self.finished = self.total, True
        except Exception as error:  # a thread has nobody else to tell
            self.error, self.finished = explained(error), True

    def _add(self, rows: NDArray[np.int64]) -> None:
        if self.found + len(rows) > len(self._rows):
            grown = np.zeros(max(2 * len(self._rows), self.found + len(rows)), np.int64)
            grown[: self.found] = self._rows[: self.found]
            self._rows = grown
        self._rows[self.found : self.found + len(rows)] = rows
        self.found += len(rows)  # last: whoever looks meanwhile sees what is there

    def _blocks(self) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Matching rows block by block, and how many samples were looked at."""
        conditions = sorted(self._choice.conditions, key=lambda one: not one.column.quick)
        step = BLOCK if all(one.column.quick for one in conditions) else FEW
        for rows, done in self._candidates():
            for begin in range(0, max(len(rows), 1), step):
                part = rows[begin : begin + step]
                for condition in conditions:
                    if len(part):
                        part = part[condition.holds(*self._samples.numbers.read(condition.column, part))]
                last = begin + step >= len(rows)
                yield part, done if last else min(done, int(rows[begin]) + step)

    def _candidates(self) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Samples whose keys match."""
        key = self._choice.key
        if not key:
            for begin in range(0, self.total, BLOCK):
                end = min(begin + BLOCK, self.total)
                yield np.arange(begin, end), end
        elif key.startswith("="):
            found = self._samples.find(key[1:])
            yield np.array([] if found is None else [found], np.int64), self.total
        else:
            match = _glob(key) if _SPECIAL.search(key) else _prefix(key)
            for block in self._samples.key_blocks():
                yield block[0] + match(block), block[0] + len(block[1]) - 1


def _prefix(text: str) -> Any:
    wanted = np.frombuffer(key_bytes(text), np.uint8)

    def match(block: KeyBlock) -> NDArray[np.int64]:
        _, ends, data = block
        rows = np.flatnonzero(np.diff(ends) >= len(wanted))
        letters = np.frombuffer(data, np.uint8)
        for place, letter in enumerate(wanted.tolist()):  # few rows are left after the first letters
            rows = rows[letters[ends[rows] + place] == letter]
        return rows

    return match


def _glob(pattern: str) -> Any:
    """Keys that hold the longest plain part of the pattern are compared with all of it."""
    fits = re.compile(fnmatch.translate(pattern)).match
    literal = max(re.split(r"\*|\?|\[[^\]]*\]?", pattern), key=len)
    plain = key_bytes(literal)

    def match(block: KeyBlock) -> NDArray[np.int64]:
        _, ends, data = block
        if plain:
            places = np.fromiter((found.start() for found in re.finditer(re.escape(plain), data)), np.int64)
            rows = np.unique(np.searchsorted(ends, places, "right") - 1)
        else:
            rows = np.arange(len(ends) - 1)
        good = [row for row in rows.tolist() if fits(key_text(data[ends[row] : ends[row + 1]]))]
        return np.array(good, np.int64)

    return match


class Searches:
    """The searches that were asked for last."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._lock = threading.Lock()
        self._kept: dict[Choice, Search] = {}

    def get(self, choice: Choice) -> Search:
        """The search for a choice, begun if need be."""
        with self._lock:
            search = self._kept.pop(choice, None)
            if search is None or search.given_up:
                search = Search(self._samples, choice)
            self._kept[choice] = search
            while len(self._kept) > KEPT:
                self._kept.pop(next(iter(self._kept))).stop()
            return search

    def stop(self) -> None:
        """End all of them."""
        with self._lock:
            for search in self._kept.values():
                search.stop()
