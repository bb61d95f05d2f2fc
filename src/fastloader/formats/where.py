"""``where``: columns compared with values as Python would, without loss, and what that means for a row group unread."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

COMPARISONS = {
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
    "in": "is_in", "not in": "is_in",
}  # fmt: skip
"""What pyarrow calls them."""
Where = Sequence[tuple[str, str, Any]]
"""Comparisons that must all hold: (column, comparison, value)."""
Number: TypeAlias = int | float | Fraction

NUMBER, MOMENT, ZONED, SPAN, TIME, MISSING, OTHER = "number", "moment", "zoned", "span", "time", "missing", "other"
"""What can be compared with each other: the others as pyarrow does it."""
DAY = 86_400
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
COARSE = Fraction(1, 10**6)
"""Seconds: footers may tell times in microseconds, whatever the column has."""


def checked(where: Where) -> Where:
    """Comparisons that can be made."""
    if isinstance(where, tuple) and len(where) == 3 and isinstance(where[0], str):
        where = [where]
    return tuple(map(_checked, where))


def _checked(one: Any) -> tuple[str, str, Any]:
    if not isinstance(one, tuple | list) or len(one) != 3 or not isinstance(one[0], str):
        raise TypeError(f"where={one!r}: a comparison is (column, comparison, value), as in ('label', '==', 3)")
    name, comparison, value = one
    if comparison not in COMPARISONS:
        raise ValueError(f"where={one!r}: the comparison is one of {' '.join(COMPARISONS)}")
    if comparison in ("in", "not in"):
        if not isinstance(value, Iterable):
            raise TypeError(f"where={one!r}: {comparison!r} takes several values, as in ('label', 'in', [3, 4])")
        if not isinstance(value, Collection):
            value = list(value)  # once: it is gone through for each piece of each file, and a generator ends
    return name, comparison, value


def text_of(where: Where | None) -> str:
    """The same text for the same comparisons; a set has its values in any order."""
    return repr([
        (name, comparison, sorted(map(repr, value)) if comparison in ("in", "not in") else value)
        for name, comparison, value in where or ()
    ])  # fmt: skip


def measured(value: Any) -> tuple[str, Any]:
    """A value as a number that loses nothing, and what it is a number of: times are in seconds."""
    if isinstance(value, np.generic) and value.dtype.kind not in "Mm":
        value = value.item()
    if value is None:
        return MISSING, None
    if isinstance(value, int | float | Fraction):
        return NUMBER, value
    if isinstance(value, Decimal):
        return NUMBER, Fraction(value) if value.is_finite() else float(value)
    if not isinstance(value, date | time | timedelta | np.datetime64 | np.timedelta64):
        return OTHER, value
    import pyarrow as pa

    scalar = pa.scalar(value)
    family, scale, _ = _family(scalar.type)
    return (MISSING, None) if scalar.value is None else (family, Fraction(scalar.value) / scale)


def _family(kind: Any) -> tuple[str, int | Fraction, Any]:
    """What the values of a type are numbers of, how many make a second, and the type that they are numbers in."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return NUMBER, 1, pa.uint8()
    if types.is_integer(kind):
        return NUMBER, 1, kind
    if types.is_floating(kind):
        return NUMBER, 1, pa.float64()
    if types.is_timestamp(kind):
        return MOMENT if kind.tz is None else ZONED, PER_SECOND[kind.unit], pa.int64()
    if types.is_date32(kind):
        return MOMENT, Fraction(1, DAY), pa.int32()
    if types.is_date64(kind):
        return MOMENT, 1000, pa.int64()
    if types.is_duration(kind):
        return SPAN, PER_SECOND[kind.unit], pa.int64()
    if types.is_time(kind):
        return TIME, PER_SECOND[kind.unit], pa.int32() if types.is_time32(kind) else pa.int64()
    return MISSING if types.is_null(kind) else OTHER, 1, kind


def fitted(comparison: str, value: Number, low: int, high: int) -> tuple[str, int] | bool:
    """A comparison of whole numbers from ``low`` to ``high``, with one of them; or what holds for all."""
    if value != value or value > high or value < low:
        above, below = value > high, value < low
        return comparison == "!=" or (comparison[0] == "<" and above) or (comparison[0] == ">" and below)
    floor = math.floor(value)
    if floor == value:
        return comparison, floor
    if comparison in ("==", "!="):
        return comparison == "!="
    return "<=" if comparison[0] == "<" else ">", floor


def rounded(comparison: str, value: Number) -> tuple[str, float] | bool:
    """A comparison of floats, with one of them; or what holds for all."""
    try:
        near = float(value)
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if near == value or value != value:
        return comparison, near
    if comparison in ("==", "!="):
        return comparison == "!="
    if comparison[0] == "<":
        return "<" if near > value else "<=", near
    return ">=" if near > value else ">", near


@dataclass(frozen=True)
class Compared:
    """A column, as numbers where it can be."""

    column: Any
    family: str
    scale: int | Fraction
    said: str
    """Its name and type, for errors."""

    @classmethod
    def of(cls, name: str, column: Any) -> Compared:
        """Dictionaries are looked up."""
        import pyarrow as pa

        said = f"{name!r} is {column.type}"
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        family, scale, kind = _family(column.type)
        return cls(column if kind == column.type else column.cast(kind), family, scale, said)

    def number(self, comparison: str, value: Any) -> tuple[str, Number] | bool:
        """A comparison with a number that the column could hold; or what holds for all of its numbers."""
        import pyarrow as pa

        family, exact = measured(value)
        if MISSING in (family, self.family):
            return False
        if family != self.family:
            hint = " (one has a time zone and one has none)" if {family, self.family} == {MOMENT, ZONED} else ""
            raise TypeError(f"where: {self.said}, which does not compare with {value!r}{hint}")
        kind = self.column.type
        if pa.types.is_floating(kind):
            return rounded(comparison, exact)
        bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return fitted(comparison, exact if self.scale == 1 else exact * self.scale, low, high)

    def meets(self, comparison: str, value: Any) -> Any:
        """For which rows a comparison holds; missing ones may be null."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column, kind = self.column, self.column.type
        if comparison in ("in", "not in"):
            found = pc.is_in(column, value_set=self._values(value))
            return found if comparison == "in" else pc.and_(pc.invert(found), pc.is_valid(column))
        if self.family == OTHER:
            return getattr(pc, COMPARISONS[comparison])(column, value)
        made = self.number(comparison, value)
        if isinstance(made, bool):
            return pc.and_(pc.is_valid(column), made)
        return getattr(pc, COMPARISONS[made[0]])(column, pa.scalar(made[1], kind))

    def _values(self, values: Iterable[Any]) -> Any:
        """Those of the values that the column could hold. NaN is none of them: it equals nothing, not even itself."""
        import pyarrow as pa

        kind, found = self.column.type, list[Any]()
        for value in values:
            if self.family != OTHER:
                made = self.number("==", value)
                found += [] if isinstance(made, bool) or made[1] != made[1] else [made[1]]
            elif value is not None:
                try:
                    found.append(pa.scalar(value, kind))
                except pa.ArrowInvalid:  # a decimal of more places, for one
                    continue
        if pa.types.is_floating(kind) and 0 in found:
            found += [0.0, -0.0]  # which pyarrow tells apart here
        return pa.array(found, kind)


def mask(table: Any, where: Where) -> NDArray[np.bool_]:
    """For which rows all comparisons hold. A missing value meets none; NaN is unequal to all."""
    import pyarrow.compute as pc

    wanted = np.ones(table.num_rows, np.bool_)
    for name, comparison, value in where:
        found = Compared.of(name, table.column(name)).meets(comparison, value)
        wanted &= np.asarray(pc.fill_null(found, False)).astype(np.bool_)
    return wanted


def possible(low: Any, high: Any, comparison: str, value: Any) -> bool:
    """Whether a value from ``low`` to ``high`` can meet a comparison; where that can't be told, it may.

    These do not tell of NaN, which may be among floats.
    """
    if comparison == "in":
        return any(possible(low, high, "==", one) for one in value)
    if comparison == "not in":
        return all(possible(low, high, "!=", one) for one in value)
    (family, least), (other, most), (third, exact) = map(measured, (low, high, value))
    if not family == other == third:
        return True
    if family in (MOMENT, ZONED, SPAN, TIME):
        least, most = least - COARSE, most + COARSE
    try:
        if not least <= most:  # NaN, or signs that were lost
            return True
        if comparison == "==":
            return bool(least <= exact <= most)
        if comparison == "!=":
            return isinstance(least, float) or not least == most == exact
        if comparison == "<":
            return bool(least < exact)
        if comparison == "<=":
            return bool(least <= exact)
        return bool(most > exact if comparison == ">" else most >= exact)
    except TypeError:
        return True
