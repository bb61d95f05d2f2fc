"""The JSON: the quick way to read it agrees with the slow one, and what is wrong is said."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zc_by_hand as hand
from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.errors import FormatError
from fastloader.formats.zc import metadata

GOOD = json.dumps(hand.describe([(0, 3), (17, 1234567890123), (10**17, 0)]))


def array(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8)


def outcome(read, text):
    try:
        return [numbers.tolist() for numbers in read(text)]
    except FormatError:
        return None


def check_twins(text: bytes) -> None:
    quick = metadata.scan(array(text))
    if quick is not None:
        assert outcome(lambda _: quick, text) == outcome(metadata.parse, text), text


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1)), max_size=30),
    st.sampled_from([(",", ":"), (", ", ": ")]),
)
def test_both_ways_of_reading_agree_on_the_usual_form(extents, separators):
    text = json.dumps(hand.describe(extents), separators=separators).encode()
    expected = [[offset for offset, _ in extents], [size for _, size in extents]]
    quick = metadata.scan(array(text))
    assert quick is not None
    assert [numbers.tolist() for numbers in quick] == expected
    assert outcome(metadata.parse, text) == expected


@pytest.mark.parametrize("length", [1, 2, 3, 50, 51])
def test_the_text_is_written_and_read_in_pieces(monkeypatch, length):
    monkeypatch.setattr(metadata, "_WRITTEN_TOGETHER", 3)
    monkeypatch.setattr(metadata, "_CHUNK", 100)
    extents = [(i * 12345, i) for i in range(length)]
    text = b"".join(metadata.write([o for o, _ in extents], [s for _, s in extents]))
    assert json.loads(text) == hand.describe(extents)
    quick = metadata.scan(array(text))
    assert quick is not None
    assert list(zip(*(numbers.tolist() for numbers in quick), strict=True)) == extents


def test_a_wrong_byte_is_found_wherever_a_piece_ends(monkeypatch):
    monkeypatch.setattr(metadata, "_CHUNK", 64)
    text = json.dumps(hand.describe([(i, i * 1000) for i in range(6)])).encode()
    assert metadata.scan(array(text)) is not None
    for at in range(len(text)):
        for new in b"5 ,;}":
            check_twins(text[:at] + bytes([new]) + text[at + 1 :])


@settings(max_examples=800, deadline=None)
@given(st.data())
def test_what_is_almost_the_usual_form_is_never_read_differently(data):
    spaced = data.draw(st.booleans())
    text = bytearray(
        json.dumps(hand.describe([(0, 3), (17, 22)]), separators=(None if spaced else (",", ":"))).encode()
    )
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(st.sampled_from(list(b'0123456789{}[]:," -.eE+samplesoffsetize\x00\xff')))
        match data.draw(st.sampled_from(["replace", "insert", "remove", "repeat"])):
            case "replace":
                text[at] = new
            case "insert":
                text.insert(at, new)
            case "remove":
                del text[at]
            case "repeat":
                text[at:at] = text[at : at + data.draw(st.integers(1, 30))]
    check_twins(bytes(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        (GOOD + "x", "is no JSON: Extra data"),
        (GOOD[:-1], "is no JSON"),
        ("[1, 2]", r"is \[1, 2\], no JSON object"),
        ("7", "is 7, no JSON object"),
        ("{}", 'lacks "num_samples"'),
        ('{"num_samples": 0}', 'no list "samples"'),
        ('{"num_samples": 0, "samples": {}}', 'no list "samples"'),
        ('{"num_samples": true, "samples": [1]}', '"num_samples": True'),
        ('{"num_samples": 0.0, "samples": []}', r'"num_samples": 0\.0'),
        ('{"num_samples": -1, "samples": []}', '"num_samples": -1'),
        ('{"num_samples": 1, "samples": []}', "lists 0 samples and says there are 1"),
        ('{"num_samples": 999999999999, "samples": []}', "lists 0 samples and says there are 999999999999"),
        ('{"num_samples":0,"samples":[{"offset":0,"size":0}]}', "lists 1 samples and says there are 0"),
        ('{"num_samples":2,"samples":[{"offset":0,"size":0}]}', "lists 1 samples and says there are 2"),
        ('{"num_samples": 1, "samples": [3]}', 'sample 0: .* lacks "offset"'),
        ('{"num_samples": 1, "samples": [{"offset": 0}]}', 'sample 0: .* lacks "size"'),
        ('{"num_samples": 1, "samples": [{"offset": "0", "size": 1}]}', 'sample 0: .* "offset": \'0\''),
        ('{"num_samples": 1, "samples": [{"offset": null, "size": 1}]}', 'sample 0: .* lacks "offset"'),
        ('{"num_samples": 1, "samples": [{"offset": 1.0, "size": 1}]}', r'sample 0: .* "offset": 1\.0'),
        ('{"num_samples": 1, "samples": [{"offset": 0, "size": 1e400}]}', 'sample 0: .* "size": inf'),
        ('{"num_samples": 1, "samples": [{"offset": 0, "size": -5}]}', 'sample 0: .* "size": -5'),
        ('{"num_samples": 1, "samples": [{"offset": false, "size": 1}]}', 'sample 0: .* "offset": False'),
        ('{"num_samples": 1, "samples": [{"offset": 9223372036854775808, "size": 1}]}', "9223372036854775808"),
        ('{"num_samples": 1, "samples": [{"offset": 0, "size": %s}]}' % ("9" * 5000), "is no JSON: .*digits"),
        ('{"num_samples": 1, "samples": [{"offset": 0, "size": NaN}]}', "NaN is no JSON number"),
        ('{"num_samples": 1, "samples": [{"offset": -Infinity, "size": 0}]}', "-Infinity is no JSON number"),
        ('{"num_samples": 1, "samples": [{"offset": 00, "size": 0}]}', "is no JSON"),
        ('{"num_samples":1,"samples":[{"offset":00,"size":0}]}', "is no JSON"),
        ('{"num_samples":1,"samples":[{"offset":0,"size":0},]}', "is no JSON"),
        ('{"num_samples":1,"samples":[{"off5set":,"size":0}]}', "is no JSON"),
        ('{"num_samples": 1, "samples": [{"offset": , "size": 0}7]}', "is no JSON"),
        ('{"num_samples":1,"samples":[{"offset":7,"size":}0]}', "is no JSON"),
        ('{"num_samples":0,"num_samples":0,"samples":[]}', "'num_samples' twice"),
        ('{"num_samples": 1, "samples": [{"offset": 0, "size": 1, "offset": 0}]}', "'offset' twice"),
        ('{"num_samples": 0, "samples": [], "%s": 1, "%s": 2}' % (("k" * 9999,) * 2), "kkk.*twice"),
        ("[" * 200_000, "nested too deeply"),
        ('{"num_samples": 0, "samples": [], "x": ' + '{"x":' * 200_000, "nested too deeply"),
        ("\ufeff" + GOOD, "is no JSON"),
    ],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_hostile_text_is_refused(text, said):
    with pytest.raises(FormatError, match=said) as caught:
        metadata.read(array(text.encode()))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "latin-1"])
def test_only_utf_8_is_json(encoding):
    with pytest.raises(FormatError, match="is no JSON"):
        metadata.read(array((GOOD[:-1] + ', "\xe9": 0}').encode(encoding)))


def test_text_in_an_unusual_form_is_parsed_up_to_a_limit(monkeypatch):
    unusual = array(GOOD.replace(", ", " , ").encode())
    assert len(metadata.read(unusual)[0]) == 3
    monkeypatch.setattr(metadata, "PARSE_LIMIT", len(unusual) - 1)
    with pytest.raises(FormatError, match="unusual form"):
        metadata.read(unusual)
    assert len(metadata.read(array(GOOD.encode()))[0]) == 3  # the usual one needs no such limit
