"""Lists of many checksums are checked part by part: an entry of their own says how. Readers that know none skip it."""

from __future__ import annotations

import struct
from pathlib import Path

import fld_by_hand as hand
import pytest

import fastloader as fl
from fastloader.formats.fld import builder
from fastloader.formats.fld import file as fld_file
from fastloader.formats.fld.layout import CHECKSUMS_OF, LIST_BLOCK, Entry
from fastloader.formats.fld.layout import Kind as Kinds
from fastloader.stores import MemoryStore

SAMPLES = 70_000  # beyond 65,536, blocks have 2 KiB: 274 of them in a table of numbers, in five parts
OF_NUMBERS = CHECKSUMS_OF + hand.METADATA


def write(path: Path) -> bytes:
    with fl.DatasetWriter(path, {"number": fl.IntField(), "text": fl.BytesField()}, keys=True) as writer:
        samples = ({"number": i * i, "text": None if i % 7 == 0 else b"%d" % i} for i in range(SAMPLES))
        writer.write_many(samples, keys=(f"{i:05}" for i in range(SAMPLES)))
    return path.read_bytes()


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file whose tables all have such an entry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "LONG_LIST", 0)
        return write(tmp_path_factory.mktemp("listed") / "listed.fld")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The same samples in a file that has none."""
    return write(tmp_path_factory.mktemp("plain") / "plain.fld")


def samples_of(path: Path) -> list:
    with fl.open(path) as reader:
        some = [*range(0, SAMPLES, 997), SAMPLES - 1]
        batch = reader.read_batch(some)
        assert reader.index_of("00812") == 812
        return [*batch["number"].tolist(), *batch["text"], *(reader[i] for i in some[:5])]


def test_the_lists_are_tables_as_the_document_says(listed, plain):
    tables = [one for one in hand.directory(plain) if one.kind not in (hand.DATA, hand.DESCRIPTORS)]
    assert not any(one.kind >= CHECKSUMS_OF for one in hand.directory(plain))
    for one in tables:
        there = hand.entry(listed, CHECKSUMS_OF + one.kind, one.field)
        of = hand.entry(listed, one.kind, one.field)
        assert (there.flags, there.row_size, there.block_size) == (0, 4, LIST_BLOCK)
        assert there.offset == of.crcs_offset
        rows = hand.table(listed, CHECKSUMS_OF + one.kind, one.field)
        assert b"".join(rows) == plain[one.crcs_offset : one.crcs_offset + 4 * len(rows)]
        assert hand.table(listed, one.kind, one.field) == hand.table(plain, one.kind, one.field)


def test_samples_are_the_same(tmp_path, listed, plain):
    (tmp_path / "listed.fld").write_bytes(listed)
    (tmp_path / "plain.fld").write_bytes(plain)
    assert samples_of(tmp_path / "listed.fld") == samples_of(tmp_path / "plain.fld")
    assert fl.verify(tmp_path / "listed.fld", num_workers=0).ok


def test_readers_that_know_no_such_entry_read_all_the_same(tmp_path, monkeypatch, listed, plain):
    (tmp_path / "listed.fld").write_bytes(listed)
    (tmp_path / "plain.fld").write_bytes(plain)
    wanted = samples_of(tmp_path / "plain.fld")
    monkeypatch.setattr(fld_file, "_LISTS", frozenset())
    assert samples_of(tmp_path / "listed.fld") == wanted


def read_sample(path: Path | str, sample: int) -> object:
    with fl.open(path) as reader:
        return reader.read_batch([sample], ["number"])["number"][0]


@pytest.mark.parametrize("far", [False, True])
def test_a_damaged_checksum_is_told_before_anything_is_believed_by_it(tmp_path, monkeypatch, listed, far):
    if far:
        monkeypatch.setattr(fld_file, "FAR_TABLE", 1)
    path = tmp_path / "damaged.fld"
    entry = hand.entry(listed, OF_NUMBERS, 0)
    damaged = bytearray(listed)
    damaged[entry.offset + 4 * 70] ^= 1  # of block 70, in the second part: blocks 64 to 127, of 256 samples each
    path.write_bytes(damaged)
    assert read_sample(path, 256 * 64 - 1) == (256 * 64 - 1) ** 2
    assert read_sample(path, 256 * 128) == (256 * 128) ** 2
    for sample in (256 * 64, 256 * 128 - 1):
        with pytest.raises(fl.ChecksumError, match="table checksums of blocks 64 to 127 are damaged") as caught:
            read_sample(path, sample)
        assert (caught.value.path, caught.value.sample, caught.value.field) == (str(path), sample, "number")
        told = f"sample {sample}, field 'number': table checksums of blocks 64"
        with (
            fl.open(path) as reader,
            fl.DataLoader(reader, 100, indices=[sample], fields=["number"]) as loader,
            pytest.raises(fl.ChecksumError, match=told),
        ):
            next(iter(loader))
        with fl.open(path) as reader, pytest.raises(fl.ChecksumError, match="checksums of blocks 64 to 127"):
            reader[sample]
    (problem,) = (one for one in fl.verify(path, num_workers=0).problems if one.sample is None)
    where = f"{path}: field 'number': the metadata table"
    assert str(problem).startswith(f"{where}: checksums of blocks 64 to 127 are damaged: crc32c stored")


def test_damaged_checksums_of_checksums_are_told_when_the_table_is_first_used(tmp_path, listed):
    path = tmp_path / "damaged.fld"
    damaged = bytearray(listed)
    damaged[hand.entry(listed, OF_NUMBERS, 0).crcs_offset + 5] ^= 0x40
    path.write_bytes(damaged)
    with pytest.raises(fl.ChecksumError, match="the list of checksums of the metadata table is damaged"):
        read_sample(path, 0)
    assert not fl.verify(path, num_workers=0).ok


def place_of(data: bytes, kind: int) -> int:
    """Where the entry of such a table of the first field lies."""
    rows = range(hand.header(data).directory + 16, len(data), 48)
    return next(row for row in rows if (hand.u2(data, row), hand.u2(data, row + 2)) == (kind, 0))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"row_size": 8}, "in rows of 8"),
        ({"block_size": 0}, "blocks of 0 bytes"),
        ({"block_size": 6}, "blocks of 6 bytes"),
        ({"offset": 64}, "in two places"),
        ({"size": 8}, "in two places"),
        ({"size": 2**62}, "truncated"),
        ({"crcs_offset": 2**62}, "truncated"),
        ({"kind": CHECKSUMS_OF + hand.EXTENTS, "field": 1}, "lists table 259 of field 1 twice"),
        ({"field": 2}, "table of field 2"),
    ],
    ids=str,
)
def test_entries_that_can_not_be_are_refused(tmp_path, listed, change, what):
    at = place_of(listed, OF_NUMBERS)
    entry = Entry(**{**hand.entry(listed, OF_NUMBERS, 0)._asdict(), **change})
    (tmp_path / "crafted.fld").write_bytes(hand.reseal(listed[:at] + entry.pack() + listed[at + 48 :]))
    with pytest.raises(fl.FormatError, match=what):
        read_sample(tmp_path / "crafted.fld", 0)


def test_a_list_that_only_readers_without_parts_would_refuse_is_found_by_verify(tmp_path, listed):
    path = tmp_path / "crafted.fld"
    at = place_of(listed, hand.METADATA)
    changed = bytearray(listed)
    changed[at + 40] ^= 1
    path.write_bytes(hand.reseal(changed))
    assert read_sample(path, 9) == 81
    (problem,) = fl.verify(path, num_workers=0).problems
    assert "the checksums of the metadata table is damaged" in problem.message


def test_of_a_list_of_a_table_that_is_not_there_nothing_is_asked(tmp_path, listed):
    changed = bytearray(listed)
    struct.pack_into("<H", changed, place_of(listed, OF_NUMBERS), CHECKSUMS_OF + Kinds.TOKENS)
    (tmp_path / "crafted.fld").write_bytes(hand.reseal(changed))
    assert read_sample(tmp_path / "crafted.fld", 9) == 81


def test_lists_of_objects_come_whole_and_are_checked_so(listed):
    entry = hand.entry(listed, OF_NUMBERS, 0)
    store = MemoryStore("checksum-lists")
    store.put("listed.fld", listed)
    assert read_sample("memory://checksum-lists/listed.fld", 812) == 812**2
    damaged = bytearray(listed)
    damaged[entry.offset + 4 * 70] ^= 1
    store.put("damaged.fld", bytes(damaged))
    with pytest.raises(fl.ChecksumError, match="the checksums of the metadata table is damaged"):
        read_sample("memory://checksum-lists/damaged.fld", 0)
