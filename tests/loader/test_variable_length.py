"""Samples of different lengths, joined or padded by the engine: the same as one by one and numpy, and never stale."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.fields import BY_TYPE_ID
from fastloader.loader.making import MOST_INSTEAD
from fastloader.samplers import LengthBuckets
from fastloader.testing import identical

RECORD = np.dtype([("at", "<f8"), ("word", "<U9"), ("id", "u1")])
VALUES = {
    "u1": 7, "?": True, "<i2": -3, ">i4": 2**31 - 2, "<f8": float("nan"), "<c16": 1 - 2j, "S3": b"ab", "<M8[s]": 5,
    RECORD: (0.5, "none", 255),
}  # fmt: skip


def some(rng, shape, dtype):
    """Values of which no byte is like those around it."""
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.names or dtype.kind == "S":
        out = np.zeros(shape, dtype)
        if out.size:
            out.reshape(-1)[:] = [(i / 3, chr(65 + i), i) if dtype.names else b"%03d" % i for i in range(out.size)]
        return out
    return rng.integers(1, 100, shape).astype(dtype)


def write(path, field, values, **options):
    with fl.DatasetWriter(path, {"n": fl.IntField(), "x": field}, **options) as writer:
        writer.write_many({"n": i, "x": value} for i, value in enumerate(values))
    return fl.open(path)


def damage(reader, sample):
    """Flip the last byte of a payload."""
    number, row = reader.dataset.where(sample)
    file = reader.dataset.file(number)
    pointer, size, *_ = file.payloads(1).extent(row)
    with file.path.open("r+b") as raw:
        raw.seek(pointer + size - 1)
        byte = raw.read(1)[0]
        raw.seek(-1, 1)
        raw.write(bytes([byte ^ 1]))


# The slow twin: samples read alone, put together by numpy


def padded(values, dtype, inner, pad, fill):
    """Rows, and their lengths; ``None`` is a missing value."""
    lengths = [0 if value is None else len(value) for value in values]
    if pad.length is None:
        width = -(-max(lengths, default=0) // pad.multiple_of) * pad.multiple_of
    else:
        width = pad.length
        lengths = [min(length, width) for length in lengths]
    rows = np.zeros((len(values), width, *inner), dtype)
    rows[...] = fill
    for row, value, length in zip(rows, values, lengths, strict=True):
        if value is not None:
            row[:length] = value[:length]
    return rows, lengths


def reference(values, dtype, inner, spec):
    lengths = [0 if value is None else len(value) for value in values]
    if spec == "ragged":
        there = [value for value in values if value is not None]
        joined = np.concatenate([np.zeros((0, *inner), dtype), *there], dtype=dtype)
        return {"x": joined, "x_offsets": np.cumsum([0, *lengths]), "x_lengths": np.array(lengths)}
    pad = fl.Pad() if spec == "longest" else fl.Pad(spec) if isinstance(spec, int) else spec
    zero = np.zeros((), dtype)
    rows, lengths = padded(values, dtype, inner, pad, zero if pad.value == 0 else np.array(pad.value, dtype))
    return {"x": rows, "x_lengths": np.array(lengths)}


def assert_is(batch, wanted, values):
    """The arrays, to the last bit; what is missing is masked in the lengths, and there alone."""
    assert set(batch) == {"n", *wanted}
    for name, array in wanted.items():
        assert identical(np.ma.getdata(batch[name]), array), name
    missing = [value is None for value in values]
    assert np.ma.getmaskarray(batch["x_lengths"]).tolist() == missing
    assert isinstance(batch["x_lengths"], np.ma.MaskedArray) == any(missing)
    assert type(batch["x"]) is np.ndarray


def settled(indices, bad, policy):
    """Which samples a batch shows, ``None`` for a missing value."""
    if policy == "replace":
        return [None if i in bad else i for i in indices]
    good = [position for position, i in enumerate(indices) if i not in bad]
    after = {p: next((g for g in good if g >= p), good[0]) for p in range(len(indices))}
    return [indices[after[p]] for p in range(len(indices))]


@st.composite
def cases(draw):
    dtype = draw(st.sampled_from(list(VALUES)))
    value = draw(st.sampled_from([0, VALUES[dtype]]))
    spec = draw(
        st.sampled_from([
            "ragged", "longest", 9, fl.Pad(value=value), fl.Pad(12, value=value), fl.Pad(value=value, multiple_of=8),
            fl.Pad(4, value=value, truncate=True),
        ])
    )  # fmt: skip
    lengths = draw(st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=25))
    bad = draw(st.sets(st.integers(0, len(lengths) - 1), max_size=3))
    return {
        "dtype": np.dtype(dtype), "inner": draw(st.sampled_from([(), (2,), (2, 3)])), "spec": spec, "lengths": lengths,
        "bad": {i for i in bad if lengths[i]}, "declared": draw(st.booleans()),
        "policy": draw(st.sampled_from(["raise", "skip", "replace"])), "batch_size": draw(st.integers(1, 8)),
        "workers": draw(st.sampled_from([0, 1, 3])),
        "options": draw(st.sampled_from([{}, {"shard_size": 300}, {"compression": "zstd"}, {"compression": "lz4"}])),
    }  # fmt: skip


def standing_in(loader, step, bad):
    """The samples of the first batch further on, at distances that double, which has a good one."""
    count = len(loader.plan.batch(0, step))
    for attempt in range(MOST_INSTEAD):
        indices = np.resize(loader.plan.instead(0, step, 0, 1 << attempt), count).tolist()
        if not bad.issuperset(indices):
            return indices
    return loader.plan.batch(0, step).tolist()


WORST_IS_BAD = {
    "dtype": np.dtype("<i2"), "inner": (2,), "lengths": [None, 9, 0, 2, 9], "bad": {1, 4}, "declared": False,
    "batch_size": 3, "workers": 1, "options": {},
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(cases())
@example({**WORST_IS_BAD, "spec": "ragged", "policy": "replace"})
@example({**WORST_IS_BAD, "spec": "longest", "policy": "skip"})
@example({**WORST_IS_BAD, "spec": fl.Pad(multiple_of=4), "policy": "replace"})
@example({**WORST_IS_BAD, "spec": 12, "policy": "replace", "lengths": [9, None], "bad": {0}, "dtype": np.dtype(">i4")})
def test_batches_equal_samples_put_together_one_by_one(case):
    dtype, inner, spec, bad, policy = (case[name] for name in ("dtype", "inner", "spec", "bad", "policy"))
    rng = np.random.default_rng(1)
    given = [None if length is None else some(rng, (length, *inner), dtype) for length in case["lengths"]]
    field = fl.NDArrayField(dtype, (None, *inner) if case["declared"] else None)
    with tempfile.TemporaryDirectory() as folder:
        reader = write(Path(folder) / "x.fld", field, given, **case["options"])
        single = [sample["x"] for sample in reader]
        for sample in bad:
            damage(reader, sample)
        reader = fl.open(reader.path)
        loader = fl.DataLoader(
            reader, case["batch_size"], seed=3, num_workers=case["workers"], pad={"x": spec}, on_error=policy
        )
        steps = [loader.plan.batch(0, step).tolist() for step in range(len(loader))]
        batches = iter(loader)
        for step, indices in enumerate(steps):
            here = [i for i in indices if i in bad]
            if policy == "skip" and len(here) == len(indices) and len(bad) < len(given):
                indices = standing_in(loader, step, bad)
                here = [i for i in indices if i in bad]
            if here and (policy == "raise" or (policy == "skip" and len(here) == len(indices))):
                with pytest.raises(fl.ChecksumError) as caught:
                    next(batches)
                assert (caught.value.sample, caught.value.field) == (here[0], "x")
                return
            batch = next(batches)
            shown = settled(indices, bad, policy)
            values = [None if i is None else single[i] for i in shown]
            known = inner if case["declared"] or any(value is not None for value in values) else ()
            assert_is(batch, reference(values, dtype, known, spec), values)
            assert batch["n"].tolist() == (indices if policy == "replace" else shown)
        assert next(batches, None) is None


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=20), min_size=1, max_size=12), st.sampled_from(["ragged", "longest", 20])
)
def test_bytes_come_as_uint8(values, spec):
    with tempfile.TemporaryDirectory() as folder:
        reader = write(Path(folder) / "x.fld", fl.BytesField(), values)
        (batch,) = fl.DataLoader(reader, 20, shuffle=False, num_workers=1, pad=spec)
        arrays = [None if value is None else np.frombuffer(value, np.uint8) for value in values]
        assert_is(batch, reference(arrays, np.dtype("u1"), (), spec), arrays)


# Memory


@pytest.mark.parametrize("spec", ["longest", 40, fl.Pad(20, truncate=True), fl.Pad(value=9, multiple_of=16)])
def test_no_byte_of_an_earlier_batch_is_seen(spec, tmp_path):
    lengths = [40, 39, 38, 30, 20, 19, 9, 5, None, 3, 2, 1, 0, None, 0, None]
    values = [None if length is None else np.full((length, 3), 200 + i, "u1") for i, length in enumerate(lengths)]
    reader = write(tmp_path / "x.fld", fl.NDArrayField("u1", (None, 3)), values)
    damage(reader, 9)
    loader = fl.DataLoader(
        fl.open(reader.path), 2, shuffle=False, num_workers=1, prefetch_factor=1, pad=spec, on_error="replace"
    )
    values[9] = None
    for _ in range(5):
        for step, batch in enumerate(loader):
            mine = values[2 * step : 2 * step + 2]
            assert_is(batch, reference(mine, np.dtype("u1"), (3,), spec), mine)
            batch["x"][...] = 123
            del batch
    assert loader.stats()["slots"] <= 4


def test_a_held_batch_stays_as_it_was(tmp_path):
    values = [np.full(i % 13, i, "<i4") for i in range(60)]
    reader = write(tmp_path / "x.fld", fl.NDArrayField("<i4", (None,)), values)
    for spec in ("ragged", "longest"):
        held = list(fl.DataLoader(reader, 4, shuffle=False, num_workers=2, pad=spec))
        for step, batch in enumerate(held):
            mine = values[4 * step : 4 * step + 4]
            assert_is(batch, reference(mine, np.dtype("<i4"), (), spec), mine)


def test_memory_that_is_not_there_is_an_error_that_names_the_sample(tmp_path):
    reader = write(tmp_path / "x.fld", fl.NDArrayField("<i4", (None,)), [np.arange(i, dtype="<i4") for i in (1, 3, 2)])
    for policy in ("raise", "skip"):
        with pytest.raises(
            MemoryError, match="sample 1, field 'x': there is no memory for a batch padded to the length"
        ):
            list(fl.DataLoader(reader, 4, shuffle=False, pad=2**62, on_error=policy))


# What a file claims


def zeros(count):
    return np.zeros(count, "u1")


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_one_sample_that_claims_much_does_not_make_every_row_as_long(policy, tmp_path):
    values = [zeros(8 << 20) if i == 70 else zeros(i % 3) for i in range(100)]
    reader = write(tmp_path / "x.fld", fl.NDArrayField("u1", (None,)), values, compression="zstd")
    loader = fl.DataLoader(reader, 100, shuffle=False, num_workers=1, pad="longest", on_error=policy)
    if policy == "raise":
        with pytest.raises(fl.FormatError, match=r"sample 70, field 'x': claims 8388608 bytes of \d+ stored ones"):
            next(iter(loader))
        return
    (batch,) = loader
    assert batch["x"].shape == (100, 2)
    assert batch["n"][70] == (71 if policy == "skip" else 70)
    assert np.ma.is_masked(batch["x_lengths"]) == (policy == "replace")
    assert [bad["sample"] for bad in loader.stats()["bad"]] == [70]


def test_many_samples_may_claim_much_together(tmp_path):
    values = [zeros((8 << 20) - i) for i in range(10)]
    reader = write(tmp_path / "x.fld", fl.NDArrayField("u1", (None,)), values, compression="zstd")
    (batch,) = fl.DataLoader(reader, 10, shuffle=False, num_workers=1, pad="longest")
    assert batch["x"].shape == (10, 8 << 20)


@pytest.mark.parametrize("declared", [True, False])
def test_elements_that_no_payload_bears_out_get_no_memory(declared, tmp_path):
    inner = (2**30, 2**10)
    field = fl.NDArrayField("u1", (None, *inner) if declared else None)
    reader = write(tmp_path / "x.fld", field, [np.zeros((0, *inner), "u1"), None, np.zeros((0, *inner), "u1")])
    for spec, shape in (("ragged", (0, *inner)), ("longest", (3, 0, *inner)), (5, (3, 5, *inner))):
        (batch,) = fl.DataLoader(reader, 3, shuffle=False, pad={"x": spec})
        assert batch["x"].shape == shape
        assert batch["x_lengths"].tolist() == [0, None, 0]


@pytest.mark.parametrize("spec", ["ragged", "longest", 5])
def test_a_length_that_does_not_fit_the_payload_is_an_error(spec, tmp_path, monkeypatch):
    def lie(field, value):
        return fl.Encoded(((999,),) if field.shape else (2, (999, 3, *[0] * 6)), value)

    monkeypatch.setattr(fl.NDArrayField, "encode", lie)
    for shape, said in (((None, 3), "a length of 999"), (None, r"shape \(999, 3\)")):
        reader = write(tmp_path / f"{said[:5]}.fld", fl.NDArrayField("<i2", shape), [np.zeros((2, 3), "<i2")])
        with pytest.raises(fl.FormatError, match=rf"sample 0, field 'x': {said} does not fit a payload of 12 bytes"):
            list(fl.DataLoader(reader, 1, pad={"x": spec}))


# Samples that do not fit


def test_a_sample_longer_than_the_given_length(tmp_path):
    values = [np.arange(i, dtype="<i4") for i in range(8)]
    reader = write(tmp_path / "x.fld", fl.NDArrayField("<i4", (None,)), values)
    with pytest.raises(fl.ShapeError, match="sample 6, field 'x': has the length 6, and the batch is padded to 5"):
        list(fl.DataLoader(reader, 8, shuffle=False, pad=5))
    (batch,) = fl.DataLoader(reader, 8, shuffle=False, pad=5, on_error="skip")
    assert batch["n"].tolist() == [0, 1, 2, 3, 4, 5, 0, 0]
    (batch,) = fl.DataLoader(reader, 8, shuffle=False, pad=5, on_error="replace")
    assert batch["x_lengths"].tolist() == [0, 1, 2, 3, 4, 5, None, None]
    assert not batch["x"][6:].any()
    (batch,) = fl.DataLoader(reader, 8, shuffle=False, pad=fl.Pad(5, truncate=True))
    assert batch["x_lengths"].tolist() == [0, 1, 2, 3, 4, 5, 5, 5]
    assert batch["x"][7].tolist() == [0, 1, 2, 3, 4]


def test_what_is_cut_off_is_still_checked(tmp_path):
    reader = write(tmp_path / "x.fld", fl.BytesField(), [bytes(50), bytes(50)])
    damage(reader, 1)
    with pytest.raises(fl.ChecksumError, match="sample 1, field 'x'"):
        list(fl.DataLoader(fl.open(reader.path), 2, shuffle=False, pad=fl.Pad(8, truncate=True)))


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (np.zeros((2, 4), "<i2"), r"has the shape \(2, 4\), and the first of its batch has \(1, 3\)"),
        (np.zeros(6, "<i2"), r"has the shape \(6\), and the first of its batch has \(1, 3\)"),
        (np.zeros((), "<i2"), "has no dimensions"),
        (np.zeros((4, 0), "<i2"), r"has the shape \(4, 0\), whose elements have no bytes"),
    ],
    ids=["inner", "fewer", "scalar", "nothing"],
)
@pytest.mark.parametrize("spec", ["ragged", "longest", 7])
def test_where_no_shape_is_declared_the_batch_must_agree(odd, said, spec, tmp_path):
    values = [None, np.ones((1, 3), "<i2"), np.zeros((0, 3), "<i2"), odd, np.ones((3, 3), "<i2")]
    reader = write(tmp_path / "x.fld", fl.NDArrayField("<i2"), values)
    with pytest.raises(fl.ShapeError, match=f"sample 3, field 'x': {said}"):
        list(fl.DataLoader(reader, 5, shuffle=False, pad=spec))
    (batch,) = fl.DataLoader(reader, 5, shuffle=False, pad=spec, on_error="skip")
    shown = [*values[:3], values[4], values[4]]
    assert_is(batch, reference(shown, np.dtype("<i2"), (3,), spec), shown)
    (batch,) = fl.DataLoader(reader, 1, shuffle=False, pad=spec, indices=[4])
    assert batch["x"].shape[-1] == 3


# Options


FIELDS = {
    "n": fl.IntField(), "tokens": fl.NDArrayField("<i4", (None,)), "any": fl.NDArrayField("u1"),
    "blob": fl.BytesField(), "fixed": fl.NDArrayField("<f4", (3,)), "inner": fl.NDArrayField("<f4", (3, None)),
    "tree": fl.JSONField(),
    "both": fl.NDArrayField("<f4", (None, None)), "none": fl.NDArrayField("<f4", (None, 0)),
    "photo": fl.JPEGImageField(), "raw": fl.RawImageField(4, 4), "tokens_lengths": fl.IntField(),
}  # fmt: skip


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    target = tmp_path_factory.mktemp("mixed") / "x.fld"
    with fl.DatasetWriter(target, FIELDS) as writer:
        for i in range(12):
            picture = np.full((8 if i % 2 else 9, 8, 3), i, np.uint8)
            writer.write_sample({
                "n": i, "tokens": np.arange(i, dtype="<i4"), "any": np.full((i % 2, 2), i, "u1"), "blob": bytes(i),
                "fixed": np.zeros(3, "<f4"), "inner": np.zeros((3, i), "<f4"), "tree": [i],
                "both": np.zeros((i, i), "<f4"), "none": np.zeros((i, 0), "<f4"), "photo": picture,
                "raw": picture[:4, :4], "tokens_lengths": i,
            })  # fmt: skip
    return fl.open(target)


WITHOUT_CLASH = [name for name in FIELDS if name != "tokens_lengths"]


def test_a_bare_spec_is_for_every_field_that_varies_in_length(mixed):
    plain = next(iter(fl.DataLoader(mixed, 4, shuffle=False, fields=WITHOUT_CLASH)))
    for pad, beside in (("longest", ["lengths"]), ("ragged", ["offsets", "lengths"])):
        batch = next(iter(fl.DataLoader(mixed, 4, shuffle=False, fields=WITHOUT_CLASH, pad=pad)))
        mine = ("tokens", "any", "blob")
        assert set(batch) == {*WITHOUT_CLASH, *(f"{name}_{what}" for name in mine for what in beside)}
        for name in set(WITHOUT_CLASH) - set(mine):
            assert identical(batch[name], plain[name]), name


def test_each_field_as_it_is_named(mixed):
    pad = {"tokens": fl.Pad(value=-1), "blob": "ragged", "any": None, "tree": "list"}
    batch = next(iter(fl.DataLoader(mixed, 3, shuffle=False, fields=["tokens", "blob", "any", "tree"], pad=pad)))
    assert batch["tokens"].tolist() == [[-1, -1], [0, -1], [0, 1]]
    assert batch["blob_offsets"].tolist() == [0, 0, 1, 3]
    assert isinstance(batch["any"], list)
    assert set(batch) == {"tokens", "tokens_lengths", "blob", "blob_offsets", "blob_lengths", "any", "tree"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("n", "IntField has one value a sample"),
        ("fixed", r"every sample of NDArrayField\(dtype='float32', shape=\(3,\)\) has the same shape"),
        ("raw", "every sample of RawImageField"),
        ("inner", r"of the shape \(3, None\) more than the leading dimension varies"),
        ("both", r"of the shape \(None, None\) more than the leading dimension varies"),
        ("none", r"of the shape \(None, 0\).* or elements have no bytes"),
        ("photo", "JPEGImageField has images"),
        ("tree", "the decoder of JSONField does not say what its elements are"),
    ],
)
def test_what_can_not_be_padded_is_refused_by_name(name, why, mixed):
    for spec in ("ragged", "longest", 5, fl.Pad()):
        with pytest.raises(ValueError, match=f"pad for '{name}': {why}.*; what can be padded here: tokens, any, blob"):
            fl.DataLoader(mixed, pad={name: spec})


@pytest.mark.parametrize(
    ("pad", "error", "message"),
    [
        ("short", ValueError, "pad='short': None, 'list', 'ragged', 'longest', a length, or a fastloader.Pad"),
        (True, ValueError, "pad=True: None, 'list'"),
        (2.5, ValueError, r"pad=2\.5: None, 'list'"),
        (0, ValueError, "length=0: at least 1"),
        ({"tokens": "?"}, ValueError, r"pad for 'tokens'='\?': None, 'list'"),
        ({"nope": 3}, ValueError, "pad for unknown fields nope; there are n, tokens"),
        ({"tokens": "longest"}, ValueError, "pad for 'tokens' also gives 'tokens_lengths', and a field has that name"),
        ({"blob": fl.Pad(value=256)}, ValueError, "pad for 'blob': value 256 does not fit uint8"),
        ({"blob": fl.Pad(value=0.5)}, TypeError, "pad for 'blob': value 0.5 is no value of uint8"),
        ({"blob": fl.Pad(value=[1, 2])}, ValueError, r"pad for 'blob': value=\[1, 2\] is not one number"),
    ],
)
def test_wrong_arguments(pad, error, message, mixed):
    with pytest.raises(error, match=message):
        fl.DataLoader(mixed, pad=pad)


def test_a_bare_spec_without_such_fields_has_no_effect_and_is_refused(mixed):
    with pytest.raises(
        ValueError, match="pad='longest': none of the fields loaded varies in length; what can be padded"
    ):
        fl.DataLoader(mixed, fields=["n", "tree"], pad="longest")
    assert len(list(fl.DataLoader(mixed, 12, fields=["n", "tree"], pad="list"))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length=0: at least 1"),
        ({"multiple_of": 0}, "multiple_of=0: at least 1"),
        ({"truncate": True}, "truncate=True: to what length"),
        ({"length": 100, "multiple_of": 8}, "multiple_of=8 is for the batch's longest"),
    ],
)
def test_a_pad_that_says_nothing_sensible(options, message):
    with pytest.raises(ValueError, match=message):
        fl.Pad(**options)


def test_padding_changes_neither_order_nor_state(mixed):
    def run(pad, stop=None):
        options = {"seed": 5, "num_workers": 2, "fields": ["n", "tokens"], "pad": pad}
        loader = fl.DataLoader(mixed, 5, **options)
        seen, states = [], []
        for batch in loader:
            seen.append({name: value for name, value in batch.items() if name == "n" or pad})
            states.append(loader.state_dict())
            if len(seen) == stop:
                loader = fl.DataLoader(mixed, 5, **options)
                loader.load_state_dict(json.loads(json.dumps(states[-1])))
                return seen + list(loader), states
        return seen, states

    plain, states = run(None)
    for pad in ("ragged", "longest", 12):
        batches, mine = run(pad)
        assert mine == states
        assert [batch["n"].tolist() for batch in batches] == [batch["n"].tolist() for batch in plain]
        assert identical(run(pad, stop=1)[0], batches)


def test_transforms_get_the_values_and_collate_the_whole_batch(mixed):
    (given,) = fl.DataLoader(
        mixed, 12, shuffle=False, fields=["tokens", "n"], pad={"tokens": "ragged"},
        transforms={"tokens": lambda tokens: tokens * 2},
        collate_fn=lambda batch: (batch["tokens"].sum(), batch["tokens_offsets"][-1], sorted(batch)),
    )  # fmt: skip
    assert given == (2 * sum(sum(range(i)) for i in range(12)), 66, ["n", "tokens", "tokens_lengths", "tokens_offsets"])


def test_batches_by_length_need_little_padding(mixed):
    lengths = np.arange(12)
    buckets = LengthBuckets(lengths, max_tokens=22, num_buckets=4, seed=1)
    loader = fl.DataLoader(mixed, sampler=buckets, fields=["n", "tokens"], pad="longest")
    seen = []
    for batch in loader:
        assert batch["tokens"].shape == (len(batch["n"]), batch["n"].max())
        assert batch["tokens"].size <= 22
        assert (batch["tokens_lengths"] == batch["n"]).all()
        seen += batch["n"].tolist()
    assert sorted(seen) == list(range(12))


# Fields of one's own


def test_a_decoder_can_say_what_its_elements_are(tmp_path, monkeypatch):
    class Points(fl.Field):
        type_id = 6_300_001

        def encode(self, value):
            return fl.Encoded(payload=np.asarray(value, "<i4") if np.ndim(value) else b"12345")

        def get_decoder_class(self):
            class PointsDecoder(fl.Decoder):
                elements = fl.Elements("<i4", (2,))

                def __call__(self, metadata, read):
                    raise AssertionError("Python is not needed for this")

            return PointsDecoder

    monkeypatch.setitem(BY_TYPE_ID, 6_300_001, Points)
    values = [[[i, -i]] * i for i in range(5)]
    reader = write(tmp_path / "x.fld", Points(), values)
    arrays = [np.asarray(value, "<i4").reshape(-1, 2) for value in values]
    for spec in ("ragged", "longest", fl.Pad(7, value=-1)):
        (batch,) = fl.DataLoader(reader, 5, shuffle=False, pad=spec)
        assert_is(batch, reference(arrays, np.dtype("<i4"), (2,), spec), arrays)
    broken = write(tmp_path / "y.fld", Points(), [[[1, 2]], 0])
    with pytest.raises(
        fl.FormatError, match="sample 1, field 'x': the payload has 5 bytes, no multiple of the 8 of an"
    ):
        list(fl.DataLoader(broken, 2, shuffle=False, pad="longest"))


@pytest.mark.parametrize(("dtype", "inner"), [("O", ()), ("V0", ()), ("u1", (3, 0)), (("u1", (2,)), ())])
def test_elements_need_a_size(dtype, inner):
    with pytest.raises(TypeError, match="each needs a size in bytes"):
        fl.Elements(dtype, inner)


def test_items_that_no_memory_is_worth_are_refused(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.NDArrayField("U20000", (None,))}) as writer:
        writer.write_sample({"x": np.array(["a"], "U20000")})
    with pytest.raises(fl.FormatError, match="an item of 80000 bytes is too large") as caught:
        fl.DataLoader(fl.open(tmp_path / "x.fld"), pad="longest")
    assert str(tmp_path) in str(caught.value)
