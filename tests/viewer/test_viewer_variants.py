"""Augmented variants: just what a loader gives."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from viewed import Served

import fastloader as fl
from fastloader import ops
from fastloader.errors import FormatError, KeyNotFoundError
from fastloader.pipeline import PipelineError
from fastloader.pipeline.files import load_pipelines

PIPELINES: dict[str, Any] = {
    "image": [ops.RandomResizedCrop(48), ops.HorizontalFlip(), ops.Cast("float32"), ops.Layout("CHW")],
    "boxes": [ops.Follow("image")],
    "alpha": ops.Views(2, [ops.RandomCrop(32)]),
    "wave": [ops.RandomSegment(0.25), ops.MelSpectrogram(n_mels=40)],
    "video": [ops.ClipSampler(4), ops.Resize((32, 40))],
    "label": [ops.OneHot(4)],
    "names": [ops.Choose()],
}


@pytest.fixture(scope="module")
def varied(every_path: Path) -> Iterator[Served]:
    with Served(every_path, pipelines=PIPELINES) as served:
        yield served


def loaded(path: Path, index: int, epochs: int) -> list[dict[str, Any]]:
    """The sample in several epochs of a loader over all samples, in any order."""
    found = []
    with fl.open(path) as reader:
        loader = fl.DataLoader(
            reader, 1, shuffle=False, indices=[1, index], seed=0, pipelines=PIPELINES, fields=list(PIPELINES),
        )  # fmt: skip
        for _ in range(epochs):
            found.append(list(loader)[1])
    return found


def test_variants_are_what_a_loader_gives(every_path: Path, varied: Served) -> None:
    batches = loaded(every_path, 5, 3)
    assert varied.viewer.variants is not None
    for epoch, batch in enumerate(batches):
        made = varied.viewer.variants.get(5, epoch)
        assert made.keys() == batch.keys()
        for name, value in batch.items():
            assert np.array_equal(made[name], np.asarray(value)[0] if isinstance(value, np.ndarray) else value[0]), name
    assert not np.array_equal(batches[0]["image"], batches[1]["image"])


def test_variants_are_told_and_drawn(varied: Served) -> None:
    told = varied.ask("variants/5", epochs=4)
    assert len(told) == 4
    kinds = {name: value["kind"] for name, value in told[0].items()}
    assert kinds["image"] == kinds["alpha"] == kinds["video"] == "picture"
    assert (kinds["boxes"], kinds["wave"], kinds["label"], kinds["names"]) == ("boxes", "array", "text", "text")
    assert told[0]["image"] == {
        "dtype": "float32", "shape": [3, 48, 48], "kind": "picture", "count": 1, "stretched": True
    }  # fmt: skip
    for name, size in (("image", (48, 48)), ("alpha", (64, 32)), ("video", (160, 32))):
        answer = varied.get(f"/api/variant-picture/5/2?name={name}")
        assert PIL.Image.open(io.BytesIO(answer.body)).size == size  # type: ignore[attr-defined]
    assert varied.ask("variant-plot/5/2", name="wave")["form"] == "map"
    assert varied.get("/api/variant-picture/5/2?name=nothing").status == 404
    assert varied.get("/api/variant-picture/5/2?name=label").status == 422
    assert varied.get("/api/variants/99").status == 400


def test_the_file_that_the_how_to_shows_is_one(every_path: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/view.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shown_in_the_how_to.py").write_text(code)
    with Served(every_path, pipelines=load_pipelines(tmp_path / "shown_in_the_how_to.py")) as served:
        assert served.ask("variants/0", epochs=1)[0]["image"]["shape"] == [224, 224, 3]


def test_pipelines_that_do_not_fit_are_told_before_anything_is_served(every_path: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="must have one size"):
        Served(every_path, pipelines={"image": [ops.HorizontalFlip()]})
    with pytest.raises(FormatError, match="there is a pipeline for 'no', which is no field"):
        Served(every_path, pipelines={"no": [ops.HorizontalFlip()]})
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(KeyNotFoundError, match="fastloader convert"):
        Served(tmp_path / "x.jsonl", pipelines=PIPELINES)
