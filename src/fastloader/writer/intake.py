"""Samples on their way in: put in field order, in our own memory, and gathered until there are enough for a chunk."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fastloader.errors import SampleError
from fastloader.formats.fld import FieldSpec
from fastloader.types import SampleLike
from fastloader.writer.encoding import bad_value


class Intake:
    """Takes hold of samples of a given schema."""

    def __init__(self, specs: Sequence[FieldSpec]) -> None:
        self._names = [spec.name for spec in specs]
        self._prepare = [(spec.name, spec.field.prepare) for spec in specs]
        self._count = len(specs)

    def take(self, sample: SampleLike, number: int) -> tuple[list[Any], int]:
        """The sample's values in field order, in our own memory, and about how many bytes of it.

        This runs once a sample: a dictionary that has as many values as there are fields, and one for each of them,
        needs no further check.
        """
        if type(sample) is not dict:
            sample = self._named(sample, number)
        if len(sample) != self._count:
            raise self._wrong_names(sample, number)
        values: list[Any] = []
        size = 0
        try:
            for name, prepare in self._prepare:
                value = sample.get(name)
                if value is not None:
                    value = prepare(value)
                    size += len(value) if type(value) is bytes else size_of(value)
                elif name not in sample:
                    break
                values.append(value)
        except Exception as error:
            raise bad_value(error, number, self._names[len(values)]) from error
        if len(values) != self._count:
            raise self._wrong_names(sample, number)
        return values, size

    def rows(self, columns: Mapping[str, Collection[Any]], number: int) -> Iterator[tuple[Any, ...]]:
        """The samples of whole columns, one after the other; ``number`` is that of the first."""
        if columns.keys() != set(self._names):
            raise self._wrong_names(columns, number)
        for name, column in columns.items():
            if isinstance(column, Mapping | str | bytes | bytearray) or not hasattr(column, "__getitem__"):
                raise SampleError(
                    f"a column is a list or an array of values, not a {type(column).__name__}", sample=number,
                    field=name, hint="write_sample takes one sample",
                )  # fmt: skip
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
            raise SampleError(f"the columns differ in length: {said}", sample=number)
        return zip(*(columns[name] for name in self._names), strict=True)

    def _named(self, sample: SampleLike, number: int) -> dict[str, Any]:
        """A sample that is no dictionary, as one."""
        if isinstance(sample, Mapping):
            return dict(sample)
        if isinstance(sample, Sequence) and not isinstance(sample, str | bytes | bytearray):
            values = list(sample)
            if len(values) != self._count:
                raise SampleError(f"has {len(values)} values for {self._count} fields", sample=number)
            return dict(zip(self._names, values, strict=True))
        raise SampleError(f"is a {type(sample).__name__}; give a mapping or the values in order", sample=number)

    def _wrong_names(self, sample: Mapping[str, Any], number: int) -> SampleError:
        given, known = set(sample), set(self._names)
        said = []
        if known - given:
            said.append(f"lacks {', '.join(sorted(map(repr, known - given)))}")
        if given - known:
            said.append(f"has unknown fields {', '.join(sorted(map(repr, given - known)))}")
        return SampleError(" and ".join(said), sample=number, hint="a missing value is given as None")


def size_of(value: Any) -> int:
    """About how much memory a value holds, so that a chunk is cut before it holds too much."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    return getattr(value, "nbytes", 64)
