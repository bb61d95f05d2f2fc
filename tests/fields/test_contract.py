"""The contract itself: each kind of broken field fails the test that is there for it."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

import fastloader as fl
from fastloader.fields import BY_TYPE_ID
from fastloader.testing import FieldContract, identical


class VectorDecoder(fl.Decoder):
    def __call__(self, metadata, read):
        return np.frombuffer(read(), "<f8")

    def batch(self, metadata, payloads):
        values, offsets = payloads.ragged()
        return [values[a:b].view("<f8") for a, b in pairwise(offsets)]


@dataclass(frozen=True)
class Vector(fl.Field):
    """A good one."""

    scale: float = 1.0

    def encode(self, value):
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            raise TypeError("expected an array of float64")
        return fl.Encoded(payload=np.ascontiguousarray(value))

    def get_decoder_class(self):
        return VectorDecoder


class Forgetful(Vector):
    def to_binary(self):
        return b"{}"


class Moody(Vector):
    widths = iter(range(1, 10**9))

    @property
    def metadata_type(self):
        return np.dtype([("x", "u1", (next(self.widths) % 200 + 1,))])


class Lossy(Vector):
    def encode(self, value):
        return fl.Encoded(payload=np.asarray(value, "<f8") + 1)


class Borrowing(Vector):
    def prepare(self, value):
        return value


class Lenient(Vector):
    def encode(self, value):
        return fl.Encoded(payload=np.zeros(1))


class OtherInBatches(Vector):
    def get_decoder_class(self):
        class Other(VectorDecoder):
            def batch(self, metadata, payloads):
                return [value * 2 for value in super().batch(metadata, payloads)]

        return Other


class Random(Vector):
    def encode(self, value):
        return fl.Encoded(payload=np.random.default_rng().random(3))


class NothingForMissing(Vector):
    def get_decoder_class(self):
        class Strict(VectorDecoder):
            def batch(self, metadata, payloads):
                if (payloads.rows < 0).any():
                    raise ValueError("can't")
                return super().batch(metadata, payloads)

        return Strict


class OtherAtOnce(Vector):
    def encode_many(self, values):
        return fl.EncodedColumn(np.zeros(len(values), []), [bytes(value[:1]) for value in values])


class LenientAtOnce(Vector):
    def encode_many(self, values):
        if not all(isinstance(value, np.ndarray) for value in values):
            return None
        return fl.EncodedColumn(np.zeros(len(values), []), [value.tobytes() for value in values])


class ShortAtOnce(Vector):
    def encode_many(self, values):
        return fl.EncodedColumn(np.zeros(len(values), []), [])


class AtOnce(Vector):
    """A good one, that encodes many values in one go where none is bad; it is never asked about missing ones."""

    def encode_many(self, values):
        if {str(value if isinstance(value, str) else value.dtype) for value in values} - {"float64"}:
            return None
        return fl.EncodedColumn(np.zeros(len(values), []), [value.tobytes() for value in values])


class OneByOne(Vector):
    """A good one too, that knows nothing of batches; its arrays are big-endian."""

    def encode(self, value):
        return fl.Encoded(payload=super().encode(value).payload.astype(">f8"))

    def get_decoder_class(self):
        class Simple(fl.Decoder):
            def __call__(self, metadata, read):
                return np.frombuffer(read(), ">f8")

        return Simple


class Contract(FieldContract):
    def fields(self):
        return [Vector(2.5)]

    def values(self, field):
        return [np.arange(3.0), np.arange(5.0), np.zeros(0)]

    def bad_values(self, field):
        return ["text", np.zeros(3, "f4")]


@pytest.fixture
def registered():
    """Makes a field class usable for one test."""
    before = dict(BY_TYPE_ID)

    def register(cls):
        return fl.register_type(5_000_000)(cls)

    yield register
    BY_TYPE_ID.clear()
    BY_TYPE_ID.update(before)


class TestGoodField(Contract):
    @pytest.fixture(autouse=True)
    def _registered(self, registered):
        registered(Vector)


class TestGoodFieldThatEncodesMany(Contract):
    @pytest.fixture(autouse=True)
    def _registered(self, registered):
        registered(AtOnce)

    def fields(self):
        return [AtOnce(2.5)]


class TestGoodFieldWithoutBatches(Contract):
    @pytest.fixture(autouse=True)
    def _registered(self, registered):
        registered(OneByOne)

    def fields(self):
        return [OneByOne(2.5)]

    def values(self, field):
        return [np.arange(3.0), np.arange(3.0) + 1, np.arange(5.0)]

    def equal(self, given, got):
        return got.dtype == ">f8" and np.array_equal(given, got)


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (Forgetful, "options_come_back"),
        (Moody, "metadata_rows_have_one_width"),
        (Lossy, "values_come_back"),
        (Lossy, "values_come_back_from_shards"),
        (OtherInBatches, "a_batch_is_its_samples"),
        (OtherInBatches, "the_loader_gives_the_values"),
        (NothingForMissing, "missing_values_come_back_missing"),
        (Random, "the_same_bytes_each_time"),
        (Random, "compression_changes_nothing"),
        (Borrowing, "the_caller_may_reuse_its_memory"),
        (Lenient, "bad_values_are_refused"),
        (OtherAtOnce, "encoding_many_is_encoding_each"),
        (LenientAtOnce, "encoding_many_is_encoding_each"),
        (ShortAtOnce, "encoding_many_is_encoding_each"),
    ],
)
def test_a_broken_field_fails(broken, test, registered, tmp_path):
    field = registered(broken)(2.5)
    extra = {
        "the_caller_may_reuse_its_memory": (2,),
        "bad_values_are_refused": (2,),
        "compression_changes_nothing": ("lz4",),
    }
    folder = () if test == "encoding_many_is_encoding_each" else (tmp_path,)
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        getattr(Contract(), f"test_{test}")(field, *extra.get(test, ()), *folder)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0), (0.0, -0.0), ([1], (1,)), (np.zeros(2), np.zeros(3)), (np.zeros(2, "<i2"), np.zeros(2, ">i2")),
        ({"a": 1}, {"b": 1}), ([1, 2], [1]), (np.zeros(2), [0.0, 0.0]), (np.zeros((1, 2)), np.zeros((2, 1))),
        (b"a", "a"),
    ],
)  # fmt: skip
def test_what_is_not_identical(one, other):
    assert not identical(one, other)
    assert identical(one, one)
    assert identical(other, other)
