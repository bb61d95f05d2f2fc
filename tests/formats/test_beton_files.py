"""FFCV's files, as FFCV wrote them, and as a writer of our own that is held equal to it does."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.cli import main
from fastloader.formats.beton_layout import FIELD, HEADER, read_head, rows_of
from fastloader.formats.objects import LocalObject
from fastloader.stores import MemoryStore
from fastloader.testing import FormatContract
from fastloader.testing.compare import identical

VECTORS = Path(__file__).parents[1] / "vectors"
sys.path[:0] = [str(VECTORS), str(Path(__file__).parent)]

import beton_by_hand  # noqa: E402
from make_beton import PAGE, SAMPLES, SOURCES, beton, expected  # noqa: E402

EVERY = {
    "jpeg": "image", "score": "float", "pixels": "image", "label": "int", "odd": "image", "blob": "bytes",
    "array": "ndarray", "flags": "ndarray", "a_name_so_long__": "ndarray", "meta": "json", "tensor": "tensor",
}  # fmt: skip
CUSTOM = {"pixels": "image", "text": "custom", "label": "int", "jpeg": "image"}
AS = {
    "jpeg": fl.JPEGImageField(), "score": fl.FloatField(), "pixels": fl.RawImageField(5, 8), "label": fl.IntField(),
    "odd": fl.NDArrayField("uint8", (None, None, 3)), "blob": fl.BytesField(),
    "array": fl.NDArrayField("float32", (2, 3)), "flags": fl.NDArrayField("bool", (5,)),
    "a_name_so_long__": fl.NDArrayField(">i2", (1, 2, 1)), "meta": fl.JSONField(),
    "tensor": fl.NDArrayField("float16", (3, 2)),
}  # fmt: skip


def small(kinds=None, name="every", page_size=8192):
    """The samples of a file, in small pages."""
    kinds = EVERY if kinds is None else kinds
    samples, pictures = expected(name), [SOURCES[name](i) for i in range(SAMPLES[name])]
    return beton_by_hand.make(kinds, samples, page_size, pictures)


def put(path, data):
    path.write_bytes(data)
    return path


def changed(data, at, form, *values):
    """With other numbers at a place."""
    data = bytearray(data)
    struct.pack_into(form, data, at, *values)
    return bytes(data)


def read_or_told(path):
    """The samples, or what the error says."""
    try:
        return list(fl.open(path))
    except fl.FormatError as error:
        return str(error)


def header(data):
    return HEADER.unpack_from(data)


class TestWhatFFCVWrote(FormatContract):
    def write(self, folder):
        return put(folder / "train.beton", beton("every"))

    def samples(self):
        return expected("every")


class TestSeveralFilesOfSmallPages(FormatContract):
    def write(self, folder):
        put(folder / "0.beton", small())
        put(
            folder / "1.beton",
            beton_by_hand.make(EVERY, self.samples()[7:], 4096, [SOURCES["every"](i) for i in range(7)]),
        )
        return folder

    def samples(self):
        return expected("every") + [{**sample, "label": 1000 + i} for i, sample in enumerate(expected("every"))]

    def bad_files(self, folder):
        path, data = folder / "x.beton", small()
        _, fields, page, samples, table = header(data)
        rows = HEADER.size + FIELD.size * fields
        yield put(path, b"\x02\x00"), r"x\.beton: has 2 bytes, and a header of FFCV has 24"
        yield put(path, changed(data, 0, "<H", 1)), r"x\.beton: at offset 0: version 1 of FFCV's format; 2 is read"
        yield put(path, changed(data, 2, "<H", 0)), "at offset 2: 0 fields"
        yield put(path, changed(data, 2, "<H", 65535)), "at offset 2: 65535 fields"
        yield put(path, changed(data, 4, "<I", 0)), "at offset 4: pages of 0 bytes"
        yield put(path, changed(data, 4, "<I", page + 1)), "which is no power of two"
        for many in (2**63, 2**64 - 1, samples * 10_000):
            yield put(path, changed(data, 8, "<Q", many)), f"at offset 8: {many} samples, whose rows would end at"
        yield put(path, changed(data, 8, "<Q", samples - 1)), rf"at offset {table}: \d+ allocations, and 6 samples need"
        yield put(path, changed(data, 16, "<Q", 0)), "at offset 16: its writer has not finished it; write it anew"
        yield put(path, changed(data, 16, "<Q", table + 1)), "at offset 16: allocations at"
        yield put(path, changed(data, 16, "<Q", len(data) + 24)), "at offset 16: allocations at"
        yield put(path, changed(data, 16, "<Q", 2**64 - 8)), "at offset 16: allocations at"
        yield put(path, data[:-24]), rf"at offset {table}: \d+ allocations, and 7 samples need"
        yield put(path, changed(data, 24 + 1, "16s", b"")), r"field 0 at offset 24: b'.*' is no name"
        yield put(path, changed(data, 24 + 1, "16s", b"a\0b")), r"is no name"
        yield put(path, changed(data, 24 + 1, "16s", b"score")), "another one is called 'score', too; FFCV cuts names"
        for at, size in ((0, 7), (2**64 - 1, 2), (table - 1, 2), (rows, 1), (3 * page - 1, 2), (2 * page, page + 1)):
            bad = changed(data, table, "<QQQ", 0, at, size)
            yield put(path, bad), rf"x\.beton: allocation \d+ at offset \d+: {size} bytes at {at} of sample 0 lie in no"
        _, at, size = struct.unpack_from("<QQQ", data, table)
        longer = changed(data, table + 16, "<Q", size + 1)
        yield (
            put(path, longer),
            rf"allocation 1 at offset {table + 24}: \d+ bytes at {at + size} of sample 0 lie in no page",
        )
        yield put(path, changed(data, table, "<Q", samples)), f"of sample {samples} lie in no page"
        for row, form, values in ((0, "<B", (2,)), (5, "<Q", (2**64 - 1,)), (5, "<Q", (0,)), (1, "<HH", (0, 0))):
            bad = changed(data, rows + row, form, *values)
            yield put(path, bad), rf"x\.beton: sample 0, field 'jpeg': record 0 at offset {rows}: it points at nothing"
        yield put(path, changed(data, rows + 1, "<H", 3)), "field 'jpeg': .* 3, and is one of 13x31|13x3 should be here"


def test_both_writers_write_the_same_bytes():
    assert small(page_size=PAGE) == beton("every")
    assert small({"label": "int", "score": "float"}, "numbers", PAGE) == beton("numbers")
    assert small(CUSTOM, "custom", PAGE) == beton("custom")


@pytest.mark.parametrize("name", list(SAMPLES))
@pytest.mark.parametrize("ending", ["", ".beton"])
def test_what_ffcv_wrote_is_what_is_read(name, ending, tmp_path):
    path = put(tmp_path / f"x{ending}", beton(name))
    dataset = fl.open(path, types={"text": "bytes"} if name == "custom" else None)
    assert dataset.format == "beton"
    assert [type(value) for value in dataset[0].values()] == [type(value) for value in expected(name)[0].values()]
    for got, wanted in zip(dataset, expected(name), strict=True):
        assert identical(got, wanted)


def test_converting_keeps_the_types_of_fields_and_the_bytes_of_jpegs(tmp_path):
    put(tmp_path / "x.beton", beton("every"))
    done = CliRunner().invoke(main, ["convert", str(tmp_path / "x.beton"), str(tmp_path / "y.fld")])
    assert (done.exit_code, "RawImageField(height=5, width=8)" in done.output) == (0, True)
    with fl.open(tmp_path / "y.fld") as reader:
        assert reader.fields == AS
        for number, sample in enumerate(expected("every")):
            assert bytes(reader.read_payload(number, "jpeg")) == sample["jpeg"]
            got = reader[number]
            assert all(identical(got[name], sample[name]) for name in sample if name != "jpeg")
            assert np.array_equal(got["jpeg"], fl.decode_image(sample["jpeg"]))


def test_types_are_kept_where_values_would_tell_others(tmp_path):
    kinds = {"text": "json", "jpeg": "bytes", "whole": "float"}
    samples = [{"text": f"word {i}", "jpeg": expected("every")[i]["jpeg"], "whole": float(i)} for i in range(3)]
    put(tmp_path / "x.beton", beton_by_hand.make(kinds, samples, 8192, samples))
    fields = fl.open(tmp_path / "x.beton").write(tmp_path / "y.fld")
    assert fields == {"text": fl.JSONField(), "jpeg": fl.BytesField(), "whole": fl.FloatField()}
    assert [fl.open(tmp_path / "y.fld")[i] for i in range(3)] == samples
    assert fl.open(tmp_path / "x.beton").write(tmp_path / "z.fld", {"jpeg": fl.JPEGImageField()})["jpeg"].quality == 90


def test_jpegs_and_raw_images_in_one_field_are_asked_about(tmp_path):
    dataset = fl.open(put(tmp_path / "x.beton", beton("pages")))
    with pytest.raises(
        fl.SampleError, match=r"x\.beton: field 'image': 5 JPEGs and 4 raw images .* JPEGImageField keeps"
    ):
        dataset.write(tmp_path / "y.fld")
    dataset.write(tmp_path / "y.fld", {"image": fl.JPEGImageField()})
    with fl.open(tmp_path / "y.fld") as reader:
        for number, sample in enumerate(expected("pages")):
            if isinstance(sample["image"], bytes):
                assert bytes(reader.read_payload(number, "image")) == sample["image"]
            else:
                assert reader[number]["image"].shape == sample["image"].shape


class TestFieldsOfUnknownTypes:
    def test_one_is_named_and_the_others_can_be_read(self, tmp_path):
        path = put(tmp_path / "x.beton", beton("custom"))
        with pytest.raises(
            fl.FormatError,
            match=r"x\.beton: field 'text' has the type 255, a field of its writer's own; fields=\['pixels'",
        ):
            fl.open(path)
        for names in (["label"], ["jpeg", "label"], ["pixels", "label", "jpeg"]):
            wanted = [{name: sample[name] for name in names} for sample in expected("custom")]
            assert all(identical(*pair) for pair in zip(fl.open(path, fields=names), wanted, strict=True))

    @settings(max_examples=40, deadline=None)
    @given(st.permutations(["pixels", "text", "label", "jpeg", "score", "blob"]), st.integers(0, 254))
    def test_rows_are_read_right_or_not_at_all(self, tmp_path_factory, names, type_id):
        """Wherever the field stands: what lies around it is told by what rows point at."""
        kinds = {name: {**EVERY, **CUSTOM}[name] for name in names}
        samples = [{**a, **b} for a, b in zip(expected("every"), expected("custom"), strict=False)]
        pictures = [{**SOURCES["every"](i), **SOURCES["custom"](i)} for i in range(len(samples))]
        data = beton_by_hand.make(kinds, samples, 8192, pictures)
        at = 24 + names.index("text") * FIELD.size
        type_id = type_id if type_id > 6 else 255
        path = put(tmp_path_factory.mktemp("b") / "x.beton", changed(data, at, "<B", type_id))
        known = [name for name in names if name != "text"]
        with pytest.raises(fl.FormatError, match=f"field 'text' has the type {type_id}"):
            fl.open(path)
        for got, wanted in zip(fl.open(path, fields=known), samples, strict=True):
            assert identical(got, {name: wanted[name] for name in known})
        assert fl.open(path, types={"text": "json"}, fields=known)[1]["label"] == samples[1]["label"]

    def test_where_nothing_points_it_is_asked_what_the_field_is_like(self, tmp_path):
        samples = [{"label": i, "text": b"x" * i} for i in range(5)]
        path = put(tmp_path / "x.beton", beton_by_hand.make({"label": "int", "text": "custom"}, samples, 512, samples))
        with pytest.raises(
            fl.FormatError, match=r"what lies around it in a row can't be told; .*types=\{'text': 'bytes'\}"
        ):
            fl.open(path, fields=["label"])[0]
        assert list(fl.open(path, types={"text": "bytes"})) == samples

    def test_what_types_say_is_checked(self, tmp_path):
        path = put(tmp_path / "x.beton", beton("custom"))
        with pytest.raises(ValueError, match=r"types=\{'label': 'bytes'\}: the field is stored as int"):
            fl.open(path, types={"label": "bytes"})
        with pytest.raises(ValueError, match=r"types=\{'text': 'video'\}: for FFCV's \.beton, one of float, int"):
            fl.open(path, types={"text": "video"})
        with pytest.raises(fl.FormatError, match="types: no field 'nowhere'"):
            fl.open(path, types={"nowhere": "int"})
        with pytest.raises(fl.FormatError):
            list(fl.open(path, types={"text": "int"}))

    @pytest.mark.parametrize("told", [b'[["", "|O8"]]', b'[["", "f4,f4"]]', b'[["x", "<f4"]]', b"[[[[", b"", b"7"])
    def test_an_array_of_no_known_type_leaves_the_others(self, told, tmp_path):
        data = small()
        at = data.index(b'[["", "<f4"]]')
        data = changed(data[:at] + told.ljust(32, b"\0") + data[at + 32 :], at - 8, "<Q", len(told))
        path = put(tmp_path / "x.beton", data)
        with pytest.raises(fl.FormatError, match=r"field 'array' tells no type of its arrays: .*; fields=\['jpeg'"):
            fl.open(path)
        assert fl.open(path, fields=["label"])[2] == {"label": 49}

    def test_an_array_larger_than_a_page_leaves_the_others(self, tmp_path):
        data = small()
        at = data.index(b'[["", "<f4"]]') - 8 - 256
        path = put(tmp_path / "x.beton", changed(data, at, "<3Q", 2**62, 2**62, 2**62))
        with pytest.raises(fl.FormatError, match=r"field 'array' has arrays of \d{50,} bytes, more than a page"):
            fl.open(path)
        assert fl.open(path, fields=["label"])[2] == {"label": 49}


class TestDamage:
    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def test_of_tables_it_is_an_error_or_changes_nothing_that_is_pointed_at(self, tmp_path_factory, data):
        """Whatever number is replaced: bytes that are given are the right ones."""
        whole = small()
        table, rows = header(whole)[4], HEADER.size + FIELD.size * len(EVERY)
        end = rows + 7 * rows_of(read_head(LocalObject(put(tmp_path_factory.mktemp("d") / "w", whole))).columns).stride
        at = data.draw(st.one_of(st.integers(rows, end - 8), st.integers(table, len(whole) - 8)))
        value = data.draw(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, len(whole)), st.sampled_from([0, 2**63])))
        form = data.draw(st.sampled_from(["<B", "<H", "<I", "<Q"]))
        value %= 256 ** struct.calcsize(form)
        path = put(tmp_path_factory.mktemp("d") / "x.beton", changed(whole, at, form, value))
        numbers = dict.fromkeys(("score", "label"))  # of which nothing can be said
        found = read_or_told(path)
        if isinstance(found, str):
            assert "x.beton: " in found
            return
        for got, wanted in zip(found, expected("every"), strict=True):
            got["jpeg"] = got["jpeg"].rstrip(b"\0")  # room that is free behind it may have been added
            assert identical({**got, **numbers}, {**wanted, **numbers})

    @settings(max_examples=200, deadline=None)
    @given(st.integers(0, HEADER.size + 2 * FIELD.size), st.binary(min_size=1, max_size=8))
    def test_of_the_head_it_is_told_or_read(self, tmp_path_factory, at, other):
        whole = small()
        path = put(tmp_path_factory.mktemp("d") / "x.beton", whole[:at] + other + whole[at + len(other) :])
        found = read_or_told(path)
        assert len(found) == 7 or "x.beton: " in found

    def test_two_fields_that_point_at_the_same_data_are_told(self, tmp_path):
        """An empty value begins where the next one does; of another size, it would be that one."""
        data = small()
        _, at, _ = struct.unpack_from("<QQQ", data, header(data)[4] + 3 * 24)
        place = data.index(struct.pack("<QQ", at, 0))
        path = put(tmp_path / "x.beton", changed(data, place + 8, "<Q", 24))
        with pytest.raises(
            fl.FormatError, match=r"sample 0: record 0 at offset \d+: two fields point at the same data"
        ):
            fl.open(path, fields=["blob"])[0]

    def test_a_jpeg_without_an_end_is_refused(self, tmp_path):
        data = small()
        at = data.index(expected("every")[3]["jpeg"]) + len(expected("every")[3]["jpeg"])
        path = put(tmp_path / "x.beton", changed(data, at - 2, "<H", 0))
        with pytest.raises(
            fl.FormatError, match=r"sample 3, field 'jpeg': record 3 at offset \d+: a JPEG without an end"
        ):
            fl.open(path)[3]

    def test_a_bad_row_is_skipped_and_the_others_are_read(self, tmp_path):
        data = small()
        other = data.index(struct.pack("<BHH", 0, 31 - 6, 13 + 4))
        path = put(tmp_path / "x.beton", changed(data, other + 5, "<Q", 12345))
        with pytest.raises(
            fl.FormatError, match=rf"sample 2, field 'jpeg': record 2 at offset {other}: it points at not"
        ):
            fl.open(path)[2]
        left = list(fl.open(path).options(on_error="skip"))
        assert [sample["label"] for sample in left] == [(-7) ** i for i in range(7) if i != 2]

    def test_a_row_that_points_at_what_another_sample_has_is_refused(self, tmp_path):
        data = small()
        pointing = [name for name, kind in EVERY.items() if kind not in ("float", "int")]
        entries = header(data)[4] + 24 * pointing.index("flags")
        mine, theirs = (struct.unpack_from("<QQQ", data, entries + 24 * len(pointing) * i)[1] for i in range(2))
        path = put(tmp_path / "x.beton", changed(data, data.index(struct.pack("<Q", mine)), "<Q", theirs))
        with pytest.raises(
            fl.FormatError, match=r"sample 0, field 'flags': record 0 at offset .* nothing that is its own"
        ):
            fl.open(path)[0]

    @pytest.mark.parametrize("text", [b"[1, 2]", b"[1]\0 \0", b"[1\0", b"\0", b""])
    def test_json_that_does_not_end_with_its_data_is_refused(self, text, tmp_path):
        data = beton_by_hand.make({"meta": "bytes"}, [{"meta": text}] * 3, 512, [{"meta": text}] * 3)
        path = put(tmp_path / "x.beton", changed(data, 24, "<B", beton_by_hand.TYPES["json"]))
        with pytest.raises(fl.FormatError, match=r"x\.beton: sample 1, field 'meta': record 1 at offset \d+: "):
            fl.open(path)[1]


def test_errors_name_the_object_and_the_offset():
    """The contract is held in stores too, by their tests."""
    bucket = MemoryStore("beton")
    bucket.put("x.beton", small()[:-24])
    with pytest.raises(fl.FormatError, match=rf"{bucket.url}/x\.beton: at offset \d+: \d+ allocations"):
        fl.open(f"{bucket.url}/x.beton")


class TestRecognising:
    def test_a_file_without_its_name_is_told_by_all_it_says(self, tmp_path):
        data = small()
        assert fl.open(put(tmp_path / "x", data)).format == "beton"
        for bad in (
            changed(data, 0, "<H", 3), changed(data, 2, "<H", 12), changed(data, 4, "<I", 8191),
            changed(data, 8, "<Q", 6), changed(data, 24, "<B", 7), data[:-1], data[:5000], data + b"\0",
        ):  # fmt: skip
            with pytest.raises(fl.FormatError, match=r"x: is no dataset that is known here"):
                fl.open(put(tmp_path / "x", bad))

    def test_another_format_under_its_name_is_told(self, tmp_path):
        (tmp_path / "x.beton").write_bytes(b'{"x": 1}\n{"x": 2}\n')
        with pytest.raises(fl.FormatError, match=r"x\.beton: is named like FFCV's \.beton and holds JSONL"):
            fl.open(tmp_path / "x.beton")

    def test_files_with_other_fields_are_no_dataset(self, tmp_path):
        put(tmp_path / "0.beton", small())
        put(tmp_path / "1.beton", beton("numbers"))
        with pytest.raises(fl.FormatError, match=r"1\.beton: has other fields than .*0\.beton"):
            len(fl.open(tmp_path))


def test_tables_are_read_once_and_only_what_is_asked_for(tmp_path, monkeypatch):
    path = put(tmp_path / "x.beton", beton("pages"))
    dataset, read = fl.open(path, fields=["image"]), []
    assert len(dataset) == 9
    true = LocalObject.read
    monkeypatch.setattr(LocalObject, "read", lambda self, at, size: read.append(size) or true(self, at, size))
    assert identical(dataset[4], {"image": expected("pages")[4]["image"]})
    assert sum(read) < 10_000
