"""Archives of every kind, made of one folder, and what each shows when it is extracted.

Where FUSE can't be used, what it would ask is asked all the same; only the tests that mount are left out.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.archive.conftest import jpeg

from fastloader.archive import FolderSink
from fastloader.archive.conversion import sink_at, source_at
from fastloader.formats.entries import copy_entries

usable = os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3")
collect_ignore = [] if usable else ["test_mounted.py"]

KINDS = ("fld", "fld packed", "fld shards", "tar", "tar.gz", "tar.zst", "zip", "barecat")
LARGE = 5_000_000
"""Bytes of a file that is read in parts, and in more than one block."""


@dataclass(frozen=True)
class Made:
    """An archive, and the folder it was extracted to."""

    path: Path
    extracted: Path


def facts(folder: str | os.PathLike[str]) -> dict[bytes, tuple[object, ...]]:
    """What there is to know of everything in a folder."""
    found: dict[bytes, tuple[object, ...]] = {}
    root = os.fsencode(folder)
    for top, folders, files in os.walk(root):
        for name in [*folders, *files]:
            place = os.path.join(top, name)
            status = os.lstat(place)
            content: bytes | None = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(place)
            elif stat.S_ISREG(status.st_mode):
                content = Path(os.fsdecode(place)).read_bytes()
                assert len(content) == status.st_size
            when = 0 if content is not None and stat.S_ISLNK(status.st_mode) else status.st_mtime_ns
            found[os.path.relpath(place, root)] = (status.st_mode, when, content)
    return found


@pytest.fixture(scope="session")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every format can hold."""
    top = tmp_path_factory.mktemp("plain") / "folder"
    (top / "a" / "b").mkdir(parents=True)
    (top / "empty").mkdir(mode=0o700)
    (top / "a" / "x.txt").write_text("hello")
    (top / "a-b").write_bytes(b"z" * 3000)
    (top / "a.b").write_bytes(b"")
    (top / "a" / "b" / "1.jpg").write_bytes(jpeg(1))
    (top / "large.bin").write_bytes(np.random.default_rng(0).bytes(LARGE))
    (top / "large.txt").write_bytes(b"the same again and again " * (LARGE // 25))
    (top / "new\nline, space \\ and ü").write_bytes(b"odd")
    os.chmod(top / "a-b", 0o640)
    os.utime(top / "a-b", ns=(1, 1_234_567_890_000_000_000))
    os.chmod(top / "a" / "b", 0o750)
    return top


@pytest.fixture(scope="session")
def odd_folder(plain_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with links of both kinds, names that are no UTF-8, and times with parts of seconds, before 1970 too."""
    top = tmp_path_factory.mktemp("odd") / "folder"
    shutil.copytree(plain_folder, top)
    Path(os.fsdecode(os.fsencode(top) + b"/\xff\xfe.bin")).write_bytes(b"\x00\xff")
    os.symlink("x.txt", top / "a" / "link")
    os.symlink("a/b", top / "folder-link")
    os.symlink("nowhere", top / "dangling")
    os.link(top / "a" / "x.txt", top / "y-hard.txt")
    os.utime(top / "a-b", ns=(1, 1_234_567_890_123_456_789))
    os.utime(top / "a.b", ns=(1, -5_000_000_001))
    return top


@pytest.fixture(scope="session", params=KINDS)
def made(
    request: pytest.FixtureRequest, plain_folder: Path, odd_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    """An archive of each kind."""
    kind, _, manner = request.param.partition(" ")
    place = tmp_path_factory.mktemp("made")
    path = place / f"some, archive.{kind}"
    folder = plain_folder if kind in ("zip", "barecat") else odd_folder
    if kind == "tar":  # of another program
        subprocess.run(["tar", "--format=pax", "-cf", path, "-C", folder, "."], check=True)
    else:
        options = {"packed": {"compression": "zstd"}, "shards": {"shard_size": "2MB"}}.get(manner, {})
        with sink_at(str(path), **options) as sink:  # type: ignore[arg-type, attr-defined]
            copy_entries(source_at(str(folder)), sink)
    with FolderSink(place / "extracted") as out:
        copy_entries(source_at(str(path)), out)
    return Made(path, place / "extracted")


__all__ = ["KINDS", "LARGE", "Made", "facts"]
