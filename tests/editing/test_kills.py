"""Writers that are killed at any moment, and two at once: a reader sees one state or the other, never half of one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from two_writers import FIELDS, check_two_writers

import fastloader as fl
from fastloader.formats.fld import snapshots

_KILLED = """
    import os, random, shutil, signal, sys
    from pathlib import Path
    import fastloader as fl

    CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "fcntl.flock"}
    os.fsync = lambda descriptor: None  # a kill is no power cut
    original, folder, what = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

    def change(where):
        if what == "append":
            with fl.DatasetWriter(where, None, mode="a", num_workers=0) as writer:
                writer.write_many([{"n": 100 + i, "data": b"%d" % (100 + i)} for i in range(9)],
                                  [f"k{100 + i}" for i in range(9)])
        elif what == "delete":
            fl.edit(where).delete(indices=[0, 7])
        elif what == "update":
            fl.edit(where).update({3: {"n": 333, "data": b"333"}})
        elif what == "column":
            fl.edit(where).add_column("c", fl.IntField(), lambda sample: sample["n"] * 2)
        elif what == "compact":
            fl.edit(where).compact()
        else:
            fl.edit(where).drop_snapshots()

    def killed(moment):  # right before that step, of those that change something on the disk
        where = folder / f"{moment:03d}.fld"
        shutil.copytree(original, where)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            steps = [0]
            def hook(event, arguments):
                if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
                    if steps[0] == moment:
                        os.kill(os.getpid(), signal.SIGKILL)
                    steps[0] += 1
            sys.addaudithook(hook)
            change(where)
            os.write(tell, b"%d" % steps[0])
            os._exit(0)
        os.close(tell)
        _, status = os.waitpid(child, 0)
        done = int(os.read(told, 9) or 0)
        os.close(told)
        assert os.WIFSIGNALED(status) or done, "the change failed"
        return done

    shutil.copytree(original, folder / "warm")
    change(folder / "warm")  # so that children need not import everything
    steps = killed(999)
    for moment in sorted(random.Random(what).sample(range(steps), min(steps, 12))):
        assert not killed(moment)
    print(steps)
"""


def written(where: Path, samples: int) -> Path:
    with fl.DatasetWriter(where, FIELDS, shard_size=20, keys=True) as writer:
        for i in range(samples):
            writer.write_sample({"n": i, "data": b"%d" % i}, f"k{i}")
    return where


def whole(where: Path, snapshot: int | None = None) -> tuple[int, ...]:
    """The numbers of a snapshot's samples, all of whose values are known to be there and to belong together."""
    reader = fl.open(where, snapshot=snapshot)
    batch = reader.read_batch(np.arange(len(reader)))
    numbers = tuple(batch["n"].tolist())
    assert [int(data) for data in batch["data"]] == list(numbers)
    for name in reader.field_names[2:]:
        assert batch[name].tolist() == [2 * n for n in numbers]
    return numbers


def states(where: Path) -> dict[int, tuple[int, ...]]:
    """All snapshots, each of them whole."""
    found = {one.number: (one.num_samples, whole(where, one.number)) for one in fl.edit(where).snapshots()}
    assert all(len(numbers) == samples for samples, numbers in found.values())
    return {number: numbers for number, (_, numbers) in found.items()}


@pytest.mark.parametrize("what", ["append", "delete", "update", "column", "compact", "forget"])
def test_a_writer_killed_at_any_moment_leaves_the_state_before_or_the_one_after(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    original = written(tmp_path / "x.fld", 24)
    fl.edit(original).delete(indices=[5, 20])
    fl.edit(original).update({2: {"n": 222, "data": b"222"}})
    before = states(original)
    (tmp_path / "killed").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_KILLED), str(original), str(tmp_path / "killed"), what],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "killed").glob("*.fld"))
    assert len(folders) == min(int(done.stdout), 12) + 1 > 3
    after = states(folders[-1])
    assert after != before
    seen = []
    for where in folders:
        found = states(where)
        seen.append(found == after)
        if what == "forget":  # one snapshot after the other
            assert after.items() <= found.items() <= before.items()
        else:
            assert found in (before, after)
        newest = whole(where)
        assert newest == found[max(found)]
        if len(seen) % 4 == 1:  # who comes next is not in the way of what was left
            assert fl.verify(where, num_workers=0).ok
            fl.edit(where).delete(indices=[0])
            fl.edit(where).compact()
            fl.edit(where).drop_snapshots()
            assert whole(where) == newest[1:]
            left = {path.name for path in where.iterdir()} - {"manifest.json", "snapshots"}
            assert left == {shard.path for shard in fl.open(where).dataset.shards}
    assert seen == sorted(seen)
    with fl.DatasetWriter(tmp_path / "killed" / folders[0].name, None, mode="a"):
        pass
    hidden = [path.name for path in (tmp_path / "killed").iterdir() if path.name.startswith(".")]
    assert not [name for name in hidden if name.startswith(f".{folders[0].name}")]


def test_a_reader_sees_whole_states_while_another_writes(tmp_path: Path) -> None:
    where = written(tmp_path / "x.fld", 30)
    wrong: list[BaseException] = []

    def write() -> None:
        try:
            editor = fl.edit(where)
            for turn in range(4):
                editor.delete(indices=[turn])
                editor.add_column(f"c{turn}", fl.IntField(), lambda sample: int(sample["n"]) * 2)
                editor.compact()
        except BaseException as error:
            wrong.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    seen = {whole(where)}
    while writer.is_alive():
        seen.add(whole(where))
    writer.join()
    assert not wrong
    assert len(whole(where)) == 26
    assert len(seen) > 1


@pytest.mark.parametrize("in_store", [False, True])
def test_of_two_writers_at_once_one_wins_and_the_other_loses_nothing(in_store: bool, tmp_path: Path) -> None:
    where = f"memory://{tmp_path.name}/x.fld" if in_store else str(tmp_path / "x.fld")
    check_two_writers(where, None)


def test_a_manifest_in_a_store_is_put_only_if_it_is_still_the_one_that_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{tmp_path.name}/x.fld"
    with fl.DatasetWriter(url, FIELDS, shard_size=20, keys=True) as writer:
        writer.write_many(({"n": i, "data": b"%d" % i} for i in range(12)), [f"k{i}" for i in range(12)])
    real = snapshots.keep

    def interrupted(where: Any, manifest: Any) -> None:
        monkeypatch.setattr(snapshots, "keep", real)
        real(where, manifest)
        fl.edit(url).delete(keys=["k3"])  # somebody else, at the last moment

    for change in (
        lambda: fl.edit(url).delete(keys=["k5"]),
        lambda: fl.edit(url).add_column("c", fl.IntField(), range(12)),
    ):
        before = fl.edit(url).snapshots()[0].number
        monkeypatch.setattr(snapshots, "keep", interrupted)
        with pytest.raises(fl.StoreError, match="was changed by another writer in the meantime"):
            change()
        reader = fl.open(url)
        assert "k3" not in reader
        assert "k5" in reader
        assert fl.edit(url).snapshots()[0].number == before + 1
        with fl.DatasetWriter(url, None, mode="a") as writer:  # so that it can be deleted once more
            writer.write_sample({"n": 3, "data": b"3"}, "k3")
    named = {one.path for one in fl.open(url).dataset.objects}
    found = {one.key.removeprefix("x.fld/") for one in fl.open(url).path.store.list("x.fld")}
    assert {name for name in found if name.endswith(".fld")} == named


def test_who_comes_second_is_told_and_may_do_it_again(tmp_path: Path) -> None:
    where = written(tmp_path / "x.fld", 30)
    before = sorted(os.listdir(where))
    second = fl.edit(where)

    def values(sample: dict[str, Any]) -> int:
        if sample["n"] == 20:
            fl.edit(where).delete(keys=["k1"])
        return int(sample["n"]) * 2

    with pytest.raises(
        fl.StoreError, match="changed by another writer in the meantime; nothing of this was published; do it again"
    ):
        second.add_column("c", fl.IntField(), values)
    assert sorted(os.listdir(where)) == sorted([*before, "snapshots"])
    assert os.listdir(tmp_path) == ["x.fld"]
    second.add_column("c", fl.IntField(), lambda sample: int(sample["n"]) * 2)
    assert whole(where) == tuple(n for n in range(30) if n != 1)
