"""Searching, filtering and counting: what is found is what a slow loop over all samples finds."""

from __future__ import annotations

import fnmatch
import operator
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from viewed import Served, where, write_numbers

import fastloader as fl
from fastloader.viewer import choosing, histograms, open_samples
from fastloader.viewer.choosing import Search, Searches, parse_choice

COMPARISONS = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
KEYS = st.lists(st.text("ab/é*", min_size=1, max_size=6), unique=True, min_size=1, max_size=30)
NUMBERS = st.one_of(st.integers(-3, 3), st.none())
QUIET = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def found(samples: Any, key: str = "", conditions: list[str] | None = None) -> list[int]:
    search = Search(samples, parse_choice(samples, key, conditions or []))
    search.wait(300)
    assert search.finished
    assert search.error is None
    assert search.done == search.total
    return search.rows().tolist()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few samples, so that few samples fill several."""
    for module in ("samples", "choosing", "histograms"):
        monkeypatch.setattr(f"fastloader.viewer.{module}.BLOCK", 7)
        monkeypatch.setattr(f"fastloader.viewer.{module}.FEW", 3)


@QUIET
@example(keys=["a", "ab", "abb", "b"], query="ab", shards=True)
@example(keys=["a*b", "ab", "aéb"], query="a?b", shards=False)
@given(keys=KEYS, query=st.text("ab/é*?[]=", max_size=4), shards=st.booleans())
def test_keys_are_found_as_by_a_loop(
    tmp_path_factory: pytest.TempPathFactory, small_blocks: None, keys: list[str], query: str, shards: bool
) -> None:
    path = tmp_path_factory.mktemp("keys") / "x.fld"
    options: Any = {"shard_size": 40} if shards else {}
    with fl.DatasetWriter(path, {"n": fl.IntField()}, keys=True, **options) as writer:
        for number, key in enumerate(keys):
            writer.write_sample({"n": number}, key=key)
    if query.startswith("="):
        slow = [i for i, key in enumerate(keys) if key == query[1:]]
    elif any(sign in query for sign in "*?["):
        slow = [i for i, key in enumerate(keys) if fnmatch.fnmatchcase(key, query)]
    else:
        slow = [i for i, key in enumerate(keys) if key.startswith(query)]
    assert found(open_samples(str(path)), query) == slow


@QUIET
@given(
    rows=st.lists(st.tuples(NUMBERS, NUMBERS, st.sampled_from(["ab", "b", "", None])), min_size=1, max_size=40),
    conditions=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["0.value", "1.value", "2.bytes"]), st.sampled_from(sorted(COMPARISONS)),
                      st.integers(-3, 3)),
            st.tuples(st.just("2.value"), st.sampled_from(["=", "!=", "contains"]), st.sampled_from(["b", "ab"])),
            st.tuples(st.sampled_from(["0.value", "2.value"]), st.just("missing"), st.none()),
        ), max_size=3,
    ),
    shards=st.booleans(),
)  # fmt: skip
def test_conditions_hold_as_in_a_loop(
    tmp_path_factory: pytest.TempPathFactory, small_blocks: None, rows: list[Any], conditions: list[Any], shards: bool
) -> None:
    path = tmp_path_factory.mktemp("where") / "x.fld"
    options: Any = {"shard_size": 40} if shards else {}
    with fl.DatasetWriter(path, {"i": fl.IntField(), "f": fl.FloatField(), "t": fl.TextField()}, **options) as writer:
        for i, f, t in rows:
            writer.write_sample({"i": i, "f": f, "t": t})

    def holds(row: Any, column: str, operation: str, value: Any) -> bool:
        known = row[int(column[0])]
        if operation == "missing":
            return known is None
        if known is None:
            return False
        if operation == "contains":
            return value in known
        return bool(COMPARISONS[operation](len(known) if column.endswith("bytes") else known, value))

    slow = [i for i, row in enumerate(rows) if all(holds(row, *one) for one in conditions)]
    assert found(open_samples(str(path)), "", [where(*one) for one in conditions]) == slow


def test_searching_and_filtering_go_together(every: Served) -> None:
    label = next(column["id"] for column in every.ask("dataset")["columns"] if column["label"] == "label")
    asked = {"key": "things/disc_*", "where": [where(label, "=", 3)]}
    assert every.found(**asked) == [3, 7, 11]
    sample = every.ask("sample/7", **asked)
    assert (sample["position"], sample["found"], sample["before"], sample["after"]) == (1, 3, 3, 11)
    sample = every.ask("sample/8", **asked)  # one that is not among them
    assert (sample["before"], sample["after"]) == (7, 11)
    assert every.ask("sample/0")["before"] is None


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"where": "nonsense"}, "expected [column, operation, value]"),
        ({"where": '["9999.value", "=", 1]'}, "there is no column '9999.value'"),
        ({"where": '["22.value", "~", 1]'}, "'~': one of ="),
        ({"where": '["22.value", "=", "many"]'}, "label: 'many' is no number"),
        ({"where": '["22.value", "=", [1]]'}, "label: [1] is no number"),
        ({"where": '["22.value", "contains", 1]'}, "label is a number, which contains nothing"),
        ({"where": '["11.value", "<", "a"]'}, "text is text, which is compared by"),
    ],
)
def test_what_can_not_be_asked_for_is_told(every: Served, params: dict[str, str], said: str) -> None:
    from urllib.parse import urlencode

    for path in ("search?", "cards?start=0&count=1&", "histogram?column=22.value&"):
        answer = every.get(f"/api/{path}{urlencode(params)}")
        assert answer.status == 400
        assert said in answer.body.decode()  # type: ignore[attr-defined]


def test_datasets_without_keys_say_so(tmp_path: Path) -> None:
    with Served(write_numbers(tmp_path / "x.fld", 10)) as served:
        assert served.get("/api/search?key=a").status == 400


def test_a_search_for_which_nobody_asks_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "IDLE", -1.0)
    samples = open_samples(str(write_numbers(tmp_path / "x.fld", 500_000)))
    choice = parse_choice(samples, "", [where("0.value", "<", 10)])
    search = Search(samples, choice)
    search._thread.join()
    assert search.given_up
    assert not search.finished
    monkeypatch.setattr(choosing, "IDLE", 20.0)
    searches = Searches(samples)
    searches._kept[choice] = search
    again = searches.get(choice)
    again.wait(300)
    assert again.rows().tolist() == list(range(10))


def test_only_so_many_searches_are_kept(tmp_path: Path) -> None:
    samples = open_samples(str(write_numbers(tmp_path / "x.fld", 1000)))
    searches = Searches(samples)
    choices = [parse_choice(samples, "", [where("0.value", "<", most)]) for most in range(20)]
    kept = [searches.get(choice) for choice in choices]
    assert len(searches._kept) == choosing.KEPT
    assert searches.get(choices[-1]) is kept[-1]
    assert searches.get(choices[0]) is not kept[0]


def test_an_error_while_searching_is_told(tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "x.fld", 500_000)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)
    with Served(path) as served:
        for column in ("0.value", "1.value"):
            told = served.ask("search", where=where(column, "=", 5))
            while not told["finished"]:
                told = served.ask("search", where=where(column, "=", 5))
            if told["error"]:
                break
        assert "crc32c stored" in told["error"]


def counts(bars: list[dict[str, Any]]) -> dict[Any, int]:
    return {bar["value"]: bar["count"] for bar in bars}


@QUIET
@given(values=st.lists(st.one_of(st.integers(-50, 50), st.none()), max_size=80))
def test_labels_are_counted(tmp_path_factory: pytest.TempPathFactory, small_blocks: None, values: list[Any]) -> None:
    path = tmp_path_factory.mktemp("labels") / "x.fld"
    with fl.DatasetWriter(path, {"label": fl.IntField()}) as writer:
        for value in values:
            writer.write_sample({"label": value})
    samples = open_samples(str(path))
    told = histograms.histogram(samples, samples.columns[0], None)
    slow = Counter(value for value in values if value is not None)
    assert (told["missing"], told["of"], told["sampled"]) == (values.count(None), len(values), False)
    assert told["different"] == len(slow)
    assert told["others"] == sum(slow.values()) - sum(counts(told["bars"]).values())
    assert counts(told["bars"]).items() <= dict(slow).items()
    assert [bar["value"] for bar in told["bars"]] == sorted(bar["value"] for bar in told["bars"])
    if len(slow) > histograms.BARS:  # none that is left out is more frequent
        left = [slow[value] for value in slow if value not in counts(told["bars"])]
        assert max(left) <= min(counts(told["bars"]).values())


@QUIET
@example(values=[-1.7e308, 1.7e308, 0.0])
@example(values=[5e-324, 1e-323])
@given(values=st.lists(st.floats(-1e6, 1e6, allow_nan=False, width=32), min_size=2, max_size=60))
def test_bins_hold_all_numbers_and_filter_what_they_count(
    tmp_path_factory: pytest.TempPathFactory, values: list[float]
) -> None:
    path = tmp_path_factory.mktemp("bins") / "x.fld"
    with fl.DatasetWriter(path, {"score": fl.FloatField()}) as writer:
        for value in values:
            writer.write_sample({"score": value})
    samples = open_samples(str(path))
    told = histograms.histogram(samples, samples.columns[0], None)
    assert sum(bar["count"] for bar in told["bars"]) == len(values)
    assert told["median"] == pytest.approx(float(np.median(values)))
    if told["form"] == "bins":
        assert len(told["bars"]) <= 2 * histograms.BARS
        bar = max(told["bars"], key=lambda one: one["count"])
        inside = [value for value in values if bar["low"] <= value < bar["high"]]
        edges = [
            value
            for value in values
            if any(np.isclose(value, edge, rtol=1e-9, atol=0) for edge in (bar["low"], bar["high"]))
        ]
        assert abs(len(inside) - bar["count"]) <= len(edges)


def test_texts_sizes_and_choices_are_counted(every: Served) -> None:
    columns = {column["label"]: column["id"] for column in every.ask("dataset")["columns"]}
    texts = every.ask("histogram", column=columns["text"])
    assert (texts["form"], texts["different"], texts["missing"]) == ("values", 12, 1)
    labels = every.ask("histogram", column=columns["label"])
    assert counts(labels["bars"]) == {0: 3, 1: 3, 2: 3, 3: 4}
    some = every.ask("histogram", column=columns["label"], key="things/disc_00")
    assert counts(some["bars"]) == {0: 3, 1: 3, 2: 2, 3: 2}
    assert some["of"] == 10
    width = every.ask("histogram", column=columns["image: width"])
    assert (counts(width["bars"]), width["unit"]) == ({96: 12}, "px")
    assert every.get("/api/histogram?column=no").status == 404


def test_of_very_many_some_are_counted_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histograms, "MOST_QUICK", 50_000)
    samples = open_samples(str(write_numbers(tmp_path / "x.fld", 1_000_000)))
    told = histograms.histogram(samples, samples.columns[1], None)
    assert told["sampled"]
    assert (told["of"], told["counted"]) == (1_000_000, 50_000 // histograms.RUN * histograms.RUN)
    assert len(told["bars"]) == 10
    assert told == histograms.histogram(samples, samples.columns[1], None)
