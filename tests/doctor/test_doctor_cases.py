"""The doctor on real datasets of extreme kinds: what bounds is found, whatever else the machine does meanwhile."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastloader as fl
from fastloader.cli import main
from fastloader.doctor import disk as disk_module
from fastloader.doctor.disk import examine_disk
from fastloader.doctor.pace import measured


def doctor(*arguments: object) -> Result:
    """Run the command for a short time."""
    return CliRunner().invoke(main, ["doctor", *map(str, arguments), "--seconds", "1", "-q"])


def examined(*arguments: object) -> dict[str, Any]:
    """What it finds, as JSON."""
    run = doctor(*arguments, "--json")
    assert run.exit_code == 0, run.output
    return dict(json.loads(run.stdout))


def later(told: dict[str, Any]) -> dict[str, Any]:
    """The verdict for epochs in which the disk plays no part."""
    return dict(told["diagnosis"]["verdicts"][-1])


def bound_by(bound: str, *arguments: object) -> dict[str, Any]:
    """What it finds where it finds that this bounds: who uses the machine meanwhile may now and then be taken for it.

    Times of a CPU that others use too are longer, and they are compared with some that were taken at another moment.
    """
    seen = []
    for _ in range(8):
        told = examined(*arguments)
        seen.append(later(told)["bound"])
        if seen[-1] == bound:
            return told
    raise AssertionError(seen)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PNG images that take long to unpack, raw ones that take long to resize, and arrays that are only copied."""
    folder = tmp_path_factory.mktemp("doctor")
    noise = np.random.default_rng(0).integers(0, 256, (8, 600, 600, 3), np.uint8)
    with fl.DatasetWriter(folder / "png.fld", {"image": fl.PNGImageField(), "label": fl.IntField()}) as writer:
        writer.write_many({"image": noise[i % 8] // 16, "label": i} for i in range(24))
    with fl.DatasetWriter(folder / "raw.fld", {"image": fl.RawImageField(600, 600)}) as writer:
        writer.write_many({"image": noise[i % 8]} for i in range(24))
    with fl.DatasetWriter(folder / "arrays.fld", {"x": fl.NDArrayField(np.uint8, (2 << 20,))}) as writer:
        writer.write_many({"x": np.full(2 << 20, i, np.uint8)} for i in range(24))
    (folder / "resize.py").write_text("import fastloader as fl\npipelines = {'image': [fl.ops.Resize(500)]}\n")
    (folder / "train.py").write_text(
        "import time\n\ncalls = []\n\n\ndef step(batch):\n    calls.append(len(batch['x']))\n    time.sleep(0.2)\n"
    )
    return folder


def test_png_is_bound_by_decoding(folder: Path) -> None:
    told = bound_by("decode", folder / "png.fld", "--batch-size", 4)
    image, label = told["findings"]["fields"]
    assert image["cpu"] > 100 * label["cpu"]
    assert image["resize"] is not None
    assert image["resize_is_used"] is False
    assert told["findings"]["disk"]["direct"] in (True, False)
    only = examined(folder / "png.fld", "--batch-size", 4, "--fields", "label", "--order", "sequential", "-j", 1)
    assert [field["name"] for field in only["findings"]["fields"]] == ["label"]
    assert (only["findings"]["threads"], only["findings"]["order"]) == (1, "sequential")


def test_arrays_are_bound_by_copying(folder: Path) -> None:
    told = bound_by("copy", folder / "arrays.fld", "--batch-size", 12)
    (field,) = told["findings"]["fields"]
    assert field["decoded_bytes"] == pytest.approx(2 << 20, rel=0.01)


def test_a_pipeline_is_measured_with_its_resize(folder: Path) -> None:
    told = bound_by("resize", folder / "raw.fld", "--batch-size", 4, "--pipeline", folder / "resize.py")
    (field,) = told["findings"]["fields"]
    assert (field["resize_to"], field["resize_is_used"]) == ([500, 500], True)
    assert field["cpu"] > field["alone"]


def test_a_slow_consumer_is_what_bounds(folder: Path) -> None:
    told = examined(folder / "arrays.fld", "--batch-size", 4, "--consumer", f"{folder / 'train.py'}:step")
    assert later(told)["bound"] == "consumer"
    assert told["findings"]["consumption"]["seconds"] >= 0.2
    assert told["findings"]["with_consumer"]["samples"] >= 4
    said = examined(folder / "arrays.fld", "--batch-size", 4, "--step-ms", 5000)
    assert later(said)["bound"] == "consumer"
    assert later(said)["limit"] == 0.8
    assert said["findings"]["with_consumer"] is None


def test_a_consumer_that_fails_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def step(batch):\n    raise RuntimeError(sorted(batch))\n")
    run = doctor(folder / "arrays.fld", "--batch-size", 4, "--consumer", f"{tmp_path / 'failing.py'}:step")
    assert run.exit_code == 1
    assert "failing.py:step failed on a batch: RuntimeError: ['x']" in run.stderr
    assert "Traceback" not in run.output


def test_words_and_a_report(folder: Path, tmp_path: Path) -> None:
    for _ in range(8):
        run = doctor(folder / "png.fld", "--batch-size", 4, "--html", tmp_path / "report.html")
        assert run.exit_code == 0
        if "decode-bound" in run.stdout:  # as above
            break
    assert "decode-bound" in run.stdout
    assert "PNG is slow to unpack" in run.stdout
    assert "loader, cold" in run.stdout
    assert f"{tmp_path / 'report.html'} shows it in pictures" in run.stdout
    assert "decode-bound" in (tmp_path / "report.html").read_text()


def test_wrong_usage_is_told(folder: Path, tmp_path: Path) -> None:
    with fl.DatasetWriter(tmp_path / "empty.fld", {"x": fl.IntField()}):
        pass
    (tmp_path / "odd.py").write_text("step = 3\n")
    for arguments, said in (
        ((tmp_path / "none.fld",), "there is no such file"),
        ((tmp_path / "empty.fld",), "there are no samples to load"),
        ((folder / "png.fld", "--fields", "nothing"), "no field 'nothing'"),
        ((folder / "png.fld", "--consumer", "train"), "give MODULE:FUNCTION"),
        ((folder / "png.fld", "--consumer", f"{tmp_path / 'odd.py'}:step"), "has no function step"),
        ((folder / "png.fld", "--consumer", "no_such_module:step"), "can't import no_such_module"),
        ((folder / "png.fld", "--consumer", "json:loads", "--step-ms", 3), "give one of them"),
        ((folder / "png.fld", "--pipeline", tmp_path / "none.py"), "there is no such file"),
        ((folder / "png.fld", "--pipeline", tmp_path / "odd.py"), "defines no pipelines"),
    ):
        run = doctor(*arguments)
        assert run.exit_code == 2, run.output
        assert said in run.stderr


def test_bare_reads_are_of_the_sizes_and_the_files_that_were_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [folder / "png.fld", folder / "raw.fld"]
    for direct in (True, False):
        with monkeypatch.context() as patched:
            if not direct:
                patched.setattr(disk_module, "_direct", lambda path: False)
            found = examine_disk(paths, 50_000, 1 << 20, 0.1)
        assert found.direct in (direct, False)
        assert {pace.at_once for pace in found.random} == {1, 8, 32}
        assert all(pace.bytes <= pace.count * 53_248 for pace in found.random)
        assert all(pace.bytes > pace.count * 40_000 for pace in found.random)
        assert found.is_cold or not found.direct


def test_a_pace_counts_what_all_did_and_raises_what_one_raised() -> None:
    found = measured(lambda number: lambda: 7, 3, 0.01)
    assert found.bytes == 7 * found.count
    assert found.count >= 3
    assert found.per_second * found.seconds == pytest.approx(found.count)

    def failing(number: int) -> Any:
        def work() -> int:
            if number == 1:
                raise OSError("gone")
            time.sleep(0.001)
            return 0

        return work

    with pytest.raises(OSError, match="gone"):
        measured(failing, 2, 600)
