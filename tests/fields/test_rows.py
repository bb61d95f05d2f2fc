"""Decoders that fill rows: compiled, in Python, alone and in batches, the same values; errors with their line."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import fastloader as fl
from fastloader.pipeline import PipelineError
from fastloader.testing import FieldContract


class PackedDecoder(fl.RowDecoder):
    def row_function(self):
        length, step = self.field.length, self.field.step

        def decode(metadata, payload, out):
            levels = payload.view(np.int16)
            if len(levels) != length:
                raise ValueError("the wrong number of levels")
            for i in range(length):
                out[i] = metadata["least"] + levels[i] * step

        return fl.RowFunction(decode, "float32", (length,))


@fl.register_type(2400)
@dataclass(frozen=True)
class PackedField(fl.Field):
    """Numbers as levels of 16 bits above the least of them."""

    length: int
    step: float = 0.5

    @property
    def metadata_type(self):
        return np.dtype([("least", "<f4"), ("spare", "u1")])

    def encode(self, value):
        values = np.asarray(value, np.float64)
        if values.shape != (self.length,):
            raise ValueError(f"expected {self.length} numbers")
        return fl.Encoded((values.min(), 0), np.rint((values - values.min()) / self.step).astype("<i2"))

    def get_decoder_class(self):
        return PackedDecoder


class PlainPackedDecoder(PackedDecoder):
    supports_jit = False


@fl.register_type(2401)
@dataclass(frozen=True)
class PlainPackedField(PackedField):
    def get_decoder_class(self):
        return PlainPackedDecoder


class MonthDecoder(fl.RowDecoder):
    def row_function(self):
        def decode(metadata, payload, out):
            month = int(metadata["months"]) % 12
            if month == 11:
                raise ValueError("no December")
            out[()] = month + 1

        return fl.RowFunction(decode, "int16")


@fl.register_type(2402)
@dataclass(frozen=True)
class MonthField(fl.Field):
    has_payload: ClassVar[bool] = False

    @property
    def metadata_type(self):
        return np.dtype([("months", "<i4")])

    def encode(self, value):
        return fl.Encoded((int(value) - 1,))

    def get_decoder_class(self):
        return MonthDecoder


class BitsDecoder(fl.RowDecoder):
    def row_function(self):
        def decode(metadata, payload, out):
            for i in range(out.shape[0]):
                for j in range(8):
                    out[i, j] = (int(payload[i]) >> j) & 1

        return fl.RowFunction(decode, bool, (self.field.bytes, 8))


@fl.register_type(2403)
@dataclass(frozen=True)
class BitsField(fl.Field):
    bytes: int

    def encode(self, value):
        return fl.Encoded(payload=np.packbits(np.asarray(value, bool), axis=1, bitorder="little"))

    def get_decoder_class(self):
        return BitsDecoder


class TestRowFields(FieldContract):
    def fields(self):
        return [PackedField(5), PackedField(3, 0.25), PlainPackedField(5)]

    def values(self, field):
        steps = np.arange(field.length) * field.step
        return [steps, steps[::-1].copy(), np.zeros(field.length), steps - 7]

    def bad_values(self, field):
        return ["text", [1.0] * (field.length + 1)]

    def equal(self, given, got):
        return got.dtype == np.float32 and np.allclose(given, got)


class TestRowsOfMetadata(FieldContract):
    def fields(self):
        return [MonthField()]

    def values(self, field):
        return [1, 5, 11]

    def bad_values(self, field):
        return ["text", None.__class__]

    def equal(self, given, got):
        return type(got) is np.int16 and got == given


class TestRowsOfPayloads(FieldContract):
    def fields(self):
        return [BitsField(2)]

    def values(self, field):
        return [np.eye(2, 8, dtype=bool), np.ones((2, 8), bool)]

    def bad_values(self, field):
        return ["text"]


def write(path, fields, samples, **options):
    with fl.DatasetWriter(path, fields, **options) as writer:
        for sample in samples:
            writer.write_sample(sample)
    return fl.DatasetReader(path)


def one_batch(reader, **options):
    (batch,) = fl.DataLoader(reader, len(reader), shuffle=False, **options)
    return batch


# Where it runs


@pytest.fixture
def reader(tmp_path):
    fields = {"packed": PackedField(4), "month": MonthField()}
    return write(tmp_path / "x.fld", fields, [{"packed": np.arange(4.0) + i, "month": i % 11 + 1} for i in range(40)])


def test_explain_says_where_it_runs(reader, monkeypatch):
    assert fl.DataLoader(reader).explain().splitlines()[:4] == [
        "PackedField 'packed': PackedDecoder gives (4,) float32",
        "    compiled by numba, in the engine's threads without the GIL: PackedDecoder",
        "MonthField 'month': MonthDecoder gives () int16",
        "    compiled by numba, the whole batch at once without the GIL: MonthDecoder",
    ]
    monkeypatch.setattr(PackedDecoder, "supports_jit", False)
    told = "in Python threads, behind the engine: PackedDecoder (supports_jit = False)"
    assert told in fl.DataLoader(reader).explain()


def test_without_numba_the_same_comes_from_python(reader, monkeypatch):
    wanted = one_batch(reader)
    monkeypatch.delitem(sys.modules, "fastloader.pipeline.jit", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    loader = fl.DataLoader(reader, len(reader), shuffle=False)
    told = loader.explain()
    assert 'PackedDecoder (numba is not installed; pip install "fastloader[jit]" brings it)' in told
    assert "compiled by" not in told
    (found,) = loader
    assert all((found[name] == wanted[name]).all() and found[name].dtype == wanted[name].dtype for name in wanted)
    assert loader.stats()["threads"]["python"] > 0


def test_a_compiled_decoder_needs_no_python_threads(reader):
    loader = fl.DataLoader(reader, 8)
    list(loader)
    assert loader.stats()["threads"]["python"] == 0


def test_a_decoder_is_not_compiled_where_its_payloads_are_padded(tmp_path):
    class Levels(PackedDecoder):
        @property
        def elements(self):
            return fl.Elements(np.dtype("<i2"))

    @fl.register_type(2404)
    @dataclass(frozen=True)
    class LevelsField(PackedField):
        def get_decoder_class(self):
            return Levels

    reader = write(tmp_path / "x.fld", {"x": LevelsField(3)}, [{"x": [1, 2, 3]}, {"x": [4, 2, 1]}])
    batch = one_batch(reader, pad="ragged")
    assert batch["x"].tolist() == [0, 2, 4, 6, 2, 0]
    assert one_batch(reader)["x"].tolist() == [[1, 2, 3], [4, 2, 1]]


def test_other_fields_load_where_one_is_unknown(reader, monkeypatch):
    path = reader.path
    from fastloader.fields import BY_TYPE_ID

    monkeypatch.delitem(BY_TYPE_ID, 2400)
    batch = one_batch(fl.DatasetReader(path), fields=["month"])
    assert batch["month"][:3].tolist() == [1, 2, 3]


# What goes wrong


def bad_reader(path):
    fields = {"packed": PackedField(4), "month": MonthField(), "i": fl.IntField()}
    good = {"packed": np.arange(4.0), "month": 3}
    samples = [{**good, "i": i} for i in range(8)]
    samples[6]["month"] = 12
    reader = write(path, fields, samples)
    return reader


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
@pytest.mark.parametrize("field", ["packed", "month"])
def test_a_failure_has_its_line_and_sample_and_follows_on_error(field, policy, jit, tmp_path, monkeypatch):
    reader = bad_reader(tmp_path / "x.fld")
    bad = 6 if field == "month" else 2
    if field == "packed":  # written by another program, say
        monkeypatch.setattr(PackedField, "encode", lambda self, value: fl.Encoded((0, 0), np.asarray(value, "<i2")))
        samples = [{"packed": np.zeros(3 if i == 2 else 4), "month": 3, "i": i} for i in range(8)]
        reader = write(
            tmp_path / "y.fld", {"packed": PackedField(4), "month": MonthField(), "i": fl.IntField()}, samples
        )
    for kind in (PackedDecoder, MonthDecoder):
        monkeypatch.setattr(kind, "supports_jit", jit)
    words = r"the decoder \w+ failed in line \d+ of test_rows.py: ValueError: (no December|the wrong number of levels)"
    loader = fl.DataLoader(reader, 8, shuffle=False, on_error=policy)
    if policy == "raise":
        with pytest.raises(fl.DecodeError, match=words) as caught:
            list(loader)
        assert (caught.value.sample, caught.value.field) == (bad, field)
        with pytest.raises(fl.DecodeError, match=words) as caught:
            reader.read_batch(range(8))
        assert (caught.value.sample, caught.value.field) == (bad, field)
        return
    (batch,) = loader
    (told,) = loader.stats()["bad"]
    assert (told["sample"], told["field"]) == (bad, field)
    if policy == "skip":
        assert batch["i"][bad] == bad + 1
        assert len(batch[field]) == 8
    else:
        assert np.ma.getmaskarray(batch[field]).reshape(8, -1).all(axis=1).tolist() == [i == bad for i in range(8)]


@pytest.mark.parametrize("jit", [True, False])
def test_a_payload_cant_be_written_to(jit, tmp_path, monkeypatch):
    class Writes(fl.RowDecoder):
        supports_jit = jit

        def row_function(self):
            def decode(metadata, payload, out):
                payload[0] = 3

            return fl.RowFunction(decode, "uint8", (2,))

    monkeypatch.setattr(BitsField, "get_decoder_class", lambda self: Writes)
    reader = write(tmp_path / "x.fld", {"x": BitsField(2)}, [{"x": np.eye(2, 8)}])
    if jit:
        with pytest.raises(PipelineError, match="can't be compiled: the payload can only be read"):
            fl.DataLoader(reader)
    else:
        with pytest.raises(fl.DecodeError, match="read-only"):
            one_batch(reader)


def test_an_index_past_the_end_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(PackedField, "encode", lambda self, value: fl.Encoded((0, 0), np.asarray(value, "<i2")))

    class Further(fl.RowDecoder):
        def row_function(self):
            def decode(metadata, payload, out):
                out[len(payload)] = 1

            return fl.RowFunction(decode, "float32", (4,))

    monkeypatch.setattr(PackedField, "get_decoder_class", lambda self: Further)
    reader = write(tmp_path / "x.fld", {"x": PackedField(4)}, [{"x": [1, 2, 3, 4]}])
    with pytest.raises(fl.DecodeError, match=r"the decoder Further failed in line .* IndexError"):
        one_batch(reader)


def test_what_cant_be_compiled_is_shown_with_its_line(tmp_path, monkeypatch):
    class Opens(fl.RowDecoder):
        def row_function(self):
            def decode(metadata, payload, out):
                open("x")  # noqa: SIM115

            self.line = decode.__code__.co_firstlineno + 1
            return fl.RowFunction(decode, "uint8")

    monkeypatch.setattr(BitsField, "get_decoder_class", lambda self: Opens)
    reader = write(tmp_path / "x.fld", {"x": BitsField(2)}, [{"x": np.eye(2, 8)}])
    with pytest.raises(PipelineError) as caught:
        fl.DataLoader(reader)
    told = str(caught.value)
    line = Opens(BitsField(2)).row.function.__code__.co_firstlineno + 1
    assert (
        f"--> Opens: line {line} of test_rows.py can't be compiled: open is nothing that compiled code can use" in told
    )
    assert "supports_jit = False keeps the decoder in Python" in told
    assert "numba" not in told.lower()


def test_wrong_declarations():
    def decode(metadata, payload, out):
        pass

    for arguments, error, why in (
        ((decode, "float16"), ValueError, "dtype='float16': one of bool, int8"),
        ((decode, ">f4"), ValueError, "dtype='>f4': one of"),
        ((decode, "O"), ValueError, "dtype='O': one of"),
        ((decode, "float32", (0,)), ValueError, "sides of at least 1"),
        ((decode, "float32", (2**40,)), ValueError, "at most 2,147,483,648 bytes"),
        ((decode, "float32", (1.5,)), TypeError, "a tuple of whole numbers"),
        ((decode, "float32", 4), TypeError, "a tuple of whole numbers"),
        ((lambda x: x, "float32"), TypeError, r"called as <lambda>\(metadata, payload, out\), which it can't be"),
        ((3, "float32"), TypeError, "a function of metadata, payload, out is needed, not a int"),
    ):
        with pytest.raises(error, match=why):
            fl.RowFunction(*arguments)
    with pytest.raises(TypeError, match="supports_jit is for decoders with a row function: make it a RowDecoder"):

        class Claims(fl.Decoder):
            supports_jit = True

    class Nothing(fl.RowDecoder):
        pass

    with pytest.raises(TypeError, match=r"Nothing does not say how to decode; give it a row_function\(\)"):
        Nothing(BitsField(1)).row  # noqa: B018

    class Other(fl.RowDecoder):
        def row_function(self):
            return decode

    with pytest.raises(TypeError, match=r"Other\.row_function gives a RowFunction, not a function"):
        Other(BitsField(1)).row  # noqa: B018


# Kept


SCRIPT = """
import json, sys
from dataclasses import dataclass
import numpy as np
import fastloader as fl
from fastloader.pipeline import jit

class Decoder(fl.RowDecoder):
    def row_function(self):
        add = self.field.add
        def decode(metadata, payload, out):
            out[0] = payload[0] + add
        return fl.RowFunction(decode, "int64", (1,))

@fl.register_type(1700)
@dataclass(frozen=True)
class Field(fl.Field):
    add: int
    def encode(self, value):
        return fl.Encoded(payload=bytes([value]))
    def get_decoder_class(self):
        return Decoder

if __name__ == "__main__":
    made, cached = [], jit._cached
    jit._cached = lambda function: made.append(cached(function)) or made[-1]
    for add in (5, 5, 6):
        with fl.DatasetWriter(sys.argv[1], {"x": Field(add)}) as writer:
            writer.write_sample({"x": 3})
        (batch,) = fl.DataLoader(fl.DatasetReader(sys.argv[1]))
        assert batch["x"].tolist() == [[3 + add]]
    print(json.dumps([[sum(one.stats.cache_hits.values()), sum(one.stats.cache_misses.values())] for one in made]))
"""


def test_compiled_code_is_kept_in_memory_and_on_disk(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}

    def run():
        command = [sys.executable, tmp_path / "train.py", tmp_path / "x.fld"]
        return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    assert run() == [[0, 1], [0, 1]]
    assert run() == [[1, 0], [1, 0]]
