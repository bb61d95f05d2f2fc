"""What every field must do, built in or your own.

class TestPolygonField(FieldContract):
    def fields(self):
        return [PolygonField(), PolygonField(closed=True)]

    def values(self, field):
        return [[(0, 0), (1, 2)], []]

    def bad_values(self, field):
        return ["a string", [(1, 2, 3)]]
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastloader.dataset import open_dataset
from fastloader.errors import SampleError
from fastloader.fields import Field, ImageFileField, MaskField, RawImageField, RowDecoder
from fastloader.formats.fld import Dataset
from fastloader.loader import DataLoader
from fastloader.ops import Random, Resize, custom
from fastloader.reader import DatasetReader
from fastloader.testing.compare import agree, count, identical, row
from fastloader.types import byte_view
from fastloader.verification import verify
from fastloader.writer import DatasetWriter
from fastloader.writer.encoding import encode_at_once

NAME = "it"


class FieldContract:
    """Inherit, say which fields and values to try, and get their tests."""

    def fields(self) -> Sequence[Field]:
        """Fields to test, with different options."""
        raise NotImplementedError("say which fields to test")

    def values(self, field: Field) -> Sequence[Any]:
        """Values the field takes: at least two, none of them ``None``, new objects at each call."""
        raise NotImplementedError("say which values to write")

    def bad_values(self, field: Field) -> Sequence[Any]:
        """Values it must refuse."""
        raise NotImplementedError("say which values must be refused")

    def equal(self, given: Any, got: Any) -> bool:
        """Whether what was read is right for what was written. Override it where a field changes type or loses bits."""
        return identical(given, got)

    def count(self, batch: Any) -> int:
        """How many samples the field's part of a batch holds; override it, and ``row``, for batches of another kind."""
        return count(batch)

    def row(self, batch: Any, position: int) -> Any:
        """One sample's value out of a batch, as it would come alone; ``None`` where it is missing."""
        return row(batch, position)

    def piped_values(self, field: Field) -> Sequence[Any]:
        """Values that pipelines take, where those are not all."""
        return self.values(field)

    def before_functions(self, field: Field) -> Sequence[Any]:
        """What stands before a function of the user's in a pipeline: of images, what gives them one size."""
        return [Resize((8, 8), "nearest")] if isinstance(field, ImageFileField | MaskField) else []

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One run of each test for each field."""
        if "field" in metafunc.fixturenames:
            metafunc.parametrize("field", self.fields(), ids=repr)

    def test_options_come_back(self, field: Field, tmp_path: Path) -> None:
        """From their bytes, and from a file."""
        stored = field.to_binary()
        assert stored == field.to_binary()
        rebuilt = type(field).from_binary(stored)
        assert rebuilt == field, "to_binary lost an option, or the field has no __eq__ (make it a frozen dataclass)"
        assert rebuilt.to_binary() == stored
        with write(tmp_path / "x.fld", field, self.values(field)) as reader:
            assert type(reader.fields[NAME]) is type(field)
            assert reader.fields[NAME] == field

    def test_metadata_rows_have_one_width(self, field: Field, tmp_path: Path) -> None:
        """The width is a matter of the options alone, and what is encoded fits."""
        width = field.metadata_type.itemsize
        assert type(field).from_binary(field.to_binary()).metadata_type == field.metadata_type
        for value in self.values(field):
            encoded = field.encode(field.prepare(value))
            if width:
                np.zeros(1, field.metadata_type)[0] = encoded.metadata
            assert field.metadata_type.itemsize == width
        write(tmp_path / "x.fld", field, self.values(field))
        assert Dataset(tmp_path / "x.fld").descriptors[0].metadata_size == width

    def test_values_come_back(self, field: Field, tmp_path: Path) -> None:
        """One by one, and again when asked again."""
        values = self.values(field)
        reader = write(tmp_path / "x.fld", field, self.values(field))
        for _ in range(2):
            got = [sample[NAME] for sample in reader]
            assert len(got) == len(values)
            for given, found in zip(values, got, strict=True):
                assert self.equal(given, found), f"wrote {given!r}, read {found!r}"
        assert verify(tmp_path / "x.fld", decode=True).ok

    def test_no_values_at_all(self, field: Field, tmp_path: Path) -> None:
        """A dataset of no samples, and a batch of none."""
        assert self.count(write(tmp_path / "none.fld", field, []).read_batch([])[NAME]) == 0
        assert self.count(write(tmp_path / "some.fld", field, self.values(field)).read_batch([])[NAME]) == 0

    def test_missing_values_come_back_missing(self, field: Field, tmp_path: Path) -> None:
        """Between others, at both ends, and alone."""
        values = self.values(field)
        mixed = [None, *(v for value in values for v in (value, None))]
        reader = write(tmp_path / "mixed.fld", field, mixed)
        for i, given in enumerate(mixed):
            got = reader[i][NAME]
            assert got is None if given is None else self.equal(given, got)
        self.assert_batches_agree(reader)
        only = write(tmp_path / "only.fld", field, [None, None, None])
        assert [sample[NAME] for sample in only] == [None, None, None]
        self.assert_batches_agree(only)
        for path in tmp_path.glob("*.fld"):
            assert verify(path, decode=True).ok

    def test_a_batch_is_its_samples(self, field: Field, tmp_path: Path) -> None:
        """The fast path gives what the slow one gives, in a file, compressed, and over shards."""
        values = self.values(field)
        for name, options in (("file", {}), ("packed", {"compression": "zstd"}), ("shards", {"shard_size": 1})):
            self.assert_batches_agree(write(tmp_path / f"{name}.fld", field, values, **options))

    def assert_batches_agree(self, reader: DatasetReader) -> None:
        """Batches of one, of all, in another order, with repeats, against samples read alone."""
        single = [sample[NAME] for sample in reader]
        everything = list(range(len(reader)))
        batches = [[i] for i in everything] + [everything, everything[::-1], everything + everything[::2]]
        for indices in batches:
            batch = reader.read_batch(indices)[NAME]
            assert self.count(batch) == len(indices)
            for position, i in enumerate(indices):
                item = self.row(batch, position)
                assert (item is None) == (single[i] is None), f"sample {i} is missing in one way of reading it only"
                assert agree(single[i], item), f"sample {i}: alone {single[i]!r}, in a batch {item!r}"

    def test_a_dataset_reads_in_blocks_what_comes_alone(self, field: Field, tmp_path: Path) -> None:
        """The same types, too: numbers stay Python's."""
        values = self.values(field)
        for name, given in (("all", values), ("some", [*values, None]), ("one", [values[0]] * 3), ("none", [None] * 3)):
            reader = write(tmp_path / f"{name}.fld", field, given)
            single = [reader.read_sample(i) for i in range(len(reader))]
            path = reader.dataset.local
            for dataset in (open_dataset(path), open_dataset(path).batch(2, collate_fn=list).unbatch()):
                found = list(dataset)
                assert all(map(identical, single, found)), f"alone {single!r}, in blocks {found!r}"

    def test_the_same_bytes_each_time(self, field: Field, tmp_path: Path) -> None:
        """Whoever encodes, and however often."""
        written = set()
        for number, workers in enumerate((0, 0, 1, 4)):
            path = tmp_path / f"{number}.fld"
            write(path, field, [*self.values(field), None] * 3, num_workers=workers, compression="lz4")
            written.add(path.read_bytes())
        assert len(written) == 1

    def test_encoding_many_is_encoding_each(self, field: Field) -> None:
        """The fast path gives what the slow one gives, and leaves bad values to it."""
        prepared = [field.prepare(value) for value in self.values(field)]
        for values in ([], *([value] for value in prepared), prepared, prepared[::-1]):
            column = encode_at_once(field, values)
            if column is not None:
                each = [field.encode(value) for value in values]
                rows = np.zeros(len(each), field.metadata_type)
                for i, one in enumerate(each):
                    if rows.itemsize:
                        rows[i] = one.metadata
                assert identical(column.metadata, rows), f"encode_many gives other rows for {values!r}"
                payloads = [bytes(byte_view(one.payload)) for one in each if field.has_payload]
                assert identical(list(column.payloads), payloads), f"encode_many gives other payloads for {values!r}"
        for bad in self.bad_values(field):
            try:
                taken = field.prepare(bad)
            except Exception:
                continue
            assert encode_at_once(field, [*prepared[:1], taken]) is None, f"encode_many takes the bad value {bad!r}"

    @pytest.mark.parametrize("workers", [0, 2])
    def test_the_caller_may_reuse_its_memory(self, field: Field, workers: int, tmp_path: Path) -> None:
        """Right after ``write_sample`` returned."""
        given = self.values(field)
        with DatasetWriter(tmp_path / "x.fld", {NAME: field}, num_workers=workers) as writer:
            for value in given:
                writer.write_sample({NAME: value})
                spoil(value)
        for wanted, sample in zip(self.values(field), DatasetReader(tmp_path / "x.fld"), strict=True):
            assert self.equal(wanted, sample[NAME])

    def test_the_loader_gives_the_values(self, field: Field, tmp_path: Path) -> None:
        """In order, with threads or without."""
        reader = write(tmp_path / "x.fld", field, self.values(field))
        single = [sample[NAME] for sample in reader]
        for workers in (0, 2):
            batches = list(DataLoader(reader, batch_size=2, shuffle=False, num_workers=workers))
            got = [self.row(batch[NAME], i) for batch in batches for i in range(self.count(batch[NAME]))]
            assert len(got) == len(single)
            assert all(map(agree, single, got))

    def test_a_function_in_a_pipeline_gets_the_values(self, field: Field, tmp_path: Path) -> None:
        """Each as a reader gives it, those that are missing left out, with random numbers that are its own."""
        values = self.piped_values(field)
        reader = write(tmp_path / "x.fld", field, [v for value in values for v in (value, None)])
        before = list(self.before_functions(field))
        given: list[tuple[Any, int]] = []

        @custom(jit=False)
        def noted(value: Any, random: Random) -> Any:
            given.append((value.copy() if isinstance(value, np.ndarray) else value, int(random.bits())))
            return None if isinstance(value, np.ndarray) else value

        (batch,) = DataLoader(
            reader, len(reader), shuffle=False, seed=7, num_workers=0, pipelines={NAME: [*before, noted]}
        )
        assert len(given) == len(values), (
            "a function was called for a value that is missing, or not for one that is there"
        )
        for i, (value, bits) in enumerate(given):
            assert bits == int(Random(7, 0, 2 * i, len(before)).bits())
            if not isinstance(field, ImageFileField | MaskField | RawImageField):  # those are 8-bit pixels there
                single = reader[2 * i][NAME]
                assert agree(single, value), f"sample {2 * i}: alone {single!r}, in a pipeline {value!r}"
        for i in range(len(reader)):
            missing = self.row(batch[NAME], i) is None
            assert missing == bool(i % 2), f"sample {i} is {'' if missing else 'not '}missing behind a function"

    def test_compiled_and_plain_rows_agree(self, field: Field, tmp_path: Path) -> None:
        """Where the decoder fills rows, compiled code gives what plain Python gives, missing values too."""
        kind = field.get_decoder_class()
        if not issubclass(kind, RowDecoder):
            return
        reader = write(tmp_path / "x.fld", field, [None, *self.values(field)])
        (batch,) = DataLoader(reader, len(reader), shuffle=False)
        plain = reader.read_batch(range(len(reader)))
        for values in (batch[NAME], plain[NAME]):
            assert isinstance(values, np.ma.MaskedArray)
            assert values.dtype == kind(field).row.dtype
        for i in range(len(reader)):
            found, wanted = row(batch[NAME], i), row(plain[NAME], i)
            assert identical(found, wanted), f"sample {i}: the loader gives {found!r}, plain Python {wanted!r}"

    def test_elements_are_the_values(self, field: Field, tmp_path: Path) -> None:
        """Where the decoder names them, joined batches hold what it would give."""
        elements = field.get_decoder_class()(field).elements
        if elements is None or elements.inner is None:
            return
        reader = write(tmp_path / "x.fld", field, [*self.values(field), None])
        (batch,) = DataLoader(reader, len(reader), shuffle=False, pad="ragged")
        ends = batch[f"{NAME}_offsets"]
        for i, sample in enumerate(reader):
            value = sample[NAME]
            joined = batch[NAME][ends[i] : ends[i + 1]]
            if value is None:
                assert not len(joined)
            else:
                array = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
                assert identical(joined, np.asarray(array)), (
                    f"sample {i}: alone {value!r}, in a ragged batch {joined!r}"
                )

    def test_values_come_back_from_shards(self, field: Field, tmp_path: Path) -> None:
        """Of one sample each, also when appended and unpickled."""
        values = self.values(field)
        path = tmp_path / "x.fld"
        write(path, field, values, shard_size=1)
        reader = pickle.loads(pickle.dumps(write(path, field, values, mode="a", shard_size=1)))
        for given, sample in zip([*values, *self.values(field)], reader, strict=True):
            assert self.equal(given, sample[NAME])
        assert verify(path, decode=True).ok

    @pytest.mark.parametrize("compression", ["lz4", "lz4:9", "zstd", "zstd:19"])
    def test_compression_changes_nothing(self, field: Field, compression: str, tmp_path: Path) -> None:
        """What comes back is what would come back without it."""
        plain = write(tmp_path / "plain.fld", field, self.values(field))
        packed = write(tmp_path / "packed.fld", field, self.values(field), compression=compression)
        for one, other in zip(plain, packed, strict=True):
            assert identical(one, other)
        if field.has_payload:
            for i in range(len(plain)):
                assert plain.read_payload(i, NAME) == packed.read_payload(i, NAME)

    @pytest.mark.parametrize("workers", [0, 2])
    def test_bad_values_are_refused(self, field: Field, workers: int, tmp_path: Path) -> None:
        """By an error that names sample and field; nothing is published and nothing left aside."""
        path = tmp_path / "x.fld"
        for bad in self.bad_values(field):
            with pytest.raises(SampleError) as caught:
                write(path, field, [self.values(field)[0], bad], num_workers=workers)
            assert (caught.value.sample, caught.value.field) == (1, NAME), f"{bad!r}: {caught.value}"
            assert str(caught.value).startswith(f"sample 1, field {NAME!r}: ")
            assert caught.value.message, f"{bad!r} is refused without a reason"
            assert list(tmp_path.iterdir()) == []


def write(path: Path, field: Field, values: Sequence[Any], **options: Any) -> DatasetReader:
    """A dataset of this one field, open for reading."""
    with DatasetWriter(path, {NAME: field}, **options) as writer:
        writer.write_many([value] for value in values)
    return DatasetReader(path)


def spoil(value: Any) -> None:
    """Overwrite what can be overwritten, as a caller does that fills one buffer again and again."""
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value[...] = np.zeros((), value.dtype)
    elif isinstance(value, bytearray):
        value[:] = bytes(len(value))
    elif isinstance(value, list):
        for item in value:
            spoil(item)
        value.clear()
    elif isinstance(value, dict):
        for item in value.values():
            spoil(item)
        value.clear()
    elif hasattr(value, "close"):
        value.close()
