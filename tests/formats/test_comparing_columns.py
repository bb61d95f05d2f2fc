"""``where``: the rows that Python would choose, however they are stored."""

from __future__ import annotations

import operator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.formats.where import COMPARISONS, possible, text_of

NAN = float("nan")
OPERATORS = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": lambda value, among: any(value == one for one in among),
    "not in": lambda value, among: not any(value == one for one in among),
}  # fmt: skip

EDGES = [s * (2**n) + d for n in (0, 8, 31, 32, 53, 63, 64) for s in (1, -1) for d in (-1, 0, 1, 5)]
NUMBERS = (
    st.integers(-3, 3) | st.sampled_from(EDGES) | st.sampled_from(EDGES).map(float) | st.booleans()
    | st.sampled_from([-0.0, 0.5, -1.5, 1e300, 10**400, float("inf"), -float("inf"), NAN, Fraction(3, 2), np.int8(1)])
    | st.floats(width=32)
)  # fmt: skip
TEXTS = st.sampled_from(["", "a", "b", "ab", "ä", "\uffff", "\U0001f600", "z"])
MOMENTS = st.integers(-3, 3).map(lambda n: datetime(2000, 1, 1) + n * timedelta(milliseconds=500)) | st.sampled_from(
    [datetime.min, datetime.max, datetime(2000, 1, 1, 0, 0, 0, 1)]
)


def whole(bits, signed):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(-3, 3).filter(lambda n: n >= low) | st.sampled_from([e for e in EDGES if low <= e <= high])


def moments(unit):
    cut = {"s": 10**6, "ms": 1000, "us": 1}[unit]
    return MOMENTS.map(lambda m: m.replace(microsecond=m.microsecond // cut * cut))


COLUMNS = {
    "int8": (pa.int8(), whole(8, True), NUMBERS), "int64": (pa.int64(), whole(64, True), NUMBERS),
    "uint32": (pa.uint32(), whole(32, False), NUMBERS), "uint64": (pa.uint64(), whole(64, False), NUMBERS),
    "float32": (pa.float32(), st.sampled_from([0.0, -0.0, 0.5, 1.0, NAN]) | st.floats(width=32), NUMBERS),
    "float64": (pa.float64(), st.sampled_from([0.0, -0.0, 2.0**53, NAN]) | st.floats(), NUMBERS),
    "bool": (pa.bool_(), st.booleans(), NUMBERS), "text": (pa.string(), TEXTS, TEXTS),
    "named": (pa.dictionary(pa.int32(), pa.string()), TEXTS, TEXTS),
    "coded": (pa.dictionary(pa.int8(), pa.int64()), whole(64, True), NUMBERS),
    "s": (pa.timestamp("s"), moments("s"), MOMENTS), "ms": (pa.timestamp("ms"), moments("ms"), MOMENTS),
    "us": (pa.timestamp("us"), moments("us"), MOMENTS),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), st.integers(-3, 3).map(
        lambda n: datetime(2000, 1, 1, tzinfo=UTC) + n * timedelta(days=90)),
        st.integers(-3, 3).map(lambda n: datetime(2000, 1, 1, tzinfo=UTC) + n * timedelta(days=45))),
    "date": (pa.date32(), st.integers(-3, 3).map(lambda n: date(2000, 1, 3) + timedelta(days=n)),
             st.integers(-3, 3).map(lambda n: date(2000, 1, 3) + timedelta(days=n))),
}  # fmt: skip


@pytest.mark.parametrize("kind", COLUMNS)
@settings(max_examples=40, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_where_chooses_the_rows_that_python_would(kind, tmp_path_factory, data):
    dtype, stored, asked = COLUMNS[kind]
    values = data.draw(st.lists(st.none() | stored, max_size=9))
    packed = pa.types.is_dictionary(dtype)
    column = pa.array(values, dtype.value_type).dictionary_encode() if packed else pa.array(values, dtype)
    table = pa.table({"x": column, "row": range(len(values))})
    held = column.to_pylist()
    path = tmp_path_factory.mktemp("where")
    pq.write_table(table, path / "a.parquet", row_group_size=data.draw(st.integers(1, 4)))
    with pa.OSFile(str(path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table.unify_dictionaries())
    there = [one for one in held if one is not None]
    value = data.draw(asked | st.sampled_from(there) if there else asked)
    several = [value, *data.draw(st.lists(st.none() | asked, max_size=3))]
    for comparison, compare in OPERATORS.items():
        other = several if comparison in ("in", "not in") else value
        wanted = [row for row, one in enumerate(held) if one is not None and compare(one, other)]
        for name in ("a.parquet", "a.arrow"):
            found = fl.open(path / name, where=("x", comparison, other))
            assert [sample["row"] for sample in found] == wanted, (comparison, other, held)


def rows(path, *where, **options):
    return [sample["row"] for sample in fl.open(path, where=list(where), **options)]


@pytest.fixture
def table(tmp_path):
    """Rows of many types, the fourth of each missing, in groups of two."""

    def put(**columns):
        held = {name: pa.array(values, dtype) for name, (values, dtype) in columns.items()}
        pq.write_table(pa.table({**held, "row": range(4)}), tmp_path / "a.parquet", row_group_size=2)
        return tmp_path / "a.parquet"

    return put


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_nan_is_unequal_to_all_whatever_the_size_of_row_groups(size, tmp_path):
    pq.write_table(pa.table({"f": [2.0, NAN, NAN, 2.0], "row": range(4)}), tmp_path / "a", row_group_size=size)
    for where, wanted in [
        (("!=", 2.0), [1, 2]), (("not in", [2.0]), [1, 2]), (("not in", [NAN]), [0, 1, 2, 3]), (("in", [NAN]), []),
        (("==", NAN), []), (("!=", NAN), [0, 1, 2, 3]), (("<", NAN), []), ((">=", 2), [0, 3]),
    ]:  # fmt: skip
        assert rows(tmp_path / "a", ("f", *where)) == wanted


def test_values_are_not_cut_to_the_type_of_the_column(table):
    path = table(
        i=([1, 2, 2**53 + 1, None], pa.int64()), u=([1, 2**63 + 5, 2**64 - 1, None], pa.uint64()),
        f=([0.1, 1.0, 2.0, None], pa.float32()),
        d=([Decimal("1.50"), Decimal(2), Decimal(3), None], pa.decimal128(5, 2)),
    )  # fmt: skip
    assert rows(path, ("i", "in", [1.5])) == []
    assert rows(path, ("i", "in", [1.0, 2.5])) == [0]
    assert rows(path, ("i", "==", 2.0**53)) == []
    assert rows(path, ("i", "<", 2**70)) == [0, 1, 2]
    assert rows(path, ("u", ">=", 2**63 + 5)) == [1, 2]
    assert rows(path, ("u", ">=", -1)) == [0, 1, 2]
    assert rows(path, ("u", "in", [2**64 - 1, -1, 2**64])) == [2]
    assert rows(path, ("f", "in", [0.1, 1])) == [1]  # as 0.1 is another number in 32 bits, for == too
    assert rows(path, ("d", "in", [Decimal("1.5"), Decimal("1.501")])) == [0]


def test_a_generator_is_gone_through_once(table):
    path = table(i=([1, 2, 3, None], pa.int64()))
    assert rows(path, ("i", "in", (n for n in (1, 3)))) == [0, 2]
    assert rows(path, ("i", "in", {1, 3})) == [0, 2]
    with pytest.raises(TypeError, match="'in' takes several values"):
        fl.open(path, where=("i", "in", 3))


def test_missing_values_meet_nothing(table):
    path = table(s=(["p", "q", "p", None], pa.string()), n=([None] * 4, pa.null()))
    assert rows(path, ("s", "in", [None])) == []
    assert rows(path, ("s", "in", [None, "p"])) == [0, 2]
    assert rows(path, ("s", "not in", [None, "p"])) == [1]
    assert rows(path, ("n", "not in", [1])) == rows(path, ("n", "!=", 1)) == []


def test_times_are_compared_in_any_unit(table):
    path = table(
        ns=([0, 1001, 5000, None], pa.timestamp("ns")), t=([0, 1001, 5000, None], pa.time64("ns")),
        d=([0, 1001, 5000, None], pa.duration("ns")), day=([0, 1, 2, None], pa.date32()),
    )  # fmt: skip
    epoch = datetime(1970, 1, 1)
    assert rows(path, ("ns", ">", epoch + timedelta(microseconds=1))) == [1, 2]
    assert rows(path, ("ns", "in", [np.datetime64(1001, "ns"), epoch])) == [0, 1]
    assert rows(path, ("ns", "<", datetime.max)) == [0, 1, 2]
    assert rows(path, ("ns", "!=", date(1970, 1, 1))) == [1, 2]
    assert rows(path, ("t", ">", time(0, 0, 0, 1))) == [1, 2]
    assert rows(path, ("d", "<=", timedelta(microseconds=5))) == [0, 1, 2]
    assert rows(path, ("day", ">", datetime(1970, 1, 2, 12))) == [2]
    with pytest.raises(fl.FormatError, match=r"'ns' is timestamp\[ns\], which does not compare with .*time zone"):
        rows(path, ("ns", ">", epoch.replace(tzinfo=UTC)))


def test_what_does_not_compare_is_named(table):
    path = table(i=([1, 2, 3, None], pa.int64()))
    for where in (("i", "==", "text"), ("i", "in", [1, "text"])):
        with pytest.raises(fl.FormatError, match=r"a\.parquet: .*'i' is int64, which does not compare with 'text'"):
            rows(path, where)


def test_a_column_within_another_is_not_taken_for_one_of_its_name(tmp_path):
    table = pa.table({"a": [{"b": 1}, {"b": 2}], "a.b": [7, 8], "row": [0, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet", ("a.b", "==", 8)) == [1]


def test_columns_of_one_name_are_refused_and_others_read(tmp_path):
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4]), pa.array([5, 6])], ["x", "x", "row"])
    pq.write_table(table, tmp_path / "a.parquet")
    for name, new in (("a.arrow", pa.ipc.new_file), ("a.stream", pa.ipc.new_stream)):
        with pa.OSFile(str(tmp_path / name), "wb") as file, new(file, table.schema) as writer:
            writer.write_table(table)
    for name in ("a.parquet", "a.arrow", "a.stream"):
        for fields in (None, ["row", "x"]):
            with pytest.raises(fl.FormatError, match=rf"{name}: has 2 columns called 'x'; choose others with fields="):
                fl.open(tmp_path / name, fields=fields)
        assert list(fl.open(tmp_path / name, fields=["row"])) == [{"row": 5}, {"row": 6}]
    with pytest.raises(fl.FormatError, match="has 2 columns called 'x'"):
        fl.open(tmp_path / "a.parquet", fields=["row"], where=("x", "==", 1))


def test_bounds_that_tell_nothing_exclude_nothing():
    for comparison in COMPARISONS:
        value = [3.0] if "in" in comparison else 3.0
        assert possible(NAN, NAN, comparison, value)
        assert possible(5, -5, comparison, value)
        assert possible(b"\0<", b"\0@", comparison, value)


def test_comparisons_with_the_same_values_have_the_same_text():
    assert text_of([("x", "in", {"a", "b"})]) == text_of([("x", "in", ["b", "a"])]) != text_of([("x", "in", ["b"])])
