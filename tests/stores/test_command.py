"""``fastloader store``: objects listed, copied and removed by their URLs."""

from __future__ import annotations

import json
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fastloader.cli import main
from fastloader.stores import MemoryStore, copying, open_store
from fastloader.testing.seaweed import ACCESS, SECRET, S3Server


@pytest.fixture
def run(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> object:
    """Run a command with credentials from the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    def call(*arguments: object, fails: int = 0) -> Result:
        words = [str(one) for one in arguments]
        result = CliRunner().invoke(main, ["store", words[0], "--endpoint", s3.endpoint, *words[1:]])
        assert result.exit_code == fails, result.output
        return result

    return call


@pytest.fixture
def url() -> str:
    """A folder that nobody has used."""
    return f"s3://commands/{secrets.token_hex(6)}"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Some files."""
    folder = tmp_path / "tree"
    for name, size in (("a.txt", 3), ("sub/b.bin", 20_000_000), ("sub/deeper/c", 0)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(i % 251 for i in range(min(size, 1000))) * max(1, size // 1000))
    return folder


def test_a_folder_goes_there_and_back(run, url: str, tree: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "copied 3 objects" in run("put", "-r", tree, url).output
    assert "copied 3 objects" in run("cp", "-r", "-j", "2", url, url + "-copy").output
    run("get", "-r", url + "-copy", tmp_path / "back")
    for path in tree.rglob("*"):
        if path.is_file():
            assert (tmp_path / "back" / path.relative_to(tree)).read_bytes() == path.read_bytes()


def test_listing_tells_folders_apart(run, url: str, tree: Path) -> None:  # type: ignore[no-untyped-def]
    run("put", "-r", tree, url)
    short = run("ls", url).stdout.split("\n")
    assert [line.split()[-1] for line in short if line] == ["a.txt", "sub/"]
    full = [json.loads(line) for line in run("ls", "-r", "--json", url).stdout.splitlines()]
    sizes = {one["name"]: one["size"] for one in full}
    assert sizes == {"a.txt": 3, "sub/b.bin": 20_000_000, "sub/deeper/c": 0}
    assert json.loads(run("stat", "--json", url + "/a.txt").stdout)["size"] == 3
    assert "size  3 bytes" in run("stat", url + "/a.txt").stdout


def test_single_objects_go_where_they_are_told(run, url: str, tree: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run("put", tree / "a.txt", url + "/")
    run("put", tree / "a.txt", url + "/other")
    run("get", url + "/other", tmp_path)
    run("get", url + "/a.txt", tmp_path / "named")
    assert (tmp_path / "other").read_bytes() == (tmp_path / "named").read_bytes() == (tree / "a.txt").read_bytes()


def test_removing_takes_just_what_is_named(run, url: str, tree: Path, s3: S3Server) -> None:  # type: ignore[no-untyped-def]
    run("put", "-r", tree, url)
    run("put", tree / "a.txt", url + "-neighbour")
    assert "removed 1 object" in run("rm", url + "/a.txt").output
    assert "there is no such object" in run("rm", url, fails=2).output
    assert "removed 2 objects" in run("rm", "-r", url).output
    store, key = open_store(url, s3.storage_options())
    assert list(store.list(key)) == []
    assert store.stat(key + "-neighbour").size == 3
    assert "names a whole store" in run("rm", "-r", "s3://commands", fails=2).output


def test_what_links_lead_to_is_copied_too(run, url: str, tree: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As it is read by ``fl.open``; but nothing is removed by way of a link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "d").write_bytes(b"linked")
    for name in ("one", "other"):
        (tree / name).symlink_to(outside)
    (tree / "sub" / "back").symlink_to(tree)
    assert "copied 5 objects" in run("put", "-r", tree, url).output
    assert [line.split()[-1] for line in run("ls", "-r", url).stdout.splitlines()] == [
        "a.txt", "one/d", "other/d", "sub/b.bin", "sub/deeper/c",
    ]  # fmt: skip
    (tree / "nowhere").symlink_to(tmp_path / "gone")
    assert "nowhere: there is no such file" in run("put", "-r", tree, url, fails=2).output
    run("rm", "-r", tree)
    assert (outside / "d").read_bytes() == b"linked"


def test_a_folder_that_can_not_be_read_is_an_error(run, url: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def refused(top: Path, onerror: object, **options: object) -> list[object]:
        onerror(PermissionError(13, "Permission denied", str(tree / "sub")))  # type: ignore[operator]
        return []

    monkeypatch.setattr("os.walk", refused)
    assert "sub: Permission denied" in run("put", "-r", tree, url, fails=2).output


def test_an_empty_place_is_listed_as_such(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").touch()
    run("put", tmp_path / "file", "s3://emptied/x")
    run("rm", "s3://emptied/x")
    (tmp_path / "folder").mkdir()
    for place in ("s3://emptied", tmp_path / "folder"):
        result = run("ls", place)
        assert (result.stdout, result.stderr) == ("", "fastloader: 0 objects, 0 bytes\n")


def test_options_are_true_or_false(run, url: str, tree: Path) -> None:  # type: ignore[no-untyped-def]
    run("put", tree / "a.txt", url)
    run("stat", "-o", "anonymous=false", "-o", "direct=False", url)
    assert "refused" in run("stat", "-o", "anonymous=true", url, fails=2).output
    assert "-o direct=maybe: true or false" in run("stat", "-o", "direct=maybe", url, fails=2).output


def test_ctrl_c_ends_a_copy_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that wait are not begun, and those under way do not appear."""
    begun, ended = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def read(self, *arguments: Any, **options: Any) -> memoryview:
            begun.set()
            ended.wait(60)
            return super().read(*arguments, **options)

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            ended.set()
            super().shutdown(wait=wait)

    def interrupted(*arguments: object, **options: object) -> None:
        begun.wait(60)
        raise KeyboardInterrupt

    source, target = Slow(secrets.token_hex(6)), MemoryStore(secrets.token_hex(6))
    for number in range(50):
        source.put(f"a/{number}", b"some bytes")
    monkeypatch.setattr(copying, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(copying, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copying.copy_folder(source, "a", target, "b", 2)
    assert list(target.list()) == []


def test_errors_are_one_line_with_a_status(run, url: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for arguments in (("stat", url), ("get", url, tmp_path), ("get", "-r", url, tmp_path), ("ls", url)):
        result = run(*arguments, fails=2)
        assert result.stderr.startswith("fastloader: s3://commands/")
    assert "no store for ftp://" in run("ls", "ftp://host/x", fails=2).output
    assert "give NAME=VALUE" in run("ls", "-o", "colour", url, fails=2).output
    assert "not understood" in run("ls", "-o", "colour=red", url, fails=2).output
