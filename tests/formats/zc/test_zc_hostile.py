"""Files that are not what they should be: an error that names the file and the place, never a crash."""

from __future__ import annotations

import json
import os
import random
import struct

import pytest
import zc_by_hand as hand

from fastloader.errors import FormatError, NotFoundError, StoreError
from fastloader.formats.zc import ZCShard

SAMPLES = [b"abc", b"", b"0123456789" * 3, b"z"]
TEXT = json.dumps(hand.describe(hand.packed(SAMPLES))).encode()
BEHIND = hand.shard(SAMPLES)
BEFORE = hand.shard(SAMPLES, hand.metadata_first)


def with_header(file: bytes, *, metadata: int, data: int) -> bytes:
    return struct.pack("<IHQQ", hand.MAGIC, 1, metadata, data) + file[22:]


def with_length(file: bytes, length: int) -> bytes:
    (at,) = struct.unpack_from("<Q", file, 6)
    return file[:at] + struct.pack("<Q", length) + file[at + 8 :]


def one(offset: int, size: int) -> bytes:
    return json.dumps(hand.describe([(0, 1), (offset, size)])).encode()


META = 22 + 34
HOSTILE = {
    "empty": (b"", "is empty"),
    "another format": (b"\x89PNG\r\n\x1a\n" + bytes(100), r"is no ZCLD shard; it begins with b'\\x89PNG'"),
    "zeros": (bytes(100), "is no ZCLD shard"),
    "big-endian": (b"ZCLD" + BEHIND[4:], "is no ZCLD shard; it begins with b'ZCLD', not b'DLCZ'"),
    "half a magic": (BEHIND[:3], "is no ZCLD shard"),
    "half a header": (BEHIND[:21], "truncated: the header takes 22 bytes, the file has 21"),
    "version 0": (hand.data_first(b"", TEXT, version=0), "version 0; this fastloader reads version 1"),
    "version 2": (hand.data_first(b"", TEXT, version=2), "version 2.*pip install -U fastloader"),
    "header alone": (BEHIND[:22], "truncated: the metadata begins at byte 56, the file has 22"),
    "half a length": (BEHIND[: META + 7], "truncated: the metadata begins at byte 56, the file has 63"),
    "half the metadata": (BEHIND[:-1], rf"truncated: {len(TEXT)} bytes of metadata begin at byte 64"),
    "half the data": (BEFORE[:-1], "sample 3: offset 33 and size 1 lead outside the data, which is 33 bytes long"),
    "metadata in the header": (with_header(BEHIND, metadata=21, data=22), "metadata at byte 21 and data at byte 22"),
    "data in the header": (with_header(BEHIND, metadata=META, data=0), "metadata at byte 56 and data at byte 0"),
    "metadata far outside": (with_header(BEHIND, metadata=2**64 - 1, data=22), "begins at byte 18446744073709551615"),
    "metadata near the end of numbers": (with_header(BEHIND, metadata=2**64 - 8, data=22), "truncated"),
    "data far outside": (with_header(BEFORE, metadata=22, data=2**64 - 1), "data from byte 18446744073709551615 on"),
    "data inside the metadata": (with_header(BEFORE, metadata=22, data=40), "data from byte 40 on; the metadata ends"),
    "a huge length": (with_length(BEHIND, 2**64 - 1), "truncated: 18446744073709551615 bytes of metadata"),
    "a length that wraps": (with_length(BEHIND, 2**64 - META - 8), "truncated"),
    "no metadata": (with_length(BEHIND, 0), "is no JSON"),
    "metadata cut short": (with_length(BEHIND, len(TEXT) - 1), "is no JSON"),
    "metadata with zeros behind": (hand.data_first(b"", TEXT + b"\0"), "is no JSON: Extra data"),
    "a sample behind the data": (hand.data_first(b"ab", one(2, 1)), "sample 1: offset 2 and size 1 lead outside"),
    "a sample far outside": (hand.data_first(b"ab", one(2**63 - 1, 0)), "sample 1: offset 9223372036854775807"),
    "a sum that wraps": (hand.data_first(b"ab", one(2, 2**63 - 1)), "sample 1: offset 2 and size 9223372036854775807"),
    "a sample in the metadata": (hand.data_first(b"ab", one(0, 3)), "sample 1: offset 0 and size 3 lead outside"),
    "bytes behind the metadata": (BEHIND + b"x", "has 1 bytes behind byte"),
    "bytes behind the data": (BEFORE + b"\0x", "has 2 bytes behind byte"),
    "more zeros than a block": (BEHIND + bytes(4096), "has 4096 bytes behind byte"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_refused_by_name(tmp_path, content, said):
    path = tmp_path / "hostile.zc"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=said) as caught:
        ZCShard(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.hint
    assert hand.read_if_valid(content) is None


def test_damage_in_the_json_names_the_file(tmp_path):
    path = tmp_path / "hostile.zc"
    path.write_bytes(hand.data_first(b"", b'{"num_samples": 1, "samples": [{"offset": 0, "size": 0.5}]}'))
    with pytest.raises(FormatError, match=r"hostile\.zc: sample 0: the metadata has \"size\": 0\.5") as caught:
        ZCShard(path)
    assert caught.value.sample == 0


def test_a_sparse_file_that_claims_gigabytes_of_metadata_is_refused_at_once(tmp_path):
    path = tmp_path / "sparse.zc"
    size = 1 << 40
    path.write_bytes(struct.pack("<IHQQQ", hand.MAGIC, 1, 22, size, size - 30) + b'{"num_samples":1,"samples":[')
    os.truncate(path, size)
    with pytest.raises(FormatError, match=r"1024\.0 GiB of JSON in an unusual form"):
        ZCShard(path)


def test_what_is_no_file_is_said_to_be_none(tmp_path):
    with pytest.raises(NotFoundError, match="there is no such file") as caught:
        ZCShard(tmp_path / "absent.zc")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(StoreError, match="is no regular file"):
        ZCShard(tmp_path)


def mutant(rng: random.Random) -> bytes:
    """A shard with a few changes, most of them where they hurt."""
    file = bytearray(rng.choice([BEHIND, BEFORE, hand.shard(SAMPLES, separators=(",", ":")), hand.shard([])]))
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(file) or 1)
        match rng.randrange(8):
            case 0:
                file[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del file[at : at + rng.randint(1, 9)]
            case 2:
                file[at:at] = rng.choice([b"0", b"1", b"9" * 20, b",", b"{}", b"[", b"-", b".5", b"true", b"\0", b"e9"])
            case 3:
                del file[at:]
            case 4:
                file[at:at] = file[at : at + rng.randint(1, 40)]
            case 5:
                where = rng.choice([6, 14])
                file[where : where + 8] = struct.pack("<Q", rng.choice([0, 21, 22, 23, 30, 56, 64, 2**63, 2**64 - 1]))
            case 6:
                digits = [i for i, byte in enumerate(file) if chr(byte).isdigit()]
                if digits:
                    file[rng.choice(digits)] = ord(rng.choice("0123456789"))
            case 7:
                file += rng.choice([b"\0" * 5000, b"\0" * 10, b"junk"])
    return bytes(file)


def read(path):
    try:
        shard = ZCShard(path)
    except FormatError:
        return None
    return [shard.bytes[begin:end].tobytes() for begin, end in zip(shard.begins, shard.ends, strict=True)]


def test_mutants_are_read_as_the_format_says_or_refused(tmp_path):
    rng = random.Random(5)
    path = tmp_path / "mutant.zc"
    refused = 0
    for _ in range(4000):
        content = mutant(rng)
        path.write_bytes(content)
        found = read(path)
        assert found == hand.read_if_valid(content), content
        refused += found is None
    assert 2000 < refused < 3900
