"""Archives mounted for real: what other programs see, from several at once, and how it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.mount.conftest import Made, facts

from fastloader.cli import main

PROGRAM = [str(Path(sys.executable).with_name("fastloader")), "mount"]


@contextlib.contextmanager
def mounted(path: Path, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Mounted by the command, in the foreground, until the block ends."""
    process = subprocess.Popen(
        [*PROGRAM, str(path), str(folder), *options], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert "Ctrl-C unmounts it" in line, process.stderr.read()
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        status = process.wait()
        said = process.stderr.read()
        process.stdout.close()
        process.stderr.close()
    assert status == 0, said


def test_other_programs_see_what_extraction_makes(made: Made, tmp_path: Path) -> None:
    view = tmp_path / "view, here"
    with mounted(made.path, view):
        compare = ["diff", "-r", "--no-dereference", str(made.extracted), str(view)]
        at_once = [subprocess.Popen(compare, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        assert facts(view) == facts(made.extracted)
        for one in at_once:
            said, _ = one.communicate()
            assert (one.returncode, said) == (0, "")
        space = os.statvfs(view)
        assert space.f_bavail == 0
        assert space.f_blocks > 0
    assert not view.exists()


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory, odd_folder: Path) -> Iterator[Path]:
    """A tar, mounted."""
    place = tmp_path_factory.mktemp("tar")
    subprocess.run(["tar", "-cf", place / "x.tar", "-C", odd_folder, "."], check=True)
    (place / "view").mkdir()
    with mounted(place / "x.tar", place / "view"):
        yield place / "view"
    assert list((place / "view").iterdir()) == []  # it was there, and stays


def test_nothing_can_be_written(view: Path) -> None:
    for change in (
        lambda: (view / "new").write_bytes(b""),
        lambda: (view / "a-b").open("r+b"),
        lambda: (view / "a-b").unlink(),
        lambda: (view / "a-b").rename(view / "c"),
        lambda: (view / "new").mkdir(),
        lambda: (view / "empty").rmdir(),
        lambda: (view / "a-b").chmod(0o777),
        lambda: os.utime(view / "a-b"),
        lambda: os.truncate(view / "a-b", 0),
        lambda: (view / "new").symlink_to("a-b"),
        lambda: os.link(view / "a-b", view / "new"),
    ):
        with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
            change()


def test_links_lead_where_they_say(view: Path) -> None:
    assert (view / "a" / "link").read_text() == "hello"
    assert (view / "folder-link" / "1.jpg").read_bytes() == (view / "a" / "b" / "1.jpg").read_bytes()
    assert not (view / "dangling").exists()
    assert (view / "y-hard.txt").read_text() == "hello"


def test_threads_read_anywhere_in_one_open_file(view: Path, odd_folder: Path) -> None:
    whole = (odd_folder / "large.bin").read_bytes()
    wrong: list[int] = []
    with (view / "large.bin").open("rb") as file:

        def read(first: int) -> None:
            for offset in range(first, len(whole), 777_777):
                if os.pread(file.fileno(), 5000, offset) != whole[offset : offset + 5000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(first * 100_003,)) for first in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert wrong == []


def test_it_is_unmounted_while_a_file_is_open(view: Path, tmp_path: Path) -> None:
    with mounted(view.parent / "x.tar", tmp_path / "view"):
        held = os.open(tmp_path / "view" / "a" / "x.txt", os.O_RDONLY)
    assert not (tmp_path / "view").exists()
    with contextlib.suppress(OSError):  # that nobody is there any more
        os.close(held)


def test_in_the_background_until_it_is_unmounted(tmp_path: Path, view: Path) -> None:
    place = view.parent
    run = subprocess.run([*PROGRAM, "x.tar", "back", "--background"], cwd=place, text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    found = re.search(r"process (\d+)", run.stdout)
    assert found is not None
    process = int(found[1])
    assert (place / "back" / "a" / "x.txt").read_text() == "hello"
    subprocess.run(["fusermount3", "-u", place / "back"], check=True)
    while _runs(process):
        time.sleep(0.02)
    assert not (place / "back").exists()


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_goes_wrong_is_told(tmp_path: Path, view: Path) -> None:
    (tmp_path / "file").write_bytes(b"something")
    for arguments, status, said in (
        ((tmp_path / "none.tar", tmp_path / "v"), 2, "there is no such file or folder"),
        ((tmp_path / "file", tmp_path / "v"), 1, "is no archive; a .fld archive, a tar"),
        ((tmp_path, tmp_path / "v"), 1, "is a folder already"),
        ((view.parent / "x.tar", tmp_path / "not" / "there"), 2, "can't be made: No such file or directory"),
        ((tmp_path / "file", tmp_path / "v", "--background"), 1, "is no archive; a .fld archive, a tar"),
    ):
        run = CliRunner().invoke(main, ["mount", *map(str, arguments)])
        assert run.exit_code == status
        assert said in run.stderr
        assert run.output == run.stderr
        assert run.stderr.count("\n") == 1
        assert not (tmp_path / "v").exists()


def test_others_may_look_where_that_is_wanted_and_modes_allow(view: Path) -> None:
    if os.geteuid():
        return  # only root may show files to others without being allowed to by /etc/fuse.conf

    def nobody(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, user=65534, group=65534, capture_output=True, text=True)

    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        folder = Path(place) / "view"
        for options, succeeds in ((("--allow-other",), True), ((), False)):
            with mounted(view.parent / "x.tar", folder, *options):
                run = nobody("cat", str(folder / "a" / "x.txt"))
                assert (run.stdout == "hello") is succeeds, run.stderr
                assert nobody("cat", str(folder / "a-b")).returncode != 0  # its mode is 0640
                assert (folder / "a-b").read_bytes()
