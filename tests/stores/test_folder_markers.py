"""Objects that only mark folders are no files, and empty files are no markers."""

from __future__ import annotations

import io
import secrets
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.stores.folder_markers import put_marker

import fastloader as fl
from fastloader.cli import main
from fastloader.stores import Store, open_store
from fastloader.testing.seaweed import ACCESS, SECRET, S3Server


@pytest.fixture
def place(s3: S3Server) -> tuple[Store, str]:
    """A bucket, and a folder in it that nobody has used."""
    return open_store(f"s3://markers/{secrets.token_hex(6)}", s3.storage_options())


def test_a_folder_that_is_marked_opens(s3: S3Server, place: tuple[Store, str]) -> None:
    store, at = place
    for i in range(3):
        file = io.BytesIO()
        np.savez(file, x=np.arange(3) + i)
        store.put(f"{at}/npz/{i}.npz", file.getvalue())
    put_marker(s3, "markers", f"{at}/npz/")
    put_marker(s3, "markers", f"{at}/npz/later/")  # with nothing in it
    for url in (f"{store.url}/{at}/npz/", f"{store.url}/{at}/npz", f"{store.url}/{at}/npz/*"):
        assert [one["x"][0] for one in fl.open(url, s3.storage_options())] == [0, 1, 2]


def test_classes_are_folders_that_hold_something(s3: S3Server, place: tuple[Store, str]) -> None:
    store, at = place
    store.put(f"{at}/cat/1.bin", b"one")
    store.put(f"{at}/dog/2.bin", b"two")
    for folder in ("", "cat/", "dog/", "empty/"):
        put_marker(s3, "markers", f"{at}/{folder}")
    data = fl.open(f"{store.url}/{at}", s3.storage_options())
    assert data.classes == ("cat", "dog")
    assert [one["data"] for one in data] == [b"one", b"two"]


def test_lists_have_empty_objects_and_no_markers(s3: S3Server, place: tuple[Store, str]) -> None:
    store, at = place
    for key, data in (("cat/1", b"one"), ("cat-x", b"x"), ("file", b""), ("cat/deep/none", b"")):
        store.put(f"{at}/{key}", data)
    for folder in ("", "cat/", "cat/deep/", "empty/"):
        put_marker(s3, "markers", f"{at}/{folder}")
    assert sorted(one.key.removeprefix(f"{at}/") for one in store.list(at)) == [
        "cat-x",
        "cat/1",
        "cat/deep/none",
        "file",
    ]
    assert [one.key for one in store.list(f"{at}/cat")] == [f"{at}/cat/1", f"{at}/cat/deep/none"]
    assert list(store.list(f"{at}/empty")) == []


def test_an_empty_object_with_the_name_of_a_folder_is_kept(place: tuple[Store, str]) -> None:
    store, at = place
    store.put(f"{at}/both/1", b"one")
    store.put(f"{at}/both", b"")
    assert [one.key for one in store.list(at)] == [f"{at}/both", f"{at}/both/1"]


def test_marked_folders_are_copied_and_listed(
    s3: S3Server, place: tuple[Store, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store, at = place
    store.put(f"{at}/cat/1.bin", b"one")
    for folder in ("", "cat/"):
        put_marker(s3, "markers", f"{at}/{folder}")

    def run(*words: object) -> str:
        done = CliRunner().invoke(main, ["store", str(words[0]), "--endpoint", s3.endpoint, *map(str, words[1:])])
        assert done.exit_code == 0, done.output
        return done.stdout if words[0] == "ls" else done.output

    assert [line.split()[-1] for line in run("ls", f"{store.url}/{at}").splitlines()] == ["cat/"]
    run("get", "-r", f"{store.url}/{at}", tmp_path / "copy")
    assert [path.name for path in sorted((tmp_path / "copy").rglob("*"))] == ["cat", "1.bin"]
    assert "copied 1 object," in run("cp", "-r", f"{store.url}/{at}", f"{store.url}/{at}-copy")
    assert [one.key for one in store.list(f"{at}-copy")] == [f"{at}-copy/cat/1.bin"]
