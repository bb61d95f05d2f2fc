"""Zip: members where they lie, stored or deflated; every one is checked against the CRC-32 that zip files have."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence

import numpy as np

from fastloader.errors import FormatError
from fastloader.formats.decoding import Decode
from fastloader.formats.extents import ExtentDataset, Extents, Part
from fastloader.formats.indexes import read_ranges
from fastloader.formats.members import DATA, Names, dataset_of, grouped, parts_of
from fastloader.formats.objects import Files, Object, Places, Reading
from fastloader.types import key_bytes

_LOCAL = struct.Struct("<4s22xHH")
"""A member's own header: what it begins with, and the lengths of the name and of what else lies before the data."""
SIGNATURE = b"PK\x03\x04"
ENCRYPTED = 1


def infos_of(source: Object) -> list[zipfile.ZipInfo]:
    """What the directory at the end of a zip says."""
    try:
        with zipfile.ZipFile(io.BufferedReader(Reading(source))) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, struct.error) as error:
        raise FormatError(f"is no zip file, or it was cut short: {error}", path=source.path) from error


def data_offsets(source: Object, infos: Sequence[zipfile.ZipInfo]) -> list[int]:
    """Where the data of each member begins, which its own header alone tells."""
    heads = np.array([[info.header_offset, _LOCAL.size] for info in infos], np.int64).reshape(-1, 2)
    for info in infos:
        if not 0 <= info.header_offset <= source.size - _LOCAL.size:
            raise _bad(source, info, "lies outside of the file")
    found = []
    for info, head in zip(infos, read_ranges(source, heads), strict=True):
        signature, name, extra = _LOCAL.unpack(head)
        if signature != SIGNATURE:
            raise _bad(source, info, "has no header of a member there")
        found.append(info.header_offset + _LOCAL.size + name + extra)
        if found[-1] + info.compress_size > source.size:
            raise _bad(source, info, f"should have {info.compress_size} bytes, and the file ends before")
    return found


def _bad(source: Object, info: zipfile.ZipInfo, what: str) -> FormatError:
    return FormatError(f"offset {info.header_offset}: {info.filename!r} {what}", path=source.path)


def readable(source: Object, infos: Sequence[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """The files of a zip; one that is encrypted, or packed by another method than deflate, is an error."""
    found = [info for info in infos if not info.is_dir()]
    for info in found:
        if info.flag_bits & ENCRYPTED:
            raise _bad(source, info, "is encrypted, which is not read")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _bad(source, info, f"is packed by method {info.compress_type}; stored and deflated ones are read")
        if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
            raise _bad(source, info, "is stored as it is, and has two sizes")
    return sorted(found, key=lambda info: info.header_offset)


def zip_part(path: str, group: bool, places: Places) -> Part:
    """The samples of one zip."""
    source = places.open(path)
    infos = readable(source, infos_of(source))
    names = Names.of([key_bytes(info.filename) for info in infos])
    ranges = np.array(
        [[at, info.compress_size] for at, info in zip(data_offsets(source, infos), infos, strict=True)], np.int64
    ).reshape(-1, 2)
    sums = np.array([info.CRC for info in infos], np.uint32)
    packed = [info.file_size if info.compress_type == zipfile.ZIP_DEFLATED else -1 for info in infos]
    unzipped = np.array(packed, np.int64)
    if group:
        headers = np.array([info.header_offset for info in infos], np.int64)
        columns, keys = grouped(path, names, ranges, np.ones(len(infos), np.bool_), headers, unzipped, sums)
    else:
        columns, keys = {DATA: Extents(ranges, sums, unzipped)}, names
    return Part(path, places, source.size, source.identity, columns, keys.text, keys.ends)


def zip_parts(files: Files, group: bool) -> list[Part]:
    """The samples of several zips."""
    return parts_of(files, lambda path: zip_part(path, group, files.places))


def open_zip(files: Files, group: bool | None, decode: Decode) -> ExtentDataset:
    """The samples of zips; each member is one, unless they are to be grouped."""
    return dataset_of("zip", zip_parts, (files, bool(group)), bool(group), decode)
