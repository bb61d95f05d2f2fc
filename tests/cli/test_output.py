from __future__ import annotations

import json
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from fastloader.cli.output import printable, readable, to_json

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(ANY_TEXT)
@settings(max_examples=200)
def test_nothing_invisible_is_left_in_printable_text(text: str) -> None:
    assert not {unicodedata.category(char) for char in printable(text)} & INVISIBLE
    assert printable(printable(text)) == printable(text)


@given(ANY_TEXT)
@settings(max_examples=200)
def test_visible_text_stays_as_it_is(text: str) -> None:
    visible = "".join(char for char in text if unicodedata.category(char) not in INVISIBLE)
    assert printable(visible) == visible
    assert printable(visible + "\n", keep="\n") == visible + "\n"


def test_bytes_that_are_no_utf8_are_spelled_as_bytes() -> None:
    assert printable(b"caf\xe9\x9b".decode("utf-8", "surrogateescape")) == r"caf\xe9\x9b"


def test_spaces_of_other_scripts_are_text() -> None:
    assert printable("東京\u3000大阪\xa0x\n") == "東京\u3000大阪\xa0x\\n"


@given(st.binary())
@settings(max_examples=200)
def test_what_is_readable_holds_no_control_character_but_newline_and_tab(data: bytes) -> None:
    text = readable(data)
    if text is not None:
        assert text.encode() == data
        assert not {unicodedata.category(char) for char in text if char not in "\n\t"} & INVISIBLE


def _refuse(name: str) -> None:
    raise ValueError(name)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
        max_leaves=10,
    )
)
@settings(max_examples=200)
def test_json_is_strict_ascii_and_on_one_line(value: object) -> None:
    text = to_json(value)
    assert text.isascii()
    assert "\n" not in text
    assert "\x1b" not in text
    json.loads(text, parse_constant=_refuse)


def test_json_keeps_finite_values() -> None:
    value = {"a": [1, 2.5, None, True, "x\ud800"], "b": {"c": -1}}
    assert json.loads(to_json(value)) == value
