"""Folders to put into archives, and how two folders are told to be the same."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fastloader.archive import Archive, ArchiveWriter, FolderSource


def jpeg(seed: int = 0, **options: object) -> bytes:
    """A small JPEG file."""
    pixels = np.random.default_rng(seed).integers(0, 255, (40 + seed, 56, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", **options)
    return file.getvalue()


def facts(folder: Path) -> dict[bytes, tuple[object, ...]]:
    """All that an archive keeps of a folder: kinds, modes, times, content, links, and which names are of one file."""
    found: dict[bytes, tuple[object, ...]] = {}
    first: dict[int, bytes] = {}
    root = os.fsencode(folder)
    for top, folders, files in os.walk(root):
        for name in sorted([*folders, *files]):
            place = os.path.join(top, name)
            status = os.lstat(place)
            path = os.path.relpath(place, root)
            content: object = None
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(place)
            elif stat.S_ISREG(status.st_mode):
                content = (Path(os.fsdecode(place)).read_bytes(), status.st_nlink)
            found[path] = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), status.st_mtime_ns, content)
            first.setdefault(status.st_ino, path)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One of everything: empty files and folders, links of both kinds, odd names, JPEG files, modes, a large file."""
    top = tmp_path / "folder"
    (top / "a" / "b").mkdir(parents=True)
    (top / "empty").mkdir(mode=0o700)
    (top / "a" / "x.txt").write_text("hello")
    (top / "a-b").write_bytes(b"z" * 100)  # between the folder a and what is in it, in the order of bytes
    (top / "a.b").write_bytes(b"")
    (top / "a" / "b" / "1.jpg").write_bytes(jpeg(1))
    (top / "a" / "b" / "2.JPG").write_bytes(jpeg(2, progressive=True))
    (top / "a" / "b" / "cut.jpg").write_bytes(jpeg(3)[:-200])
    (top / "a" / "b" / "fake.jpg").write_bytes(b"\xff\xd8\xff no more")
    (top / "large").write_bytes(np.random.default_rng(0).bytes(3 << 20))
    (top / "new\nline and space").write_bytes(b"odd")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff\xfe.bin")).write_bytes(b"\x00\xff")
    os.symlink("x.txt", top / "a" / "link")
    os.symlink("a/b", top / "folder-link")
    os.symlink("nowhere", top / "dangling")
    os.link(top / "a" / "x.txt", top / "y-hard.txt")
    os.chmod(top / "a-b", 0o4751)
    os.utime(top / "a-b", ns=(1, 1_234_567_890_123_456_789))
    os.utime(top / "a.b", ns=(1, -5_000_000_001))
    os.chmod(top / "a" / "b", 0o750)
    os.utime(top / "empty", ns=(7, 7))
    return top


@pytest.fixture
def archive(folder: Path, tmp_path: Path) -> Archive:
    """That folder as an archive."""
    with ArchiveWriter(tmp_path / "x.fld", workers=1) as writer:
        writer.add_folder(FolderSource(folder))
    return Archive(tmp_path / "x.fld")
