"""The manifest: its golden text by hand, its checksum, and what a reader refuses."""

from __future__ import annotations

import json
import shutil

import crc32c
import fld_by_hand as hand
import pytest

import fastloader as fl
from fastloader.errors import ChecksumError, FormatError
from fastloader.formats.fld.manifest import Manifest, Shard

FOLDER = hand.VECTORS / "shards.fld"
TEXT = (FOLDER / "manifest.json").read_bytes()


def canonical(content: dict) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def sealed(content: dict) -> bytes:
    return json.dumps({**content, "crc32c": crc32c.crc32c(canonical(content))}).encode()


def content() -> dict:
    found = json.loads(TEXT)
    del found["crc32c"]
    return found


def test_members_of_the_golden_manifest():
    assert content() == {
        "format": "fastloader manifest",
        "version": [1, 0],
        "snapshot": 2,
        "num_samples": 7,
        "shards": [[f"shard-0000{i}.fld", *facts] for i, facts in enumerate(facts_by_hand())],
    }


def facts_by_hand() -> list[tuple[int, int, int]]:
    facts = []
    for i in range(3):
        data = (FOLDER / f"shard-0000{i}.fld").read_bytes()
        head = hand.header(data)
        facts.append((head.num_samples, len(data), hand.u4(data, head.directory + 8)))
    return facts


def test_the_checksum_is_that_of_the_canonical_text():
    assert json.loads(TEXT)["crc32c"] == crc32c.crc32c(canonical(content()))
    assert canonical(content()).startswith(b'{"format":"fastloader manifest","num_samples":7,"shards":[["shard-00000')


def test_names_outside_ascii_are_escaped_in_the_canonical_text(tmp_path):
    shard = Shard('größe 𝄞 "\\\n.fld', 1, 2, 3)
    Manifest((shard,)).save(tmp_path)
    stored = json.loads((tmp_path / "manifest.json").read_bytes())
    checksum = stored.pop("crc32c")
    text = (
        b'{"format":"fastloader manifest","num_samples":1,'
        b'"shards":[["gr\\u00f6\\u00dfe \\ud834\\udd1e \\"\\\\\\n.fld",1,2,3]],'
        b'"snapshot":1,"version":[1,0]}'
    )
    assert checksum == crc32c.crc32c(text)
    assert Manifest.load(tmp_path).shards == (shard,)


def test_every_shard_is_a_dataset_of_its_own():
    whole = list(fl.open(FOLDER))
    parts = [sample for i in range(3) for sample in fl.open(FOLDER / f"shard-0000{i}.fld")]
    assert whole == parts
    assert len(whole) == 7


def copy(tmp_path, text: bytes):
    folder = tmp_path / "copy.fld"
    shutil.copytree(FOLDER, folder)
    (folder / "manifest.json").write_bytes(text)
    return folder


def test_members_of_a_newer_minor_version_are_ignored_but_checked(tmp_path):
    newer = {**content(), "version": [1, 7], "note": "unknown", "more": {"a": [1, "ß"]}}
    assert len(fl.open(copy(tmp_path, sealed(newer)))) == 7
    damaged = sealed(newer).replace(b"unknown", b"unknowm")
    with pytest.raises(ChecksumError):
        Manifest.from_bytes(damaged, tmp_path)


def test_a_newer_major_version_is_a_clear_error(tmp_path):
    folder = copy(tmp_path, sealed({**content(), "version": [3, 0]}))
    with pytest.raises(FormatError, match=r"version \[3, 0\].*reads 1\.x and 2\.x.*pip install -U"):
        fl.open(folder)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": "something else"}', b'{"format": "fastloader manifest"}',
        b"[" * 100_000,
        sealed({**json.loads(TEXT), "shards": [["a", 1, 2]], "crc32c": None}),
        sealed({**content(), "shards": [["a", -1, 2, 3]]}),
        sealed({**content(), "shards": [["a", 1.5, 2, 3]]}),
        sealed({**content(), "shards": [["a", True, 2, 3]]}),
        sealed({**content(), "shards": [["a", 10**30, 2, 3]]}),
        sealed({**content(), "shards": 7}),
        sealed({**content(), "num_samples": 8}),
        sealed({**content(), "version": []}),
        sealed({**content(), "snapshot": "2"}),
    ],
)  # fmt: skip
def test_a_damaged_manifest_is_a_format_error(tmp_path, text):
    with pytest.raises(FormatError):
        fl.open(copy(tmp_path, text))


def test_one_changed_character_is_noticed(tmp_path):
    with pytest.raises(ChecksumError, match="crc32c stored"):
        fl.open(copy(tmp_path, TEXT.replace(b'"num_samples": 7', b'"num_samples": 8')))


def test_a_shard_that_is_not_the_one_meant_is_refused(tmp_path):
    folder = copy(tmp_path, TEXT)
    shutil.copy(folder / "shard-00001.fld", folder / "shard-00002.fld")
    reader = fl.open(folder)
    assert reader[4]["n"] == 4
    with pytest.raises(FormatError, match=r"shard-00002\.fld: is not the file it was"):
        reader[5]


def test_a_folder_without_a_manifest_is_no_dataset(tmp_path):
    folder = copy(tmp_path, TEXT)
    (folder / "manifest.json").unlink()
    with pytest.raises(FormatError, match=r"a folder without manifest\.json"):
        fl.open(folder)


def test_concatenating_names_the_shards_of_others(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "one.fld")
    with fl.DatasetWriter(tmp_path / "two.fld", fl.open(FOLDER).fields, keys=True) as writer:
        writer.write_sample([70, "seventy"], "k70")
    fl.concatenate(tmp_path / "both.fld", [tmp_path / "one.fld", tmp_path / "two.fld"])
    assert sorted(p.name for p in (tmp_path / "both.fld").iterdir()) == ["manifest.json"]
    stored = json.loads((tmp_path / "both.fld" / "manifest.json").read_bytes())
    assert [shard[0] for shard in stored["shards"]] == [
        *(f"../one.fld/shard-0000{i}.fld" for i in range(3)),
        "../two.fld",
    ]
    assert [sample["n"] for sample in fl.open(tmp_path / "both.fld")] == [0, 1, 2, 3, 4, 5, 6, 70]
