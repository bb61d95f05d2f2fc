import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fastloader as fl
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write

DIM = 5
FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


class TestEmbeddingField(FieldContract):
    def fields(self):
        return [fl.EmbeddingField(DIM), *(fl.EmbeddingField(DIM, dtype) for dtype in ("float16", "bfloat16", "int8"))]

    def values(self, field):
        rng = np.random.default_rng(0)
        some = [rng.normal(size=DIM).astype(kind) for kind in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
        return [*some, [1, 2, 3, 4, 5], [0.5] * DIM, np.zeros(DIM), np.arange(2 * DIM)[::-2], np.full(DIM, 1e-30)]

    def bad_values(self, field):
        bad = [[1, 2], np.zeros((1, DIM)), "text", 5, [np.nan] * DIM, [np.inf, 0, 0, 0, 0], [1e39] * DIM, ["a"] * DIM]
        return [*bad, [1j] * DIM, [None] * DIM, {"a": 1}, *([[70_000.0] * DIM] if field.dtype == "float16" else [])]

    def equal(self, given, got):
        wanted = np.asarray(given).astype(np.float32)
        if got.dtype != np.float32:
            return identical(wanted.astype(got.dtype), np.asarray(got))
        return bool((np.abs(wanted - got) <= np.abs(wanted).max() / 254 * (1 + 1e-4)).all())


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_rounded_to_their_type_and_no_further(tmp_path, dtype):
    values = np.random.default_rng(1).normal(size=(20, 64)).astype(np.float32)
    reader = write(tmp_path / "x.fld", fl.EmbeddingField(64, dtype), list(values))
    (batch,) = fl.DataLoader(reader, 20, shuffle=False)
    assert identical(batch["it"], values.astype(FLOATS[dtype]))
    assert len(reader.read_payload(0, "it")) == 64 * np.dtype(FLOATS[dtype]).itemsize


@settings(max_examples=100, deadline=None)
@given(vectors=arrays(np.float32, (3, 7), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_a_byte_a_number_keeps_its_bound(tmp_path_factory, vectors):
    vectors[np.abs(vectors) < 1e-30] = 0
    reader = write(tmp_path_factory.mktemp("any") / "x.fld", fl.EmbeddingField(7, "int8"), list(vectors))
    found = reader.read_batch([0, 1, 2])["it"]
    largest = np.abs(vectors).max(axis=1, keepdims=True).astype(np.float64)
    assert found.dtype == np.float32
    assert (np.abs(found.astype(np.float64) - vectors) <= largest / 254 * (1 + 1e-4)).all()
    single = np.stack([sample["it"] for sample in reader])
    assert identical(single, found)


def test_a_byte_a_number_takes_a_byte_a_number(tmp_path):
    reader = write(tmp_path / "x.fld", fl.EmbeddingField(100, "int8"), [np.ones(100), -np.ones(100)])
    assert len(reader.read_payload(0, "it")) == 100
    assert reader[1]["it"].tolist() == [-1.0] * 100


@pytest.mark.parametrize(("dim", "dtype"), [(0, "float32"), (-1, "int8"), (2**25, "int8"), (True, "int8"), (3, "int4")])
def test_options_have_bounds(dim, dtype):
    with pytest.raises(ValueError, match=r"dim=|dtype="):
        fl.EmbeddingField(dim, dtype)


def test_bfloat16_without_its_library_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ModuleNotFoundError, match="pip install ml_dtypes"):
        fl.EmbeddingField(3, "bfloat16")
    fl.EmbeddingField(3, "float16")
