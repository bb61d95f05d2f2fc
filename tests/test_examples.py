"""Examples run."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl

ROOT = Path(__file__).parents[1]
COLOURS = {"red": (205, 45, 40), "yellow": (235, 200, 60), "blue": (40, 80, 190), "white": (240, 240, 235)}


def run(name, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-W", "error", ROOT / "examples" / name, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_custom_field_example_runs(tmp_path):
    done = run("custom_field.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("100 polygons of 3 to 102 corners in ")
    assert list(tmp_path.iterdir()) == []


def test_the_custom_field_is_about_twenty_lines():
    text = (ROOT / "examples" / "custom_field.py").read_text()
    classes = text[text.index("class PolygonDecoder") : text.index("def regular")]
    assert len([line for line in classes.splitlines() if line.strip()]) <= 25


def test_the_first_dataset_example_runs(tmp_path):
    done = run("first_dataset.py", "--samples", "200", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"wrote 200 samples, \d+ MB, in .* s\nread them back in 7 shuffled batches in ", done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_the_first_dataset_is_kept_where_one_says(tmp_path):
    done = run("first_dataset.py", "--samples", "5", "--output", "kept.fld", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [p.name for p in tmp_path.iterdir()] == ["kept.fld"]


def test_the_example_of_expressions_runs(tmp_path):
    done = run("expressions.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"100 batches, 2\d% of them code; the state has [2-4]\d\d bytes", done.stdout)
    assert re.search(r"from there on: (8[7-9]|9[0-3])% code", done.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def every_modality(tmp_path_factory):
    """What the example prints, and the dataset it leaves."""
    folder = tmp_path_factory.mktemp("every")
    done = run("every_modality.py", "--samples", "20", "--output", "every.fld", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, folder / "every.fld"


def test_the_example_of_every_modality_verifies_and_describes_a_batch(every_modality):
    printed, _ = every_modality
    assert "every.fld: 20 samples" in printed
    assert ": all good\n" in printed
    for name, shown in (
        ("image", "uint8[8, 128, 128, 3]"), ("sound", "float32[8, 63, 80]"), ("video", "uint8[8, 8, 96, 96, 3]"),
        ("boxes", "float32[8, 3, 4]"), ("label", "int64[8]"),
    ):  # fmt: skip
        assert re.search(rf"^  {name} +{re.escape(shown)}$", printed, re.MULTILINE), name


def test_the_example_of_every_modality_resumes_with_identical_batches(every_modality):
    printed, _ = every_modality
    pairs = re.findall(r"batch \d+  (\w{16}) in one go, (\w{16}) resumed", printed)
    assert len(pairs) == 2
    assert all(one == other for one, other in pairs)
    assert len(set(pairs)) == 2


def test_the_example_of_every_modality_is_shown_in_a_readable_way(every_modality):
    printed, _ = every_modality
    info, cat = printed[printed.index("$ fastloader info") :].split("$ fastloader cat")
    for field in ("JPEGImageField", "AudioCompressedField", "VideoCompressedField", "TextField", "BoxesField"):
        assert f"{field}(" in info
    for shown in ("240x320x3", "3.000 s flac", "50 frames of 120x160x3", " ball in the canyon", "3 boxes, xyxy"):
        assert shown in cat


def test_the_boxes_of_the_example_are_around_its_balls(every_modality):
    _, path = every_modality
    with fl.open(path) as reader:
        for sample in reader:
            x0, y0, x1, y1 = sample["boxes"][-1]  # drawn last, so covered by no other
            column, row = int(x0 + x1) // 2, int(y0 + y1) // 2
            colour = COLOURS[re.findall(r"a (\w+) ball", sample["captions"][0])[-1]]
            still = sample["image"][row - 4 : row + 4, column - 4 : column + 4]
            moving = sample["video"][0][row // 2 - 2 : row // 2 + 2, column // 2 - 2 : column // 2 + 2]
            for pixels in (still, moving):
                assert (
                    np.abs(pixels.mean(axis=(0, 1)) - np.multiply(colour, 0.82)).max() < 25
                )  # the shade of the middle


def test_the_example_of_every_modality_says_what_is_not_installed(tmp_path):
    (tmp_path / "without.py").write_text(
        "import importlib.util as util, runpy, sys\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name in ('av', 'soxr') else found(name, *rest)\n"
        f"sys.argv = ['every_modality.py']\n"
        f"runpy.run_path({str(ROOT / 'examples' / 'every_modality.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "without.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == ('not installed: soxr, av; pip install "fastloader[audio,video]" brings what is missing\n')


def test_importing_fastloader_imports_no_pytest():
    code = "import sys, fastloader; print('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
