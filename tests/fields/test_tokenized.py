import json
import sys

import numpy as np
import pytest
from tests.tokenizing import TEXTS, byte_pair, tiny_encoding

import fastloader as fl
from fastloader.fields.tokenized import token_dtype
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write

TOKENIZER, ENCODING = byte_pair(), tiny_encoding()


def code_points(text):
    """A tokenizer anybody can write."""
    return [ord(char) for char in text]


class TestTokens(FieldContract):
    def fields(self):
        return [
            fl.TokenizedTextField(vocab_size=200),
            fl.TokenizedTextField(vocab_size=50_257),
            fl.TokenizedTextField(vocab_size=100_277),
        ]

    def values(self, field):
        rng = np.random.default_rng(0)
        arrays = [rng.integers(0, field.vocab_size, n) for n in (0, 1, 7, 100)]
        return [*arrays, [1, 2, 3], (4, 5), arrays[3].astype(np.uint32), np.arange(10, dtype=np.int8)[::2]]

    def bad_values(self, field):
        bad = [[-1], [field.vocab_size], [[1, 2]], [1.5], np.zeros(3), 5, {"a": 1}, b"\x01", ["a"], [None]]
        return [*bad, "text, and no tokenizer"]

    def equal(self, given, got):
        return got.dtype.kind == "u" and identical(np.asarray(given).astype(got.dtype), np.asarray(got))


class TestTokenizers(FieldContract):
    def fields(self):
        return [
            fl.TokenizedTextField(TOKENIZER),
            fl.TokenizedTextField(TOKENIZER, add_special_tokens=True, embed=True),
            fl.TokenizedTextField(ENCODING),
            fl.TokenizedTextField(ENCODING, embed=True, vocab_size=2**20),
            fl.TokenizedTextField(code_points, vocab_size=0x110000),
        ]

    def values(self, field):
        return [*TEXTS, [1, 2, 3]]

    def bad_values(self, field):
        return ["\ud800", 5, [field.vocab_size], {"a": 1}, b"bytes"]

    def equal(self, given, got):
        if isinstance(given, list):
            return got.tolist() == given
        return got.tolist() in (
            TOKENIZER.encode(given, add_special_tokens=False).ids, TOKENIZER.encode(given).ids,
            ENCODING.encode_ordinary(given), code_points(given),
        )  # fmt: skip


def test_tokens_are_those_of_the_tokenizer_itself(tmp_path):
    for tokenizer, wanted in (
        (TOKENIZER, lambda text: TOKENIZER.encode(text, add_special_tokens=False).ids),
        (ENCODING, ENCODING.encode_ordinary),
        (code_points, code_points),
        (lambda text: {"input_ids": code_points(text)}, code_points),
        (TOKENIZER.encode, lambda text: TOKENIZER.encode(text).ids),
    ):
        size = None if tokenizer in (TOKENIZER, ENCODING) else 0x110000
        reader = write(tmp_path / "x.fld", fl.TokenizedTextField(tokenizer, size), TEXTS)
        assert [sample["it"].tolist() for sample in reader] == [list(wanted(text)) for text in TEXTS]


def test_special_tokens_are_added_when_asked_for(tmp_path):
    plain = write(tmp_path / "a.fld", fl.TokenizedTextField(TOKENIZER), ["the park"])[0]["it"].tolist()
    special = write(tmp_path / "b.fld", fl.TokenizedTextField(TOKENIZER, add_special_tokens=True), ["the park"])
    assert special[0]["it"].tolist() == [1, *plain, 2]
    for other in (ENCODING, code_points):
        with pytest.raises(ValueError, match="add_special_tokens=True: only tokenizers"):
            fl.TokenizedTextField(other, 2**20, add_special_tokens=True)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1, "u1"), (256, "u1"), (257, "u2"), (65_536, "u2"), (65_537, "u4"), (2**32, "u4")],
)
def test_the_smallest_type_that_holds_the_vocabulary(tmp_path, size, dtype):
    assert token_dtype(size) == np.dtype(dtype)
    reader = write(tmp_path / "x.fld", fl.TokenizedTextField(vocab_size=size), [[0, size - 1]])
    assert identical(reader[0]["it"], np.array([0, size - 1], dtype))
    assert len(reader.read_payload(0, "it")) == 2 * np.dtype(dtype).itemsize


def test_a_file_of_tokenizers_and_a_name_of_tiktoken(tmp_path, monkeypatch):
    path = tmp_path / "mine.json"
    TOKENIZER.save(str(path))
    field = fl.TokenizedTextField(path)
    assert field.identity.name == "mine"
    assert field.identity.hash == fl.TokenizedTextField(TOKENIZER).identity.hash
    assert fl.TokenizedTextField(str(path)) == field
    monkeypatch.setattr("tiktoken.get_encoding", {"gpt2": ENCODING}.__getitem__)
    assert fl.TokenizedTextField("gpt2").identity == fl.TokenizedTextField(ENCODING).identity
    with pytest.raises(ValueError, match="no encoding of tiktoken, which has gpt2"):
        fl.TokenizedTextField("gpt-zero")
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        fl.TokenizedTextField("some/where.json")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ValueError, match="is no file of a tokenizer"):
        fl.TokenizedTextField(tmp_path / "broken.json")


def test_the_tokenizer_is_known_again_and_another_refused(tmp_path):
    path = tmp_path / "x.fld"
    write(path, fl.TokenizedTextField(TOKENIZER), TEXTS)
    field = fl.DatasetReader(path).fields["it"]
    again = field.with_tokenizer(byte_pair())
    assert again.decode(fl.DatasetReader(path)[0]["it"]) == TEXTS[0]
    for other in (byte_pair(10), ENCODING):
        with pytest.raises(fl.TokenizerError, match=r"were made by BPE \(tokenizers, .*this tokenizer is"):
            field.with_tokenizer(other)
    with pytest.raises(fl.TokenizerError, match=r"not stored with the field; field.with_tokenizer"):
        field.decode([1])


def test_of_a_function_only_the_name_is_known(tmp_path):
    path = tmp_path / "x.fld"
    write(path, fl.TokenizedTextField(code_points, 0x110000), TEXTS)
    field = fl.DatasetReader(path).fields["it"]
    assert field.identity.name.endswith("test_tokenized.code_points")
    field.with_tokenizer(code_points)
    with pytest.warns(UserWarning, match="nothing tells whether they agree"):
        field.with_tokenizer(TOKENIZER)


def test_an_append_needs_the_same_tokenizer(tmp_path):
    path = tmp_path / "x.fld"
    write(path, fl.TokenizedTextField(TOKENIZER), TEXTS)
    with pytest.raises(ValueError, match=r"field 'it' can't be added to: its tokens were made by BPE .* by tiny"):
        fl.DatasetWriter(path, {"it": fl.TokenizedTextField(ENCODING, TOKENIZER.get_vocab_size())}, mode="a")
    with fl.DatasetWriter(path, {"it": fl.TokenizedTextField(byte_pair())}, mode="a") as writer:
        writer.write_sample(["more"])
    with fl.DatasetWriter(path, None, mode="a") as writer:  # ready tokens need none
        writer.write_sample([[5, 6]])
    assert [len(sample["it"]) for sample in fl.DatasetReader(path)][-1] == 2
    with (
        pytest.raises(fl.SampleError, match="text needs a tokenizer: the tokenizer BPE"),
        fl.DatasetWriter(path, None, mode="a") as writer,
    ):
        writer.write_sample(["text"])


@pytest.mark.parametrize("tokenizer", [TOKENIZER, ENCODING], ids=["tokenizers", "tiktoken"])
def test_an_embedded_tokenizer_travels_with_the_file(tmp_path, tokenizer):
    path = tmp_path / "x.fld"
    write(path, fl.TokenizedTextField(tokenizer, embed=True), TEXTS)
    reader = fl.DatasetReader(path)
    assert [reader.fields["it"].decode(sample["it"]) for sample in reader] == TEXTS
    with fl.DatasetWriter(path, None, mode="a") as writer:
        writer.write_sample(["one more text"])
    assert reader.fields["it"].decode(fl.DatasetReader(path)[len(TEXTS)]["it"]) == "one more text"


def test_an_embedded_tokenizer_that_is_not_what_it_claims_is_refused(tmp_path):
    field = fl.TokenizedTextField(TOKENIZER, embed=True)
    options = json.loads(field.to_binary())
    options["tokenizer"]["hash"] = "0" * 32
    forged = fl.TokenizedTextField.from_binary(json.dumps(options).encode())
    with pytest.raises(fl.TokenizerError, match="were made by"):
        forged.decode([1])


def test_arguments_that_do_not_fit():
    with pytest.raises(ValueError, match="vocab_size: how many tokens"):
        fl.TokenizedTextField()
    with pytest.raises(ValueError, match="vocab_size: how many tokens"):
        fl.TokenizedTextField(code_points)
    with pytest.raises(ValueError, match="vocab_size=10: the tokenizer has tokens up to"):
        fl.TokenizedTextField(TOKENIZER, 10)
    for size in (0, -1, 2**32 + 1, True):
        with pytest.raises(ValueError, match="vocab_size="):
            fl.TokenizedTextField(vocab_size=size)
    with pytest.raises(TypeError, match="vocab_size="):
        fl.TokenizedTextField(vocab_size=1.5)
    with pytest.raises(ValueError, match="embed=True is for a tokenizer"):
        fl.TokenizedTextField(vocab_size=5, embed=True)
    with pytest.raises(ValueError, match="nothing is known that could be stored"):
        fl.TokenizedTextField(code_points, 2**20, embed=True)
    with pytest.raises(TypeError, match="tokenizer is a int"):
        fl.TokenizedTextField(5)


def test_a_function_that_gives_no_tokens_is_told(tmp_path):
    with pytest.raises(fl.SampleError, match=r"sample 0, field 'it': the tokenizer .* gives str"):
        write(tmp_path / "x.fld", fl.TokenizedTextField(str.upper, 100), ["text"])


@pytest.mark.parametrize(("module", "given"), [("tokenizers", "file.json"), ("tiktoken", "gpt2")])
def test_without_the_extra_the_error_says_how_to_get_it(tmp_path, monkeypatch, module, given):
    monkeypatch.chdir(tmp_path)
    TOKENIZER.save("file.json")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(fl.MissingExtraError, match=r'pip install "fastloader\[text\]"'):
        fl.TokenizedTextField(given)
    fl.TokenizedTextField(vocab_size=100)  # needs nothing


def test_tokens_beyond_the_vocabulary_are_found_by_verify(tmp_path, monkeypatch):
    path = tmp_path / "x.fld"
    with monkeypatch.context() as careless:
        careless.setattr("fastloader.fields.tokenized.as_tokens", lambda value, size: np.asarray(value, np.uint8))
        write(path, fl.TokenizedTextField(vocab_size=200), [[1], [240]])
    (problem,) = fl.verify(path, decode=True).problems
    assert (problem.sample, problem.message) == (1, "token 240 is not in the vocabulary of 200")


@pytest.fixture
def tokens(tmp_path):
    return write(tmp_path / "x.fld", fl.TokenizedTextField(vocab_size=1000), [[1, 2, 3], [4], None, [], [5, 6]])


def test_ragged_and_padded_batches(tokens):
    (batch,) = fl.DataLoader(tokens, 5, shuffle=False, pad="ragged")
    assert identical(batch["it"], np.array([1, 2, 3, 4, 5, 6], np.uint16))
    assert batch["it_offsets"].tolist() == [0, 3, 4, 4, 4, 6]
    (batch,) = fl.DataLoader(tokens, 5, shuffle=False, pad=fl.Pad(4, value=999))
    assert batch["it"].tolist() == [[1, 2, 3, 999], [4, 999, 999, 999], [999] * 4, [999] * 4, [5, 6, 999, 999]]
    assert set(batch) == {"it", "it_lengths"}


@pytest.mark.parametrize("pad", [{}, {"length": 4}, {"multiple_of": 8}, {"length": 2, "truncate": True}])
def test_an_attention_mask_says_where_values_are(tokens, pad):
    (batch,) = fl.DataLoader(tokens, 5, shuffle=False, pad={"it": fl.Pad(**pad, value=999, attention_mask=True)})
    assert batch["it_mask"].dtype == np.bool_
    assert (batch["it_mask"] == (batch["it"] != 999)).all()
    assert batch["it_mask"].sum(axis=1).tolist() == batch["it_lengths"].filled(0).tolist()
    dataset = fl.open(tokens.path).map(dict).batch(5, pad={"it": fl.Pad(**pad, value=999, attention_mask=True)})
    assert identical(next(iter(dataset))["it_mask"], batch["it_mask"])


def test_a_mask_takes_no_name_of_another_field(tmp_path):
    fields = {"a": fl.TokenizedTextField(vocab_size=9), "a_mask": fl.IntField()}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_sample([[1], 1])
    reader = fl.DatasetReader(tmp_path / "x.fld")
    fl.DataLoader(reader, pad="longest")
    with pytest.raises(ValueError, match="'a_mask', and a field has that name"):
        fl.DataLoader(reader, pad={"a": fl.Pad(attention_mask=True)})


def test_tokenizers_work_in_threads(tmp_path):
    texts = [f"the park {i}" for i in range(3000)]
    for workers in (0, 3):
        write(tmp_path / f"{workers}.fld", fl.TokenizedTextField(TOKENIZER), texts, num_workers=workers)
    assert (tmp_path / "0.fld").read_bytes() == (tmp_path / "3.fld").read_bytes()
