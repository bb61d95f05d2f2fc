"""Tens of thousands of damaged and hostile files: each is refused in the right words or read right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from . import mutants as module
from . import sanitized
from .anatomy import Number, reseal
from .datasets import Base
from .exercise import Exercise
from .mutants import Mutant, Mutants
from .operations import ANY, SEALED_ONLY

pytestmark = pytest.mark.timeout(2400)  # on a busy machine too

OUTCOMES = ("refused", "read in part", "read in full")


def run_plain(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.bad_input", *arguments]
    return subprocess.run(command, cwd=sanitized.ROOT, capture_output=True, text=True, check=False)


def check(done: subprocess.CompletedProcess[str], report: Path, mutants: int) -> None:
    """No fault; and the mutants were neither all hopeless nor all harmless, or the test would show little."""
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
    found = json.loads(report.read_text())
    assert found["faults"] == []
    tally = found["tally"]
    assert sum(tally.values()) == found["count"] == mutants
    for kind in ("raw", "resealed"):
        total = sum(count for name, count in tally.items() if name.startswith(f"{kind},"))
        assert total > mutants / 8
        for outcome in OUTCOMES:
            assert tally[f"{kind}, {outcome}"] > total / 50


@pytest.mark.long
def test_20_000_mutants_are_refused_or_read_right_in_little_memory(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    check(run_plain("--mutants", "20000", "--seed", "1", "--report", str(report)), report, 20000)


@pytest.mark.long
def test_10_000_mutants_find_nothing_for_the_sanitizers_to_report(sanitized_folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = sanitized.run(sanitized_folder, "--mutants", "10000", "--seed", "2", "--report", str(report))
    check(done, report, 10000)


def test_wild_calls_of_the_native_functions_raise_and_never_crash() -> None:
    done = run_plain("--native", "6000", "--chunk", "3000", "--seed", "3")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]


def test_wild_calls_find_nothing_for_the_sanitizers_to_report(sanitized_folder: Path) -> None:
    done = sanitized.run(sanitized_folder, "--native", "20000", "--chunk", "5000", "--seed", "4")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]


def test_answers_of_servers_give_the_sanitizers_nothing_to_report(sanitized_folder: Path) -> None:
    program = """
import sys
import pytest
from tests.bad_input.overlay import use_overlay
use_overlay()
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/stores/test_net_client.py"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=sanitized.ROOT, env=sanitized.environment(sanitized_folder),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
    assert " passed" in done.stdout


def test_the_sanitizers_are_on(sanitized_folder: Path) -> None:
    """The module that is loaded asks for both, and AddressSanitizer sees a read behind a heap block."""
    program = """
import ctypes, mmap, sys
from tests.bad_input.overlay import use_overlay
use_overlay()
from fastloader import _native
with open(_native.__file__, "rb") as file:  # it is larger than what may be allocated
    module = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
assert min(map(module.find, (b"__asan_init", b"__ubsan_handle"))) > 0, _native.__file__
maps = open("/proc/self/maps").read()
assert "libasan" in maps and "libubsan" in maps
print("ready", flush=True)
block = ctypes.CDLL(None).malloc
block.restype = ctypes.c_void_p
ctypes.CDLL(None).memcmp(ctypes.c_void_p(block(64)), ctypes.c_void_p(block(64)), 200)
print("unseen")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=sanitized.ROOT, env=sanitized.environment(sanitized_folder),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "ready\n", done.stdout + done.stderr
    assert "heap-buffer-overflow" in done.stderr


@pytest.mark.parametrize(
    ("misdeed", "sign"), [("crash", "SIGABRT"), ("hang", "Timeout (0:00:01)!"), ("hog", "MemoryError")]
)
def test_a_crash_a_hang_and_a_hunger_for_memory_are_put_down_to_their_mutant(
    misdeed: str, sign: str, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    done = run_plain("--mutants", "12", "--misbehave", misdeed, "--seconds", "1", "--report", str(report))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "see it again: python -m tests.bad_input --seed 1 --only 5\n" in done.stdout
    found = json.loads(report.read_text())
    assert [fault["number"] for fault in found["faults"]] == [5]
    assert sign in found["faults"][0]["faults"][0]
    assert sum(found["tally"].values()) == 6  # those behind it; the tally of those before died with their process


def test_a_number_always_gives_the_same_mutant(bases: dict[str, Base]) -> None:
    one, other = Mutants(bases, 7), Mutants(bases, 7)
    assert all(one[i].files == other[i].files and one[i].what == other[i].what for i in range(300))
    assert any(one[i].files != Mutants(bases, 8)[i].files for i in range(10))


def test_nearly_every_mutant_differs_from_its_original(bases: dict[str, Base]) -> None:
    mutants = Mutants(bases, 1)
    unchanged = sum(mutants[i].files == mutants[i].base.files for i in range(1000))
    assert unchanged < 30


def test_every_dataset_and_every_operation_is_used(bases: dict[str, Base], monkeypatch: pytest.MonkeyPatch) -> None:
    used = set()

    def noting(operation):
        def run(edit, rng):
            used.add(operation)
            return operation(edit, rng)

        return run

    for name in ("ANY", "SEALED_ONLY"):
        monkeypatch.setattr(module, name, [noting(operation) for operation in getattr(module, name)])
    mutants = Mutants(bases, 1)
    assert {mutants[i].base.name for i in range(2000)} == set(bases)
    assert used == {*ANY, *SEALED_ONLY}


def test_every_integer_of_the_header_and_directory_is_gone_through(bases: dict[str, Base]) -> None:
    seen = {(base.name, number.what) for base, _, number, _, _ in Mutants(bases, 1).systematic}
    for base in bases.values():
        anatomy = next(iter(base.anatomies.values()))
        wanted = [n for n in anatomy.numbers if n.what.startswith(("header", "directory", "entry", "descriptor"))]
        assert len(wanted) > 30
        assert all((base.name, number.what) in seen for number in wanted)


def test_resealing_an_untouched_file_changes_nothing(bases: dict[str, Base]) -> None:
    for base in bases.values():
        for name in base.anatomies:
            data = bytearray(base.files[name])
            reseal(data)
            assert data == base.files[name]


def test_resealing_repairs_every_checksum(bases: dict[str, Base]) -> None:
    for base in bases.values():
        for name, anatomy in base.anatomies.items():
            data = bytearray(base.files[name])
            for number in anatomy.numbers:
                if number.is_checksum and number.get(data):  # a zero is that of no bytes, which may not be sealed
                    number.put(data, 0x12345678)
            assert data != base.files[name]
            reseal(data)
            assert data == base.files[name]


def _exercised(mutant: Mutant, path: Path) -> Exercise:
    mutant.base.write(path, mutant.files)
    exercise = Exercise(mutant, path, Random(1))
    exercise.run()
    return exercise


@pytest.mark.parametrize(
    "name",
    ["scalars", "blobs", "arrays", "pictures", "sounds", "videos", "photos", "masks", "texts", "pages", "empty", "own",
     "shards", "unknown"],
)  # fmt: skip
def test_an_untouched_dataset_has_no_faults(bases: dict[str, Base], name: str, tmp_path: Path) -> None:
    base = bases[name]
    exercise = _exercised(Mutant(0, "nothing", base, base.files, False, (base,)), tmp_path / "same.fld")
    assert exercise.faults == []
    assert exercise.refusals == (0 if not base.unreadable else exercise.refusals)


def test_data_that_changed_unnoticed_is_a_fault(bases: dict[str, Base], tmp_path: Path) -> None:
    """With every checksum right, a changed value reads well; held against what was written, it is told."""
    base = bases["scalars"]
    data = bytearray(base.files[""])
    number = next(n for n in base.anatomies[""].numbers if n.what == "metadata 0 row 4.value")
    assert isinstance(number, Number)
    number.put(data, 99)
    reseal(data)
    exercise = _exercised(Mutant(0, "a value", base, {"": bytes(data)}, False, (base,)), tmp_path / "one.fld")
    assert any("silently gives" in fault for fault in exercise.faults)
    assert any("verify says ok" in fault for fault in exercise.faults)


def test_a_foreign_exception_is_a_fault(
    bases: dict[str, Base], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: object, *_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("fastloader.reader.DatasetReader.read_payload", broken)
    base = bases["own"]
    exercise = _exercised(Mutant(0, "nothing", base, base.files, False, (base,)), tmp_path / "one.fld")
    assert any("foreign exception" in fault and "oops" in fault for fault in exercise.faults)
