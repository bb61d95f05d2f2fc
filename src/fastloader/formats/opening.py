"""From paths to samples: which files are meant, what they are, and who reads them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastloader.errors import FormatError, KeyNotFoundError, NotFoundError, StoreError
from fastloader.formats.arrays import ArrayFiles, ArrayRows
from fastloader.formats.arrow import ArrowFile, ArrowStream, Parquet
from fastloader.formats.barecat import OLD_ENDING, open_barecat
from fastloader.formats.beton import TYPES as BETON_TYPES
from fastloader.formats.beton import Beton
from fastloader.formats.decoding import Decode
from fastloader.formats.extents import ExtentDataset
from fastloader.formats.files import ClassFolders, RawFiles, has_classes, relative
from fastloader.formats.fld import MANIFEST, Manifest, is_sharded
from fastloader.formats.fld.manifest import is_own
from fastloader.formats.hdf5 import Hdf5
from fastloader.formats.lines import TYPES, CommaLines, JsonLines, ZippedCommaLines, ZippedJsonLines
from fastloader.formats.litdata import LitData
from fastloader.formats.mds import INDEX, Mds
from fastloader.formats.objects import Files, Object, Places, at_once
from fastloader.formats.recognise import NAMES, PACKED, format_of, is_empty, promised
from fastloader.formats.records import Names, Source
from fastloader.formats.tar import open_tar
from fastloader.formats.tar_packed import open_packed
from fastloader.formats.tfrecord import TFRecord, ZippedTFRecord
from fastloader.formats.utix import open_utix
from fastloader.formats.where import Where
from fastloader.formats.zips import open_zip
from fastloader.stores import ObjectPath
from fastloader.stores.urls import is_url, local_path

_BESIDE = re.compile(r"(_.*|readme.*|licen[sc]e.*|.*\.(md|crc|idx|index|lock|utix))", re.IGNORECASE)
"""Files that lie beside data and are none: what Spark leaves behind, what people write about it."""
_SHARD = re.compile(r"-shard-\d{5,}$")
"""How shards of a Barecat archive are called."""
_INDEXED = {"mds": (b'"shards"',), "litdata": (b'"chunks"', b'"data_format"')}
"""Formats that an ``index.json`` tells of, and what is found in it."""


@dataclass(frozen=True)
class Request:
    """What was asked for: files, the folder they are told relative to, and how they are to be read."""

    files: Files = field(default_factory=lambda: Files((), Places()))
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
    return (ArrayRows if rows else ArrayFiles)(request.files, request.fields)


def _folder(request: Request) -> Source:
    if not has_classes(request.files.paths, request.root):
        raise FormatError(
            "format='folder' needs every file in a folder that stands for its class", path=request.root or None,
            hint="format='raw' takes files wherever they lie",
        )  # fmt: skip
    return ClassFolders(request.files, request.root)


FORMATS: dict[str, Format] = {
    "raw": Format(lambda request: RawFiles(request.files, request.root)),
    "folder": Format(_folder),
    "npy": Format(_arrays, ("rows",)),
    "npz": Format(_arrays, ("rows",)),
    "csv": Format(lambda request: CommaLines(request.files, request.types), ("types",)),
    "csv.gz": Format(lambda request: ZippedCommaLines(request.files, request.types), ("types",)),
    "jsonl": Format(lambda request: JsonLines(request.files)),
    "jsonl.gz": Format(lambda request: ZippedJsonLines(request.files)),
    "parquet": Format(lambda request: Parquet(request.files, request.where), ("where",)),
    "arrow": Format(lambda request: ArrowFile(request.files, request.where), ("where",)),
    "arrow stream": Format(lambda request: ArrowStream(request.files)),
    "tfrecord": Format(lambda request: TFRecord(request.files, request.types), ("types",)),
    "tfrecord.gz": Format(lambda request: ZippedTFRecord(request.files, request.types), ("types",)),
    "hdf5": Format(lambda request: Hdf5(request.files, request.fields)),
    "mds": Format(lambda request: Mds(request.files)),
    "litdata": Format(lambda request: LitData(request.files, request.fields)),
    "beton": Format(lambda request: Beton(request.files, request.fields, request.types), ("types",)),
    "tar": Format(lambda request: open_tar(request.files, request.group, request.decode), ("decode", "group")),
    "tar.gz": Format(
        lambda request: open_packed(request.files, "tar.gz", request.group, request.decode), ("decode", "group")
    ),
    "tar.zst": Format(
        lambda request: open_packed(request.files, "tar.zst", request.group, request.decode), ("decode", "group")
    ),
    "zip": Format(lambda request: open_zip(request.files, request.group, request.decode), ("decode", "group")),
    "utix": Format(lambda request: open_utix(request.files, request.decode), ("decode",)),
    "barecat": Format(lambda request: open_barecat(request.files, request.decode), ("decode",)),
}
"""By the name that ``format=`` takes."""
_TYPES = {
    "csv": tuple(TYPES), "csv.gz": tuple(TYPES), "tfrecord": ("list",), "tfrecord.gz": ("list",), "beton": BETON_TYPES,
}  # fmt: skip


def open_source(
    path: Any,
    places: Places | None = None,
    *,
    format: str | None = None,
    fields: Sequence[str] | None = None,
    where: Where | None = None,
    rows: bool | None = None,
    types: Mapping[str, str] | None = None,
    decode: Decode = None,
    group: bool | None = None,
) -> Source | ExtentDataset | Own:
    """The samples at a path, by whoever reads them; where it is, if that is a ``.fld`` dataset.

    ``places`` says how objects in stores are got at, where not as the environment says.
    """
    places = Places() if places is None else places
    if format is not None and format not in FORMATS and format != "fld":
        raise ValueError(f"format={format!r}: one of fld, {', '.join(FORMATS)}")
    chosen = None if fields is None else (fields,) if isinstance(fields, str) else tuple(fields)
    if not all(isinstance(name, str) for name in chosen or ()):
        raise TypeError(f"fields={fields!r}: names of fields are texts")
    if chosen == ():
        raise KeyNotFoundError("fields: none chosen", path=str(path))
    request = Request(
        fields=chosen, where=where, rows=rows, types=None if types is None else dict(types), decode=decode, group=group
    )
    own = format in (None, "fld")
    paths, root, single, shards = _expanded(path, places, own)
    if own and (format == "fld" or (single and (shards or _is_fld(paths[0], places)))):
        _only("fld", request, ())
        if not single:
            raise _several(paths, root, places)
        return Own(paths[0], shards if isinstance(shards, Manifest) else None)
    if format in (None, *_INDEXED) and (indexed := _indexes(paths, root, places, format)) is not None:
        _only(indexed[0], request, ())
        return FORMATS[indexed[0]].make(replace(request, files=Files(indexed[1], places)))
    found = tuple(paths) if format is not None else _data(paths, root)
    name = format or _recognised(found, root, single, places)
    _only(name, request, FORMATS[name].options)
    return FORMATS[name].make(replace(request, files=Files(found, places), root=root, single=single))


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


class Own(NamedTuple):
    """A ``.fld`` dataset, and its manifest where that was read to know it."""

    path: str
    manifest: Manifest | None


class Meant(NamedTuple):
    """The files that are meant, the folder they are told relative to, whether it was one file or dataset, and whether
    that is known to be a folder of shards, by its manifest where there is no other way.
    """

    paths: list[str]
    root: str = ""
    single: bool = False
    shards: Manifest | bool = False


def _expanded(path: Any, places: Places, own: bool = False) -> Meant:
    """``own``: a folder of shards is one dataset, rather than files."""
    if not isinstance(path, str | bytes | os.PathLike):
        if not isinstance(path, Sequence):
            raise TypeError(f"a path, a pattern or a list of paths is needed, not a {type(path).__name__}")
        if not path:
            raise ValueError("an empty list of paths")
        if not any(map(is_url, path)):
            return Meant([file for one in path for file in _expanded(one, places).paths])
        return Meant([file for found in at_once(lambda n: _found(path[n], places), range(len(path))) for file in found])
    text = os.fsdecode(path)
    text = local_path(text) or text
    if is_url(text):
        if promised(text) == "fld" and not glob.has_magic(text):
            return Meant([text], single=True)
        if own and promised(text) is None and (manifest := _manifest(text, places)) is not None:
            return Meant([text], single=True, shards=manifest)
    store = places.of(text)
    if store.is_folder(text):
        if own and not is_url(text) and (is_sharded(Path(text)) or promised(text) == "fld"):
            return Meant([text], single=True, shards=True)
        found = store.within(text)
        if not found:
            raise FormatError("is an empty folder", path=text)
        return Meant(found, text)
    if glob.has_magic(text) and not text.startswith(("http://", "https://")) and not os.path.exists(text):
        found = store.match(text)
        if not found:
            raise NotFoundError("no file fits the pattern", path=text, hint="check the pattern")
        return Meant(found, _root_of(text))
    if text.endswith(".barecat") and not is_url(text) and not os.path.exists(text):
        text = text + OLD_ENDING if os.path.exists(text + OLD_ENDING) else text
    return Meant([text], single=True)


def _found(path: Any, places: Places) -> list[str]:
    """The files that a part of a list means. Of an object, which most are, is asked once."""
    if not is_url(path) or local_path(path) is not None or glob.has_magic(path):
        return _expanded(path, places).paths
    return places.of(path).within(path) if places.of(path).is_folder(path) else [path]


def _root_of(pattern: str) -> str:
    parts = pattern.split("/")
    fixed = next(number for number, part in enumerate(parts) if glob.has_magic(part))
    return "/".join(parts[:fixed]) or "."


def _manifest(url: str, places: Places) -> Manifest | None:
    """That of a folder of shards, which can be had by whoever may not list."""
    folder = None if glob.has_magic(url) else places.locate(url)
    if not isinstance(folder, ObjectPath):
        return None
    try:
        return Manifest.found(folder)
    except StoreError as error:
        error.path = url
        raise


def _is_fld(path: str, places: Places) -> bool:
    """A file so named, whose reader says best what is wrong with it, or one that holds a dataset."""
    return promised(path) == "fld" or format_of(places.open(path)) == "fld"


def _several(paths: Sequence[str], root: str, places: Places) -> FormatError:
    """The error of who means several files, each a dataset; or shards that nothing makes one."""
    if root and all(is_own(relative(path, root)) for path in paths) and not is_sharded(places.locate(root)):
        return FormatError(
            f"holds shards without {MANIFEST}, which comes last: whoever wrote them did not finish", path=root,
            hint="write the dataset again; a conversion that is run again goes on where it was",
        )  # fmt: skip
    return FormatError("several .fld datasets", path=root or paths[0], hint="fl.concatenate makes them one")


def _indexes(paths: Sequence[str], root: str, places: Places, format: str | None) -> tuple[str, tuple[str, ...]] | None:
    """The indexes of MDS shards or LitData's chunks among the files: of the folder itself, or of those within it."""
    found = [path for path in paths if os.path.basename(path) == INDEX]
    top = os.path.join(root, INDEX)
    texts = {path: _all_of(places.open(path)) for path in ([top] if top in found else found)}
    told = {
        name: tuple(path for path, text in texts.items() if all(mark in text for mark in marks))
        for name, marks in _INDEXED.items()
        if format in (None, name)
    }
    named = [(name, indexes) for name, indexes in told.items() if indexes]
    if len(named) > 1:
        said = " and ".join(f"{NAMES[name]} ({indexes[0]})" for name, indexes in named)
        raise FormatError(f"folders of several kinds: {said}", path=root or None, hint="choose with format=")
    return named[0] if named else None


def _all_of(source: Object) -> bytes:
    return source.read(0, source.size)


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


def _recognised(paths: Sequence[str], root: str, single: bool, places: Places) -> str:
    """The one format of all files. Of those whose names end alike, one is looked at, and no empty one if it can be."""
    kinds: dict[str, list[str]] = {}
    for path in paths:
        kinds.setdefault(_ending(path), []).append(path)
    found: dict[str | None, str] = {}
    for alike in kinds.values():
        example = next((one for one in map(places.open, alike) if not is_empty(one)), None)
        found.setdefault(format_of(example or places.open(alike[0])), example.path if example else alike[0])
    names = [name for name in found if name is not None]
    if len(found) == 1 and names:
        if names == ["fld"]:
            raise _several(paths, root, places)
        return names[0]
    if not names and not single:
        return "folder" if has_classes(paths, root) else "raw"
    if not names:
        source = places.open(paths[0])
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
