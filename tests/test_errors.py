import errno
import pickle

import pytest

import fastloader as fl
from fastloader import errors

EXAMPLES = [
    fl.FormatError("is broken", path="a.fld", hint="restore it"),
    fl.ChecksumError("payload damaged", stored=0x1F2E, computed=0x77AA, path="a.fld", sample=812, field="image"),
    fl.UnknownTypeError("no class", field="x"),
    fl.DecodeError("does not decode", sample=0),
    fl.SampleError("is a str", sample=3, field="x", hint="give an int"),
    fl.StoreError("No space left on device", path="/data/a.fld"),
    fl.KeyNotFoundError("no sample has the key 'k'"),
    fl.ShapeError("has the length 9", sample=2, field="x", hint="give pad a greater length"),
]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (fl.FormatError, ValueError), (fl.ChecksumError, ValueError), (fl.UnknownTypeError, ValueError),
        (fl.UnreadableError, ValueError),
        (fl.DecodeError, ValueError), (fl.SampleError, ValueError), (fl.StoreError, OSError),
        (fl.KeyNotFoundError, KeyError), (fl.ShapeError, ValueError),
    ],
)  # fmt: skip
def test_each_error_is_the_builtin_one_would_catch(error, builtin):
    assert issubclass(error, builtin)
    assert issubclass(error, fl.FastLoaderError)


def test_every_error_is_exported():
    ours = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, fl.FastLoaderError)}
    assert {getattr(fl, c.__name__) for c in ours} == ours


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (EXAMPLES[0], "a.fld: is broken; restore it"),
        (
            EXAMPLES[1],
            "a.fld: sample 812, field 'image': payload damaged: crc32c stored 0x00001f2e, computed 0x000077aa",
        ),
        (EXAMPLES[2], "field 'x': no class"),
        (EXAMPLES[3], "sample 0: does not decode"),
        (EXAMPLES[6], "no sample has the key 'k'"),
    ],
)
def test_messages_name_place_fact_and_cure(error, text):
    assert str(error) == text


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_errors_cross_process_borders_with_their_facts(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_a_store_error_keeps_its_number():
    error = fl.StoreError("full", path="x")
    error.errno = errno.ENOSPC
    assert error.errno == errno.ENOSPC
    assert pickle.loads(pickle.dumps(error)).errno == errno.ENOSPC
