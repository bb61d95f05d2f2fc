"""Pipelines kept in a Python file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader import ops
from fastloader.pipeline.files import PipelineFileError, load_pipelines


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def _file(folder: Path, text: str, name: str = "augment.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


FILE = """
import fastloader as fl
from beside import SIZE

@fl.ops.custom(jit=False)
def darker(image, random):
    image //= 2

{name} = {{
    "image": (fl.ops.Resize((SIZE, SIZE)), darker),
    "two": fl.ops.Views(2, [fl.ops.RandomCrop(4)]),
    "label": [fl.ops.OneHot(3)],
}}
"""


@pytest.mark.parametrize("name", ["pipelines", "PIPELINES"])
def test_a_file_gives_what_it_calls_pipelines(tmp_path: Path, name: str) -> None:
    (tmp_path / "beside.py").write_text("SIZE = 6")
    found = load_pipelines(_file(tmp_path, FILE.format(name=name)))
    assert list(found) == ["image", "two", "label"]
    assert found["image"][0] == ops.Resize((6, 6))
    assert isinstance(found["two"], ops.Views)
    assert found["label"] == [ops.OneHot(3)]


def test_a_loader_takes_them(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("SIZE = 6")
    found = load_pipelines(str(_file(tmp_path, FILE.format(name="pipelines"))))
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.PNGImageField(), "label": fl.IntField()}) as writer:
        writer.write_sample({"image": np.full((9, 9, 3), 100, np.uint8), "label": 2})
    loader = fl.DataLoader(fl.open(tmp_path / "x.fld"), 1, pipelines={name: found[name] for name in ("image", "label")})
    (batch,) = loader
    assert batch["image"].shape == (1, 6, 6, 3)
    assert (batch["image"] == 50).all()
    assert batch["label"].tolist() == [[0, 0, 1]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "augment.py: defines no pipelines; write pipelines = "),
        ("pipelines = [1]", "augment.py: pipelines is a list; write "),
        ("pipelines = {1: []}", "augment.py: pipelines is a dict; write "),
        ("pipelines = {'image': 'crop'}", "augment.py: field 'image': 'crop' is no list of operations"),
        ("pipelines = {'image': [3]}", "augment.py: field 'image': 3 is no operation; see docs"),
        ("\n1 / 0", "augment.py: can't be run: line 2: ZeroDivisionError: division by zero"),
        ("from fastloader import ops\n\nops.Resize(-1)", "augment.py: can't be run: line 3: ValueError: "),
        ("import nothing_of_this_name", "augment.py: can't be run: line 1: ModuleNotFoundError: No module named"),
        ("pipelines = {", "augment.py: can't be run: SyntaxError: "),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(PipelineFileError) as caught:
        load_pipelines(path)
    assert said in str(caught.value)


def test_a_file_must_be_there_and_be_python(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="there is no such file"):
        load_pipelines(tmp_path / "nowhere.py")
    with pytest.raises(PipelineFileError, match=r"is no \.py file"):
        load_pipelines(_file(tmp_path, "pipelines = {}", "augment.txt"))
