import io
import os
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import fastloader as fl
from fastloader.formats.fld.layout import Kind

FIELDS = {"n": fl.IntField(), "b": fl.BytesField(), "a": fl.NDArrayField("int16"), "j": fl.JSONField()}
COUNT = 40


def sample(i):
    noise = np.random.default_rng(i)
    values = {"n": i, "b": noise.bytes(50 + i), "a": noise.integers(0, 99, (i % 4, 8), np.int16), "j": {"i": i}}
    if i % 5 == 0:
        values["nbaj"[i // 5 % 4]] = None
    return values


def write(path, **options):
    keys = (f"k{i}" for i in range(COUNT)) if options.get("keys") else None
    with fl.DatasetWriter(path, FIELDS, **options) as writer:
        writer.write_many(map(sample, range(COUNT)), keys)
    return fl.open(path).dataset


def flip(path, offset, bits=1):
    with path.open("r+b") as file:
        file.seek(offset)
        old = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([old ^ bits]))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A dataset in three forms, and the bytes of the first."""
    root = tmp_path_factory.mktemp("verify")
    for name, options in (
        ("file", {"keys": True}),
        ("shards", {"shard_size": 900}),
        ("packed", {"compression": "zstd"}),
    ):
        write(root / f"{name}.fld", **options)
    return root


@pytest.mark.parametrize("name", ["file", "shards", "packed"])
@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("workers", [None, 0, 1, 4])
def test_a_good_dataset_is_good(name, decode, workers, good):
    report = fl.verify(good / f"{name}.fld", decode=decode, num_workers=workers)
    assert report.ok
    assert report.problems == []
    assert report.bad_samples == []
    assert report.num_samples == COUNT
    assert report.num_shards == len(fl.open(good / f"{name}.fld").dataset.shards)
    dataset = fl.open(good / f"{name}.fld").dataset
    assert report.data_bytes == sum(dataset.file(i).data.size for i in range(len(dataset.shards)))


def test_missing_values_are_no_damage(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as writer:
        writer.write_many([(None, None, None, None)] * 20)
    assert fl.verify(tmp_path / "x.fld", decode=True).ok


@pytest.mark.parametrize("count", [0, 1])
def test_tiny_datasets_are_good(count, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", FIELDS) as writer:
        writer.write_many(map(sample, range(1, 1 + count)))
    assert fl.verify(tmp_path / "x.fld", decode=True).ok


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_flipped_bit_in_a_payload_is_named(data, good, tmp_path):
    path = tmp_path / "x.fld"
    path.write_bytes((good / "file.fld").read_bytes())
    file = fl.open(path).dataset.file(0)
    i = data.draw(st.integers(0, COUNT - 1))
    field = data.draw(st.integers(1, 3))
    pointer, size, *_ = (0, 0) if file.is_missing(field, i) else file.payloads(field).extent(i)
    if size == 0:
        return
    flip(path, pointer + data.draw(st.integers(0, size - 1)), 1 << data.draw(st.integers(0, 7)))
    report = fl.verify(path)
    (problem,) = report.problems
    assert (problem.path, problem.sample, problem.field) == (str(path), i, list(FIELDS)[field])
    assert "crc32c stored 0x" in problem.message
    assert report.bad_samples == [i]
    assert str(problem).startswith(f"{path}: sample {i}, field {problem.field!r}: the payload is damaged: ")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_flipped_bit_in_a_table_is_named(data, good, tmp_path):
    path = tmp_path / "x.fld"
    path.write_bytes((good / "file.fld").read_bytes())
    directory = fl.open(path).dataset.file(0).directory
    tables = sorted(key for key, entry in directory.items() if entry.block_size and entry.size)
    kind, field = data.draw(st.sampled_from(tables))
    entry = directory[kind, field]
    flip(path, entry.offset + data.draw(st.integers(0, entry.size - 1)), 1 << data.draw(st.integers(0, 7)))
    problems = fl.verify(path, decode=data.draw(st.booleans())).problems
    name = f"block 0 of the {Kind(kind).name.lower()} table is damaged: crc32c stored 0x"
    told = [p for p in problems if p.message.startswith(name)]
    assert [p.field for p in told] == [list(FIELDS)[field] if field < len(FIELDS) else None]


def test_damaged_checksums_are_named(good, tmp_path):
    path = tmp_path / "x.fld"
    whole = (good / "file.fld").read_bytes()
    path.write_bytes(whole)
    for (kind, field), entry in fl.open(path).dataset.file(0).directory.items():
        if not entry.block_size or not entry.size:
            continue
        path.write_bytes(whole)
        flip(path, entry.crcs_offset)
        messages = [
            p.message for p in fl.verify(path).problems if p.field == (list(FIELDS)[field] if field < 4 else None)
        ]
        assert any(f"the checksums of the {Kind(kind).name.lower()} table" in message for message in messages)


def test_every_flipped_bit_is_found_or_harmless(good, tmp_path):
    """Anywhere in the file: told when opening or verifying, or in padding, where nothing is read differently."""
    path = tmp_path / "x.fld"
    whole = (good / "file.fld").read_bytes()
    rng = np.random.default_rng(0)
    silent = 0
    for offset in rng.choice(len(whole), 250, replace=False).tolist():
        path.write_bytes(whole)
        flip(path, offset, 1 << int(rng.integers(8)))
        try:
            if not fl.verify(path, decode=True).ok:
                continue
        except fl.FormatError:
            continue
        silent += 1
        for one, other in zip(fl.open(path), fl.open(good / "file.fld"), strict=True):
            assert all(np.array_equal(one[name], other[name]) for name in FIELDS)
    assert silent < 250


def test_several_problems_are_all_named_in_order(tmp_path):
    file = write(tmp_path / "x.fld").file(0)
    for i in (31, 3, 17):
        flip(file.path, file.payloads(1).extent(i)[0])
    flip(file.path, file.payloads(3).extent(3)[0])
    report = fl.verify(tmp_path / "x.fld")
    assert [(p.sample, p.field) for p in report.problems] == [(3, "b"), (3, "j"), (17, "b"), (31, "b")]
    assert report.bad_samples == [3, 17, 31]
    for workers in (1, 2, 8):
        assert fl.verify(tmp_path / "x.fld", num_workers=workers).problems == report.problems


def test_samples_of_shards_are_counted_over_all(tmp_path):
    dataset = write(tmp_path / "x.fld", shard_size=900)
    number, position = dataset.where(33)
    assert number > 2
    file = dataset.file(number)
    flip(file.path, file.payloads(1).extent(position)[0])
    (problem,) = fl.verify(tmp_path / "x.fld").problems
    assert (problem.sample, problem.field, problem.path) == (33, "b", str(file.path))


@pytest.mark.parametrize("lost", [0, 2])
@pytest.mark.parametrize("how", ["gone", "cut", "other"])
def test_a_lost_shard_is_named_with_its_samples(lost, how, tmp_path):
    dataset = write(tmp_path / "x.fld", shard_size=900)
    path = tmp_path / "x.fld" / f"shard-{lost:05d}.fld"
    if how == "gone":
        path.unlink()
    elif how == "cut":
        os.truncate(path, 3000)
    else:
        path.write_bytes((tmp_path / "x.fld" / "shard-00001.fld").read_bytes())
    first, last = int(dataset.starts[lost]), int(dataset.starts[lost + 1]) - 1
    for decode in (False, True):
        (problem,) = fl.verify(tmp_path / "x.fld", decode=decode).problems
        assert problem.path == str(path)
        assert problem.message.startswith(f"samples {first} to {last} are lost: ")


def test_decoding_finds_what_was_stored_broken(tmp_path):
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(out, "JPEG")
    jpeg = out.getvalue()
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.JPEGImageField()}) as writer:
        writer.write_many([[jpeg], [jpeg[: len(jpeg) // 2]], [None], [jpeg]])
    assert fl.verify(tmp_path / "x.fld").ok
    (problem,) = fl.verify(tmp_path / "x.fld", decode=True).problems
    assert (problem.sample, problem.field) == (1, "image")
    assert "JPEG" in problem.message


def test_decoding_finds_an_index_that_leads_astray(tmp_path, monkeypatch):
    images = [np.random.default_rng(seed).integers(0, 255, (64, 200, 3), np.uint8) for seed in range(3)]
    honest = fl.JPEGImageField.encode

    def lie(self, value):
        metadata, payload = honest(self, value)
        return fl.Encoded(metadata, payload[:-12] + bytes([payload[-12] ^ 1]) + payload[-11:])

    fields = {"image": fl.JPEGImageField()}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_many([[image] for image in images])
    assert fl.verify(tmp_path / "x.fld", decode=True).ok
    monkeypatch.setattr(fl.JPEGImageField, "encode", lie)
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_many([[image] for image in images[:1]])
    assert fl.verify(tmp_path / "x.fld").ok, "checksums are of what was written"
    (problem,) = fl.verify(tmp_path / "x.fld", decode=True).problems
    assert (problem.sample, problem.field) == (0, "image")
    assert problem.message == "the index is not that of the JPEG"


def test_decoding_needs_the_fields_class(tmp_path, monkeypatch):
    from fastloader.fields import BY_TYPE_ID

    class Own(fl.BytesField):
        type_id = 6_200_000

    monkeypatch.setitem(BY_TYPE_ID, 6_200_000, Own)
    with fl.DatasetWriter(tmp_path / "x.fld", {"own": Own(), "n": fl.IntField()}) as writer:
        writer.write_many([(b"", 1)] * 200)
    assert fl.verify(tmp_path / "x.fld", decode=True).ok
    monkeypatch.delitem(BY_TYPE_ID, 6_200_000)
    assert fl.verify(tmp_path / "x.fld").ok
    report = fl.verify(tmp_path / "x.fld", decode=True)
    assert report.ok, "what nobody here can decode is not damaged"
    (undecoded,) = report.not_decoded
    assert (undecoded.field, undecoded.type_id) == ("own", 6_200_000)
    assert str(undecoded) == "not decoded (type id 6200000 is not registered; use --import)"
    flip(tmp_path / "x.fld", fl.open(tmp_path / "x.fld").dataset.file(0).directory[Kind.METADATA, 1].offset)
    assert not fl.verify(tmp_path / "x.fld", decode=True).ok


def test_damaged_keys_are_named(good, tmp_path):
    path = tmp_path / "x.fld"
    path.write_bytes((good / "file.fld").read_bytes())
    entry = fl.open(path).dataset.file(0).directory[Kind.KEY_BYTES, 0xFFFF]
    flip(path, entry.offset)
    report = fl.verify(path)
    assert not report.ok
    assert any("key_bytes table is damaged" in p.message for p in report.problems)


def test_what_cannot_be_opened_raises(tmp_path):
    with pytest.raises(fl.StoreError):
        fl.verify(tmp_path / "none.fld")
    (tmp_path / "x.fld").write_bytes(b"nothing of the kind")
    with pytest.raises(fl.FormatError):
        fl.verify(tmp_path / "x.fld")


def test_more_samples_than_one_job_takes(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"b": fl.BytesField()}, keys=True) as writer:
        writer.write_many(([b"%d" % i] for i in range(10_000)), map(str, range(10_000)))
    file = fl.open(tmp_path / "x.fld").dataset.file(0)
    for i in (4095, 4096, 9999):
        flip(tmp_path / "x.fld", file.payloads(0).extent(i)[0])
    assert fl.verify(tmp_path / "x.fld").bad_samples == [4095, 4096, 9999]


def test_without_workers_it_runs_in_the_calling_thread(good, tmp_path, monkeypatch):
    import fastloader.formats.fld.file as file_module

    threads = set()
    read = file_module.FldFile.table

    def table(self, *args):
        threads.add(threading.get_ident())
        return read(self, *args)

    monkeypatch.setattr(file_module.FldFile, "table", table)
    assert fl.verify(good / "file.fld", decode=True, num_workers=0).ok
    assert threads == {threading.get_ident()}
    threads.clear()
    assert fl.verify(good / "file.fld", num_workers=2).ok
    assert threads - {threading.get_ident()}


def test_fewer_than_no_workers_are_refused(good):
    with pytest.raises(ValueError, match="num_workers=-1: 0 works in the calling thread"):
        fl.verify(good / "file.fld", num_workers=-1)
