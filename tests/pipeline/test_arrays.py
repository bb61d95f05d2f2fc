"""Pipelines of arrays: compiled or not, the same rows; Cast and Normalize as numpy has them, also behind custom ops."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels, ops
from fastloader.pipeline import PipelineError
from fastloader.testing import identical

COUNT = 12
FIELDS = {
    "vector": fl.NDArrayField("float32", (6,)),
    "spectrum": fl.NDArrayField("float64", (5, 4)),
    "sound": fl.NDArrayField("int16", (32, 2)),
    "flags": fl.NDArrayField("bool", (7,)),
    "waves": fl.NDArrayField("complex64", (3,)),
    "number": fl.NDArrayField("float32", ()),
    "deep": fl.RawImageField(4, 3, 2, "uint16"),
}


@ops.custom
def noise(row, random):
    for i in range(row.shape[0]):
        row[i] += random.normal()


@ops.custom(output=lambda length, channels: (length // 4,), dtype="float32")
def loudness(sound, out, random):
    for i in range(out.shape[0]):
        for j in range(4):
            out[i] += abs(float(sound[4 * i + j, 0]))


@ops.custom(output=lambda: (2, 2), dtype="int32")
def spread(number, out, random):
    out[0, 1] = int(number[()]) + random.below(5)


@ops.custom(output=(3,), dtype="bool")
def some(flags, out, random):
    for i in range(3):
        out[i] = flags[i] and not flags[i + 1]


@ops.custom
def turned(waves, random):
    for i in range(len(waves)):
        waves[i] = waves[i] * 1j


@ops.custom
def stumbles(row, random):
    if row[0] > 0:
        raise ValueError("above nothing")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "x.fld"
    rng = np.random.default_rng(3)
    with fl.DatasetWriter(path, FIELDS) as writer:
        for i in range(COUNT):
            sample = {}
            for name, field in FIELDS.items():
                shape = field.shape
                values = rng.normal(0, 50, shape)
                sample[name] = (values > 0 if name == "flags" else np.abs(values)).astype(field.dtype)
            sample["vector"] = -sample["vector"] if i != 5 else sample["vector"]
            writer.write_sample(sample | ({"vector": None} if i == 9 else {}))
    return path


def load(path, name, pipeline, **options):
    options = {"shuffle": False, "seed": 4, "fields": [name], **options}
    (batch,) = fl.DataLoader(fl.DatasetReader(path), COUNT, **options, pipelines={name: pipeline})
    return batch[name]


def plain(pipeline):
    return [replace(op, jit=False) if isinstance(op, ops.CustomOp) else op for op in pipeline]


PIPELINES = {
    "nothing": ("spectrum", []),
    "in place": ("spectrum", [noise]),
    "then halves": ("vector", [noise, ops.Cast("float16")]),
    "normalised": ("spectrum", [ops.Normalize((1, 2, 3, 4), 5), noise, ops.Normalize(1, 3), ops.Cast("float16")]),
    "another shape": ("sound", [loudness, ops.Normalize(100, 50)]),
    "no dimensions": ("number", [spread]),
    "flags": ("flags", [some]),
    "complex": ("waves", [turned]),
    "pixels of 16 bits": ("deep", [ops.Normalize((3, 4), (5, 6)), noise]),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_compiled_and_plain_give_the_same(name, dataset):
    field, pipeline = PIPELINES[name]
    found, wanted = load(dataset, field, pipeline), load(dataset, field, plain(pipeline))
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert np.ma.getdata(found).tobytes() == np.ma.getdata(wanted).tobytes()
    assert (np.ma.getmaskarray(found) == np.ma.getmaskarray(wanted)).all()


@pytest.mark.parametrize("field", FIELDS)
def test_an_empty_pipeline_gives_what_is_stored(field, dataset):
    found, wanted = load(dataset, field, []), fl.DatasetReader(dataset).read_batch(range(COUNT), [field])[field]
    assert found.dtype == wanted.dtype
    assert (found == wanted).all()
    assert isinstance(found, np.ma.MaskedArray) == (field == "vector")


def test_arrays_have_views_too_and_draws_can_be_shared(dataset):
    alike = load(dataset, "spectrum", ops.Views(2, [noise.shared("noise")]))
    assert alike.shape == (COUNT, 2, 5, 4)
    assert (alike[:, 0] == alike[:, 1]).all()
    apart = load(dataset, "spectrum", ops.Views(2, [noise]))
    assert (apart[:, 0] == load(dataset, "spectrum", [noise])).all()
    assert (apart[:, 0] != apart[:, 1]).any()


def test_an_operation_does_what_its_function_does(dataset):
    found = load(dataset, "spectrum", [noise])
    for i, sample in enumerate(fl.DatasetReader(dataset)):
        row = sample["spectrum"].copy()
        noise.function(row, ops.Random(4, 0, i, 0))
        assert (found[i] == row).all()


def test_what_an_operation_leaves_out_is_zero(dataset):
    found = load(dataset, "number", [spread], num_workers=3)
    assert found.any()
    assert not found[:, [0, 1, 1], [0, 0, 1]].any()


def test_without_numba_the_same_comes_from_python(dataset, monkeypatch):
    wanted = load(dataset, "sound", [loudness])
    monkeypatch.delitem(sys.modules, "fastloader.pipeline.jit", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    loader = fl.DataLoader(fl.DatasetReader(dataset), COUNT, fields=["sound"], pipelines={"sound": [loudness]})
    assert "loudness (numba is not installed" in loader.explain()
    assert (load(dataset, "sound", [loudness]) == wanted).all()


@pytest.mark.parametrize("way", [list, plain])
def test_a_failure_names_operation_and_sample(way, dataset):
    with pytest.raises(fl.OperationError, match="the operation stumbles failed") as caught:
        load(dataset, "vector", way([stumbles]))
    assert (caught.value.sample, caught.value.field) == (5, "vector")


def test_explain_says_what_runs_where(dataset):
    pipelines = {"vector": [noise, ops.Normalize(1, 2), ops.Cast("float16")]}
    told = fl.DataLoader(fl.DatasetReader(dataset), fields=["vector"], pipelines=pipelines).explain()
    assert told.splitlines()[:7] == [
        "NDArrayField 'vector': (6,) float32",
        "    noise: (6,) float32",
        "    Normalize(mean=(1.0,), std=(2.0,)): (6,) float32",
        "    Cast(dtype='float16'): (6,) float16",
        "    native, copied from stored bytes to memory; 24 bytes a sample",
        "    compiled by numba, in the engine's threads without the GIL: noise",
        "    native, from memory to memory: Normalize(mean=(1.0,), std=(2.0,)), Cast(dtype='float16')",
    ]


@pytest.mark.parametrize(
    ("field", "pipeline", "why"),
    [
        (
            "vector",
            [ops.HorizontalFlip()],
            "is no operation on arrays: those are custom operations, Cast and Normalize",
        ),
        ("vector", [ops.Layout("CHW")], "is no operation on arrays"),
        ("vector", [ops.Normalize((1, 2), 3)], "has 2 numbers for 6 channels"),
        ("waves", [ops.Cast("float32")], "takes whole numbers and floats of up to 64 bits, and gets complex64"),
        ("vector", [loudness], "has an output that can't be had for \\(6\\): line .*TypeError: .*channels"),
        ("vector", [ops.custom(output=(1.5,))(loudness.function)], "output=1.5: a whole number"),
        ("vector", [ops.custom(output=4)(loudness.function)], "an output of sides in a tuple, not 4"),
        ("vector", [noise.function], "is no operation but a function; @fastloader.ops.custom makes it one"),
        ("vector", [loudness], "has an output that can't be had for"),
        ("vector", [ops.custom(output=(6,))(loudness.function)], "2 indices for an array of 1 dimensions"),
    ],
)
def test_a_mistake_is_shown_in_its_place(field, pipeline, why, dataset):
    with pytest.raises(PipelineError, match=why) as caught:
        fl.DataLoader(fl.DatasetReader(dataset), pipelines={field: pipeline})
    assert "\n--> " in str(caught.value)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (fl.NDArrayField("float32", (2**40, 4)), "17,592,186,044,416 bytes a sample; at most"),
    ],
)
def test_arrays_that_no_pipeline_takes(field, why, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": field}) as writer:
        writer.write_sample({"x": None})
    with pytest.raises(PipelineError, match=why):
        fl.DataLoader(fl.DatasetReader(tmp_path / "x.fld"), pipelines={"x": [noise]})


def test_a_shape_that_no_payload_has_gets_no_memory(tmp_path, monkeypatch):
    small, claimed = fl.NDArrayField("float32", (3,)), fl.NDArrayField("float32", (2**32,)).to_binary()
    with monkeypatch.context() as patch:
        patch.setattr(fl.NDArrayField, "to_binary", lambda self: claimed)
        with fl.DatasetWriter(tmp_path / "x.fld", {"x": small}) as writer:
            for _ in range(8):
                writer.write_sample({"x": [1, 2, 3]})
    pipelines = {"x": [noise]}
    with pytest.raises(fl.FormatError, match="sample 0, field 'x': the payload has 12 bytes, not 17179869184"):
        list(fl.DataLoader(fl.DatasetReader(tmp_path / "x.fld"), 8, shuffle=False, pipelines=pipelines))
    loader = fl.DataLoader(fl.DatasetReader(tmp_path / "x.fld"), 8, pipelines=pipelines, on_error="replace")
    (batch,) = loader
    assert len(batch["x"]) == 8
    assert loader.stats()["bad_values"] == 8
    assert loader.stats()["memory"]["largest_batch"] < 1 << 20


# Conversions


def lay(images, given, made):
    axes = {("HWC", "CHW"): (2, 0, 1), ("CHW", "HWC"): (1, 2, 0)}.get((given, made))
    return images if axes is None else np.ascontiguousarray(images.transpose(axes))


def as_bytes(values, element):
    """Numpy's bits of float32 values as that element; bfloat16 by hand, to the nearest and to even."""
    if element != "bfloat16":
        return values.astype(element).tobytes()
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).tobytes()


@settings(max_examples=150, deadline=None)
@given(
    number=st.sampled_from(kernels.NUMBERS),
    element=st.sampled_from(kernels.ELEMENTS[1:]),
    layouts=st.tuples(*[st.sampled_from(["HWC", "CHW"])] * 2),
    sides=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5)),
    scaled=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_conversion_is_numpys(number, element, layouts, sides, scaled, seed):
    rng = np.random.default_rng(seed)
    height, width, channels = sides
    shape = sides if layouts[0] == "HWC" else (channels, height, width)
    if "float" in number:
        images = rng.normal(0, 300, shape).astype(ops.values.element_type(number))
    else:
        bounds = np.iinfo(number)
        images = rng.integers(bounds.min, bounds.max, shape, number, endpoint=True)
    scale, bias = (rng.normal(0, 1e-3, channels).astype(np.float32) for _ in range(2))
    made = images.astype(np.float32)
    if scaled:
        axis = (1, 1, -1) if layouts[0] == "HWC" else (-1, 1, 1)
        made = made * scale.reshape(axis) + bias.reshape(axis)
    with np.errstate(over="ignore"):
        wanted = as_bytes(lay(made, *layouts), element)
    program = kernels.Program.rows(images.nbytes, 0).then_conversion(
        kernels.NUMBERS.index(number), kernels.ELEMENTS.index(element), (height * width, channels),
        kernels.LAYOUTS.index(layouts[0].lower()), kernels.LAYOUTS.index(layouts[1].lower()),
        scale.tolist() if scaled else [], bias.tolist() if scaled else [],
    )  # fmt: skip
    out = np.empty(program.row_bytes, np.uint8)
    program.run(images.view(np.uint8), b"", 0, 0, out)
    assert out.tobytes() == wanted


def test_zero_stays_below_zero_and_nothing_becomes_a_number():
    odd = np.array([-0.0, np.nan, np.inf, -np.inf], np.float32)
    program = kernels.Program.rows(16, 0).then_conversion(8, 3, (4, 1), 0, 0, [], [])
    out = np.empty(4, np.float32)
    program.run(odd, b"", 0, 0, out.view(np.uint8))
    assert out.tobytes() == odd.tobytes()


@pytest.mark.parametrize(
    "arguments",
    [
        (8, 0, (4, 1), 0, 0, [], []),
        (0, 0, (16, 1), 0, 0, [2.0], [0.0]),
        (8, 3, (4, 2), 0, 0, [], []),
        (8, 3, (2, 2), 0, 0, [1.0], [0.0]),
        (8, 3, (2, 2), 0, 0, [1.0, 2.0], [0.0]),
        (8, 3, (4, 1), 0, 0, [float("inf")], [0.0]),
        (8, 3, (0, 1), 0, 0, [], []),
        (8, 3, (2**63, 2), 0, 0, [], []),
    ],
)
def test_a_conversion_that_cant_be_is_refused(arguments):
    with pytest.raises(kernels.Failure):
        kernels.Program.rows(16, 0).then_conversion(*arguments)


# Behind custom operations on images


@ops.custom(dtype="float32")
def floats(image, out, random):
    share = random.uniform()
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            for c in range(out.shape[2]):
                out[y, x, c] = float(image[y, x, c]) * share


@ops.custom(output=lambda height, width, channels: (height, width, 5), dtype="uint8")
def five(image, out, random):
    for c in range(5):
        out[0, 0, c] = c + random.below(200)


@ops.custom(dtype="int32")
def sums(image, out, random):
    out[0, 0, 0] = 70000


IMAGES = {
    "cast": [floats, ops.Cast("float16")],
    "all": [ops.RandomCrop(8), floats, ops.Normalize((1, 2, 3), 4), ops.Cast("float16"), ops.Layout("CHW")],
    "planes first": [ops.Layout("CHW"), floats, ops.Normalize((1, 2, 3), 4), ops.Layout("HWC")],
    "twice": [ops.Normalize(1, 2), ops.Normalize(3, 4)],
    "planes and back": [ops.Layout("CHW"), floats, ops.Layout("HWC"), floats],
    "five channels": [five, ops.Layout("CHW"), ops.Normalize((1, 2, 3, 4, 5), 6)],
    "whole numbers": [sums, ops.Cast("float32"), floats],
}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path = tmp_path_factory.mktemp("images") / "x.fld"
    rng = np.random.default_rng(1)
    with fl.DatasetWriter(path, {"image": fl.RawImageField(12, 10)}) as writer:
        for _ in range(COUNT):
            writer.write_sample({"image": rng.integers(0, 256, (12, 10, 3)).astype(np.uint8)})
    return path


@pytest.mark.parametrize("name", IMAGES)
def test_casts_behind_custom_operations_are_the_same_compiled_and_plain(name, images):
    found, wanted = load(images, "image", IMAGES[name]), load(images, "image", plain(IMAGES[name]))
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()
    loader = fl.DataLoader(fl.DatasetReader(images), pipelines={"image": IMAGES[name]})
    assert "Python" not in loader.explain()


def test_what_tells_of_an_image_stands_where_a_program_can_look_at_it(images):
    reader = fl.DatasetReader(images)
    with pytest.raises(PipelineError, match=r"--> Geometry.*behind a custom operation takes uint8 pixels"):
        fl.DataLoader(reader, pipelines={"image": [ops.Normalize(1, 2), ops.Normalize(1, 2), ops.Geometry("map")]})
    told = fl.DataLoader(reader, pipelines={"image": [ops.Geometry("map"), ops.Normalize(1, 2), ops.Normalize(1, 2)]})
    assert next(iter(told))["map"].shape == (COUNT, 2, 3)


def test_values_behind_a_custom_operation_are_numpys(images):
    pipeline = [floats, ops.Normalize((1, 2, 3), 4), ops.Cast("float16"), ops.Layout("CHW")]
    found, before = load(images, "image", pipeline), load(images, "image", [floats])
    scale = np.float32(1 / 4)
    bias = np.array([-1 / 4, -2 / 4, -3 / 4], np.float32)
    assert (found == (before * scale + bias).astype(np.float16).transpose(0, 3, 1, 2)).all()


def test_a_cast_before_normalize_changes_nothing(images):
    one = load(images, "image", [ops.Cast("float32"), ops.Normalize((1, 2, 3), 4)])
    assert (one == load(images, "image", [ops.Normalize((1, 2, 3), 4)])).all()


def test_mixing_needs_numbers_that_can_be_mixed(tmp_path):
    fields = {"image": fl.RawImageField(4, 4), "label": fl.IntField(), "x": fl.NDArrayField("float32", (3,))}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_sample({"image": np.zeros((4, 4, 3), np.uint8), "label": 0, "x": [1, 2, 3]})
    reader = fl.DatasetReader(tmp_path / "x.fld")
    labels = {"label": [ops.OneHot(2)]}
    with pytest.raises(PipelineError, match=r"and 'image' has int32.*Cast"):
        fl.DataLoader(reader, pipelines={"image": [sums], **labels}, batch_ops=[ops.Mixup()])
    with pytest.raises(PipelineError, match="mixes images, and 'x' has no pipeline"):
        fl.DataLoader(reader, pipelines={"x": [noise], **labels}, batch_ops=[ops.Mixup(image="x")])


@ops.custom
def shifted(vector, random):
    for i in range(len(vector)):
        vector[i] += random.below(3)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "pipeline",
    [
        [],
        [ops.Cast("float32")],
        [ops.Cast("float16"), ops.Cast("float32")],
        [ops.Normalize((1, 2, 3), 0.7)],
        [ops.Normalize(0.1, 3), ops.Cast("bfloat16"), ops.Normalize(1, 2), ops.Cast("float16")],
        [shifted],
        [shifted, ops.Normalize(1, 3)],
        [ops.Cast("float16"), shifted, ops.Cast("bfloat16")],
        [ops.Cast("float32"), shifted],
    ],
    ids=lambda ops: ", ".join(map(str, ops)) or "nothing",
)
def test_embeddings_of_every_type_go_through_as_numpy_would_do_it(dtype, pipeline, tmp_path):
    """The operations begin with the vectors that a batch has without a pipeline; a compiled function is no other."""
    rng = np.random.default_rng(3)
    with fl.DatasetWriter(tmp_path / "x.fld", {"x": fl.EmbeddingField(3, dtype)}, shard_size=7) as writer:
        writer.write_many([None if i == 4 else rng.normal(0, 50, 3).astype(np.float32)] for i in range(20))
    reader = fl.open(tmp_path / "x.fld")
    options = {"shuffle": False, "seed": 6}
    (plain,) = fl.DataLoader(reader, 20, **options)
    loader = fl.DataLoader(reader, 20, pipelines={"x": pipeline}, **options)
    (found,) = loader
    wanted = plain["x"].data.copy()
    for place, op in enumerate(pipeline):
        if op is shifted:
            for i, row in enumerate(wanted):
                shifted.function(row, ops.Random(6, 0, i, place))
        elif isinstance(op, ops.Cast):
            wanted = wanted.astype(np.float32).astype(ops.values.element_type(op.dtype))
        else:
            mean, std = (np.array(one, np.float64) for one in (op.mean, op.std))
            wanted = wanted.astype(np.float32) * (1 / std).astype(np.float32) + (-mean / std).astype(np.float32)
    assert found["x"].mask.any(axis=1).tolist() == [i == 4 for i in range(20)]
    there = [i for i in range(20) if i != 4]
    assert identical(found["x"].data[there], wanted[there])
    if not any(op is shifted for op in pipeline):
        assert "in Python" not in loader.explain()  # numbers alone are the engine's


@settings(max_examples=50, deadline=None)
@given(bits=st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=40), wide=st.sampled_from(["float16", "bfloat16"]))
def test_every_half_becomes_the_float_that_numpy_makes_of_it(bits, wide):
    given_ = np.array(bits, np.uint16).view(ops.values.element_type(wide))
    program = kernels.Program.rows(2 * len(bits), 0).then_conversion(
        kernels.NUMBERS.index(wide), kernels.ELEMENTS.index("float32"), (len(bits), 1), 0, 0, [], []
    )
    out = np.empty(len(bits), np.float32)
    program.run(given_.view(np.uint8), b"", 0, 0, out.view(np.uint8))
    wanted = given_.astype(np.float32)
    assert np.array_equal(out, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(out), np.signbit(wanted))


def test_a_damaged_vector_of_scaled_bytes_is_an_error_of_its_sample(tmp_path, monkeypatch):
    field = fl.EmbeddingField(4, "int8")
    short = fl.Encoded((1.0,), b"\1\2\3")
    with monkeypatch.context() as patch:
        patch.setattr(fl.EmbeddingField, "encode", lambda self, value: short)
        patch.setattr(fl.EmbeddingField, "encode_many", lambda self, values: None)
        with fl.DatasetWriter(tmp_path / "x.fld", {"x": field}) as writer:
            writer.write_sample({"x": [1, 2, 3, 4]})
    with pytest.raises(fl.FormatError, match="sample 0, field 'x': the payload has 3 bytes, not 4"):
        list(fl.DataLoader(fl.open(tmp_path / "x.fld"), 1, pipelines={"x": [ops.Cast("float16")]}))
