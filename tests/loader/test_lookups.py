"""Rows of tables that nobody has read are looked up by several threads: the same batches, and the same errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader.formats.fld import builder
from fastloader.formats.fld import file as fld_file
from fastloader.formats.fld.layout import Kind

SAMPLES = 70_000  # beyond 65,536, blocks have 2 KiB: 256 numbers, or 64 extents
ALONE = fl.ThreadingOptions(max_intra_op_parallelism=1)  # one thread a batch looks all of its rows up


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lookups") / "samples.fld"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "LONG_LIST", 0)  # checksums are listed
        fields = {
            "number": fl.IntField(),
            "some": fl.IntField(),
            "text": fl.BytesField(),
            "point": fl.NDArrayField("int32", (2,)),
        }
        with fl.DatasetWriter(path, fields) as writer:
            writer.write_many(sample(i) for i in range(SAMPLES))
    return path


def sample(i: int) -> dict[str, object]:
    some = None if i % 3 == 0 else 5 * i
    text = None if i % 5 == 0 else b"%d" % i
    return {"number": i, "some": some, "text": text, "point": np.array([i, -i], "int32")}


@pytest.fixture(params=["looked at", "read"])
def _far(request, monkeypatch):
    if request.param == "read":
        monkeypatch.setattr(fld_file, "FAR_TABLE", 1)


def told(batch: dict) -> list[tuple]:
    missing = np.ma.getmaskarray(batch["some"])
    points = map(tuple, batch["point"].tolist())
    some = [None if gone else value for gone, value in zip(missing, np.ma.getdata(batch["some"]).tolist(), strict=True)]
    return list(zip(batch["number"].tolist(), some, batch["text"], points, strict=True))


@pytest.mark.usefixtures("_far")
@pytest.mark.parametrize("num_workers", [1, 2, 7])
@pytest.mark.parametrize("batch_size", [63, 64, 250, 1000])
def test_batches_are_what_was_written(path, num_workers, batch_size):
    with fl.open(path) as reader, fl.DataLoader(reader, batch_size, num_workers=num_workers, seed=batch_size) as loader:
        for step, batch in enumerate(loader):
            wanted = [sample(i) for i in loader.plan.batch(0, step).tolist()]
            assert told(batch) == [(w["number"], w["some"], w["text"], tuple(w["point"].tolist())) for w in wanted]
            if step == 3:
                break


def damaged(path: Path, to: Path) -> Path:
    """A copy with bits flipped in some blocks of numbers, in some of extents, and in a checksum of others."""
    data = bytearray(path.read_bytes())
    file = fld_file.FldFile(path)
    for block in range(40, 44):
        data[file.directory[Kind.METADATA, 0].offset + 2048 * block + 7] ^= 1
    for block in range(300, 340):
        data[file.directory[Kind.EXTENTS, 2].offset + 2048 * block + 70] ^= 8
    data[file.directory[Kind.METADATA, 1].crcs_offset + 4 * 100] ^= 2
    to.write_bytes(data)
    return to


def all_of(path: Path, on_error: str, threading: fl.ThreadingOptions | None = None) -> tuple[list, list]:
    with (
        fl.open(path) as reader,
        fl.DataLoader(reader, 256, num_workers=2, seed=5, on_error=on_error, threading=threading) as loader,
    ):
        given = []
        for step, batch in enumerate(loader):
            mask = np.ma.getmaskarray(batch["number"])
            given.append((np.ma.getdata(batch["number"])[~mask].tolist(), mask.tolist(), list(batch["text"])))
            if step == 5:
                break
        bad = loader.stats()["bad"]
    # Batches behind those that were given may have begun.
    return given, sorted(
        (one["sample"], one["field"], one["error"]) for one in bad if one["sample"] in first_samples(path)
    )


def first_samples(path: Path) -> set[int]:
    with fl.open(path) as reader, fl.DataLoader(reader, 256, seed=5) as loader:
        return {int(i) for step in range(6) for i in loader.plan.batch(0, step)}


@pytest.mark.usefixtures("_far")
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_what_is_damaged_is_told_as_by_one_thread(path, tmp_path, on_error):
    broken = damaged(path, tmp_path / "broken.fld")
    given, bad = all_of(broken, on_error)
    assert (given, bad) == all_of(broken, on_error, ALONE)
    samples = first_samples(path)
    fields = {
        field: {sample for sample, name, _ in bad if name == field} for field in ("number", "some", "text", "point")
    }
    assert fields["number"] == {i for i in samples if 40 <= i // 256 < 44}
    assert fields["some"] == {i for i in samples if 64 <= i // 256 < 128 and i % 3}
    assert fields["text"] == {i for i in samples if 300 <= i // 64 < 340 and i % 5}
    assert not fields["point"]
    assert all(fields[name] for name in ("number", "some", "text"))


@pytest.mark.usefixtures("_far")
def test_nothing_is_given_from_a_damaged_block(path, tmp_path):
    broken = damaged(path, tmp_path / "broken.fld")
    indices = [*range(20_000, 20_300), 40 * 256 + 3]
    with (
        fl.open(broken) as reader,
        fl.DataLoader(reader, 301, fields=["number"], indices=indices) as loader,
        pytest.raises(fl.ChecksumError, match="block 40 is damaged") as caught,
    ):
        next(iter(loader))
    assert (caught.value.path, caught.value.field) == (str(broken), "number")
    assert caught.value.sample // 256 == 40
