"""Fields whose options do not survive being stored are refused before anything is written."""

import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import fastloader as fl
from fastloader.fields import BY_TYPE_ID, Encoded


@dataclass(frozen=True)
class Odd(fl.BytesField):
    option: Any = 1


@pytest.fixture
def register():
    taken = []

    def add(cls):
        taken.append(6_100_000 + len(taken))
        return fl.register_type(taken[-1])(cls)

    yield add
    for type_id in taken:
        del BY_TYPE_ID[type_id]


def refuse(field, error, message, tmp_path):
    with pytest.raises(error, match=message) as caught:
        fl.DatasetWriter(tmp_path / "x.fld", {"it": field})
    assert "'it'" in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        (np.int64(80), TypeError, "can't be stored and read back: Object of type int64 is not JSON serializable"),
        ({1, 2}, TypeError, "can't be stored and read back"),
        (np.zeros(2), TypeError, "can't be stored and read back"),
    ],
    ids=["int64", "set", "array"],
)
def test_options_that_can_not_be_stored(option, error, message, register, tmp_path):
    register(Odd)
    refuse(Odd(option), error, message, tmp_path)
    fl.DatasetWriter(tmp_path / "x.fld", {"it": Odd("fine")}).abort()


def test_options_that_can_not_be_read_back(register, tmp_path):
    @register
    class Lost(fl.BytesField):
        def to_binary(self):
            return b"no JSON"

    refuse(Lost(), ValueError, "can't be stored and read back: Expecting value", tmp_path)


def test_options_that_come_back_as_others(register, tmp_path):
    @register
    @dataclass(frozen=True)
    class Forgetful(Odd):
        @classmethod
        def from_binary(cls, data):
            return cls()

    refuse(Forgetful(5), ValueError, r"option=5\) would be read back as .*option=1\)", tmp_path)


def test_rows_that_come_back_with_another_type(register, tmp_path):
    @register
    @dataclass(frozen=True)
    class Drifting(Odd):
        def __post_init__(self):
            made.append(self)
            object.__setattr__(self, "width", len(made))

        @property
        def metadata_type(self):
            return np.dtype([("a", f"V{self.width}")])

    made = []
    refuse(Drifting(), ValueError, "would be read back as", tmp_path)


def test_options_must_be_bytes(register, tmp_path):
    @register
    class Text(fl.BytesField):
        def to_binary(self):
            return "{}"

    refuse(Text(), TypeError, r"to_binary\(\) gives a str; it must give bytes", tmp_path)


def test_a_field_that_stores_nothing(register, tmp_path):
    @register
    class Nothing(fl.BytesField):
        has_payload: ClassVar[bool] = False

        def encode(self, value):
            return Encoded()

    refuse(Nothing(), ValueError, "Nothing stores nothing; give it a metadata_type or a payload", tmp_path)


def test_options_are_asked_for_once(register, tmp_path):
    """A field that changes while it is written would be stored as it was not used."""

    @register
    class Changing(Odd):
        def to_binary(self):
            asked.append(self)
            return super().to_binary()

    asked = []
    field = Changing(5)
    with fl.DatasetWriter(tmp_path / "x.fld", {"it": field}, shard_size=100) as writer:
        writer.write_many([bytes(90)] for _ in range(5))
    assert sum(one is field for one in asked) == 1
    assert fl.open(tmp_path / "x.fld").dataset.field(0).option == 5
