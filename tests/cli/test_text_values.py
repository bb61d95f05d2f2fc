from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.tokenizing import byte_pair, tiny_encoding

import fastloader as fl

from .conftest import Run, write


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A sample of each kind of text, and of nested fields."""
    encoding = tiny_encoding()
    fields: dict[str, fl.Field] = {
        "text": fl.TextField(dictionary=256),
        "tokens": fl.TokenizedTextField(encoding, embed=True),
        "other": fl.TokenizedTextField(byte_pair()),
        "packed": fl.PackedTextField(16, 100),
        "vector": fl.EmbeddingField(3, "int8"),
        "captions": fl.ListField(fl.TextField()),
        "scores": fl.ListField(fl.FloatField()),
        "meta": fl.DictField({"lang": fl.TextField(), "vector": fl.EmbeddingField(10), "data": fl.BytesField()}),
    }
    sample = {
        "text": "Two lines:\nGrüße",
        "tokens": "the park",
        "other": "the park",
        "packed": [[1, 2, 3], [4], [5] * 8],
        "vector": [1.0, -1.0, 0.0],
        "captions": ["a dog", "ein Hund"],
        "scores": [0.5, 1.5],
        "meta": {"lang": "de", "vector": np.arange(10), "data": b"\xff\x00"},
    }
    many = [sample | {"text": f"text number {i} of many that are all alike"} for i in range(300)]
    return write(tmp_path / "x.fld", [sample, dict.fromkeys(sample), *many], fields)


def test_a_sample_is_shown_readably(run: Run, texts: Path) -> None:
    shown = run("cat", texts, 0).stdout.splitlines()
    assert shown == [
        "sample 0",
        "  text      Two lines:",
        "            Grüße",
        "  tokens    uint16[4]  min 32, max 259, [257, 32, 258, 259]",
        "            the park",
        f"  other     uint16[{len(byte_pair().encode('the park', add_special_tokens=False).ids)}]"
        + shown[5].split("]", 1)[1],
        "  packed    3 documents, 12 of 16 tokens (75%)",
        "            documents of [3, 1, 8]",
        "            tokens [1, 2, 3, 4, 5, 5, 5, 5, ...]",
        "  vector    float32[3]  min -1, max 1, [1, -1, 0]",
        "  captions  [",
        '              "a dog",',
        '              "ein Hund"',
        "            ]",
        "  scores    float64[2]  min 0.5, max 1.5, [0.5, 1.5]",
        "  meta      {",
        '              "lang": "de",',
        '              "vector": "float32[10]  min 0, max 9, [0, 1, 2, 3, 4, 5, 6, 7, ...]",',
        '              "data": "2 B: ff 00"',
        "            }",
    ]
    assert run("cat", texts, 1).stdout.count("missing") == 8


def test_tokens_come_as_text_where_a_tokenizer_is_given(run: Run, texts: Path, tmp_path: Path) -> None:
    byte_pair().save(str(tmp_path / "mine.json"))
    for spelling in (["--tokenizer", tmp_path / "mine.json"], [f"--tokenizer={tmp_path / 'mine.json'}"]):
        shown = run("cat", texts, 0, *spelling).stdout.splitlines()
        assert shown.count("            the park") == 2
    byte_pair(9).save(str(tmp_path / "wrong.json"))
    wrong = run("cat", texts, 0, "--tokenizer", tmp_path / "wrong.json")
    assert wrong.exit_code != 0
    assert "the tokens were made by BPE (tokenizers" in wrong.stderr
    assert run("cat", texts, 0, "text", "--tokenizer", tmp_path / "mine.json").exit_code == 2


def test_as_json(run: Run, texts: Path) -> None:
    fields = json.loads(run("cat", texts, 0, "--json").stdout)["fields"]
    assert fields["text"]["text"] == "Two lines:\nGrüße"
    assert fields["tokens"]["text"] == "the park"
    assert "text" not in fields["other"]
    assert (fields["packed"]["lengths"], fields["packed"]["seq_len"]) == ([3, 1, 8], 16)
    assert fields["captions"]["value"] == ["a dog", "ein Hund"]


def test_a_text_is_written_as_it_is(run: Run, texts: Path) -> None:
    assert run("cat", texts, 0, "text").stdout == "Two lines:\nGrüße"


def test_ls_tells_what_tables_tell(run: Run, texts: Path) -> None:
    line = run("ls", texts).stdout.splitlines()[0]
    assert "packed=3 documents, 12 of 16 tokens" in line
    assert "vector=int8[3]" in line
    assert "captions=2 elements" in line
    assert "scores=float64[2]" in line


def test_info_tells_how_full_sequences_are_and_what_was_learned(run: Run, texts: Path, tmp_path: Path) -> None:
    shown = run("info", texts).stdout
    assert f"packed: documents {3 * 301:,}, tokens {12 * 301:,}, efficiency 75.00%" in shown
    notes = {field["name"]: field["notes"] for field in json.loads(run("info", texts, "--json").stdout)["fields"]}
    assert 0 < notes["text"]["dictionary_bytes"] <= 256
    assert notes["packed"] == {"documents": 903, "tokens": 3612, "efficiency": 0.75}
    assert notes["captions"] == {}
    with fl.TokenStreamWriter(tmp_path / "stream.fld", vocab_size=100_000, shard_size=100) as writer:
        writer.write(range(1234))
    assert "tokens: tokens 1,234" in run("info", tmp_path / "stream.fld").stdout
    assert run("verify", tmp_path / "stream.fld").exit_code == 0


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """Tokens of many texts in shards, with their tokenizer."""
    path = tmp_path / "stream.fld"
    with fl.TokenStreamWriter(path, tokenizer=tiny_encoding(), embed=True, eos=260, shard_size=200) as writer:
        writer.write_many(["the park"] * 100)
    return path


def test_tokens_of_a_stream_are_shown_from_any_place_on(run: Run, stream: Path) -> None:
    tokens = [257, 32, 258, 259, 260] * 100
    assert run("cat", stream, 5).stdout.splitlines() == [
        "tokens 5 to 68 of 500",
        "  uint16[64]  min 32, max 260, [257, 32, 258, 259, 260, 257, 32, 258, ...]",
        "  " + "the park<|end|>" * 12 + "the pa" + "rk",
    ]
    assert run("cat", stream, -2).stdout.splitlines()[0] == "tokens 498 to 499 of 500"
    assert json.loads(run("cat", stream, 98, "--json").stdout) == {
        "token": 98, "tokens": 500,  # no further than the shard goes
        "fields": {"tokens": {"dtype": "uint16", "shape": [2], "min": 259, "max": 260, "first": [259, 260],
                              "text": "rk<|end|>"}},
    }  # fmt: skip
    assert np.frombuffer(run("cat", stream, 130, "tokens").stdout_bytes, "<u2").tolist() == tokens[130:200]
    for arguments, said in (
        ((500,), "no token has the number 500; they are numbered 0 to 499"),
        (("key",), "a stream of tokens has no keys"),
        ((0, "text"), "no field 'text'; there is tokens"),
    ):
        refused = run("cat", stream, *arguments)
        assert refused.exit_code == 2
        assert said in refused.stderr


def test_a_stream_says_that_it_has_no_samples_and_how_many_tokens(run: Run, stream: Path) -> None:
    listed = run("ls", stream)
    assert listed.stdout == ""
    assert "a stream of 500 tokens, which has no samples" in listed.stderr
    assert run("verify", stream).stdout == f"{stream}: 500 tokens in 5 shards: all good\n"
    assert json.loads(run("verify", stream, "--json").stdout)["tokens"] == 500
