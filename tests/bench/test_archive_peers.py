"""What contestants of the archive benchmark have in memory before they read from disk, and what the rows say of it."""

import json
import sys
from pathlib import Path

import pytest
from page_cache import is_resident, on_disk

from fastloader.stores import MappedFile

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "bench" / "archive"


@pytest.fixture
def bench(monkeypatch):
    for path in (ROOT / "bench", ARCHIVE, ARCHIVE / "peers"):
        monkeypatch.syspath_prepend(str(path))
    for name in ("bench_paths", "task"):
        sys.modules.pop(name, None)
    import bench_paths

    yield bench_paths
    for name in ("bench_paths", "task"):
        sys.modules.pop(name, None)


def test_what_was_just_written_is_forgotten_too(bench, tmp_path):
    with on_disk(tmp_path) as place:
        (place / "a").mkdir()
        paths = [place / "x", place / "a" / "y"]
        for path in paths:
            path.write_bytes(bytes(1 << 16))
        bench.task.drop([place / "a", place / "x"])
        assert not any(is_resident(MappedFile(path).bytes).any() for path in paths)


def test_names_are_forgotten_where_one_may(bench, tmp_path):
    switch = tmp_path / "drop_caches"
    switch.write_text("0")
    assert bench.task.forget_names(switch)
    assert switch.read_text() == "3"
    assert not bench.task.forget_names(tmp_path / "missing" / "drop_caches")
    assert not bench.task.forget_names(tmp_path)


@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize("mode", ["hot", "cold", "threads"])
def test_names_are_forgotten_last_and_for_each_that_reads_from_disk(
    bench, mode, forgotten, tmp_path, monkeypatch, capsys
):
    task, done = bench.task, []
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "paths.json").write_text('["x"]')

    def told(name: str) -> bool:
        done.append(name)
        return forgotten

    def opened(folder: Path, place: Path) -> task.Read:
        done.append("open")
        return lambda path: (done.append("read"), (folder / path).read_bytes())[1]

    monkeypatch.setattr(task, "drop", lambda places: told("drop"))
    monkeypatch.setattr(task, "forget_names", lambda: told("forget"))
    monkeypatch.setattr(task, "READ", 3)
    monkeypatch.setattr(task, "READ_COLD", 3)
    monkeypatch.setattr(
        sys, "argv", ["peer", mode, str(tmp_path), str(tmp_path / "place"), str(tmp_path / "paths.json")]
    )
    task.run(None, opened)
    before = ["read"] * 3 if mode == "hot" else ["drop", "forget"]
    assert done == ["open", *before, "read", "read", "read"]
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == 9
    assert found["forgotten"] == (forgotten and mode != "hot")


def test_a_row_says_what_was_in_memory(bench):
    """Of plain files alone: an archive is one file, which is open."""
    task = bench.task
    peers = ["plain", "lmdb"]

    def rows(**forgotten: bool) -> dict[tuple[str, str], str]:
        made = {
            (peer, mode): [
                {"seconds": 1.0, "cpu": 1.0, "bytes": 1, "forgotten": forgotten.get(peer, False)},
                {"seconds": 1.0, "cpu": 1.0, "bytes": 1, "forgotten": True},
            ]
            for peer in ("fastloader", "bare", *peers)
            for mode in (task.CREATE, task.HOT, task.COLD, task.THREADS, "hot many", "cold many")
        }  # fmt: skip
        return {(row.what, row.against): row.details for row in bench.compare(made, peers)}

    said = {key for key, details in rows().items() if "inodes were in memory" in details}
    assert said == {
        (f"read by path, {how}from disk", "plain") for how in ("", "64 at a time, ", "16 threads, ")
    }  # fmt: skip
    assert not any("inodes" in details for details in rows(plain=True).values())
