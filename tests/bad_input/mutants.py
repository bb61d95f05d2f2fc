"""Mutants of the small datasets, numbered: the same seed and number always give the same bytes.

Half are systematic (every integer of every structure takes every interesting value, in an order the seed shuffles),
half are drawn. A *raw* mutant keeps its checksums as they were; a *resealed* one has all of them right, so that only
the code behind the checksums can refuse it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from fastloader.formats.fld import MANIFEST

from .anatomy import Anatomy, Number, reseal
from .datasets import Base
from .manifests import change_content, damage_text, renew_manifest
from .operations import ANY, SEALED_ONLY, Edit, flip_anywhere, interesting, set_numbers

ROWS_A_TABLE = 3
"""Rows of a table whose integers are gone through: the first ones and the last."""


@dataclass(frozen=True)
class Mutant:
    """The files to read, what was done to them, and whose values may come back."""

    number: int
    what: str
    base: Base
    files: dict[str, bytes]
    sealed: bool
    origins: tuple[Base, ...]

    @property
    def matters(self) -> bool:
        """For a raw mutant: whether anything a reader relies on has changed, whichever origin it is held against."""
        return all(_differs(self.files, origin) for origin in self.origins)

    @property
    def unreadable(self) -> frozenset[str]:
        """Fields that no reader here knows."""
        return frozenset().union(*(origin.unreadable for origin in self.origins))


def _differs(files: dict[str, bytes], base: Base) -> bool:
    if files.keys() != base.files.keys():
        return True
    for name, data in files.items():
        before, anatomy = base.files[name], base.anatomies.get(name)
        if data == before:
            continue
        if anatomy is None:
            return _json(data) != _json(before)
        if (base.is_folder and len(data) != len(before)) or anatomy.matters(before, data):
            return True
    return False


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _kind(sealed: bool) -> str:
    return "resealed" if sealed else "raw"


class Mutants:
    """All mutants of some datasets, by number."""

    def __init__(self, bases: dict[str, Base], seed: int) -> None:
        self.bases = list(bases.values())
        self.seed = seed
        self.systematic = [
            (base, name, number, value, sealed)
            for base in self.bases
            for name, anatomy in list(base.anatomies.items())[:1]
            for number in _few_rows(anatomy)
            for i, value in enumerate(interesting(number, base.files[name]))
            for sealed in (True, False)
            if (i == 0 or sealed) and not (sealed and number.is_checksum)
        ]
        Random(f"order {seed}").shuffle(self.systematic)

    def __getitem__(self, number: int) -> Mutant:
        rng = Random(f"mutant {self.seed} {number}")
        if number % 2 == 0:
            base, name, place, value, sealed = self.systematic[number // 2 % len(self.systematic)]
            edit = Edit(base, name)
            place.put(edit.data, value)
            return self._finish(number, f"{place.what} = {value}", edit, sealed, rng)
        base = rng.choice(self.bases)
        sealed = rng.random() < 0.65
        what = rng.random()
        if base.is_folder and what < 0.5:
            files = dict(base.files)
            said = change_content(files, rng) if sealed else damage_text(files, rng)
            return Mutant(number, f"{_kind(sealed)} {base.name}: {said}", base, files, sealed, (base,))
        if what > 0.94:
            return self._splice(number, base, sealed, rng)
        edit = Edit(base, rng.choice(list(base.anatomies)))
        done = [rng.choice(ANY + SEALED_ONLY if sealed else ANY)(edit, rng)]
        if rng.random() < 0.15 and edit.data:
            done.append(rng.choice([set_numbers, flip_anywhere])(edit, rng))
        return self._finish(number, "; ".join(done), edit, sealed, rng)

    def _splice(self, number: int, base: Base, sealed: bool, rng: Random) -> Mutant:
        other = rng.choice([b for b in self.bases if b.is_folder == base.is_folder])
        edit = Edit(base, rng.choice(list(base.anatomies)))
        donor = other.files[rng.choice(list(other.anatomies))]
        spans = edit.anatomy.spans
        at = rng.choice([rng.choice(spans).begin, rng.choice(spans).end, rng.randrange(len(edit.data))])
        edit.data[at:] = donor[rng.choice([at, at, rng.randrange(len(donor))]) :]
        return self._finish(number, f"from byte {at} on, {other.name}", edit, sealed, rng, (base, other))

    def _finish(
        self, number: int, what: str, edit: Edit, sealed: bool, rng: Random, origins: tuple[Base, ...] = ()
    ) -> Mutant:
        if sealed:
            reseal(edit.data)
        files = {**edit.base.files, edit.name: bytes(edit.data)}
        if sealed and edit.base.is_folder and rng.random() < 0.9:
            files[MANIFEST] = renew_manifest(files[MANIFEST], edit.name, edit.data)
        where = f"{edit.base.name}{':' if edit.name else ''}{edit.name}"
        return Mutant(number, f"{_kind(sealed)} {where}: {what}", edit.base, files, sealed, origins or (edit.base,))


def _few_rows(anatomy: Anatomy) -> list[Number]:
    """The integers of header, directory and descriptors, and those of some rows of each table."""
    rows = {row.what for group in anatomy.rows.values() for row in group}
    kept = {row.what for group in anatomy.rows.values() for row in [*group[: ROWS_A_TABLE - 1], *group[-1:]]}
    fixed = {row.what for name in ("directory", "descriptors") for row in anatomy.rows[name]}
    return [
        n
        for n in anatomy.numbers
        if (owner := n.what.partition(".")[0].partition("[")[0]) not in rows - fixed or owner in kept
    ]
