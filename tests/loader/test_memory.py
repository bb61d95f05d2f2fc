"""The memory that ``explain()`` speaks of is what the engine takes."""

import re

import numpy as np
import pytest

import fastloader as fl
from fastloader import ops

COUNT = 40


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "x.fld"
    fields = {
        "image": fl.JPEGImageField(), "raw": fl.RawImageField(30, 41), "vector": fl.NDArrayField("float32", (77,)),
        "i": fl.IntField(), "text": fl.BytesField(),
    }  # fmt: skip
    rng = np.random.default_rng(1)
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            pixels = rng.integers(0, 256, (30, 41, 3)).astype(np.uint8)
            values = {"image": pixels, "raw": pixels, "vector": np.zeros(77, np.float32), "i": i}
            writer.write_sample({**values, "text": bytes(i * 500)})
    return path


def told(loader):
    """Bytes by field and in all."""
    text = loader.explain()
    found = re.findall(r"^    (?:'(\w+)'|in all): ([\d,]+) bytes(.*)$", text[text.index("memory of a batch") :], re.M)
    return {name or "all": int(size.replace(",", "")) for name, size, _ in found}


PIPELINES = [
    {},
    {"image": [ops.RandomResizedCrop(33)]},
    {"image": [ops.RandomResizedCrop(33).returning("box"), ops.Normalize(0, 1)], "raw": [ops.CenterCrop(7)]},
    {"image": ops.Views(large=ops.Views(3, [ops.CenterCrop(25).returning("box")]), small=[ops.Resize((5, 7))])},
    {"raw": ops.Views(2, [ops.RandomCrop((29, 3)).returning("box")]), "i": [ops.OneHot(COUNT)]},
]


@pytest.mark.parametrize("batch_size", [1, 8, 20])
@pytest.mark.parametrize("pipelines", PIPELINES)
def test_it_is_known_before_the_first_batch_where_samples_are_of_one_size(pipelines, batch_size, path):
    fields = ["raw", "vector", "i", *(["image"] if "image" in pipelines else [])]
    loader = fl.DataLoader(fl.open(path), batch_size, fields=fields, pipelines=pipelines)
    before = told(loader)
    for _ in loader:
        pass
    total, counted = loader._running().slot_bytes
    assert before == {**counted, "all": total} == told(loader)
    assert total == loader.stats()["memory"]["largest_batch"] > 0


def test_what_depends_on_samples_is_told_when_they_were_seen(path):
    loader = fl.DataLoader(fl.open(path), 8, fields=["text", "i", "image"])
    text = loader.explain()
    assert "'text': as its samples need" in text
    assert "'image': as its samples need" in text
    assert "in all: 4,096 bytes, and what samples need" in text
    for _ in loader:
        pass
    total, counted = loader._running().slot_bytes
    assert told(loader) == {**counted, "all": total}
    assert "bytes in the largest so far" in loader.explain()


def test_missing_values_take_no_more_than_planned(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.RawImageField(30, 30)}) as writer:
        writer.write_many({"image": None if i < 9 else np.zeros((30, 30, 3), np.uint8)} for i in range(16))
    loader = fl.DataLoader(fl.open(tmp_path / "x.fld"), 8, pipelines={"image": [ops.RandomCrop(20)]}, shuffle=False)
    before = told(loader)
    for _ in loader:
        pass
    assert before["all"] == loader.stats()["memory"]["largest_batch"]
