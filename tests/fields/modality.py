"""What a field is tried with: values in every form, values it must refuse, and ways to break what it stored."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import fastloader as fl
from fastloader.fields import Encoded, Field
from fastloader.testing.compare import row as one_of

Form = Callable[[Path], Any]
Damage = Callable[[Encoded], Encoded]


@dataclass(frozen=True)
class Modality:
    """A field, and what to do with it."""

    field: Field
    """With options that are not the usual ones."""
    forms: dict[str, Form]
    """One value in each form that is taken; made in a folder, for some are files."""
    bad: dict[str, tuple[Form, str]]
    """What is refused, and what the message says."""
    damage: dict[str, Damage]
    """What may be wrong with a value that is stored, although its checksum is right."""
    shown: str
    """Part of what ``fastloader cat`` says."""
    listed: str
    """Part of what ``fastloader ls`` says."""
    pipeline: Sequence[Any] = ()
    """Operations that it takes, if it takes some; of more than this field where a function gives them."""
    unseen: frozenset[str] = frozenset()
    """Damage that its pipeline does not see, as it decodes no more than it needs."""
    lossy: bool = False
    """Whether forms of the value are stored as different bytes, as they come encoded."""
    companions: dict[str, tuple[Field, Any]] = field(default_factory=dict)
    """Fields that its pipeline needs beside it, each with a value and with its own pipeline in ``pipelines``."""
    pipelines: dict[str, Sequence[Any]] = field(default_factory=dict)


def given(value: Any) -> Form:
    """The value, wherever."""
    return lambda folder: value


def file(name: str, make: Callable[[], bytes]) -> Form:
    """The name of a file of these bytes."""

    def made(folder: Path) -> Path:
        (folder / name).write_bytes(make())
        return folder / name

    return made


def opened(name: str, make: Callable[[], bytes]) -> Form:
    """A file of these bytes, open."""
    return lambda folder: io.BytesIO(make())


# Damage to what is stored.


def emptied(one: Encoded) -> Encoded:
    return Encoded(one.metadata, b"")


def truncated(one: Encoded) -> Encoded:
    data = bytes(one.payload)
    return Encoded(one.metadata, data[: len(data) // 2 + 1 - (len(data) // 2) % 2])


def longer(one: Encoded) -> Encoded:
    return Encoded(one.metadata, bytes(one.payload) + b"\0\1\2")


def noise(one: Encoded) -> Encoded:
    return Encoded(one.metadata, np.random.default_rng(0).bytes(len(bytes(one.payload))))


def row(place: int, value: Any) -> Damage:
    """Another number in the metadata row."""

    def damage(one: Encoded) -> Encoded:
        metadata = list(one.metadata)
        inner = metadata[place]
        metadata[place] = type(inner)([value]) if isinstance(inner, tuple | list) else value
        return Encoded(tuple(metadata), one.payload)

    return damage


def payload(data: bytes) -> Damage:
    """Other bytes."""
    return lambda one: Encoded(one.metadata, data)


USUAL: dict[str, Damage] = {"empty": emptied, "truncated": truncated, "longer": longer}


@contextmanager
def forging(field: Field) -> Iterator[None]:
    """Meanwhile the field's class stores what is ``Encoded`` already, right or wrong, as it is."""
    kind = type(field)
    prepare, encode = kind.prepare, kind.encode

    def taken(self: Field, value: Any) -> Any:
        return value if isinstance(value, Encoded) else prepare(self, value)

    def stored(self: Field, value: Any) -> Encoded:
        return value if isinstance(value, Encoded) else encode(self, value)

    with mock.patch.object(kind, "prepare", taken), mock.patch.object(kind, "encode", stored):
        yield


def write_broken(path: Path, name: str, modality: Modality, what: str) -> fl.DatasetReader:
    """Three samples, the middle one broken."""
    good = value_of(modality, path.parent)
    broken = modality.damage[what](modality.field.encode(modality.field.prepare(good)))
    beside = {other: value for other, (_, value) in modality.companions.items()}
    schema = {name: modality.field} | {other: one for other, (one, _) in modality.companions.items()}
    with forging(modality.field), fl.DatasetWriter(path, schema, num_workers=0) as writer:
        for value in (good, broken, good):
            writer.write_sample({name: value, **beside})
    return fl.open(path)


def value_of(modality: Modality, folder: Path) -> Any:
    """One value that is taken."""
    return next(iter(modality.forms.values()))(folder)


def used(value: Any) -> Any:
    """A value with all in it decoded, that would be later."""
    if isinstance(value, list):
        return [used(one) for one in value]
    if isinstance(value, dict):
        return {name: used(one) for name, one in value.items()}
    return np.asarray(value) if isinstance(value, fl.Video | fl.EncodedAudio) else value


def alone(value: Any) -> Any:
    """A packed sequence without what is told of a whole batch; anything else as it is."""
    packed = isinstance(value, dict) and "cu_seqlens" in value
    return {name: one for name, one in value.items() if name not in ("cu_seqlens", "max_seqlen")} if packed else value


def rows_of(part: Any, count: int) -> list[Any]:
    """The values of a batch, ``None`` where one is missing."""
    if not isinstance(part, dict) or "cu_seqlens" not in part:
        return [one_of(part, i) for i in range(count)]
    rows = [{name: values[i] for name, values in alone(part).items()} for i in range(count)]
    return [None if (one["document_ids"] < 0).all() else one for one in rows]
