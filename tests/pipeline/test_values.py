"""Functions of the user's on values of every kind of field: what they get, what they may make, what holds of them."""

import pickle
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import ops
from fastloader.pipeline import PipelineError
from fastloader.testing import identical
from fastloader.testing.compare import row

SAMPLES = 23
FIELDS = {
    "text": fl.TextField(),
    "tokens": fl.TokenizedTextField(vocab_size=1000),
    "packed": fl.PackedTextField(12, 300, pad_id=299),
    "parts": fl.DictField({"caption": fl.TextField(), "score": fl.IntField()}),
    "captions": fl.ListField(fl.TextField()),
    "json": fl.JSONField(),
    "bytes": fl.BytesField(),
    "number": fl.IntField(),
    "share": fl.FloatField(),
    "rows": fl.NDArrayField("float32", (None, 2)),
    "any": fl.NDArrayField("int16"),
    "swapped": fl.NDArrayField(">f4", (2,)),
    "boxes": fl.BoxesField("xyxy"),
    "sound": fl.AudioWaveformField(8000),
}


def values_of(i):
    rng = np.random.default_rng(i)
    return {
        "text": f"Text {i}, größer",
        "tokens": rng.integers(0, 1000, 3 + i % 4).astype(np.uint16),
        "packed": [[i, 1, 2], [3]],
        "parts": {"caption": f"c{i}", "score": i},
        "captions": [f"{i}{j}" for j in range(1 + i % 3)],
        "json": {"a": [i], "b": None},
        "bytes": bytes([i]) * (i % 5),
        "number": i,
        "share": i / 4,
        "rows": rng.normal(size=(1 + i % 3, 2)).astype(np.float32),
        "any": rng.integers(0, 9, (2,) if i % 2 else (1, 3)).astype(np.int16),
        "swapped": rng.normal(size=2).astype(">f4"),
        "boxes": np.array([[0, 0, 1 + i, 2]] * (i % 3), np.float32).reshape(-1, 4),
        "sound": rng.uniform(-0.5, 0.5, 30 + i).astype(np.float32),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("values") / "x.fld"
    with fl.DatasetWriter(path, FIELDS, shard_size=8) as writer:
        writer.write_many(values_of(i) for i in range(SAMPLES))
    return path


@pytest.fixture
def reader(path):
    return fl.open(path)


@ops.custom(jit=False)
def described(value, random):
    """What a function was given, as text that tells types and all bits."""
    if isinstance(value, dict):
        value = {name: one for name, one in value.items() if name not in ("cu_seqlens", "max_seqlen")}
    return f"{type(value).__name__} {pickle.dumps(value, 4)!r} {random.bits()}"


def told(value, seed, epoch, sample, op=0):
    return described.function(value, ops.Random(seed, epoch, sample, op))


@pytest.mark.parametrize("name", FIELDS)
def test_a_function_gets_what_a_reader_gives_and_numbers_of_its_own(name, reader):
    wanted = {i: told(reader[i][name], 5, 2, i) for i in range(SAMPLES)}
    for workers in (0, 2):
        loader = fl.DataLoader(reader, 4, seed=5, num_workers=workers, fields=[name], pipelines={name: [described]})
        loader.set_epoch(2)
        order = np.concatenate([loader.plan.batch(2, step, 0) for step in range(len(loader))]).tolist()
        found = [value for batch in loader for value in batch[name]]
        assert found == [wanted[i] for i in order]


@ops.custom
def shouted(text, random):
    return f"{text.upper()}{random.below(100)}"


@ops.custom
def changed(tokens, random):
    for i in range(len(tokens)):
        if random.uniform() < 0.5:
            tokens[i] = random.below(1000)


@ops.custom
def part(tokens, random):
    first = random.below(len(tokens) - 1)
    return tokens[first : first + 2]


@ops.custom(output=lambda count: (2 * count,), dtype="int64")
def doubled(tokens, out, random):
    for i in range(len(tokens)):
        out[2 * i] = tokens[i]
        out[2 * i + 1] = random.bits()


@ops.custom
def marked(sequence, random):
    sequence["tokens"][0] = random.below(299)


@ops.custom
def counted(value, random):
    return len(value)


@ops.custom
def encoded(text, random):
    ids = np.frombuffer(text.encode(), np.uint8)
    return {"ids": ids[:4], "length": len(ids)}


PIPELINES = {
    "text": [shouted, shouted],
    "tokens": [changed, part],
    "packed": [marked],
    "captions": [ops.Choose(), shouted],
    "bytes": [counted],
    "rows": [ops.Normalize((1, 2), 3), ops.Cast("float16")],
    "any": [changed, ops.Cast("float32")],
    "boxes": [changed],
    "sound": [ops.RandomSegment(frames=20), changed, ops.Cast("float16")],
    "number": [ops.OneHot(SAMPLES), changed],
}


@pytest.mark.parametrize("name", PIPELINES)
def test_workers_resuming_and_spawning_change_nothing(name, reader):
    options = {"seed": 3, "fields": [name], "pipelines": {name: PIPELINES[name]}}
    plain = list(fl.DataLoader(reader, 4, num_workers=0, **options))
    for workers in (1, 3):
        assert identical(plain, list(fl.DataLoader(reader, 4, num_workers=workers, **options)))
    loader = fl.DataLoader(reader, 4, num_workers=2, **options)
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    del batches
    resumed = fl.DataLoader(reader, 4, num_workers=2, **options)
    resumed.load_state_dict(state)
    assert identical(plain[2:], list(resumed))
    assert identical(plain, list(pickle.loads(pickle.dumps(fl.DataLoader(reader, 4, num_workers=0, **options)))))
    other = list(fl.DataLoader(reader, 4, num_workers=0, **(options | {"seed": 4, "shuffle": False})))
    assert not identical(plain, other)


@pytest.mark.parametrize("name", [name for name in PIPELINES if name not in ("captions", "bytes", "rows")])
def test_epochs_draw_anew(name, reader):
    loader = fl.DataLoader(reader, SAMPLES, shuffle=False, fields=[name], pipelines={name: PIPELINES[name]})
    first, second = (next(iter(loader)) for _ in range(2))
    assert not identical(first, second)


def names(value):
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@pytest.mark.parametrize(
    ("ops_", "compiled_ops"),
    [([changed], 1), ([doubled], 1), ([changed, doubled], 2), ([part], 0), ([changed, part, changed], 1)],
    ids=names,
)
def test_compiled_and_in_python_is_the_same(ops_, compiled_ops, reader, monkeypatch):
    """A function that returns an array is left to Python, where numpy says which type that has."""
    options = {"seed": 1, "fields": ["tokens"], "num_workers": 0}
    loader = fl.DataLoader(reader, 5, pipelines={"tokens": ops_}, **options)
    assert loader.explain().count("compiled by numba") == compiled_ops
    compiled = list(loader)
    plain = [ops.CustomOp(op.function, op.shape, op.dtype, jit=False) for op in ops_]
    assert identical(compiled, list(fl.DataLoader(reader, 5, pipelines={"tokens": plain}, **options)))
    monkeypatch.delitem(sys.modules, "fastloader.pipeline.jit", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    without = fl.DataLoader(reader, 5, pipelines={"tokens": ops_}, **options)
    assert "numba is not installed" in without.explain()
    assert identical(compiled, list(without))


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    dtype=st.sampled_from(["uint8", "int16", "uint32", "int64", "float32", "float64"]),
    inner=st.sampled_from([(), (3,), (2, 2)]),
    seed=st.integers(0, 2**40),
)
def test_any_array_compiled_and_plain(lengths, dtype, inner, seed, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "x.fld"
    rng = np.random.default_rng(seed)
    with fl.DatasetWriter(path, {"x": fl.NDArrayField(dtype, (None, *inner))}) as writer:
        writer.write_many([rng.integers(0, 100, (length, *inner)).astype(dtype)] for length in lengths)
    plain = ops.CustomOp(tenths.function, jit=False)
    one, other = (
        list(fl.DataLoader(fl.open(path), 3, seed=seed, num_workers=0, pipelines={"x": [op]}, pad="ragged"))
        for op in (tenths, plain)
    )
    assert identical(one, other)
    assert one[0]["x"].dtype == dtype


@ops.custom
def tenths(array, random):
    flat = array.reshape(-1)
    for i in range(len(flat)):
        flat[i] = random.below(100)


def test_values_are_put_together_as_their_kind_wants(reader):
    def batch(name, pipeline, **options):
        loader = fl.DataLoader(
            reader, 6, shuffle=False, fields=[name], pipelines={name: pipeline}, num_workers=0, **options
        )
        return next(iter(loader))

    assert batch("text", [shouted])["text"][1].startswith("TEXT 1, GRÖSSER")
    assert batch("bytes", [counted])["bytes"].tolist() == [0, 1, 2, 3, 4, 0]
    ids = batch("text", [encoded])["text"]
    assert ids["ids"].shape == (6, 4)
    assert ids["length"].tolist() == [16] * 6
    assert batch("json", [ops.custom(lambda value, random: value)])["json"][2] == {"a": [2], "b": None}
    packed = batch("packed", [marked])["packed"]
    assert packed["tokens"].shape == (6, 12)
    assert packed["cu_seqlens"].tolist() == [*np.add.outer(12 * np.arange(6), [0, 3, 4]).reshape(-1), 72]
    assert isinstance(batch("tokens", [changed])["tokens"], list)
    assert batch("tokens", [part])["tokens"].shape == (6, 2)
    padded = batch("tokens", [changed], pad={"tokens": fl.Pad(value=7, attention_mask=True)})
    assert padded["tokens"].shape == (6, 6)
    assert padded["tokens_lengths"].tolist() == [3, 4, 5, 6, 3, 4]
    assert (padded["tokens"][~padded["tokens_mask"]] == 7).all()
    joined = batch("text", [ops.custom(lambda text, random: np.arange(len(text)))], pad={"text": "ragged"})
    assert joined["text_lengths"].tolist() == [14] * 6
    assert joined["text"].tolist() == list(range(14)) * 6
    floats = batch("rows", [ops.Cast("float16")], pad="longest")
    assert floats["rows"].dtype == np.float16
    assert floats["rows"].shape == (6, 3, 2)


def test_operations_without_functions_have_numpys_bits(reader):
    loader = fl.DataLoader(
        reader, 4, shuffle=False, fields=["rows"], pipelines={"rows": [ops.Normalize((1, 2), 3), ops.Cast("float16")]}
    )
    found = [value for batch in loader for value in batch["rows"]]
    scale, bias = np.float32(1 / 3), np.array([-1 / 3, -2 / 3], np.float32)
    for i, value in enumerate(found):
        assert identical(value, (reader[i]["rows"] * scale + bias).astype(np.float16))


@ops.custom
def picky(text, random):
    if text.endswith((" 3, größer", " 10, größer")):
        raise KeyError(text)
    return text


@ops.custom
def far(tokens, random):
    tokens[4] = 1


@ops.custom
def forgetful(text, random):
    text.upper()


def test_an_error_names_sample_field_operation_and_line(reader):
    with pytest.raises(fl.OperationError) as caught:
        list(fl.DataLoader(reader, 4, shuffle=False, fields=["text"], pipelines={"text": [picky]}))
    assert (caught.value.sample, caught.value.field) == (3, "text")
    line = picky.function.__code__.co_firstlineno + 3
    assert f"the operation picky failed in line {line} of test_values.py: KeyError: 'Text 3, größer'" in str(
        caught.value
    )
    with pytest.raises(fl.OperationError) as caught:  # compiled code, which knows no lines
        list(fl.DataLoader(reader, 4, shuffle=False, fields=["tokens"], pipelines={"tokens": [changed, far]}))
    assert (caught.value.sample, caught.value.field) == (0, "tokens")
    assert "the operation far failed in line" in str(caught.value)
    with pytest.raises(fl.OperationError, match="forgetful returns nothing, and a str can't be changed in place"):
        list(fl.DataLoader(reader, 4, fields=["text"], pipelines={"text": [forgetful]}))
    with pytest.raises(fl.ShapeError, match="sample 3, field 'tokens': row 3 has the length 6"):
        list(fl.DataLoader(reader, 4, shuffle=False, fields=["tokens"], pipelines={"tokens": [changed]}, pad=5))


@pytest.mark.parametrize("workers", [0, 2])
def test_policies_hold(workers, reader):
    options = {"shuffle": False, "fields": ["text", "number"], "num_workers": workers}
    loader = fl.DataLoader(reader, 4, pipelines={"text": [picky]}, on_error="skip", **options)
    batches = list(loader)
    assert [i for batch in batches for i in batch["number"].tolist()] == [
        0, 1, 2, 0, 4, 5, 6, 7, 8, 9, 11, 11, *range(12, SAMPLES)
    ]  # fmt: skip
    for batch in batches:
        assert [text.split()[1] for text in batch["text"]] == [f"{i}," for i in batch["number"].tolist()]
    assert loader.stats()["bad_values"] == 2
    replaced = list(fl.DataLoader(reader, 4, pipelines={"text": [picky]}, on_error="replace", **options))
    gone = [
        i for batch in replaced for i, text in zip(batch["number"].tolist(), batch["text"], strict=True) if text is None
    ]
    assert gone == [3, 10]
    lengths = fl.DataLoader(reader, 4, pipelines={"text": [picky, counted]}, on_error="replace", **options)
    first = next(iter(lengths))["text"]
    assert first.mask.tolist() == [False, False, False, True]


def test_missing_values_stay_missing_and_no_function_sees_them(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as writer:
        for i in range(6):
            given = values_of(i)
            writer.write_sample(given if i % 2 else dict.fromkeys(given))
    pipelines = {name: [seen] for name in FIELDS}
    (batch,) = fl.DataLoader(fl.open(tmp_path / "x.fld"), 6, shuffle=False, pipelines=pipelines)
    for name in FIELDS:
        assert [row(batch[name], i) is None for i in range(6)] == [True, False] * 3, name
    nothing = fl.DataLoader(fl.open(tmp_path / "x.fld"), 2, shuffle=False, indices=[0, 2], pipelines=pipelines)
    (batch,) = nothing
    assert all(batch[name] == [None, None] for name in FIELDS)


@ops.custom(jit=False)
def seen(value, random):
    assert value is not None
    return 1


def test_functions_run_in_the_loaders_threads(reader):
    names = set()

    @ops.custom(jit=False)
    def where(text, random):
        names.add(threading.current_thread().name)
        return text

    list(fl.DataLoader(reader, 2, fields=["text"], pipelines={"text": [where]}, num_workers=2))
    assert all(name.startswith("fastloader-loader") for name in names)


def test_draws_can_be_shared_between_fields(reader):
    draw = ops.custom(lambda value, random: int(random.bits()))
    pipelines = {"text": [draw.shared("a")], "number": [shift, draw.shared("a")], "share": [draw]}
    (batch,) = fl.DataLoader(reader, SAMPLES, fields=["text", "number", "share"], pipelines=pipelines)
    assert (batch["text"] == batch["number"]).all()
    assert (batch["text"] != batch["share"]).all()


@ops.custom
def shift(value, random):
    return value + 1


def test_videos_and_encoded_sounds_come_as_they_are_read(tmp_path):
    frames = np.random.default_rng(1).integers(0, 255, (4, 6, 8, 3)).astype(np.uint8)
    fields = {"video": fl.VideoFramesField("png"), "sound": fl.AudioCompressedField("flac", sample_rate=8000)}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_sample({"video": frames, "sound": (np.zeros(90, np.float32), 8000)})
    first = ops.custom(lambda video, random: video[0])
    length = ops.custom(lambda sound, random: np.asarray(sound).shape[0])
    loader = fl.DataLoader(fl.open(tmp_path / "x.fld"), 1, pipelines={"video": [first], "sound": [length]})
    (batch,) = loader
    assert identical(batch["video"], frames[:1])
    assert batch["sound"].tolist() == [90]


@pytest.mark.parametrize(
    ("name", "pipeline", "why"),
    [
        ("text", [ops.RandomResizedCrop(4)], "is no operation on texts: TextField takes functions of yours"),
        ("text", [ops.Cast("float32")], "is no operation on texts"),
        ("text", [shouted, ops.Resize((4, 4))], "is no operation on what was made of texts"),
        ("text", [str.upper], "is no operation but a method_descriptor; @fastloader.ops.custom makes it one"),
        ("text", [ops.custom(lambda text, random: np.random.rand())], "differ from run to run"),
        (
            "tokens",
            [ops.HorizontalFlip()],
            "TokenizedTextField takes RandomSegment, PadOrTrim, Normalize, Cast, functions of yours",
        ),
        ("tokens", [ops.Choose()], "TokenizedTextField takes RandomSegment, PadOrTrim, Normalize, Cast, functions"),
        ("captions", [shouted, ops.Choose()], "ListField takes Choose first, functions of yours"),
        ("parts", [ops.OneHot(3)], "has no numbers"),
        ("number", [shift, ops.OneHot(3)], "is no operation on labels|made of whole numbers"),
        ("sound", [changed, ops.RandomSegment(frames=3)], "the samples of a batch must have one length"),
        ("packed", [marked.returning("x")], "whose draws are not known"),
        ("text", ops.Views(2, [shouted]), "neither images nor arrays of a fixed shape"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_is_taken(name, pipeline, why, reader):
    with pytest.raises(PipelineError, match=why):
        fl.DataLoader(reader, 4, fields=[name], pipelines={name: pipeline})


def test_what_can_not_be_compiled_runs_in_python_and_is_told(reader):
    @ops.custom
    def named(tokens, random):
        return {"first": tokens[0], "text": ",".join(str(one) for one in tokens)}

    loader = fl.DataLoader(reader, 2, shuffle=False, fields=["tokens"], pipelines={"tokens": [named]})
    assert "in Python threads, behind the engine: named (line" in loader.explain()
    assert next(iter(loader))["tokens"]["text"][0] == ",".join(map(str, reader[0]["tokens"]))


@pytest.mark.parametrize("vocabulary", [200, 1000, 70_000])
def test_windows_of_tokens_are_cut_by_the_engine(vocabulary, tmp_path):
    rng = np.random.default_rng(2)
    texts = [rng.integers(0, vocabulary, 1 + 7 * i) for i in range(12)]
    with fl.DatasetWriter(tmp_path / "x.fld", {"tokens": fl.TokenizedTextField(vocab_size=vocabulary)}) as writer:
        writer.write_many([text] for text in texts)
    reader = fl.open(tmp_path / "x.fld")
    options = {"shuffle": False, "num_workers": 0}
    loader = fl.DataLoader(reader, 12, pipelines={"tokens": [ops.PadOrTrim(frames=20, value=9)]}, **options)
    (batch,) = loader
    assert "(20,)" in loader.explain()
    wanted = np.stack([np.pad(text, (0, 20))[:20] + 9 * (np.arange(20) >= len(text)) for text in texts])
    assert identical(batch["tokens"], wanted.astype(reader.fields["tokens"].dtype))
    cut = [ops.RandomSegment(frames=10, pad=True), part]
    (first,) = fl.DataLoader(reader, 12, pipelines={"tokens": cut}, seed=1, **options)
    (again,) = fl.DataLoader(reader, 12, pipelines={"tokens": cut}, seed=1, shuffle=False, num_workers=2)
    assert identical(first, again)
    assert first["tokens"].shape == (12, 2)
    (windows,) = fl.DataLoader(reader, 12, pipelines={"tokens": cut[:1]}, seed=1, **options)
    for window, text in zip(windows["tokens"], texts, strict=True):
        whole = np.pad(text, (0, max(0, 10 - len(text))))
        assert (np.lib.stride_tricks.sliding_window_view(whole, 10) == window).all(axis=1).any()
    with pytest.raises(fl.ShapeError, match="sample 0, field 'tokens'"):
        list(fl.DataLoader(reader, 12, pipelines={"tokens": [ops.RandomSegment(frames=10)]}, **options))
    with pytest.raises(PipelineError, match="takes a sound, and gets tokens"):
        fl.DataLoader(reader, 12, pipelines={"tokens": [ops.Gain(3)]})
