import datetime
import pickle
import zlib
from decimal import Decimal

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.formats.fld import Dataset
from fastloader.formats.fld.layout import Kind
from fastloader.testing import FieldContract
from fastloader.testing.fields import write
from fastloader.writer import training


def captions(count, seed=0):
    """Short sentences as people write them below pictures."""
    rng = np.random.default_rng(seed)
    who = ["a man", "a woman", "two children", "a brown dog", "a group of people", "an old couple", "a black cat"]
    does = [
        "riding a bicycle",
        "standing next to",
        "playing with a ball in",
        "looking at",
        "sitting on",
        "walking along",
    ]
    where = [
        "the park",
        "a busy street",
        "a wooden bench",
        "the beach at sunset",
        "a field of grass",
        "the kitchen table",
    ]
    more = ["", " with a red umbrella", " while it is raining", " in front of a tall building", " on a sunny day"]
    parts = [[choices[i] for i in rng.integers(0, len(choices), count)] for choices in (who, does, where, more)]
    numbers = rng.integers(0, 1000, count)
    return [f"{w} {d} {p}{m}, no. {n}".capitalize() for w, d, p, m, n in zip(*parts, numbers, strict=True)]


DATES = {
    datetime.date(2024, 2, 29): "2024-02-29",
    datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.UTC): "2024-02-29T01:02:03.000004+00:00",
    datetime.time(1, 2): "01:02:00",
    datetime.timedelta(days=-1, seconds=3): "-P0DT86397S",
    Decimal("-1.500"): "-1.500",
}


class TestTextField(FieldContract):
    def fields(self):
        return [fl.TextField(), fl.TextField(dictionary=1024), fl.TextField(dictionary="32KiB")]

    def values(self, field):
        texts = ["", "hello", "Grüße, 世界 \U0001f600", "\0", "line\nline\r\n", "a" * 10_000]
        return [*texts, b"bytes that are text", bytearray("auch das: ß".encode()), *DATES, *captions(200)]

    def bad_values(self, field):
        return ["\ud800", b"\xff", b"abc\xc3", 5, 1.5, ["a"], {"a": 1}, np.array(["a"])]

    def equal(self, given, got):
        wanted = DATES[given] if isinstance(given, tuple(map(type, DATES))) else given
        return type(got) is str and got == (wanted if isinstance(wanted, str) else bytes(wanted).decode())


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text(), min_size=1, max_size=8))
def test_any_text_comes_back(tmp_path_factory, texts):
    reader = write(tmp_path_factory.mktemp("any") / "x.fld", fl.TextField(), texts)
    assert reader.read_batch(range(len(texts)))["it"] == texts
    assert [sample["it"] for sample in reader] == texts


def stored(path):
    total = 0
    for number in range(len(Dataset(path).shards)):
        file = Dataset(path).file(number)
        payloads = file.payloads(0)
        total += sum(payloads.extent(row)[1] for row in range(file.num_samples))
        total += len(file.dictionary(0) or b"")
    return total


def test_short_texts_become_smaller_with_a_dictionary_and_hardly_without(tmp_path):
    texts = captions(20_000)
    raw = sum(len(text.encode()) for text in texts)
    assert 50 < raw / len(texts) < 90
    write(tmp_path / "plain.fld", fl.TextField(), texts)
    write(tmp_path / "trained.fld", fl.TextField(dictionary="8KiB"), texts)
    assert stored(tmp_path / "plain.fld") > 0.95 * raw
    assert stored(tmp_path / "trained.fld") < 0.4 * raw
    assert [s["it"] for s in fl.DatasetReader(tmp_path / "trained.fld")][::97] == texts[::97]


def test_long_texts_are_compressed_unless_the_writer_is_told_otherwise(tmp_path):
    texts = ["\n".join(captions(100, seed)) for seed in range(20)]
    raw = sum(len(text.encode()) for text in texts)
    write(tmp_path / "own.fld", fl.TextField(), texts)
    write(tmp_path / "none.fld", fl.TextField(), texts, compression={"it": None})
    write(tmp_path / "best.fld", fl.TextField(), texts, compression="zstd:19")
    assert stored(tmp_path / "own.fld") < 0.4 * raw
    assert stored(tmp_path / "none.fld") == raw
    assert stored(tmp_path / "best.fld") < stored(tmp_path / "own.fld")


def test_a_dictionary_belongs_to_zstd(tmp_path):
    for compression in (None, "lz4"):
        reader = write(
            tmp_path / "x.fld", fl.TextField(dictionary=4096), captions(2000), compression={"it": compression}
        )
        assert reader.dataset.file(0).dictionary(0) is None


def test_payloads_are_ordinary_zstd_frames_of_the_dictionary(tmp_path):
    texts = captions(3000)
    reader = write(tmp_path / "x.fld", fl.TextField(dictionary=4096), texts)
    file = reader.dataset.file(0)
    known = zstandard.ZstdCompressionDict(file.dictionary(0))
    data = (tmp_path / "x.fld").read_bytes()
    for row in range(0, 3000, 100):
        pointer, size, _, _, codec = file.payloads(0).extent(row)
        assert codec == kernels.ZSTD_DICTIONARY
        found = zstandard.ZstdDecompressor(dict_data=known).decompress(data[pointer : pointer + size])
        assert found.decode() == texts[row]


def test_every_shard_has_the_dictionary_and_an_append_goes_on_with_it(tmp_path):
    path = tmp_path / "x.fld"
    texts = captions(4000)
    write(path, fl.TextField(dictionary=4096), texts, shard_size="20KB")
    first = Dataset(path)
    assert len(first.shards) > 2
    dictionaries = {first.file(i).dictionary(0) for i in range(len(first.shards))}
    assert len(dictionaries) == 1
    more = captions(500, seed=5)
    with fl.DatasetWriter(path, None, mode="a") as writer:
        writer.write_many([text] for text in more)
    reader = pickle.loads(pickle.dumps(fl.DatasetReader(path)))
    dataset = reader.dataset
    assert dataset.file(len(dataset.shards) - 1).dictionary(0) in dictionaries
    assert reader.read_batch(range(len(reader)))["it"] == texts + more
    assert fl.verify(path, decode=True).ok


def test_an_append_to_texts_without_a_dictionary_learns_one(tmp_path):
    path = tmp_path / "x.fld"
    write(path, fl.TextField(dictionary=4096), ["one", "two"], shard_size="20KB")
    assert Dataset(path).file(0).dictionary(0) is None
    with fl.DatasetWriter(path, None, mode="a") as writer:
        writer.write_many([text] for text in captions(4000))
    assert Dataset(path).file(1).dictionary(0)
    assert fl.DatasetReader(path)[1]["it"] == "two"


def test_datasets_with_other_dictionaries_can_be_joined(tmp_path):
    texts = captions(2000), captions(2000, seed=9)
    for number, some in enumerate(texts):
        write(tmp_path / f"{number}.fld", fl.TextField(dictionary=4096), some)
    fl.concatenate(tmp_path / "all.fld", [tmp_path / "0.fld", tmp_path / "1.fld"])
    reader = fl.DatasetReader(tmp_path / "all.fld")
    assert reader.dataset.file(0).dictionary(0) != reader.dataset.file(1).dictionary(0)
    loader = fl.DataLoader(reader, 64, shuffle=False)
    assert [text for batch in loader for text in batch["it"]] == texts[0] + texts[1]


def test_beside_large_values_the_first_texts_go_without(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "HELD_BYTES", 100_000)
    texts, blob = captions(8000), bytes(1000)
    files = set()
    for workers in (0, 3):
        path = tmp_path / f"{workers}.fld"
        fields = {"text": fl.TextField(dictionary=2048), "blob": fl.BytesField()}
        with fl.DatasetWriter(path, fields, num_workers=workers) as writer:
            writer.write_many([text, blob] for text in texts)
        payloads = Dataset(path).file(0).payloads(0)
        codecs = np.array([payloads.extent(row)[4] for row in range(len(texts))])
        learned = int(np.argmax(codecs == kernels.ZSTD_DICTIONARY))
        assert sum(map(len, texts[:learned])) >= training.LEARNED * 2048 > sum(map(len, texts[: learned - 1]))
        assert (codecs[learned:] == kernels.ZSTD_DICTIONARY).all()
        assert fl.DatasetReader(path).read_batch(range(0, 8000, 501), ["text"])["text"] == texts[::501]
        files.add(zlib.crc32(path.read_bytes()))
    assert len(files) == 1


def test_a_damaged_dictionary_is_told(tmp_path):
    path = tmp_path / "x.fld"
    reader = write(path, fl.TextField(dictionary=4096), captions(2000))
    entry = reader.dataset.file(0).directory[Kind.DICTIONARY, 0]
    data = bytearray(path.read_bytes())
    data[entry.offset + 100] ^= 1
    path.write_bytes(data)
    damaged = fl.DatasetReader(path)
    for read in (lambda: damaged[0], lambda: damaged.read_batch([0]), lambda: next(iter(fl.DataLoader(damaged)))):
        with pytest.raises(fl.ChecksumError, match="the dictionary"):
            read()
    assert any("dictionary" in problem.message for problem in fl.verify(path).problems)


def test_text_that_was_stored_broken_names_its_sample(tmp_path, monkeypatch):
    path = tmp_path / "x.fld"
    with monkeypatch.context() as careless:
        careless.setattr("fastloader.fields.text.utf8", bytes)
        write(path, fl.TextField(), [b"fine", b"also fine", b"bad \xff\xfe", b"fine again"])
    reader = fl.DatasetReader(path)
    assert reader[0]["it"] == "fine"
    loader = fl.DataLoader(reader, 4, shuffle=False)
    for read in (lambda: reader[2], lambda: reader.read_batch([0, 2]), lambda: list(loader)):
        with pytest.raises(fl.DecodeError, match=r"sample 2, field 'it': the text is no UTF-8: .*4"):
            read()
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, on_error="replace")
    assert batch["it"] == ["fine", "also fine", None, "fine again"]
    assert fl.verify(path, decode=True).bad_samples == [2]


@pytest.mark.parametrize("size", [-1, 1, 255, (16 << 20) + 1, "1B", "much", True, 1.5, []])
def test_a_dictionary_has_a_size(size):
    with pytest.raises((ValueError, TypeError), match="dictionary="):
        fl.TextField(dictionary=size)
