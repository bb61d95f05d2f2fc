"""What a file is, told from its bytes. A name only helps where bytes can't tell: CSV is any text with commas."""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
import zlib

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.formats import arrow, hdf5, tfrecord
from fastloader.formats.arrays import NPY, ZIP
from fastloader.formats.beton_layout import is_beton
from fastloader.formats.fld.layout import MAGIC as FLD
from fastloader.formats.lines import DELIMITERS
from fastloader.formats.objects import Object, Reading
from fastloader.formats.scanning import BOM
from fastloader.formats.tar import is_tar

LOOK = 64 << 10
ZSTD_LOOK = (128 << 10) + 64
"""The largest first block of zstd and what lies before it: no byte of a block is known before all of it is."""
GZIP, ZSTD, SQLITE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\0"
EMPTY_ZIP = b"PK\x05\x06"
EMPTY_GZIP = 1024
"""Bytes that a gzipped file of none has at most: it may tell its name."""
PACKED = (".gz", ".gzip", ".zst", ".zstd")
BY_SUFFIX = {
    ".fld": "fld", ".npy": "npy", ".npz": "npz", ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".tfrecord": "tfrecord", ".tfrecords": "tfrecord", ".h5": "hdf5", ".hdf5": "hdf5", ".mds": "mds", ".tar": "tar",
    ".tgz": "tar", ".tzst": "tar", ".zip": "zip", ".barecat": "barecat", ".barecat-sqlite-index": "barecat",
    ".utix": "utix", ".beton": "beton",
}  # fmt: skip
"""What a name promises. Bytes that say something else are an error, not another format."""

_MAGIC = (
    (FLD, "fld"), (arrow.PARQUET, "parquet"), (arrow.ARROW, "arrow"), (hdf5.SIGNATURE, "hdf5"), (NPY, "npy"),
)  # fmt: skip


def promised(path: str) -> str | None:
    """The format that a name stands for."""
    stem, suffix = os.path.splitext(path.lower())
    return BY_SUFFIX.get(os.path.splitext(stem)[1] if suffix in PACKED else suffix)


def is_empty(source: Object) -> bool:
    """Whether a file has no bytes, or is a gzipped one of none: a shard that got no samples."""
    if source.size > EMPTY_GZIP:
        return False
    head = source.read(0, source.size)
    if not head.startswith(GZIP):
        return not head
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        return not unzip.decompress(head, 1) and unzip.eof
    except zlib.error:
        return False


def format_of(source: Object) -> str | None:
    """The format of a file, or ``None``: bytes like any other. A name that promises another is an error."""
    head = source.read(0, min(LOOK, source.size))
    named = promised(source.path)
    found = _by_bytes(source, head)
    if named == "utix" and found in (None, "jsonl"):
        found = "utix"
    if found is None and named == "beton":
        found = "beton"  # no magic number says so; its reader tells what is wrong
    if found is None and named == "csv" and _is_text(_unpacked(head)):
        found = "csv.gz" if head.startswith(GZIP) else "csv"
    if head.startswith(arrow.FEATHER_1):
        raise FormatError(
            "is Feather version 1, which is not read here", path=source.path,
            hint="rewrite it with pyarrow.feather.write_feather(table, path)",
        )  # fmt: skip
    if named is None or found is None:
        if named is not None:
            begins = "it is empty" if not head else f"it begins with {head[:8]!r}"
            raise FormatError(f"is named like {NAMES[named]} and is none: {begins}", path=source.path)
        return found
    if named not in (found, *_RELATED.get(found, ())):
        raise FormatError(
            f"is named like {NAMES[named]} and holds {NAMES[found]}", path=source.path,
            hint=f"rename it, or open it with format={found!r}",
        )  # fmt: skip
    return found


NAMES = {
    "fld": "a .fld dataset", "npy": "NPY", "npz": "NPZ", "csv": "CSV", "csv.gz": "gzipped CSV", "jsonl": "JSONL",
    "jsonl.gz": "gzipped JSONL", "parquet": "Parquet", "arrow": "Arrow IPC", "arrow stream": "an Arrow IPC stream",
    "tfrecord": "TFRecord", "tfrecord.gz": "gzipped TFRecord", "hdf5": "HDF5", "mds": "MDS",
    "litdata": "LitData's chunks", "raw": "plain files", "folder": "folders of files", "tar": "tar",
    "tar.gz": "gzipped tar", "tar.zst": "tar packed with zstd", "zip": "zip",
    "barecat": "a Barecat archive", "utix": "a .utix index of a tar", "beton": "FFCV's .beton",
}  # fmt: skip
_RELATED = {
    "arrow stream": ("arrow",), "jsonl.gz": ("jsonl",), "csv.gz": ("csv",), "tfrecord.gz": ("tfrecord",),
    "tar.gz": ("tar",), "tar.zst": ("tar",), "npz": ("zip",),
}  # fmt: skip


def _by_bytes(source: Object, head: bytes) -> str | None:
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if head.startswith(ZIP):
        return "npz" if promised(source.path) != "zip" and _holds_arrays(source) else "zip"
    if head.startswith(EMPTY_ZIP):
        return "zip"
    if head.startswith(SQLITE):
        return "barecat" if b"shard_size_limit" in head or promised(source.path) == "barecat" else None
    if head.startswith(ZSTD):
        inner = _by_start(_unpacked(source.read(0, min(ZSTD_LOOK, source.size))))
        return "tar.zst" if inner == "tar" else None
    if head.startswith(GZIP):
        inner = _by_start(_unpacked(head))
        return None if inner is None else f"{inner}.gz"
    if is_beton(source, head):
        return "beton"
    if head.startswith(arrow.CONTINUATION) and len(head) > 8 and 0 < int.from_bytes(head[4:8], "little") < source.size:
        return "arrow stream"
    if any(source.size > at + 8 and source.read(at, 8) == hdf5.SIGNATURE for at in (512, 1024, 2048)):
        return "hdf5"  # with a block of the user's before it
    found = _by_start(head)
    # Zeros are a tar of nothing, and a file of any kind that nobody has finished: then the name decides.
    return found if found != "tar" or any(head) or promised(source.path) == "tar" else None


def _by_start(head: bytes) -> str | None:
    """Formats that may be gzipped."""
    if tfrecord.is_head(head):
        return "tfrecord"
    if is_tar(head):
        return "tar"
    if not _is_text(head):
        return None
    # Not splitlines: it takes U+2028 and others for ends of lines, which stand in texts of JSON as they are.
    lines = re.split("\r?\n", head.removeprefix(BOM).decode("utf-8", "replace"))
    if len(head) == LOOK and len(lines) == 1:  # a line longer than what is looked at
        return "jsonl" if re.match(r'\s*\{\s*"', lines[0]) else None
    lines = lines[:-1] if len(head) == LOOK else lines
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("{"):
        try:
            return "jsonl" if isinstance(json.loads(first), dict) else None
        except ValueError:
            return None
    return "csv" if _looks_like_csv(lines) else None


def _looks_like_csv(lines: list[str]) -> bool:
    """A line of names, and rows with as many values: at least three lines and two columns."""
    for mark in DELIMITERS[:2]:
        counts = [line.count(mark) for line in lines if line][:10]
        names = [name.strip().strip('"') for name in lines[0].split(mark)] if lines else []
        if len(counts) > 2 and counts[0] and len(set(counts)) == 1 and len(set(names)) == len(names):
            return all(name and not name[0].isdigit() and " " not in name for name in names)
    return False


def _is_text(head: bytes) -> bool:
    if not head or b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 and len(head) >= LOOK  # a letter cut in two
    return True


def _unpacked(head: bytes) -> bytes:
    """The beginning of what a gzipped beginning stands for."""
    if head.startswith(ZSTD):
        try:
            return kernels.Unzstd().feed(head)[:LOOK]
        except kernels.Failure:
            return b""
    if not head.startswith(GZIP):
        return head
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, LOOK)
    except zlib.error:
        return b""


def _holds_arrays(source: Object) -> bool:
    try:
        with zipfile.ZipFile(io.BufferedReader(Reading(source))) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return True  # cut short, most likely: reading it says so
    return bool(names) and all(name.endswith(".npy") for name in names)
