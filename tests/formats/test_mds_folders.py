"""MosaicML's MDS, as its own writer wrote it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader.testing import FormatContract
from fastloader.testing.compare import identical

VECTORS = Path(__file__).parents[1] / "vectors"
sys.path.insert(0, str(VECTORS))

from make_formats import MDS_COLUMNS, MDS_SAMPLES, mds_lists, mds_sample  # noqa: E402


def changed(folder, change):
    """The folder with something else in its index."""
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))
    return folder


class TestPlain(FormatContract):
    kind = "plain"
    names = sorted(MDS_COLUMNS)

    def write(self, folder):
        shutil.copytree(VECTORS / "formats" / f"mds-{self.kind}", folder / "mds")
        return folder / "mds"

    def samples(self):
        return [{name: mds_sample(i)[name] for name in self.names} for i in range(MDS_SAMPLES)]

    def last_file(self, folder):
        return max(folder.rglob("shard*"))

    def bad_files(self, folder):
        path = self.write(folder)
        (path / "shard.00001.mds").write_bytes((path / "shard.00001.mds").read_bytes() + b"!")
        yield path, r"shard\.00001\.mds: sample 6: has 5621 bytes, and the index says 5620"
        yield changed(path, lambda index: index["shards"][0].update(samples=3)), "the index says 3"
        yield changed(path, lambda index: index["shards"][0].update(format="json")), "shards are 'json'"
        shutil.rmtree(path)
        self.write(folder)
        yield (
            changed(path, lambda index: index["shards"][0]["raw_data"].update(basename="../../x")),
            r"index\.json: the shard '../../x' lies outside of the folder",
        )
        yield (
            changed(path, lambda index: index["shards"][0]["column_encodings"].__setitem__(0, "pkl")),
            "pickles",
        )
        yield changed(path, lambda index: index.update(shards=[])), "names no shards"
        yield changed(path, lambda index: index.update(shards=3)), "is no index of MDS shards: TypeError"


class TestZstd(TestPlain):
    kind = "zstd"
    names = ("free", "name", "number")

    def bad_files(self, folder):
        path = self.write(folder)
        for shard in path.glob("*.zstd"):
            shard.write_bytes(shard.read_bytes()[:-3] + b"abc")
        yield path, r"shard\.00000\.mds\.zstd: .*can't be unpacked"
        yield changed(path, lambda index: index["shards"][0].update(compression="br:3")), "zstd and gz can be unpacked"


class TestGz(TestZstd):
    kind = "gz"

    def bad_files(self, folder):
        return ()


def test_a_broken_column_names_record_and_offset(tmp_path):
    path = TestPlain().write(tmp_path)
    data = bytearray((path / "shard.00000.mds").read_bytes())
    begin, end = np.frombuffer(data, "<u4", 2, 4 + 4 * 2).tolist()
    data[begin : begin + 4] = (2**31).to_bytes(4, "little")
    (path / "shard.00000.mds").write_bytes(data)
    with pytest.raises(fl.FormatError, match=rf"shard\.00000\.mds: sample 2: record 2 at offset {begin}: column"):
        fl.open(path)[2]
    assert end > begin
    assert len(list(fl.open(path).options(on_error="skip"))) == MDS_SAMPLES - 1


def test_several_folders_are_one_dataset(tmp_path):
    TestPlain().write(tmp_path)
    shutil.copytree(tmp_path / "mds", tmp_path / "other")
    assert len(fl.open(tmp_path)) == 2 * MDS_SAMPLES


def test_lists_of_images_are_lists_of_files_or_pixels():
    found = fl.open(VECTORS / "formats" / "mds-lists")
    assert len(found) == 4
    assert all(identical(mds_lists(i), sample) for i, sample in enumerate(found))


def test_a_list_of_images_that_is_cut_short_is_an_error(tmp_path):
    shutil.copytree(VECTORS / "formats" / "mds-lists", tmp_path / "mds")
    shard = tmp_path / "mds" / "shard.00000.mds"
    data = bytearray(shard.read_bytes())
    begin = int(np.frombuffer(data, "<u4", 1, 4)[0]) + 3 * 4
    for number, said in ((2**30, "too few"), (0, "end at")):
        data[begin : begin + 4] = number.to_bytes(4, "little")
        shard.write_bytes(data)
        with pytest.raises(fl.FormatError, match=rf"record 0 at offset \d+: column 'array' .*{said}"):
            fl.open(tmp_path / "mds")[0]
