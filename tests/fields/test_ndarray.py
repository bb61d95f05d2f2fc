from datetime import date, timedelta

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


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
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


@pytest.mark.parametrize(
    ("dtype", "value", "error", "message"),
    [
        ("int32", [1.5, 2.7], TypeError, r"1.5 at \[0\] is no value of int32"),
        ("int32", [1.0], TypeError, "is no value of int32"),
        ("int8", [[1, 2], [3, 200]], ValueError, r"200 at \[1, 1\] does not fit int8"),
        ("uint8", [5, -1], ValueError, r"-1 at \[1\] does not fit uint8"),
        ("uint64", -1, ValueError, "-1 does not fit uint64"),
        ("int64", [2**63], ValueError, "9223372036854775808 at .* does not fit int64"),
        ("int64", [2**70], ValueError, "does not fit int64"),
        ("int16", ["1", "2"], TypeError, "'1' at .* is no value of int16"),
        ("float32", [0.5, 1e300], ValueError, r"1e\+300 at \[1\] is too large for float32"),
        ("float16", [70_000], ValueError, r"70000 at \[0\] is too large for float16"),
        ("float32", [1.0, None], TypeError, r"None at \[1\] is no value of float32"),
        ("float32", [1j], TypeError, "1j at .* is no value of float32"),
        ("complex64", [1e300j], ValueError, "is too large for complex64"),
        ("bool", [0, 1], TypeError, "0 at .* is no value of bool"),
        ("U4", ["ok", "abcdefgh"], ValueError, r"'abcdefgh' at \[1\] does not come back from <U4"),
        ("U4", ["a\0"], ValueError, "does not come back"),
        ("U4", ["a", 5], TypeError, r"5 at \[1\] is no value of <U4"),
        ("U4", [b"a"], TypeError, "b'a' at .* is no value of <U4"),
        ("S2", [b"abc"], ValueError, r"b'abc' at \[0\] does not come back"),
        ("S2", ["ab"], TypeError, "is no value of"),
        ("V3", [b"abcd"], ValueError, "does not have the 3 bytes"),
        ("V3", [b"ab"], ValueError, "does not have the 3 bytes"),
        ("float64", [10**400], ValueError, "too large"),
        ("float32", [10**100], ValueError, "is too large for float32"),
        ("M8[D]", ["2020-01-01", "2020-01-01T12"], ValueError, r"at \[1\] is no moment of"),
        ("m8[s]", [timedelta(milliseconds=1500)], ValueError, "is no moment of"),
        (POINT, [((1e300, 2), b"a", (1, 0))], ValueError, "field 'xy' of the dtype: .* is too large for float32"),
        (POINT, [((1, 2), b"abcd", (1, 0))], ValueError, "field 'tag' of the dtype: b'abcd'"),
        (POINT, [((1, 2), b"abc", (1.5, 0))], TypeError, "field 'big' of the dtype: 1.5"),
    ],
)  # fmt: skip
def test_a_value_that_the_dtype_would_change_is_refused(dtype, value, error, message):
    with pytest.raises(error, match=message):
        fl.NDArrayField(dtype).encode(value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", [0.1, 2, True, float("inf"), float("nan")]),
        ("float16", [[0.1], [-65504]]),
        ("float64", [2**60 + 1]),
        ("float32", [2**70, 1]),
        ("int8", [-128, 127, True]),
        ("uint64", [0, 2**64 - 1]),
        ("int64", [-(2**63), 2**63 - 1]),
        ("bool", [[True, False]]),
        ("complex64", [1, 2.5, 3j]),
        ("int32", []),
        ("int32", [[], []]),
        ("U4", ["abcd", "", "ä"]),
        ("S3", [b"abc", b""]),
        ("V2", [b"ab", b"a\0"]),
        ("M8[D]", ["2020-02-29", date(1999, 1, 1), None]),
        ("m8[ms]", [timedelta(milliseconds=3), 7]),
        (">i2", [1, -2]),
        (POINT, [((1, 2.5), b"abc", (7, 5)), ((0, 1), b"", (-1, "2020-01-01"))]),
        (ALIGNED, (1, 2.0)),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_dtype_keeps_is_stored_as_numpy_would(dtype, value, tmp_path):
    field = fl.NDArrayField(dtype)
    got = write(tmp_path / "x.fld", field, [value])[0]["it"]
    wanted = np.asarray(value, field.dtype)
    if wanted.dtype.names is None:
        assert identical(got, wanted)
    else:
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert (got == wanted).all()


@settings(max_examples=200, deadline=None)
@given(
    dtype=st.sampled_from(["int8", "uint16", "int64", "uint64", "float16", "float32", "float64"]),
    values=st.lists(st.one_of(st.integers(-(2**65), 2**65), st.floats(), st.booleans()), max_size=4),
)
def test_lists_of_numbers_keep_their_values_or_are_refused(dtype, values):
    field = fl.NDArrayField(dtype, (None,))
    try:
        data = field.encode(values).payload
    except (TypeError, ValueError):
        return
    with np.errstate(over="ignore"):
        for value, got in zip(values, np.frombuffer(data, dtype).tolist(), strict=True):
            if np.dtype(dtype).kind in "iu":
                assert got == value
                assert not isinstance(value, float)
            else:
                assert identical(got, float(np.dtype(dtype).type(float(value))))
                assert np.isinf(got) == np.isinf(float(value))


@pytest.mark.parametrize("shape", [(np.int64(2), None), np.int32(3), [np.uint8(4)], np.array([2, 3])], ids=repr)
def test_shapes_of_numpy_integers_come_back(shape):
    field = fl.NDArrayField("f4", shape)
    assert fl.NDArrayField.from_binary(field.to_binary()) == field
    assert all(size is None or type(size) is int for size in field.shape)


@pytest.mark.parametrize("shape", [2.0, (2.0,), (None, 2.5), ("3",)])
def test_shapes_are_whole_numbers(shape):
    with pytest.raises(TypeError, match="expected a whole number, got"):
        fl.NDArrayField("f4", shape)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_batches_of_any_shapes_are_what_one_by_one_gives(data, tmp_path_factory):
    pattern = data.draw(st.sampled_from([None, (None,), (2, None), (None, 3, None)]))
    shapes = [
        tuple(data.draw(st.integers(0, 2)) if d is None else d for d in pattern)
        if pattern is not None
        else data.draw(st.lists(st.integers(0, 2), max_size=3).map(tuple))
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    given_ = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(shapes)), min_size=1, max_size=6))
    values = [None if s is None else filled("int16", s, i).copy() for i, s in enumerate(given_)]
    reader = write(tmp_path_factory.mktemp("batch") / "x.fld", fl.NDArrayField("int16", pattern), values)
    batch = reader.read_batch(range(len(values)))["it"]
    assert isinstance(batch, np.ndarray) == (None not in given_ and len(set(given_)) == 1)
    for i, value in enumerate(values):
        assert batch[i] is None if value is None else identical(value, row(batch, i))


class Told:
    """Payloads of a hostile file: sizes and shapes that need not agree."""

    def __init__(self, sizes, rows=None):
        self.rows = np.zeros(len(sizes), np.int64) if rows is None else np.array(rows)
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def ragged(self):
        return np.zeros(self.offsets[-1], np.uint8), self.offsets


@pytest.mark.parametrize(
    ("pattern", "rows", "sizes"),
    [
        ((None,), [2, 2], [4, 2]),
        ((None,), [2, 3], [4, 4]),
        ((None,), [2, 2**63], [4, 0]),
        ((None, None), [(2**32, 2**32), (1, 1)], [0, 2]),
        ((None, None), [(2**32, 2**32), (2**32, 2**32)], [0, 0]),
        (None, [(9, (1,) * 8), (1, (1,) * 8)], [2, 2]),
        (None, [(8, (2**62,) * 8), (1, (1,) * 8)], [0, 2]),
    ],
)
def test_shapes_that_do_not_fit_their_payloads_are_told(pattern, rows, sizes):
    field = fl.NDArrayField("int16", pattern)
    metadata = np.zeros(len(rows), field.metadata_type)
    for i, dims in enumerate(rows):
        metadata[i] = dims if pattern is None else (dims,)
    decoder = field.get_decoder_class()(field)
    with pytest.raises(fl.FormatError, match=r"does not fit a payload|dimensions; at most 8"):
        decoder.batch(metadata, Told(sizes))


def test_equal_shapes_make_one_array_whatever_lies_behind_their_sizes():
    field = fl.NDArrayField("int16")
    metadata = np.zeros(2, field.metadata_type)
    metadata[0], metadata[1] = (1, (3, 0, 0, 0, 0, 0, 0, 0)), (1, (3, 9, 9, 9, 9, 9, 9, 9))
    decoder = field.get_decoder_class()(field)
    assert decoder.batch(metadata, Told([6, 6])).shape == (2, 3)
    gone = decoder.batch(metadata, Told([0, 6], rows=[-1, 0]))
    assert (gone[0], gone[1].shape) == (None, (3,))


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
