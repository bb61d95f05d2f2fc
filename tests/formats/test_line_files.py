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
from fastloader.formats import lines
from fastloader.formats.lines import type_of
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


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2", ""], "int"), (["0", "10"], "int"), (["007"], "str"), (["1", "2.5"], "float"), (["1e5"], "float"),
        (["nan", "inf"], "float"), (["1", "x"], "str"), (["", ""], "str"), (["9" * 30], "float"), (["00.5"], "str"),
    ],
)  # fmt: skip
def test_columns_are_what_all_their_values_are(texts, kind):
    assert type_of(texts) == kind


def test_types_can_be_named(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    assert fl.open(tmp_path / "a.csv", types={"a": "float", "b": "str"})[0] == {"a": 1.0, "b": "2"}
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
        patch.setattr(lines, "SCANNED", piece)
        types = {"name one": "str", "two": "str"}
        assert list(fl.open(folder / "a.csv", format="csv", types=types)) == samples


@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=5), min_size=1), max_size=9), st.integers(1, 30))
def test_any_objects_come_back_wherever_pieces_end(tmp_path_factory, samples, piece):
    folder = tmp_path_factory.mktemp("jsonl")
    (folder / "a.jsonl").write_bytes(jsonl(samples, "\n\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "SCANNED", piece)
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
