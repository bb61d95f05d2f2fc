"""Small tars of samples, as the tests of tars share them."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LONG = "a folder with a name that goes on and on/" * 4
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def sample(number: int) -> dict[str, Any]:
    """A sample by number; each third has no label."""
    key = f"{LONG if number % 4 == 1 else 'train/'}{number:04d}"
    return {
        "__key__": key,
        "txt": f"größe {number}".encode() * number,
        "left.bin": bytes(range(50 + number)),
        "cls": None if number % 3 == 2 else b"%d" % number,
    }


def members(samples: Iterable[dict[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    for one in samples:
        for name, data in one.items():
            if name != "__key__" and data is not None:
                yield f"{one['__key__']}.{name}", data


def tar(entries: Iterable[tuple[str, bytes]], format: int = tarfile.PAX_FORMAT, **headers: Any) -> bytes:
    """A tar by Python's tarfile."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, **headers) as file:
        for name, data in entries:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), 1_700_000_000, 0o640
            file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write_tars(folder: Path, count: int = 12) -> list[Path]:
    """A tar in each of the formats there are."""
    paths = []
    for number, format in enumerate(FORMATS):
        some = range(number, count, len(FORMATS))
        path = folder / f"shard-{number}.tar"
        path.write_bytes(tar(members(map(sample, some)), format))
        paths.append(path)
    return paths


def all_samples(count: int = 12) -> list[dict[str, Any]]:
    """What they hold, in order."""
    return [sample(i) for number in range(len(FORMATS)) for i in range(number, count, len(FORMATS))]
