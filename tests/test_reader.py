import gc
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from left_behind import files

import fastloader as fl
from fastloader.fields import BY_TYPE_ID
from fastloader.testing import identical
from fastloader.testing.compare import agree, row

COUNT = 60
FIELDS = {
    "n": fl.IntField(),
    "x": fl.FloatField(),
    "b": fl.BytesField(),
    "fixed": fl.NDArrayField("float32", (3, 4)),
    "any": fl.NDArrayField("int16"),
    "j": fl.JSONField(),
    "png": fl.PNGImageField(),
    "raw": fl.RawImageField(4, 5),
}


def sample(i):
    """Deterministic, with missing values of every field and shapes that vary."""
    generator = np.random.default_rng(i)
    values = {
        "n": i,
        "x": i / 7,
        "b": generator.bytes(i * 31 % 200),
        "fixed": generator.random((3, 4), np.float32),
        "any": generator.integers(0, 99, (i % 3, i % 5), np.int16),
        "j": {"i": i, "text": "ü" * (i % 4)},
        "png": generator.integers(0, 255, (3 + i % 2, 4, 3), np.uint8),
        "raw": generator.integers(0, 255, (4, 5, 3), np.uint8),
    }
    for position, name in enumerate(values):
        if name != "n" and i % 11 == position:
            values[name] = None
    return values


def key(i):
    return f"train/{i:04d}.jpg"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("reader")
    for name, options in (("file", {}), ("shards", {"shard_size": 2000}), ("packed", {"compression": "lz4"})):
        with fl.DatasetWriter(root / f"{name}.fld", FIELDS, keys=True, **options) as writer:
            writer.write_many(map(sample, range(COUNT)), map(key, range(COUNT)))
    assert len(fl.open(root / "shards.fld").dataset.shards) > 5
    return root


@pytest.fixture(params=["file", "shards", "packed"])
def reader(request, folder):
    with fl.open(folder / f"{request.param}.fld") as opened:
        yield opened


@pytest.fixture
def small(tmp_path):
    def make(values=((1, b"one"), (2, b"two"), (3, b"three")), **options):
        keys = options.pop("sample_keys", None)
        with fl.DatasetWriter(tmp_path / "x.fld", {"n": fl.IntField(), "b": fl.BytesField()}, **options) as writer:
            writer.write_many(values, keys)
        return tmp_path / "x.fld"

    return make


# One at a time


def test_what_it_says_of_itself(reader):
    assert len(reader) == reader.num_samples == COUNT
    assert reader.field_names == list(FIELDS)
    assert reader.fields == FIELDS
    assert reader.has_keys
    assert repr(reader) == f"DatasetReader('{reader.path}', 60 samples of n, x, b, fixed, any, j, png, raw)"


def test_every_sample(reader):
    for i in range(COUNT):
        assert identical(reader[i], sample(i))


def test_iteration(reader):
    assert all(identical(got, sample(i)) for i, got in enumerate(reader))
    assert len(list(reader)) == COUNT


@pytest.mark.parametrize("index", [-1, -COUNT, np.int8(5), np.uint64(7), np.int64(-3), True])
def test_indices_as_lists_take_them(index, reader):
    assert identical(reader[index], sample(range(COUNT)[index]))


@pytest.mark.parametrize("index", [COUNT, -COUNT - 1, 2**63, -(2**70), np.uint64(2**64 - 1)])
def test_indices_out_of_range(index, reader):
    with pytest.raises(IndexError, match=rf"sample {index} of a dataset of 60"):
        reader[index]
    if -(2**63) <= index < 2**64:
        with pytest.raises(IndexError, match=rf"sample {index} of a dataset of 60"):
            reader.read_batch(np.array([index]))


@pytest.mark.parametrize("index", [1.0, None, (1,), [1], np.float32(2), {}])
def test_what_is_no_index(index, reader):
    with pytest.raises(TypeError, match="a sample is named by a number or a key"):
        reader[index]


@pytest.mark.parametrize(
    "cut",
    [slice(None), slice(5, 20), slice(-7, None), slice(None, None, -3), slice(50, 10, -4), slice(9, 9), slice(0, 999)],
)
def test_slices(cut, reader):
    part = reader[cut]
    numbers = range(COUNT)[cut]
    assert len(part) == len(numbers)
    assert [s["n"] for s in part] == list(numbers)


def test_slices_of_slices(reader):
    part = reader[5:50:3][::-2][1:]
    numbers = list(range(COUNT))[5:50:3][::-2][1:]
    assert [s["n"] for s in part] == numbers
    assert identical(part[-1], sample(numbers[-1]))
    with pytest.raises(IndexError):
        part[len(part)]


def test_some_fields_only(reader):
    assert identical(reader.read_sample(3, ["j", "n"]), {"j": sample(3)["j"], "n": 3})
    assert reader.read_sample(3, "n") == {"n": 3}
    assert reader.read_sample(3, []) == {}
    assert list(reader.read_sample(3, ("raw", "n"))) == ["raw", "n"]
    assert reader.read_batch([3, 4], "j") == {"j": [sample(3)["j"], sample(4)["j"]]}


@pytest.mark.parametrize("read", [
    lambda r: r.read_sample(0, ["nope"]), lambda r: r.read_batch([0], ["nope"]), lambda r: r.read_batch([], "nope"),
    lambda r: r.read_payload(0, "nope"),
])  # fmt: skip
def test_unknown_fields(read, reader):
    with pytest.raises(KeyError) as caught:
        read(reader)
    assert "no field 'nope'; there are n, x, b, fixed, any, j, png, raw" in str(caught.value)


def test_payloads_are_the_stored_bytes(reader):
    assert reader.read_payload(5, "b") == sample(5)["b"]
    assert bytes(reader.read_payload(5, "png")).startswith(b"\x89PNG")
    assert reader.read_payload(2, "b") is None, "missing"
    assert reader.read_payload(0, "b") == b"", "empty"
    with pytest.raises(KeyError, match="sample 3, field 'n': the field has no payloads"):
        reader.read_payload(3, "n")
    assert reader.read_payload(key(5), "b") == sample(5)["b"]


# Batches


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(indices=st.lists(st.integers(-COUNT, COUNT - 1), max_size=40))
def test_a_batch_is_its_samples(indices, reader):
    batch = reader.read_batch(indices)
    assert list(batch) == list(FIELDS)
    for name in FIELDS:
        assert len(batch[name]) == len(indices)
        for position, i in enumerate(indices):
            wanted, item = sample(i % COUNT)[name], row(batch[name], position)
            assert (wanted is None and item is None) or agree(wanted, item)


@pytest.mark.parametrize("indices", [
    [3, 3, 1], (3, 3, 1), range(3), np.array([3, 1], np.uint8), np.array([59, -60], np.int64), np.arange(60)[::-7],
    [np.int32(4)], [],
])  # fmt: skip
def test_index_lists_of_every_kind(indices, reader):
    assert reader.read_batch(indices, "n")["n"].tolist() == [i % COUNT for i in indices]


@pytest.mark.parametrize(
    "indices", [[1.0], [True, False], [[1, 2]], 5, "ab", [None], [2**70], np.array([1.5]), np.zeros((2, 2), int), [[]]]
)
def test_what_is_no_index_list(indices, reader):
    with pytest.raises(TypeError, match="one-dimensional sequence of whole numbers"):
        reader.read_batch(indices)


def test_empty_batches_have_the_types_of_full_ones(reader):
    batch = reader.read_batch([])
    assert batch["n"].dtype == np.int64
    assert batch["fixed"].shape == (0, 3, 4)
    assert batch["raw"].shape == (0, 4, 5, 3)
    assert [list(batch[name]) for name in ("b", "any", "j", "png")] == [[], [], [], []]


def test_missing_numbers_are_masked(reader):
    batch = reader.read_batch([0, 1, 2])["x"]
    assert isinstance(batch, np.ma.MaskedArray)
    assert batch.mask.tolist() == [False, True, False]
    assert not isinstance(reader.read_batch([0, 2])["x"], np.ma.MaskedArray)


def test_batches_are_the_callers_to_change(reader):
    for name in ("n", "fixed", "raw"):
        batch = reader.read_batch([12, 13], name)[name]
        assert batch.flags.writeable
        batch[:] = 0
    assert identical(reader[12], sample(12))


# Keys


def test_by_key(reader):
    assert identical(reader[key(17)], sample(17))
    assert identical(reader[key(17).encode()], sample(17))
    assert identical(reader.read_sample(key(17), ["n"]), {"n": 17})
    assert [reader.index_of(key(i)) for i in range(COUNT)] == list(range(COUNT))
    assert [reader.key_of(i) for i in range(COUNT)] == [key(i) for i in range(COUNT)]
    assert reader.key_of(-1) == key(COUNT - 1)


@pytest.mark.parametrize("absent", ["", "train/0060.jpg", "train/0001.jp", b"\xff\xfe", "\ud800", "x" * 10_000])
def test_absent_keys(absent, reader):
    assert absent not in reader
    with pytest.raises(KeyError) as caught:
        reader[absent]
    assert f"no sample has the key {absent!r}" in str(caught.value)


def test_membership(reader):
    assert key(3) in reader
    assert key(3).encode() in reader
    assert 3 not in reader
    assert None not in reader


def test_keys_that_are_no_utf8(small):
    reader = fl.open(small(keys=True, sample_keys=[b"\xff\x00\xfe", "", "ü\n"]))
    assert reader[b"\xff\x00\xfe"]["n"] == 1
    assert reader[reader.key_of(0)]["n"] == 1
    assert os.fsencode(reader.key_of(0)) == b"\xff\x00\xfe"
    assert reader[""]["n"] == 2
    assert reader["ü\n"]["n"] == 3


def test_a_dataset_without_keys(small):
    reader = fl.open(small())
    assert not reader.has_keys
    assert "a" not in reader
    for ask in (lambda: reader["a"], lambda: reader.index_of("a"), lambda: reader.key_of(0)):
        with pytest.raises(fl.KeyNotFoundError, match="the samples have no keys"):
            ask()


# Sizes


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_datasets(count, small):
    reader = fl.open(small([(i, b"x") for i in range(count)]))
    assert len(reader) == count
    assert [s["n"] for s in reader] == list(range(count))
    assert reader.read_batch([])["b"] == []
    assert list(reader[:]) == list(reader)
    with pytest.raises(IndexError):
        reader[count]
    with pytest.raises(IndexError):
        reader.read_batch([count])
    with pytest.raises(IndexError):
        reader[-1 - count]


# Life and memory


def test_closing(small):
    with fl.open(small()) as reader:
        assert len(reader) == 3
    reader.close()
    assert repr(reader) == "DatasetReader(closed)"
    for use in (lambda: reader[0], lambda: len(reader), lambda: reader.read_batch([0]), lambda: reader.field_names):
        with pytest.raises(ValueError, match="this reader is closed"):
            use()


def test_views_share_the_files_memory_and_outlive_everything(tmp_path):
    value = np.arange(5000, dtype=np.float64)
    with fl.DatasetWriter(tmp_path / "x.fld", {"a": fl.NDArrayField("float64")}) as writer:
        writer.write_sample([value])
    reader = fl.open(tmp_path / "x.fld")
    view = reader[0]["a"]
    payload = reader.read_payload(0, "a")
    assert np.shares_memory(view, reader.dataset.file(0).bytes)
    assert not view.flags.writeable
    assert payload.readonly
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    reader.close()
    (tmp_path / "x.fld").unlink()
    del reader
    gc.collect()
    assert (view == value).all()
    assert payload == value.tobytes()


def mappings(path):
    with open("/proc/self/maps") as maps:
        return sum(str(path) in line for line in maps)


def test_no_file_stays_open_and_no_mapping_outlives_its_use(small):
    path = small(shard_size=1)
    before = files()
    reader = fl.open(path)
    view = reader.read_payload(0, "b")
    list(reader)
    assert not files() - before
    assert mappings(path) == 3
    reader.close()
    gc.collect()
    assert mappings(path) == 1
    assert view == b"one"
    del view, reader
    gc.collect()
    assert mappings(path) == 0


def test_views_can_not_be_made_writable(small):
    reader = fl.open(small([(1, bytes(100))]))
    with pytest.raises(ValueError, match="WRITEABLE"):
        np.frombuffer(reader.read_payload(0, "b"), np.uint8).flags.writeable = True


def check_everything(reader, rounds=3):
    for turn in range(rounds):
        order = np.random.default_rng(turn).permutation(COUNT)
        batch = reader.read_batch(order)
        for position, i in enumerate(order.tolist()):
            alone = reader[i]
            for name, wanted in sample(i).items():
                assert identical(alone[name], wanted)
                item = row(batch[name], position)
                assert (wanted is None and item is None) or agree(wanted, item)


def test_many_threads_share_a_reader(reader):
    failures = []
    barrier = threading.Barrier(8)

    def work():
        try:
            barrier.wait()
            check_everything(reader)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_children_read(reader):
    reader[0]
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                check_everything(reader, rounds=1)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    check_everything(reader, rounds=1)


def test_spawned_processes_take_a_pickled_reader(reader):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        got = pool.map(reader.read_sample, [0, 17, -1])
        pool.close()
        pool.join()
    assert all(map(identical, got, [sample(0), sample(17), sample(COUNT - 1)]))


def test_a_pickle_is_small_and_holds_no_data(reader):
    assert len(pickle.dumps(reader)) < 4000
    assert identical(pickle.loads(pickle.dumps(reader))[5], sample(5))


@pytest.mark.parametrize("options", [{}, {"shard_size": 10}], ids=str)
def test_a_pickle_is_the_snapshot_it_was(options, small):
    path = small(**options)
    reader = fl.open(path)
    stored = pickle.dumps(reader)
    with fl.DatasetWriter(path, None, mode="a") as writer:
        writer.write_sample((4, b"four"))
    again = pickle.loads(stored)
    assert len(fl.open(path)) == 4
    assert len(again) == len(reader) == 3
    assert list(again) == list(reader)
    assert again.read_batch([0, 1, 2])["n"].tolist() == [1, 2, 3]


def test_a_file_replaced_before_unpickling_is_told(small):
    path = small()
    stored = pickle.dumps(fl.open(path))
    small([(9, b"other")])
    again = pickle.loads(stored)
    with pytest.raises(fl.FormatError, match="is not the file it was when the dataset was opened") as caught:
        again[0]
    assert str(path) in str(caught.value)


def test_the_same_file_written_again_is_the_same_dataset(small):
    path = small()
    stored = pickle.dumps(fl.open(path))
    small()
    assert pickle.loads(stored)[0] == {"n": 1, "b": b"one"}


# Things that are no dataset


def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.fld").write_bytes(b"")
    (tmp_path / "text.fld").write_text("just text, and long enough to hold a header if it were one" * 3)
    (tmp_path / "zeros.fld").write_bytes(bytes(10_000))
    os.mkfifo(tmp_path / "pipe.fld")
    for name, kind, message in (
        ("typo.fld", FileNotFoundError, "there is no such file or folder; check the path"),
        ("folder/typo/x.fld", fl.NotFoundError, "there is no such file or folder"),
        ("text.fld/x.fld", fl.StoreError, "Not a directory"),
        ("folder", fl.FormatError, "is an empty folder"),
        ("empty.fld", fl.FormatError, "is empty"),
        ("text.fld", fl.FormatError, r"is no \.fld file"),
        ("zeros.fld", fl.FormatError, "was never finished"),
        ("pipe.fld", fl.StoreError, "is no regular file"),
    ):
        with pytest.raises(kind, match=message) as caught:
            fl.open(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
        with pytest.raises(kind):
            fl.DatasetReader(str(tmp_path / name))


def test_every_truncation_is_told(small):
    path = small()
    whole = path.read_bytes()
    for length in [*range(100), *range(100, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(fl.FormatError):
            list(fl.open(path))


# Damage


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("read", [lambda r, i: r[i], lambda r, i: r.read_batch([0, i, 0])], ids=["sample", "batch"])
@pytest.mark.parametrize("options", [{}, {"shard_size": 1}, {"compression": "lz4"}], ids=str)
def test_a_damaged_payload_is_told_with_its_place(read, options, small):
    path = small([(i, bytes([i]) * 500) for i in range(4)], **options)
    dataset = fl.open(path).dataset
    number, position = dataset.where(2)
    file = dataset.file(number)
    flip(file.path, file.payloads(1).extent(position)[0] + 5)
    reader = fl.open(path)
    assert reader[1]["n"] == 1
    with pytest.raises(fl.ChecksumError, match="payload damaged: crc32c stored 0x") as caught:
        read(reader, 2)
    error = caught.value
    assert (error.path, error.sample, error.field) == (str(file.path), 2, "b")
    assert error.stored != error.computed
    assert error.hint == f'run "fastloader verify {file.path}"'
    assert reader.read_sample(2, ["n"]) == {"n": 2}


class Picky(fl.BytesField):
    """Its decoder fails for some values, by an exception that would end a loop quietly."""

    def get_decoder_class(self):
        class PickyDecoder(fl.Decoder):
            def __call__(self, metadata, read):
                if read() == b"bad":
                    raise StopIteration("can't")
                return 1

        return PickyDecoder


def test_a_decoder_that_fails_is_told_with_its_place(tmp_path, monkeypatch):
    monkeypatch.setitem(BY_TYPE_ID, 6_100_000, Picky)
    monkeypatch.setattr(Picky, "type_id", 6_100_000)
    with fl.DatasetWriter(tmp_path / "x.fld", {"b": Picky()}) as writer:
        writer.write_many([[b"fine"], [b"bad"]])
    reader = fl.open(tmp_path / "x.fld")
    assert reader[0] == {"b": 1}
    for read in (lambda: reader[1], lambda: reader.read_batch([0, 1]), lambda: list(reader)):
        with pytest.raises(fl.DecodeError, match="does not decode: StopIteration: can't") as caught:
            read()
        assert (caught.value.sample, caught.value.field) == (1, "b")
