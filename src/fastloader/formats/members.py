"""Members of archives as samples: each one, or as WebDataset has it those that share a name up to its first dot."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FastLoaderError, FormatError
from fastloader.fields import BytesField, Field, IntField
from fastloader.formats.decoding import KEY, Decode, KeyField, field_of, fields_by_name
from fastloader.formats.extents import Column, ExtentDataset, Extents, Numbers, Part, Schema
from fastloader.formats.objects import Files
from fastloader.types import key_text

PATH, DATA, LABEL = "path", "data", "label"
OPENED_AT_ONCE = 16
MOST_FIELDS = 256
"""Kinds of members that samples may have; more are no dataset's."""
LOOKED_AT = 1000
"""Members whose endings tell what all are."""


@dataclass(frozen=True, eq=False)
class Names:
    """Names one behind the other, and where each ends."""

    text: bytes
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, names: Sequence[bytes]) -> Names:
        """These names."""
        return cls(b"".join(names), np.cumsum([len(name) for name in names], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> bytes:
        return self.text[int(self.ends[number - 1]) if number else 0 : int(self.ends[number])]

    def chosen(self, which: NDArray[np.bool_]) -> Names:
        """Some of them."""
        sizes = np.diff(self.ends, prepend=0)
        text = np.frombuffer(self.text, np.uint8)[np.repeat(which, sizes)].tobytes()
        return Names(text, np.cumsum(sizes[which], dtype=np.int64))


def grouped(
    path: str, names: Names, ranges: NDArray[np.int64], chosen: NDArray[np.bool_], places: NDArray[np.int64],
    unzipped: NDArray[np.int64] | None = None, checksums: NDArray[np.uint32] | None = None,
) -> tuple[dict[str, Column], Names]:  # fmt: skip
    """WebDataset's samples of the chosen members: for each field where its values lie, and the keys.

    ``places`` are the offsets that errors name.
    """
    try:
        samples, kinds, found, keys, key_ends = kernels.tar_samples(names.text, names.ends, chosen.view(np.uint8))
    except kernels.Failure as failure:
        at = int(places[failure.args[2]])
        raise FormatError(
            f"offset {at}: {failure.args[1]}", path=path, hint="group=False gives each member as a sample"
        ) from None
    if len(found) > MOST_FIELDS:
        raise FormatError(
            f"its members have {len(found)} different endings, too many for fields of samples", path=path,
            hint="group=False gives each member as a sample",
        )  # fmt: skip
    fields = [key_text(name) for name in found]
    if KEY in fields:
        raise FormatError(f"a member's name ends with .{KEY}, which is what keys are called", path=path)
    columns: dict[str, Column] = {}
    for number, field in enumerate(fields):
        mine = kinds == number
        rows = samples[mine]
        where = np.full((len(key_ends), 2), -1, np.int64)
        where[rows] = ranges[mine]
        sums, sizes = (
            None if given is None else _spread(given[mine], rows, len(key_ends)) for given in (checksums, unzipped)
        )
        columns[field] = Extents(where, sums, sizes)
    return columns, Names(keys, key_ends)


def _spread(values: NDArray[Any], rows: NDArray[np.int64], count: int) -> NDArray[Any]:
    out = np.full(count, -1 if values.dtype.kind == "i" else 0, values.dtype)
    out[rows] = values
    return out


def parts_of(files: Files, find: Callable[[str], Part]) -> list[Part]:
    """The samples of several files, which are looked at beside each other; an error names its file."""

    def one(path: str) -> Part:
        try:
            return find(path)
        except FastLoaderError as error:
            error.path = error.path or path
            raise

    paths = files.paths
    if len(paths) == 1:
        return [one(paths[0])]
    with ThreadPoolExecutor(min(OPENED_AT_ONCE, len(paths)), "fastloader-index") as pool:
        return list(pool.map(one, paths))


def _with(part: Part, first: Mapping[str, Column], last: Mapping[str, Column]) -> Part:
    return Part(
        part.path, part.places, part.size, part.identity, {**first, **part.columns, **last}, part.keys, part.key_ends
    )


def labelled(parts: Sequence[Part]) -> tuple[list[Part], tuple[str, ...] | None]:
    """With a number for the folder that each member lies in, where all lie in folders and these are several."""
    numbers: dict[bytes, int] = {}
    found = []
    for part in parts:
        values = array("q")
        for row in range(part.num_samples):
            folder, slash, _ = part.key(row).partition(b"/")
            if not slash:
                return list(parts), None
            values.append(numbers.setdefault(folder, len(numbers)))
        found.append(np.array(values, np.int64))
    if len(numbers) < 2:
        return list(parts), None
    classes = sorted(numbers)
    order = np.empty(len(classes), np.int64)
    order[[numbers[folder] for folder in classes]] = np.arange(len(classes))
    labels = [_with(part, {}, {LABEL: Numbers(order[values])}) for part, values in zip(parts, found, strict=True)]
    return labels, tuple(key_text(folder) for folder in classes)


class Found:
    """Samples that a function found, with their keys as the first field; found again where this is unpickled."""

    def __init__(self, find: Callable[..., Sequence[Part]], arguments: tuple[Any, ...], group: bool) -> None:
        self._made = find, arguments, group
        parts = find(*arguments)
        name = KEY if group else PATH
        parts = [_with(part, {name: part.key_column()}, {}) for part in parts]
        self.parts, self.classes = (parts, None) if group else labelled(parts)

    def __call__(self) -> Sequence[Part]:
        """The samples."""
        return self.parts

    def __reduce__(self) -> tuple[Any, ...]:
        return Found, self._made


def dataset_of(
    format: str, find: Callable[..., Sequence[Part]], arguments: tuple[Any, ...], group: bool, decode: Decode
) -> ExtentDataset:
    """A dataset of parts, with fields by the names that there are."""
    found = Found(find, arguments, group)
    names = list(dict.fromkeys(name for part in found.parts for name in part.columns))
    schema = fields_by_name(names, decode) if group else _fields(found.parts, names, decode)
    return ExtentDataset(Schema(format, schema, found, found.classes))


def _fields(parts: Sequence[Part], names: Sequence[str], decode: Decode) -> dict[str, Field]:
    """Of members by themselves."""
    known: dict[str, Field] = {PATH: KeyField(), LABEL: IntField(), DATA: BytesField()}
    if isinstance(decode, Mapping):
        known[DATA] = fields_by_name([PATH, DATA], decode)[DATA]
    elif decode:
        paths = [part.key(row) for part in parts for row in range(min(LOOKED_AT, part.num_samples))]
        endings = sorted({key_text(path).lower().rpartition("/")[2].rpartition(".")[2] for path in paths})
        kinds = [field_of(ending, True) for ending in endings]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError(
                f"decode=True: members of several kinds, {', '.join(map(repr, endings[:9]))}; "
                'decode={"data": field or function} says how to decode all of them'
            )
        known[DATA] = kinds[0] if kinds else BytesField()
    return {name: known[name] for name in names}
