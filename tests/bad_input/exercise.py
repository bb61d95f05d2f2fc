"""What is done to each mutant, and what counts as a fault.

Every way to read it is tried. Each may give a value or raise a FastLoaderError that names the file, the place and the
next step; anything else is a fault. What a raw mutant gives must be what was written, and ``verify`` must find what is
damaged. For any mutant, samples, batches, loader and ``verify`` must agree on what can be read.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import fastloader as fl
from fastloader import kernels
from fastloader.errors import FastLoaderError, FormatError, KeyNotFoundError, UnknownTypeError
from fastloader.fields import check_value

from . import pipelines
from .datasets import payload_of
from .mutants import Mutant

REFUSED = object()
BATCH = 3


def same(one: Any, other: Any) -> bool:
    """Equality to the last bit, NaN included."""
    if isinstance(one, np.generic):
        one = one.item()
    if isinstance(other, np.generic):
        other = other.item()
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, float) and isinstance(other, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


def rows_of(column: Any) -> list[Any]:
    """A batch's column as single values, ``None`` where one is missing."""
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column)  # of a record's shape for records
        return [None if mask[i].tobytes().strip(b"\0") else column.data[i] for i in range(len(column))]
    if isinstance(column, dict):
        if "cu_seqlens" in column:
            return [_sequence(column, i) for i in range(len(column["tokens"]))]
        parts = zip(*map(rows_of, column.values()), strict=True)
        return [None if any(one is None for one in part) else dict(zip(column, part, strict=True)) for part in parts]
    return list(column)


def _sequence(column: dict[str, Any], i: int) -> dict[str, Any] | None:
    """One packed sequence of a batch, as it comes alone."""
    rows = {name: column[name][i] for name in ("tokens", "position_ids", "document_ids")}
    if (rows["document_ids"] < 0).all():
        return None
    ends = np.append(np.flatnonzero(rows["position_ids"] == 0), len(rows["tokens"])).astype(np.int32)
    return rows | {"cu_seqlens": ends, "max_seqlen": int(np.diff(ends).max())}


class Exercise:
    """One mutant at ``path``, and the faults found in how it is handled."""

    def __init__(self, mutant: Mutant, path: Path, rng: Random) -> None:
        self.mutant = mutant
        self.path = path
        self.rng = rng
        self.faults: list[str] = []
        self.refusals = 0
        self.opened = False
        self.unknown = 0  # refusals because a type is not registered, which is no damage

    def run(self) -> None:
        """Do everything once."""
        verified = self._verify()
        reader: Any = REFUSED
        with self._attempt("open"):
            reader = fl.open(self.path)
        if reader is not REFUSED:
            self.opened = True
            self._read(reader)
        if verified is True and self.refusals > self.unknown:
            self.fault(f"verify is content although {self.refusals} reads were refused")

    def fault(self, what: str) -> None:
        self.faults.append(what)

    @contextlib.contextmanager
    def _attempt(
        self, what: str, samples: list[int] | None = None, field: str | None = None, *, expected: bool = False
    ) -> Iterator[None]:
        """Let the right kind of error pass; with ``samples`` it must name one of them, and the field."""
        try:
            yield
        except FastLoaderError as error:
            if not expected and not isinstance(error, KeyNotFoundError):
                self.refusals += 1
                self.unknown += isinstance(error, UnknownTypeError)
            said = f"{what}: {type(error).__name__}: {error}"
            if not self.mutant.sealed and not isinstance(error, FormatError):
                self.fault(f"{said} (a damaged file is a FormatError)")
            if not self._is_named(str(error)):
                self.fault(f"{said} (does not name the file)")
            if not error.hint and not isinstance(error, KeyNotFoundError):
                self.fault(f"{said} (does not say what to do)")
            if samples is not None and error.sample not in samples:
                self.fault(f"{said} (names sample {error.sample}, not one of {samples})")
            if field is not None and error.field != field:
                self.fault(f"{said} (names field {error.field!r}, not {field!r})")
        except Exception:
            self.refusals += 1
            self.fault(f"{what}: foreign exception\n{traceback.format_exc()}")

    def _is_named(self, message: str) -> bool:
        """Whether a message says which file it is about; a manifest may name one elsewhere."""
        return str(self.path) in message or (
            self.mutant.base.is_folder and message.startswith(("/dev/", "/:", "/shard-"))
        )

    def _verify(self) -> bool | None:
        """What ``verify`` thinks; ``None`` when it refuses to open the dataset or can't know a field."""
        report: Any = REFUSED
        before = self.refusals
        decode = not self.mutant.unreadable
        with self._attempt("verify"):
            report = fl.verify(self.path, decode=decode, num_workers=1, show_progress=False)
        self.refusals = before
        ok = report is not REFUSED and report.ok
        if not self.mutant.sealed and ok == self.mutant.matters:
            self.fault(f"verify says {'ok' if ok else 'damaged'}, but what changed {'matters' if ok else 'is padding'}")
        if report is REFUSED:
            return None
        for problem in report.problems:
            if not self._is_named(str(problem)):
                self.fault(f"verify: {problem} (does not name the file)")
        return ok if decode else None

    def _read(self, reader: fl.DatasetReader) -> None:
        before = self.refusals
        with self._attempt("len and names"):
            count, names = len(reader), reader.field_names
            repr(reader)
        if self.refusals > before:
            return
        self._compare("length", count, [len(o.samples) for o in self.mutant.origins])
        self._compare("field names", names, [o.names for o in self.mutant.origins])
        total = sum(map(len, self.mutant.files.values()))
        if count > total:
            self._too_many(reader, names, count)
            return
        indices = list(range(count))
        for position, name in enumerate(names):
            known: Any = REFUSED
            unreadable = name in self.mutant.unreadable
            with self._attempt("field", field=name, expected=unreadable):
                known = reader.dataset.field(position)
            self._read_field(reader, name, indices, known is not REFUSED)
        if count:
            self._subsets(reader, names, indices)
        self._keys(reader, count)
        self._pickle(reader, count)

    def _too_many(self, reader: fl.DatasetReader, names: list[str], count: int) -> None:
        """A manifest may claim any number of samples; reading shows that they are not there."""
        for index in (0, count - 1):
            with self._attempt("a sample that is not there"):
                reader.read_sample(index)

    def _place(self, reader: fl.DatasetReader, sample: int) -> list[int] | None:
        """What an error about the sample must name: nothing, if its whole shard can't be opened."""
        try:
            reader.dataset.file(reader.dataset.where(sample)[0])
        except FastLoaderError:
            return None
        return [sample]

    def _compare(self, what: str, value: Any, expected: list[Any]) -> None:
        if not self.mutant.sealed and not any(same(value, one) for one in expected):
            self.fault(f"{what}: silently gives {value!r}, not {expected!r}")

    def _expected(self, kind: str, index: int, name: str) -> list[Any]:
        tables = [getattr(origin, kind) for origin in self.mutant.origins]
        return [table[index][name] for table in tables if index < len(table) and name in table[index]]

    def _read_field(self, reader: fl.DatasetReader, name: str, indices: list[int], known: bool) -> None:
        values = []
        unreadable = name in self.mutant.unreadable
        for index in indices:
            value: Any = REFUSED
            place = self._place(reader, index) if known else None
            named = name if known and place else None
            with self._attempt(f"sample {index}", place, named, expected=unreadable):
                value = reader.read_sample(index, [name])[name]
                self._compare(f"sample {index}, {name!r}", value, self._expected("samples", index, name))
            values.append(value)
            with self._attempt(f"decoding of {index}", [index], name):
                check_value(value)
                if isinstance(value, fl.Video | fl.EncodedAudio):
                    np.asarray(value)
            with self._attempt(f"payload {index}", self._place(reader, index), named):
                payload = payload_of(reader, index, name)
                self._compare(f"payload {index}, {name!r}", payload, self._expected("payloads", index, name))
        if known:
            self._pipeline(reader, name, indices, values)
        self._batch(reader, name, indices, values, known)
        if len(indices) > 1:
            some = [self.rng.choice(indices) for _ in range(self.rng.randint(1, 2 * len(indices)))]
            self._batch(reader, name, some, [values[i] for i in some], known)

    def _batch(self, reader: fl.DatasetReader, name: str, indices: list[int], values: list[Any], known: bool) -> None:
        """A batch must give what single reads gave, and be refused where one of them was."""
        column: Any = REFUSED
        bad = [i for i, value in zip(indices, values, strict=True) if value is REFUSED]
        whole = known and all(self._place(reader, i) for i in indices)
        with self._attempt(
            f"batch {indices}", bad if whole and bad else None, name if whole else None, expected=bool(bad)
        ):
            column = reader.read_batch(indices, [name])[name]
        if column is REFUSED:
            return
        if bad:
            self.fault(f"batch {indices} of {name!r} gives values although samples {bad} are refused")
        elif not same(rows_of(column), values):
            self.fault(f"batch {indices} of {name!r} gives {column!r}, single reads give {values!r}")

    def _pipeline(self, reader: fl.DatasetReader, name: str, indices: list[int], values: list[Any]) -> None:
        """The field's images through a pipeline: what it makes of those that are sound, and how it refuses the others.

        It refuses more than a reader, as an image may be too small, and less, as it does not look at all of it.
        """
        field = reader.dataset.field(reader.field_names.index(name))
        if not pipelines.able(field) or not indices:
            return
        number = self.rng.randrange(len(pipelines.PIPELINES))
        made: Any = REFUSED
        before = self.refusals, self.unknown
        with self._attempt(f"pipeline {number}"):
            pipelines.run(reader, name, number, "raise")
        with self._attempt(f"pipeline {number}, bad ones replaced"):
            made = pipelines.run(reader, name, number, "replace", num_workers=self.mutant.number % 2)
        self.refusals, self.unknown = before
        if made is REFUSED:
            return
        if len(made) != len(indices):
            self.fault(f"pipeline {number} of {name!r} gave {len(made)} of {len(indices)} samples")
        tables = [o.piped[name, number] for o in self.mutant.origins if (name, number) in o.piped]
        for i, row in enumerate(made):
            expected = [table[i] for table in tables if i < len(table)]
            if row is not None:
                self._compare(f"pipeline {number} of sample {i}, {name!r}", row, expected)
        if (
            number == pipelines.CROP and pipelines.is_image(field) and not getattr(field, "seekable", False)
        ):  # an index may lie about what is where
            for i, (row, value) in enumerate(zip(made, values, strict=True)):
                if row is not None and isinstance(value, np.ndarray) and not same(row, pipelines.cut(value)):
                    self.fault(f"the crop of sample {i}, {name!r}, is not that of the whole image")

    def _subsets(self, reader: fl.DatasetReader, names: list[str], indices: list[int]) -> None:
        """Whole samples, slices and a loader's epoch."""
        refused = self.refusals
        with self._attempt("slice"):
            for sample in reader[self.rng.choice(indices) :]:
                assert sample.keys() == set(names)
        batches: list[Any] = []
        with self._attempt("loader"):
            loader = fl.DataLoader(
                reader,
                batch_size=BATCH,
                num_workers=self.mutant.number % 2,
                seed=self.mutant.number,
                io=self.rng.choice(["mmap"] * 8 + ["uring" if kernels.has_uring() else "pread", "pread"]),
            )
            batches.extend(loader)
        whole = sum(len(next(iter(batch.values()))) for batch in batches)
        if not refused and not self.mutant.unreadable and whole != len(indices):
            self.fault(f"the loader gave {whole} of {len(indices)} samples")
        with self._attempt("padded"):
            known = {name: field.get_decoder_class()(field).elements for name, field in reader.fields.items()}
            able = [name for name, elements in known.items() if elements and elements.inner is not None]
            if able:
                spec = self.rng.choice(["ragged", "longest", fl.Pad(5, truncate=True)])
                lengths = [batch[f"{able[0]}_lengths"] for batch in fl.DataLoader(reader, BATCH, fields=able, pad=spec)]
                assert sum(map(len, lengths)) == len(indices)

    def _keys(self, reader: fl.DatasetReader, count: int) -> None:
        expected = [o.keys for o in self.mutant.origins]
        with self._attempt("has_keys"):
            has_keys = reader.has_keys
            self._compare("has_keys", has_keys, [keys is not None for keys in expected])
            if not has_keys:
                return
        for index in range(count):
            with self._attempt(f"key of {index}", self._place(reader, index)):
                self._compare(
                    f"key of {index}", reader.key_of(index), [k[index] for k in expected if k and index < len(k)]
                )
        for key in sorted(set.intersection(*(set(keys or ()) for keys in expected))):
            with self._attempt(f"index of {key!r}"):
                self._compare(
                    f"index of {key!r}", reader.index_of(key), [k.index(key) for k in expected if k and key in k]
                )
        with self._attempt("a key that is not there"):
            assert "no such key" not in reader or self.mutant.sealed

    def _pickle(self, reader: fl.DatasetReader, count: int) -> None:
        with self._attempt("unpickling"):
            copy = pickle.loads(pickle.dumps(reader))
            assert len(copy) == count
            if count:
                payload_of(copy, self.rng.randrange(count), copy.field_names[0]) if copy.field_names else None
