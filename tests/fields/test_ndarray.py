import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import fastloader as fl
from fastloader.testing import FieldContract, identical
from fastloader.testing.compare import row
from fastloader.testing.fields import write

POINT = np.dtype([("xy", "<f4", (2,)), ("tag", "S3"), ("inner", [("big", ">i2"), ("when", "<M8[ms]")])])
ALIGNED = np.dtype([("a", "u1"), ("b", "<f8")], align=True)
DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128", ">i4", ">f8", ">c8", "S5", "U8", ">U2", "V7", "M8[ns]", "M8[D]", "m8[us]",
    POINT, ALIGNED,
]  # fmt: skip


def filled(dtype, shape, seed=0):
    """An array with bits of all kinds in it that its dtype can hold."""
    dtype = np.dtype(dtype)
    generator = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.kind == "U":
        texts = ["".join(map(chr, generator.integers(32, 0xD7FF, dtype.itemsize // 4))) for _ in range(count)]
        return np.array(texts, dtype).reshape(shape)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.names is not None:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            inner = dtype[name]
            base, extra = inner.subdtype if inner.subdtype else (inner, ())
            out[name] = filled(base, (*shape, *extra), seed + 1)
        return out
    if dtype.char in "gG":
        return generator.standard_normal(shape).astype(dtype)
    return np.frombuffer(generator.bytes(count * dtype.itemsize), dtype).reshape(shape)


class TestFixedShape(FieldContract):
    def fields(self):
        return [
            fl.NDArrayField("float32", (4, 3)),
            fl.NDArrayField(">i2", 5),
            fl.NDArrayField("complex128", ()),
            fl.NDArrayField("uint8", (2, 0, 3)),
            fl.NDArrayField(POINT, (2, 2)),
        ]

    def values(self, field):
        return [filled(field.dtype, field.fixed_shape, seed).copy() for seed in range(4)]

    def bad_values(self, field):
        other = "float64" if field.dtype != np.float64 else "float32"
        shape = field.fixed_shape
        return [
            np.zeros(shape, other), np.zeros((*shape, 1), field.dtype), np.zeros((1, 7), field.dtype), {"a": 1}, "text",
        ]  # fmt: skip


class TestVaryingShape(FieldContract):
    def fields(self):
        return [
            fl.NDArrayField("float64"),
            fl.NDArrayField("U8", (None,)),
            fl.NDArrayField(">u4", (None, 3, None)),
            fl.NDArrayField(POINT),
        ]

    def shapes(self, field):
        if field.shape is None:
            return [(), (0,), (3,), (3,), (2, 0, 4), (1,) * 8, (64, 17)]
        return [tuple(n if d is None else d for d in field.shape) for n in (0, 1, 5, 5, 33)]

    def values(self, field):
        return [filled(field.dtype, shape, seed).copy() for seed, shape in enumerate(self.shapes(field))]

    def bad_values(self, field):
        other = np.zeros((1, 3, 1), "float32")
        if field.shape is None:
            return [other, np.zeros((1,) * 9, field.dtype), "text", {"a": 1}]
        return [other, np.zeros((2, 2), field.dtype), np.zeros((), field.dtype), np.zeros((1, 4, 1), field.dtype)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_bit_for_bit(dtype, tmp_path):
    dtype = np.dtype(dtype)
    fields = {
        "fixed": fl.NDArrayField(dtype, (3, 2)),
        "any": fl.NDArrayField(dtype),
        "rows": fl.NDArrayField(dtype, (None, 2)),
    }
    given_ = [filled(dtype, (3, 2), seed) for seed in range(5)]
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_many((value, value, value) for value in given_)
    reader = fl.open(tmp_path / "x.fld")
    batch = reader.read_batch(range(5))
    for name, field in fields.items():
        assert reader.fields[name] == field
        assert reader.fields[name].dtype == dtype
        assert isinstance(batch[name], np.ndarray)
        assert all(identical(value, batch[name][i]) for i, value in enumerate(given_))
        for value, sample in zip(given_, reader, strict=True):
            assert identical(value, sample[name])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_array_comes_back(data, tmp_path_factory):
    scalars = st.one_of(
        nps.scalar_dtypes(), nps.byte_string_dtypes(min_len=1), nps.unicode_string_dtypes(min_len=1),
        nps.array_dtypes(nps.scalar_dtypes(), max_size=3),
    )  # fmt: skip
    dtype = data.draw(scalars)
    arrays = data.draw(
        st.lists(nps.arrays(dtype, nps.array_shapes(min_dims=0, min_side=0, max_side=4)), min_size=1, max_size=4)
    )
    reader = write(tmp_path_factory.mktemp("any") / "x.fld", fl.NDArrayField(dtype), arrays)
    assert all(identical(value, sample["it"]) for value, sample in zip(arrays, reader, strict=True))
    batch = reader.read_batch(range(len(arrays)))["it"]
    assert all(identical(value, row(batch, i)) for i, value in enumerate(arrays))


def test_memory_order_does_not_matter(tmp_path):
    base = np.arange(120, dtype=np.int32).reshape(4, 5, 6)
    views = [
        np.asfortranarray(base), base.transpose(2, 0, 1), base[::-1], base[:, ::-2], base[..., 1:4], base[1:1],
        np.broadcast_to(base[0, 0], (3, 6)), base.swapaxes(0, 2)[::2, ::-1],
    ]  # fmt: skip
    reader = write(tmp_path / "x.fld", fl.NDArrayField("int32"), views)
    for view, sample in zip(views, reader, strict=True):
        assert identical(np.ascontiguousarray(view), sample["it"])


def test_lists_and_numbers_are_taken_as_arrays_of_the_dtype(tmp_path):
    reader = write(tmp_path / "x.fld", fl.NDArrayField("float32"), [[1, 2.5], 3, [[True]], []])
    assert [s["it"].tolist() for s in reader] == [[1.0, 2.5], 3.0, [[1.0]], []]
    assert {s["it"].dtype for s in reader} == {np.dtype("float32")}


def test_an_array_of_another_dtype_is_not_cast_silently(tmp_path):
    with pytest.raises(fl.SampleError, match=r"expected float32, got an array of float64; convert it with \.astype"):
        write(tmp_path / "x.fld", fl.NDArrayField("float32"), [np.zeros(3)])
    with pytest.raises(fl.SampleError, match="expected >i4, got an array of int32"):
        write(tmp_path / "x.fld", fl.NDArrayField(">i4"), [np.zeros(3, "<i4")])


def test_batches_of_varying_shapes_are_lists_and_of_equal_ones_arrays(tmp_path):
    shapes = [(2,), (3,), (2,)]
    reader = write(tmp_path / "x.fld", fl.NDArrayField("int8", (None,)), [np.ones(s, np.int8) for s in shapes])
    assert [a.shape for a in reader.read_batch([0, 1, 2])["it"]] == shapes
    assert reader.read_batch([0, 2])["it"].shape == (2, 2)


def test_missing_arrays_of_a_fixed_shape_are_masked(tmp_path):
    reader = write(tmp_path / "x.fld", fl.NDArrayField("int8", (2,)), [np.ones(2, np.int8), None])
    batch = reader.read_batch([0, 1])["it"]
    assert isinstance(batch, np.ma.MaskedArray)
    assert batch.mask.tolist() == [[False, False], [True, True]]
    assert batch.sum() == 2


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        ("O", "object arrays"),
        ([("a", "O")], "object arrays"),
        ("S", "has no size"),
        ("U0", "has no size"),
        (("f4", (3,)), "has a shape of its own"),
        ({"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}, "can't be described"),
    ],
)
def test_dtypes_that_could_not_come_back_are_refused(dtype, reason):
    with pytest.raises(TypeError, match=reason):
        fl.NDArrayField(dtype)


@pytest.mark.parametrize("shape", [(-1,), (1,) * 9, -3])
def test_impossible_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="at most 8 dimensions, none negative"):
        fl.NDArrayField("f4", shape)


@pytest.mark.parametrize("dtype", [ALIGNED, "longdouble", "clongdouble", [("x", [("y", ALIGNED, (2,))])]], ids=str)
def test_padding_inside_elements_is_stored_as_zeros(dtype, tmp_path):
    values = filled(dtype, (5,))
    field = fl.NDArrayField(dtype)
    stored = set()
    for garbage in (b"\0", b"\xaa"):
        array = np.frombuffer(bytearray(garbage * values.nbytes), values.dtype)
        for name in values.dtype.names or [...]:
            array[name] = values[name]
        stored.add(bytes(memoryview(field.encode(array).payload)))
        reader = write(tmp_path / "x.fld", field, [array])
        stored.add(bytes(reader.read_payload(0, "it")))
        for got in (reader[0]["it"], reader.read_batch([0])["it"][0]):
            assert values.dtype.names or (got == values).all()
    assert len(stored) == 1
