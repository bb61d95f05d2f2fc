"""JSONL and CSV, plain and gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.formats import lines, scanning
from fastloader.formats.lines import type_of
from fastloader.formats.objects import open_object
from fastloader.testing import FormatContract, identical

TEXTS = ["plain", "", "ä€𝄞", 'with "quotes"', "two\nlines", "comma, and\ttab"]


def objects():
    return [{"i": i, "text": TEXTS[i % 6], "list": [1.5, None], **({"odd": True} if i % 2 else {})} for i in range(7)]


def jsonl(samples, end="\n"):
    return "".join(json.dumps(sample, ensure_ascii=False) + end for sample in samples).encode()


def check_cuts(contract, file, sizes, pattern):
    """A file cut to these sizes is refused. Others are not told from whole ones: a line may end anywhere."""
    data = file.read_bytes()
    for size in sizes:
        file.write_bytes(data[:size])
        with pytest.raises(fl.FormatError, match=pattern):
            list(contract.open(file.parent))


class TestJsonLines(FormatContract):
    own_fields = True

    def write(self, folder):
        (folder / "a.jsonl").write_bytes(jsonl(objects()[:3], "\r\n") + b"\n\r\n")
        (folder / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + jsonl(objects()[3:]))
        return folder

    def samples(self):
        return objects()

    def test_a_file_cut_short_is_an_error_that_names_it(self, tmp_path):
        file = self.write(tmp_path) / "b.jsonl"
        size = len(file.read_bytes())
        check_cuts(self, file, (20, size // 2, size - 3), r"b\.jsonl: .*record \d at offset \d+: ")

    def bad_files(self, folder):
        (folder / "a.jsonl").write_bytes(b'{"a": 1}\n{"a": }\n')
        yield folder / "a.jsonl", r"a\.jsonl: sample 1: record 1 at offset 9: Expecting value"
        (folder / "b.jsonl").write_bytes(b'{"a": 1}\n\n[1]\n')
        yield folder / "b.jsonl", r"b\.jsonl: sample 1: record 1 at offset 10: a sample is an object .* not a list"
        (folder / "c.jsonl").write_bytes(b'{"a": "x"}\n{"a": "\xff"}\n')
        yield folder / "c.jsonl", r"c\.jsonl: .*is no UTF-8|c\.jsonl: is named like JSONL"


class TestZippedJsonLines(FormatContract):
    random_access = False
    own_fields = True

    def write(self, folder):
        for name, part in (("a", objects()[:3]), ("b", objects()[3:])):
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(jsonl(part)))
        return folder

    def samples(self):
        return objects()

    def bad_files(self, folder):
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n{"a": }\n'))
        yield folder / "a.jsonl.gz", r"a\.jsonl\.gz: record 1: Expecting value"


def table():
    return [
        {"id": i, "weight": i / 4 - 1, "name": TEXTS[i % 6], "code": f"{i:03d}", "gap": None if i % 3 else i}
        for i in range(8)
    ]


def as_csv(samples, delimiter=",", end="\r\n"):
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, samples[0], delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    writer.writerows(samples)
    return out.getvalue().encode()


class TestCommas(FormatContract):
    def write(self, folder):
        (folder / "a.csv").write_bytes(as_csv(table()[:5]))
        (folder / "b.csv").write_bytes(b"\xef\xbb\xbf" + as_csv(table()[5:], end="\n"))
        return folder

    def samples(self):
        return table()

    def test_a_file_cut_short_is_an_error_that_names_it(self, tmp_path):
        file = self.write(tmp_path) / "b.csv"
        check_cuts(self, file, (3, 20, file.read_bytes().rindex(b",") - 4), r"b\.csv: ")

    def bad_files(self, folder):
        (folder / "a.csv").write_bytes(b"a,b\n1,2\n3\n")
        yield folder / "a.csv", r"a\.csv: sample 1: record 1 at offset 8: 1 values for 2 columns"
        (folder / "b.csv").write_bytes(b'a,b\n1,2\n3,"open\n')
        yield folder / "b.csv", r"b\.csv: at offset 8: quotes are opened and never closed"
        (folder / "c.csv").write_bytes(b"a,a\n1,2\n")
        yield folder / "c.csv", r"c\.csv: the first line names columns, and has the column 'a' twice"
        (folder / "d.csv").write_bytes(b"a,b\n" + b"1,2\n" * 1000 + b"x,2\n")
        yield (
            folder / "d.csv",
            r"d\.csv: sample 1000: .* column 'a': 'x' is no int, .*open with types=\{\"a\": ",
        )
        (folder / "f.csv").write_bytes(b"z,b\n1,2\n")
        yield [folder / "a.csv", folder / "f.csv"], r"f\.csv: has the columns z, b, and .*a\.csv has a, b"


class TestTabs(TestCommas):
    def write(self, folder):
        (folder / "a.tsv").write_bytes(as_csv(table(), "\t"))
        return folder / "a.tsv"

    def test_a_file_cut_short_is_an_error_that_names_it(self, tmp_path):
        pass  # as for commas

    def bad_files(self, folder):
        return ()


class TestZippedCommas(FormatContract):
    random_access = False

    def write(self, folder):
        (folder / "a.csv.gz").write_bytes(gzip.compress(as_csv(table()[:5])))
        (folder / "b.csv.gz").write_bytes(gzip.compress(as_csv(table()[5:])))
        return folder

    def samples(self):
        return table()

    def bad_files(self, folder):
        (folder / "a.csv.gz").write_bytes(gzip.compress(b"a,a\n1,2\n"))
        yield (
            folder / "a.csv.gz",
            r"^(?!.*gz: .*gz: ).*a\.csv\.gz: the first line names columns, and has the column 'a' twice",
        )
        (folder / "b.csv.gz").write_bytes(gzip.compress(b'a,"b\n1,2\n'))
        yield (
            folder / "b.csv.gz",
            r"^(?!.*gz: .*gz: ).*b\.csv\.gz: the first line names columns: unexpected end of data",
        )


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2", ""], "int"), (["0", "10"], "int"), (["007"], "str"), (["1", "2.5"], "float"), (["1e5"], "float"),
        (["nan", "inf"], "float"), (["1", "x"], "str"), (["", ""], "str"), (["9" * 30], "str"), (["00.5"], "str"),
        ([str(2**63 - 1), str(-(2**63))], "int"), ([str(2**63)], "str"), (["1", str(2**63), "2"], "str"),
        (["+9"], "int"), (["1.5", str(2**53 + 1)], "str"), (["1.5", str(2**53)], "float"), (["9" * 30 + ".0"], "float"),
        (["1.5", "9" * 30], "str"), (["-" + "9" * 30], "str"), (["9" * 5000], "str"), (["1\u0663"], "str"),
    ],
)  # fmt: skip
def test_columns_are_what_all_their_values_are(texts, kind):
    assert type_of(texts) == kind


def test_whole_numbers_of_19_digits_stay_apart(tmp_path):
    ids = [1234567890123456789, 1234567890123456790, 2**63 - 1, -(2**63)]
    for name, pack in (("a.csv", bytes), ("a.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(as_csv([{"id": one, "x": 1} for one in ids])))
        assert [sample["id"] for sample in fl.open(tmp_path / name)] == ids
        (tmp_path / name).write_bytes(pack(as_csv([{"id": one, "x": 1} for one in [*ids, 2**63]])))
        assert [sample["id"] for sample in fl.open(tmp_path / name)] == [str(one) for one in [*ids, 2**63]]


@pytest.mark.parametrize(
    ("first", "late", "said"),
    [
        ("7", str(2**63), "does not fit in an int of 64 bits"), ("7", "9" * 5000, "is no int|does not fit"),
        ("7", "007", "'007' is no int"), ("7", "1_0", "'1_0' is no int"), ("7", "1.5", "'1.5' is no int"),
        ("0.5", "9" * 20, "does not fit in a float of 64 bits"), ("0.5", str(2**53 + 1), "does not fit in a float"),
        ("0.5", "007", "'007' is no float"),
    ],
)  # fmt: skip
def test_a_late_value_that_its_column_would_change_is_an_error(tmp_path, first, late, said):
    for name, pack, where in (
        ("a.csv", bytes, r"record 1000 at offset \d+"),
        ("a.csv.gz", gzip.compress, "record 1000"),
    ):
        (tmp_path / name).write_bytes(pack(as_csv([{"a": first, "b": 1}] * 1000 + [{"a": late, "b": 1}])))
        with pytest.raises(
            fl.FormatError, match=rf"{name}: .*{where}: column 'a': .*({said}).*types=\{{\"a\": \"str\"\}}"
        ):
            list(fl.open(tmp_path / name))
        assert list(fl.open(tmp_path / name, types={"a": "str"}))[-1]["a"] == late


def test_types_can_be_named(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    assert fl.open(tmp_path / "a.csv", types={"a": "float", "b": "str"})[0] == {"a": 1.0, "b": "2"}
    (tmp_path / "b.csv").write_text(f"a,b\n007,{'9' * 20}\n")
    assert fl.open(tmp_path / "b.csv", types={"a": "int", "b": "float"})[0] == {"a": 7, "b": 1e20}
    with pytest.raises(fl.FormatError, match=r"column 'b': '9+' does not fit in an int of 64 bits"):
        fl.open(tmp_path / "b.csv", types={"b": "int"})[0]
    with pytest.raises(fl.FormatError, match="types: no column 'c'; there are a, b"):
        fl.open(tmp_path / "a.csv", types={"c": "int"})
    with pytest.raises(ValueError, match="one of int, float, str"):
        fl.open(tmp_path / "a.csv", types={"a": "date"})


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(
    st.lists(st.lists(st.text('ab"\n\r,; \tä', max_size=6), min_size=2, max_size=2), min_size=1, max_size=12),
    st.integers(1, 40),
)
def test_any_text_comes_back_wherever_pieces_end(tmp_path_factory, rows, piece):
    folder = tmp_path_factory.mktemp("csv")
    samples = [{"name one": a, "two": b} for a, b in rows]
    (folder / "a.csv").write_bytes(as_csv(samples))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "SCANNED", piece)
        patch.setattr(lines, "FIRST_LINE", piece)
        types = {"name one": "str", "two": "str"}
        assert list(fl.open(folder / "a.csv", format="csv", types=types)) == samples


def rows_by_csv(text):
    """What ``csv`` makes of a whole text; ``None`` where it refuses it."""
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        return None


@settings(max_examples=400, deadline=None, database=None, derandomize=True)
@given(st.lists(st.sampled_from(["a", " ", '"', '""', ",", "\n", "\r\n"]), max_size=24), st.integers(1, 9))
def test_records_are_those_that_csv_finds_wherever_quotes_stand(tmp_path_factory, parts, piece):
    text = "".join(parts)
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_text(text, newline="")
    source = open_object(str(path))
    try:
        found = [tuple(one) for ranges in scanning.scan(source, 0, ",", piece) for one in ranges.tolist()]
        rows = [lines.row_of(text[at : at + size].removesuffix("\r"), ",") for at, size in found]
    except (fl.FormatError, ValueError, csv.Error):
        rows = None
    assert rows == rows_by_csv(text)


@pytest.mark.parametrize("plain", [0, 3, 1001])
def test_a_quote_within_a_value_is_a_part_of_it(tmp_path, plain):
    rows = [("plain", i) for i in range(plain)] + [('5" disk', 1001), ('3" disk', 1002), ("x", 1003)]
    data = "".join(f"{name},{n}\n" for name, n in [("name", "n"), *rows]).encode()
    (tmp_path / "a.csv").write_bytes(data)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(data))
    for file in ("a.csv", "b.csv.gz"):
        assert [tuple(sample.values()) for sample in fl.open(tmp_path / file)] == rows


@pytest.mark.parametrize("rows", [1, 1500])
def test_lines_that_end_with_a_return_alone_are_refused_and_not_lost(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\r" + b"1,2\r" * rows)
    with pytest.raises(fl.FormatError, match=r"a\.csv: the first line names columns: .*not with \\r alone"):
        fl.open(path)
    path.write_bytes(b"a,b\n" + b"1,2\n" * rows + b"3,4\r5,6\n")
    with pytest.raises(
        fl.FormatError, match=rf"sample {rows}: record {rows} at offset {4 + 4 * rows}: 2 rows where one"
    ):
        list(fl.open(path))
    path.write_bytes(b"a,b\n" + b'1,"x\ry"\n' * rows)
    assert list(fl.open(path)) == [{"a": 1, "b": "x\ry"}] * rows


@pytest.mark.parametrize("end", [b"\r", b"\r\n\r", b"\n\r\n\n"])
def test_blank_lines_at_the_end_are_no_samples(tmp_path, end):
    (tmp_path / "a.csv").write_bytes(b"a,b\r\n" + b"1,2\r\n" * 10 + end)
    (tmp_path / "b.jsonl").write_bytes(b'{"a": 1}\r\n' * 10 + end)
    for name in ("a.csv", "b.jsonl"):
        dataset = fl.open(tmp_path / name)
        assert len(dataset) == len(list(dataset)) == 10
        assert [len(batch["a"]) for batch in dataset.batch(4)] == [4, 4, 2]


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=5), min_size=1), max_size=9), st.integers(1, 30))
def test_any_objects_come_back_wherever_pieces_end(tmp_path_factory, samples, piece):
    folder = tmp_path_factory.mktemp("jsonl")
    (folder / "a.jsonl").write_bytes(jsonl(samples, "\n\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "SCANNED", piece)
        patch.setattr(lines, "FIRST_LINE", piece)
        assert identical(list(fl.open(folder / "a.jsonl", format="jsonl")), samples)


def test_an_index_is_kept_and_made_anew_when_the_file_changes(tmp_path, cache, monkeypatch):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(objects()))
    assert list(fl.open(path)) == objects()
    assert len(list(cache.iterdir())) == 1
    scans = []
    scan = lines.scan
    monkeypatch.setattr(lines, "scan", lambda *args, **kwargs: scans.append(1) or scan(*args, **kwargs))
    assert list(fl.open(path)) == objects()
    assert scans == []
    path.write_bytes(jsonl(objects()[::-1]))
    assert list(fl.open(path)) == objects()[::-1]
    assert scans == [1]
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:-1] + b"\x77")
    assert list(fl.open(path)) == objects()[::-1]
    assert scans == [1, 1]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("FASTLOADER_CACHE", str(tmp_path / "file"))
    (tmp_path / "a.jsonl").write_bytes(jsonl(objects()))
    assert list(fl.open(tmp_path / "a.jsonl")) == objects()


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(jsonl(objects() * 20))
    iterator = iter(fl.open(path))
    next(iterator)
    path.write_bytes(jsonl(objects() * 19))
    with pytest.raises(fl.StoreError, match=r"a\.jsonl.*changed since it was opened; open the dataset anew"):
        list(iterator)
