"""Each file a sample: wherever it lies, and in folders that stand for classes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader.testing import FormatContract

IMAGES = Path(__file__).parents[1] / "vectors" / "images"


class TestRawFiles(FormatContract):
    finds_cuts = False

    def write(self, folder):
        for sample in self.samples():
            path = folder / sample["path"]
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(sample["data"])
        return folder

    def samples(self):
        paths = ["a.bin", *(f"deep/er/{i}.dat" for i in range(5)), "z.bin"]
        return [{"data": bytes([i, 255]) * (i + 1), "path": path} for i, path in enumerate(paths)]

    def test_an_empty_file_is_no_sample_or_an_error_that_names_it(self, tmp_path):
        path = self.write(tmp_path)
        (tmp_path / "z.bin").write_bytes(b"")
        assert fl.open(path)[-1] == {"data": b"", "path": "z.bin"}  # nothing says that it should hold more


class TestClassFolders(FormatContract):
    finds_cuts = False

    def write(self, folder):
        for sample in self.samples():
            path = folder / sample["path"]
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(sample["image"])
        return folder

    def samples(self):
        photo, other = (IMAGES / "1-rgb-444.jpg").read_bytes(), (IMAGES / "0-gray.jpg").read_bytes()
        names = ["cat/1.jpg", "cat/2.jpg", "dog/0.jpg", "dog/sub/9.jpg", "eel/1.jpg"]
        return [
            {"image": photo if i % 2 else other, "label": "cde".index(name[0]), "path": name}
            for i, name in enumerate(names)
        ]

    def test_classes_are_named(self, tmp_path):
        dataset = self.opened(tmp_path)
        assert dataset.classes == ("cat", "dog", "eel")
        assert dataset.format == "folder"

    def test_bytes_of_an_image_become_an_image_field(self, tmp_path):
        (tmp_path / "a").mkdir()
        fields = self.opened(tmp_path / "a").write(tmp_path / "b.fld")
        assert [type(field) for field in fields.values()][:2] == [fl.JPEGImageField, fl.IntField]
        reader = fl.open(tmp_path / "b.fld")
        for i, sample in enumerate(self.samples()):
            assert bytes(reader.read_payload(i, "image")) == sample["image"]


def test_files_that_are_no_images_are_called_data(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.wav").write_bytes(b"RIFF....")
    assert fl.open(tmp_path).field_names == ["data", "label", "path"]


def test_hidden_files_and_those_beside_are_left_out(tmp_path):
    for name in ("a.bin", "b.bin", ".hidden", "README.md", "_SUCCESS"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.bin").write_bytes(b"1")
    assert [sample["path"] for sample in fl.open(tmp_path)] == ["a.bin", "b.bin"]


def test_a_pattern_and_a_list_choose_files(tmp_path):
    for name in ("a.bin", "b.bin", "c.dat"):
        (tmp_path / name).write_bytes(name.encode())
    assert [sample["data"] for sample in fl.open(tmp_path / "*.bin")] == [b"a.bin", b"b.bin"]
    chosen = fl.open([tmp_path / "c.dat", tmp_path / "a.bin"])
    assert [sample["data"] for sample in chosen] == [b"c.dat", b"a.bin"]
    with pytest.raises(fl.NotFoundError, match="no file fits"):
        fl.open(tmp_path / "*.png")


def test_folders_that_are_links_to_each_other_end(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.bin").write_bytes(b"x")
    os.symlink(tmp_path, tmp_path / "a" / "up")
    assert len(fl.open(tmp_path)) == 1


def test_two_epochs_of_one_seed_are_identical_and_another_seed_is_another(tmp_path):
    for i in range(300):
        (tmp_path / f"{i:04d}.bin").write_bytes(b"%d" % i)
    dataset = fl.open(tmp_path)
    one, same, other = ([s["path"] for s in dataset.shuffle(seed=seed)] for seed in (1, 1, 2))
    assert one == same != other
    assert sorted(one) == sorted(other) == [f"{i:04d}.bin" for i in range(300)]


def test_a_file_that_is_gone_is_named(tmp_path):
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(b"1")
    dataset = fl.open(tmp_path)
    (tmp_path / "b.bin").unlink()
    with pytest.raises(fl.NotFoundError, match=r"b\.bin: sample 1: there is no such file"):
        list(dataset)
    assert len(list(dataset.options(on_error="skip"))) == 1


def test_pixels_and_arrays_of_batches(tmp_path):
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", np.full((2, 3), i, np.float32))
    batches = list(fl.open(tmp_path).batch(2))
    assert [batch["data"].shape for batch in batches] == [(2, 2, 3), (2, 2, 3)]
