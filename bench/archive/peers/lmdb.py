"""LMDB, a value a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from task import Read, paths_of, run

sys.path.pop(0)  # this file has the library's name
import lmdb


def create(folder: Path, place: Path) -> None:
    """In one transaction."""
    env: Any = lmdb.open(str(place), map_size=1 << 36)  # type: ignore[attr-defined]
    with env.begin(write=True) as transaction:
        for path in paths_of(folder):
            with open(os.path.join(folder, path), "rb") as file:
                transaction.put(path.encode(), file.read())
    env.close()


env: Any


def opened(folder: Path, place: Path) -> Read:
    """A transaction a read, as datasets do it that may be used by several threads."""
    global env
    env = lmdb.open(str(place), readonly=True, lock=False, readahead=False)  # type: ignore[attr-defined]

    def read(path: str) -> bytes:
        with env.begin() as transaction:
            value: bytes = transaction.get(path.encode())
            return value

    return read


def many(paths: list[str]) -> int:
    """Its own call for several."""
    with env.begin() as transaction, transaction.cursor() as cursor:
        return sum(len(value) for _, value in cursor.getmulti([path.encode() for path in paths]))


run(create, opened, many)
