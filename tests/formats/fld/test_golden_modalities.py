"""The golden files of sound, motion, text and structure: written again, read, and read by hand."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import fld_by_hand as hand
import modalities_by_hand
import numpy as np
import pytest

import fastloader as fl

MAKE = runpy.run_path(str(hand.VECTORS / "make_modalities.py"))
EXPECTED = json.loads((hand.VECTORS / "modalities.json").read_text(encoding="utf-8"))
FILES = [make.__name__ for make in MAKE["VECTORS"] if make.__name__ != "stream"]


def golden(name: str) -> Path:
    return hand.VECTORS / f"{name}.fld"


@pytest.mark.parametrize("make", MAKE["REPRODUCED"], ids=lambda make: make.__name__)
def test_the_writer_gives_the_same_bytes_again(make, tmp_path):
    make(tmp_path / "made.fld")
    assert (tmp_path / "made.fld").read_bytes() == golden(make.__name__).read_bytes()


@pytest.mark.parametrize("name", FILES)
def test_the_reader_gives_the_expected_values(name):
    assert MAKE["expected"](list(fl.open(golden(name)))) == EXPECTED[name]
    assert fl.verify(golden(name), decode=True).ok


@pytest.mark.parametrize("name", FILES)
def test_reading_by_hand_gives_the_expected_values(name):
    data = golden(name).read_bytes()
    names = [described.name for described in hand.descriptors(data)]
    for sample, values in enumerate(EXPECTED[name]):
        assert list(values) == names
        for field, wanted in enumerate(values.values()):
            found = MAKE["plain"](modalities_by_hand.value(data, field, sample))
            assert found == wanted, (names[field], sample)


def test_the_stream_is_read_by_hand_and_by_windows():
    data, tokens = golden("stream").read_bytes(), MAKE["stream_tokens"]()
    assert hand.header(data).num_samples == 0
    (described,) = hand.descriptors(data)
    assert (described.name, described.type_id) == ("tokens", 43)
    assert described.arguments["vocab_size"] == 50_257
    assert b"".join(hand.table(data, modalities_by_hand.TOKENS, 0)) == tokens.tobytes()
    windows = fl.TokenStream(golden("stream"), 6, stride=1)
    assert np.array_equal([window["tokens"] for window in windows], np.lib.stride_tricks.sliding_window_view(tokens, 7))


def test_a_dictionary_is_used_where_it_is_told():
    extents = hand.extents(golden("dictionary").read_bytes(), 0)
    assert {extent.codec for extent in extents} == {3}
    assert sum(extent.size for extent in extents) < sum(extent.raw_size for extent in extents) / 2
