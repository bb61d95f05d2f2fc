from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fields.test_text import captions
from tests.tokenizing import tiny_encoding

import fastloader as fl
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 9, 12, 3), np.uint8)


class TestLists(FieldContract):
    def fields(self):
        return [
            fl.ListField(fl.TextField()),
            fl.ListField(fl.TextField(dictionary=512)),
            fl.ListField(fl.JSONField()),
        ]

    def values(self, field):
        return [["a", "bc", ""], [], ["Grüße"], ("x", "y"), captions(5), ["long " * 500, "short"]]

    def bad_values(self, field):
        extra = [] if isinstance(field.field, fl.JSONField) else [["\ud800"], [5]]
        return ["text", b"bytes", 5, {"a": 1}, ["fine", None], *extra]

    def equal(self, given, got):
        return got == list(given)


class TestListsOfNumbers(FieldContract):
    def fields(self):
        return [fl.ListField(fl.IntField()), fl.ListField(fl.FloatField())]

    def values(self, field):
        return [[1, 2, 3], [], [-5], np.arange(4), (7, 8)]

    def bad_values(self, field):
        return ["text", 5, [None], [[1]], ["a"], {"a": 1}]

    def equal(self, given, got):
        return got.ndim == 1 and got.itemsize == 8 and got.tolist() == list(given)


class TestListsOfArrays(FieldContract):
    def fields(self):
        return [
            fl.ListField(fl.NDArrayField("float32", (2,))),
            fl.ListField(fl.NDArrayField("float32", (None,))),
            fl.ListField(fl.NDArrayField("float32")),
            fl.ListField(fl.EmbeddingField(2, "int8")),
            fl.ListField(fl.EmbeddingField(2)),
        ]

    def values(self, field):
        return [[np.ones(2, np.float32), np.zeros(2, np.float32)], [], [np.full(2, 3, np.float32)] * 3]

    def bad_values(self, field):
        return [5, "text", [None], ["a"], [np.array(["a", "b"])]]

    def equal(self, given, got):
        return len(given) == len(got) and all(identical(a, np.asarray(b)) for a, b in zip(given, got, strict=True))


class TestListsOfImages(FieldContract):
    def fields(self):
        return [fl.ListField(fl.PNGImageField()), fl.ListField(fl.RawImageField(9, 12))]

    def values(self, field):
        return [list(PIXELS.copy()), [], [PIXELS[0].copy()]]

    def bad_values(self, field):
        return [5, [np.zeros(3)], [None]]

    def equal(self, given, got):
        return len(given) == len(got) and all(map(np.array_equal, given, got))


class TestListsOfTokens(FieldContract):
    def fields(self):
        return [fl.ListField(fl.TokenizedTextField(tiny_encoding()))]

    def values(self, field):
        return [["the park", "a"], [], [[1, 2, 3]], ["same", "four"]]

    def bad_values(self, field):
        return [5, [5], [[-1]]]

    def equal(self, given, got):
        encoding = tiny_encoding()
        wanted = [encoding.encode_ordinary(one) if isinstance(one, str) else one for one in given]
        return [one.tolist() for one in got] == wanted


class TestDicts(FieldContract):
    def fields(self):
        return [
            fl.DictField({"caption": fl.TextField(), "score": fl.FloatField(), "id": fl.IntField()}),
            fl.DictField({"caption": fl.TextField(dictionary=512), "score": fl.FloatField(), "id": fl.JSONField()}),
        ]

    def values(self, field):
        return [
            {"caption": "a cat", "score": 0.5, "id": 7},
            {"id": 2, "caption": "", "score": -1.0},
            *({"caption": caption, "score": 1.0, "id": 9} for caption in captions(20)),
        ]

    def bad_values(self, field):
        return [
            5, "text", {}, {"caption": "a"}, {"caption": "a", "score": 1.0, "id": 1, "more": 2},
            {"caption": None, "score": 1.0, "id": 1}, {"caption": "\ud800", "score": 1.0, "id": 1},
            {"caption": "a", "score": "b", "id": 1},
        ]  # fmt: skip

    def equal(self, given, got):
        return got == given and list(got) == ["caption", "score", "id"]


class TestDictsOfNumbers(FieldContract):
    def fields(self):
        return [fl.DictField({"a": fl.IntField(), "b": fl.FloatField()})]

    def values(self, field):
        return [{"a": 1, "b": 2.0}, {"a": -1, "b": 0.0}, {"a": 5, "b": 1.5}]

    def bad_values(self, field):
        return [{"a": 1.5, "b": 1.0}, {"a": 1}, [1, 2.0]]


class TestDictsOfArrays(FieldContract):
    def fields(self):
        return [
            fl.DictField({
                "image": fl.PNGImageField(), "fixed": fl.NDArrayField("int16", (3,)), "bytes": fl.BytesField(),
                "vector": fl.EmbeddingField(2, "int8"), "any": fl.NDArrayField("float32", (None,)),
            })
        ]  # fmt: skip

    def values(self, field):
        return [
            {
                "image": PIXELS[i].copy(), "fixed": np.arange(3, dtype=np.int16), "bytes": b"x" * i,
                "vector": np.array([1, -1], np.float32), "any": np.zeros(i % 2, np.float32),
            }
            for i in (0, 1, 2, 2)
        ]  # fmt: skip

    def bad_values(self, field):
        return [5, {"image": 1}]

    def equal(self, given, got):
        return all(np.array_equal(np.asarray(given[name]), np.asarray(got[name])) for name in given)


def test_how_batches_look(tmp_path):
    fields = {
        "captions": fl.ListField(fl.TextField()),
        "scores": fl.ListField(fl.FloatField()),
        "meta": fl.DictField({"lang": fl.TextField(), "n": fl.IntField()}),
    }
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_sample([["a", "b"], [0.5, 1.0], {"lang": "en", "n": 1}])
        writer.write_sample([["c"], [2.0], {"lang": "de", "n": 2}])
        writer.write_sample([None, None, None])
    reader = fl.open(tmp_path / "x.fld")
    (batch,) = fl.DataLoader(reader, 2, shuffle=False, indices=[0, 1])
    assert batch["captions"] == [["a", "b"], ["c"]]
    assert [one.tolist() for one in batch["scores"]] == [[0.5, 1.0], [2.0]]
    assert batch["meta"]["lang"] == ["en", "de"]
    assert identical(batch["meta"]["n"], np.array([1, 2]))
    assert type(batch["meta"]) is dict
    (batch,) = fl.DataLoader(reader, 3, shuffle=False, pad={"scores": "ragged"})
    assert (batch["scores"].tolist(), batch["scores_offsets"].tolist()) == ([0.5, 1.0, 2.0], [0, 2, 3, 3])
    assert batch["captions"][2] is None
    assert batch["meta"]["lang"] == ["en", "de", None]
    assert batch["meta"]["n"].mask.tolist() == [False, False, True]
    (batch,) = fl.DataLoader(reader, 3, shuffle=False, pad="longest", fields=["scores"])
    assert batch["scores"].tolist() == [[0.5, 1.0], [2.0, 0], [0, 0]]


def test_bad_dictionaries_are_skipped_or_replaced(tmp_path):
    path = tmp_path / "x.fld"
    field = fl.DictField({"text": fl.TextField(), "n": fl.IntField()})
    reader = write(path, field, [{"text": f"text {i}", "n": i} for i in range(4)])
    pointer = reader.dataset.file(0).payloads(0).extent(1)[0]
    data = bytearray(path.read_bytes())
    data[pointer] ^= 1
    path.write_bytes(data)
    reader = fl.DatasetReader(path)
    with pytest.raises(fl.ChecksumError, match="sample 1"):
        list(fl.DataLoader(reader, 4, shuffle=False))
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, on_error="skip")
    assert batch["it"]["text"] == ["text 0", "text 2", "text 2", "text 3"]
    assert batch["it"]["n"].tolist() == [0, 2, 2, 3]
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, on_error="replace")
    assert batch["it"]["text"] == ["text 0", None, "text 2", "text 3"]
    assert batch["it"]["n"].mask.tolist() == [False, True, False, False]


def test_several_captions_are_compressed_together(tmp_path):
    lists = [captions(5, seed) for seed in range(400)]
    raw = sum(len(one.encode()) for some in lists for one in some)
    reader = write(tmp_path / "x.fld", fl.ListField(fl.TextField(dictionary="8KiB")), lists)
    payloads = reader.dataset.file(0).payloads(0)
    assert sum(payloads.extent(row)[1] for row in range(400)) < 0.5 * raw


@settings(max_examples=60, deadline=None)
@given(lists=st.lists(st.lists(st.text(max_size=20), max_size=5) | st.none(), min_size=1, max_size=8))
def test_any_lists_of_texts_come_back(tmp_path_factory, lists):
    reader = write(tmp_path_factory.mktemp("any") / "x.fld", fl.ListField(fl.TextField()), lists)
    assert reader.read_batch(range(len(lists)))["it"] == lists
    assert [sample["it"] for sample in reader] == lists


@pytest.mark.parametrize("change", ["count", "size"])
def test_counts_and_sizes_that_lie_are_refused(tmp_path, monkeypatch, change):
    field = fl.ListField(fl.TextField())
    count, payload = field.encode(field.prepare(["abc", "de"]))
    data = bytearray(payload)
    if change == "count":
        count = (2**60,)
    else:
        data[0] = 200
    decoder = field.get_decoder_class()(field)
    with pytest.raises(fl.FormatError, match=r"no room for them|do not add up"):
        decoder(np.array([count], field.metadata_type)[0], lambda: memoryview(data))


def test_sizes_of_a_dictionary_that_lie_are_refused(tmp_path):
    field = fl.DictField({"a": fl.TextField(), "b": fl.TextField()})
    _, payload = field.encode(field.prepare({"a": "abc", "b": "de"}))
    for sizes in ((3, 3), (0, 0), (2**63, 2**63 + 5)):
        row = np.array([(sizes,)], field.metadata_type)
        decoder = field.get_decoder_class()(field)
        with pytest.raises(fl.FormatError, match="do not add up"):
            decoder(row[0], lambda: memoryview(payload))


def test_one_level_deep():
    for make in (
        lambda: fl.ListField(fl.ListField(fl.IntField())),
        lambda: fl.ListField(fl.DictField({"a": fl.IntField()})),
        lambda: fl.DictField({"a": fl.ListField(fl.IntField())}),
    ):
        with pytest.raises(TypeError, match="nested one level deep; JSONField takes any depth"):
            make()
    for bad in (5, fl.IntField, fl.PackedTextField(8, 10)):
        with pytest.raises(TypeError, match=r"give an instance of a Field|can't be part of another"):
            fl.ListField(bad)
    for bad in ({}, [], {"a": 5}, {5: fl.IntField()}, {"": fl.IntField()}):
        with pytest.raises(TypeError, match=r"a mapping from name to field|give an instance|no text, or empty"):
            fl.DictField(bad)


@fl.register_type(4_100_100)
@dataclass(frozen=True)
class Doubled(fl.Field):
    """A field of a user's, with options that are no text and no batch decoder."""

    def encode(self, value):
        return fl.Encoded((), bytes([value, value]))

    def to_binary(self):
        return b"\xff\x00"

    @classmethod
    def from_binary(cls, data):
        assert data == b"\xff\x00"
        return cls()

    def get_decoder_class(self):
        return _Half


class _Half(fl.Decoder):
    def __call__(self, metadata, read):
        return read()[0]


@fl.register_type(4_100_101)
@dataclass(frozen=True)
class Pair(Doubled):
    """The same as an array."""

    def to_binary(self):
        return b"{}"

    @classmethod
    def from_binary(cls, data):
        return cls()

    def get_decoder_class(self):
        return _Both


class _Both(fl.Decoder):
    def __call__(self, metadata, read):
        return np.frombuffer(read(), np.uint8)


class TestDictsOfUsersArrays(FieldContract):
    def fields(self):
        return [fl.DictField({"a": Pair()}), fl.DictField({"a": Pair(), "n": fl.IntField()})]

    def values(self, field):
        return [{"a": i, "n": 2} if "n" in field.fields else {"a": i} for i in range(3)]

    def bad_values(self, field):
        return [{"a": 300}]

    def equal(self, given, got):
        return got["a"].tolist() == [given["a"]] * 2


class TestOfUsersFields(FieldContract):
    def fields(self):
        return [fl.ListField(Doubled())]

    def values(self, field):
        return [[1, 2], [], [3]]

    def bad_values(self, field):
        return [[300], 5]


class TestDictsOfUsersFields(FieldContract):
    def fields(self):
        return [fl.DictField({"a": Doubled(), "b": fl.TextField()})]

    def values(self, field):
        return [{"a": 1, "b": "x"}, {"a": 2, "b": ""}]

    def bad_values(self, field):
        return [{"a": 300, "b": "x"}]
