"""Examples run, and so does the code in the pages of the documentation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastloader.fields import BY_TYPE_ID

ROOT = Path(__file__).parents[1]
PAGES = [
    "how-to/audio.md",
    "how-to/augment-masks-and-views.md",
    "how-to/convert.md",
    "how-to/custom-field.md",
    "how-to/custom-op.md",
    "how-to/expressions.md",
    "how-to/find-the-bottleneck.md",
    "how-to/resume.md",
    "how-to/text.md",
    "how-to/variable-length.md",
    "how-to/video.md",
    "reference/dataset.md",
    "reference/formats.md",
    "tutorials/first-dataset.md",
]


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


def test_the_explanation_shown_in_the_reference_is_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    execute("reference/dataset.md")
    printed = capsys.readouterr().out
    assert "".join(f"    {line}\n" for line in printed.splitlines()) in (ROOT / "docs/reference/dataset.md").read_text()


@pytest.fixture
def registry():
    before = dict(BY_TYPE_ID)
    yield
    BY_TYPE_ID.clear()
    BY_TYPE_ID.update(before)


def blocks(page):
    """The Python blocks of a page, each with the number of its first line."""
    text = (ROOT / "docs" / page).read_text()
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, match.start(1)), match[1]


def execute(page):
    names = {"__name__": "page"}
    for line, code in blocks(page):
        exec(compile("\n" * line + code, str(ROOT / "docs" / page), "exec"), names)
    return names


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, registry, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert len(list(blocks(page))) >= 3
    execute(page)
    for comment in re.findall(r"print\(error\)  # (.*)", (ROOT / "docs" / page).read_text()):
        assert comment in capsys.readouterr().out


def test_the_contract_shown_in_the_how_to_passes(registry, tmp_path):
    source = "\n".join(code for _, code in blocks("how-to/custom-field.md"))
    (tmp_path / "test_page.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "test_page.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d\d passed", done.stdout)


def test_importing_fastloader_imports_no_pytest():
    code = "import sys, fastloader; print('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
