"""From paths to samples: which files are meant, what they are, and who reads them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastloader.errors import FormatError, KeyNotFoundError, NotFoundError
from fastloader.formats.arrays import ArrayFiles, ArrayRows
from fastloader.formats.arrow import ArrowFile, ArrowStream, Parquet, Where
from fastloader.formats.barecat import OLD_ENDING, open_barecat
from fastloader.formats.decoding import Decode
from fastloader.formats.extents import ExtentDataset
from fastloader.formats.files import ClassFolders, RawFiles, has_classes
from fastloader.formats.fld import MANIFEST, is_sharded
from fastloader.formats.hdf5 import Hdf5
from fastloader.formats.lines import TYPES, CommaLines, JsonLines, ZippedCommaLines, ZippedJsonLines
from fastloader.formats.mds import INDEX, Mds
from fastloader.formats.objects import open_object, store_of
from fastloader.formats.recognise import NAMES, PACKED, format_of, promised
from fastloader.formats.records import Names, Source
from fastloader.formats.tar import open_tar
from fastloader.formats.tar_packed import open_packed
from fastloader.formats.tfrecord import TFRecord, ZippedTFRecord
from fastloader.formats.utix import open_utix
from fastloader.formats.zips import open_zip
from fastloader.stores.urls import is_url

_BESIDE = re.compile(r"(_.*|readme.*|licen[sc]e.*|.*\.(md|crc|idx|index|lock|utix))", re.IGNORECASE)
"""Files that lie beside data and are none: what Spark leaves behind, what people write about it."""
_SHARD = re.compile(r"-shard-\d{5,}$")
"""How shards of a Barecat archive are called."""


@dataclass(frozen=True)
class Request:
    """What was asked for: files, the folder they are told relative to, and how they are to be read."""

    paths: tuple[str, ...]
    root: str = ""
    single: bool = False
    """Whether one file was named, rather than a folder, a pattern or a list."""
    fields: Names = None
    where: Where | None = None
    rows: bool | None = None
    types: Mapping[str, str] | None = None
    decode: Decode = None
    group: bool | None = None


@dataclass(frozen=True)
class Format:
    """How a format is opened, and which of the options concern it."""

    make: Callable[[Request], Source | ExtentDataset]
    options: tuple[str, ...] = ()


def _arrays(request: Request) -> Source:
    rows = request.single if request.rows is None else request.rows
    return ArrayRows(request.paths, request.fields) if rows else ArrayFiles(request.paths)


def _folder(request: Request) -> Source:
    if not has_classes(request.paths, request.root):
        raise FormatError(
            "format='folder' needs every file in a folder that stands for its class", path=request.root or None,
            hint="format='raw' takes files wherever they lie",
        )  # fmt: skip
    return ClassFolders(request.paths, request.root)


FORMATS: dict[str, Format] = {
    "raw": Format(lambda request: RawFiles(request.paths, request.root)),
    "folder": Format(_folder),
    "npy": Format(_arrays, ("rows",)),
    "npz": Format(_arrays, ("rows",)),
    "csv": Format(lambda request: CommaLines(request.paths, request.types), ("types",)),
    "csv.gz": Format(lambda request: ZippedCommaLines(request.paths, request.types), ("types",)),
    "jsonl": Format(lambda request: JsonLines(request.paths)),
    "jsonl.gz": Format(lambda request: ZippedJsonLines(request.paths)),
    "parquet": Format(lambda request: Parquet(request.paths, request.where), ("where",)),
    "arrow": Format(lambda request: ArrowFile(request.paths, request.where), ("where",)),
    "arrow stream": Format(lambda request: ArrowStream(request.paths)),
    "tfrecord": Format(lambda request: TFRecord(request.paths, request.types), ("types",)),
    "tfrecord.gz": Format(lambda request: ZippedTFRecord(request.paths, request.types), ("types",)),
    "hdf5": Format(lambda request: Hdf5(request.paths, request.fields)),
    "mds": Format(lambda request: Mds(request.paths)),
    "tar": Format(lambda request: open_tar(request.paths, request.group, request.decode), ("decode", "group")),
    "tar.gz": Format(
        lambda request: open_packed(request.paths, "tar.gz", request.group, request.decode), ("decode", "group")
    ),
    "tar.zst": Format(
        lambda request: open_packed(request.paths, "tar.zst", request.group, request.decode), ("decode", "group")
    ),
    "zip": Format(lambda request: open_zip(request.paths, request.group, request.decode), ("decode", "group")),
    "utix": Format(lambda request: open_utix(request.paths, request.decode), ("decode",)),
    "barecat": Format(lambda request: open_barecat(request.paths, request.decode), ("decode",)),
}
"""By the name that ``format=`` takes."""
_TYPES = {"csv": tuple(TYPES), "csv.gz": tuple(TYPES), "tfrecord": ("list",), "tfrecord.gz": ("list",)}


def open_source(
    path: Any,
    *,
    format: str | None = None,
    fields: Sequence[str] | None = None,
    where: Where | None = None,
    rows: bool | None = None,
    types: Mapping[str, str] | None = None,
    decode: Decode = None,
    group: bool | None = None,
) -> Source | ExtentDataset | str:
    """The samples at a path, by whoever reads them; a path again where it is a ``.fld`` dataset."""
    if format is not None and format not in FORMATS and format != "fld":
        raise ValueError(f"format={format!r}: one of fld, {', '.join(FORMATS)}")
    chosen = None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
    if chosen == ():
        raise KeyNotFoundError("fields: none chosen", path=str(path))
    request = Request((), "", False, chosen, where, rows, None if types is None else dict(types), decode, group)
    paths, root, single = _expanded(path)
    if format == "fld" or (format is None and _is_fld(paths, single)):
        _only("fld", request, ())
        if not single:
            raise FormatError("several .fld datasets", path=paths[0], hint="fl.concatenate makes them one")
        return paths[0]
    if format in (None, "mds") and (indexes := _mds_indexes(paths, root)):
        _only("mds", request, ())
        return FORMATS["mds"].make(_over(request, indexes, root, single))
    found = tuple(paths) if format is not None else _data(paths, root)
    name = format or _recognised(found, root, single)
    _only(name, request, FORMATS[name].options)
    return FORMATS[name].make(_over(request, found, root, single))


def _over(request: Request, paths: Sequence[str], root: str, single: bool) -> Request:
    return replace(request, paths=tuple(paths), root=root, single=single)


def _only(name: str, request: Request, options: tuple[str, ...]) -> None:
    """Refuse options that would have no effect."""
    cures = {"where": "; use .filter(function)", "rows": "", "types": "; use .map(function)",
             "decode": "; use .map(function)", "group": ""}  # fmt: skip
    for option, cure in cures.items():
        if getattr(request, option) is not None and option not in options:
            raise ValueError(f"{option}= has no meaning for {NAMES[name]}{cure}")
    for column, kind in (request.types or {}).items():
        if kind not in _TYPES[name]:
            raise ValueError(f"types={{{column!r}: {kind!r}}}: for {NAMES[name]}, one of {', '.join(_TYPES[name])}")


def _expanded(path: Any) -> tuple[list[str], str, bool]:
    """The files that are meant, the folder they are told relative to, and whether it was one file or dataset."""
    if not isinstance(path, str | bytes | os.PathLike):
        if not isinstance(path, Sequence):
            raise TypeError(f"a path, a pattern or a list of paths is needed, not a {type(path).__name__}")
        if not path:
            raise ValueError("an empty list of paths")
        return [file for one in path for file in _expanded(one)[0]], "", False
    text = os.fsdecode(path)
    store = store_of(text)
    if store.is_folder(text):
        if not is_url(text) and (is_sharded(Path(text)) or promised(text) == "fld"):
            return [text], "", True
        found = store.within(text)
        if is_url(text) and f"{text.rstrip('/')}/{MANIFEST}" in found:
            return [text], "", True
        if not found:
            raise FormatError("is an empty folder", path=text)
        return found, text, False
    if glob.has_magic(text) and not text.startswith(("http://", "https://")) and not os.path.exists(text):
        found = store.match(text)
        if not found:
            raise NotFoundError("no file fits the pattern", path=text, hint="check the pattern")
        return found, _root_of(text), False
    if text.endswith(".barecat") and not is_url(text) and not os.path.exists(text):
        text = text + OLD_ENDING if os.path.exists(text + OLD_ENDING) else text
    return [text], "", True


def _root_of(pattern: str) -> str:
    parts = pattern.split("/")
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:fixed]) or "."


def _is_fld(paths: Sequence[str], single: bool) -> bool:
    """A folder of shards, a file so named, whose reader says best what is wrong with it, or one that holds one."""
    if not single:
        return False
    path = paths[0]
    return promised(path) == "fld" or store_of(path).is_folder(path) or format_of(open_object(path)) == "fld"


def _mds_indexes(paths: Sequence[str], root: str) -> list[str]:
    """The indexes of MDS shards among the files: of the folder itself, or of those within it."""
    found = [path for path in paths if os.path.basename(path) == INDEX]
    top = os.path.join(root, INDEX)
    if top in found:
        found = [top]
    return [path for path in found if b'"shards"' in _beginning(path)]


def _beginning(path: str) -> bytes:
    source = open_object(path)
    return source.read(0, min(4096, source.size)) if source.size < 4096 else source.read(0, source.size)


def _data(paths: Sequence[str], root: str) -> tuple[str, ...]:
    """Files without those that lie beside; all of them where that would leave none."""
    kept = tuple(path for path in paths if not _BESIDE.fullmatch(os.path.basename(path))) if root else tuple(paths)
    indexes = {path.removesuffix(OLD_ENDING) for path in kept if path.endswith((".barecat", OLD_ENDING))}
    if indexes:  # they tell of the shards beside them
        kept = tuple(path for path in kept if not _SHARD.search(path) or _SHARD.sub("", path) not in indexes)
    return kept or tuple(paths)


def _ending(path: str) -> str:
    """How a name ends, whatever number it has."""
    stem, suffix = os.path.splitext(path)
    suffix = suffix.lower()
    return re.sub(r"\d+", "#", os.path.splitext(stem)[1].lower() + suffix if suffix in PACKED else suffix)


def _recognised(paths: Sequence[str], root: str, single: bool) -> str:
    """The one format of all files. Of those whose names end alike, one is looked at."""
    kinds: dict[str, str] = {}
    for path in paths:
        kinds.setdefault(_ending(path), path)
    found: dict[str | None, str] = {}
    for example in kinds.values():
        found.setdefault(format_of(open_object(example)), example)
    names = [name for name in found if name is not None]
    if len(found) == 1 and names:
        if names == ["fld"]:
            raise FormatError("several .fld datasets", path=root or paths[0], hint="fl.concatenate makes them one")
        return names[0]
    if not names and not single:
        return "folder" if has_classes(paths, root) else "raw"
    if not names:
        source = open_object(paths[0])
        begins = f"begins with {source.read(0, min(8, source.size))!r}" if source.size else "is empty"
        raise FormatError(
            f"is no dataset that is known here: it {begins}", path=paths[0],
            hint="format='raw' takes each file as a sample",
        )  # fmt: skip
    said = ", ".join(f"{NAMES[name or 'raw']} ({os.path.relpath(at, root or None)})" for name, at in found.items())
    pattern = os.path.join(root, f"*{os.path.splitext(found[names[0]])[1]}")
    raise FormatError(
        f"files of several kinds: {said}", path=root or None,
        hint=f"choose with a pattern, as in {pattern!r}, or with format=",
    )  # fmt: skip
