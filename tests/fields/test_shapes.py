"""Boxes and keypoints."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import fastloader as fl
from fastloader.testing import FieldContract

UNIT = st.floats(0, 100, width=32)


class TestBoxesField(FieldContract):
    def fields(self):
        return [fl.BoxesField(), fl.BoxesField("xywh"), fl.BoxesField("cxcywh", normalized=True)]

    def values(self, field):
        return [
            np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.float32),
            np.zeros((0, 4), np.float32),
            np.array([[0.5, 0.25, 0.5, 0.75]], np.float32),
        ]

    def bad_values(self, field):
        inside_out = [[5, 5, 1, 1]] if field.format == "xyxy" else [[5, 5, -1, 1]]
        return ["box", b"box", [[1, 2, 3]], [[np.nan, 0, 1, 1]], [[0, 0, np.inf, 1]], inside_out, np.array([["a"] * 4])]


class TestKeypointsField(FieldContract):
    def fields(self):
        return [fl.KeypointsField(2), fl.KeypointsField(2, visibility=True), fl.KeypointsField(2, normalized=True)]

    def values(self, field):
        last = 3 if field.visibility else 2
        return [np.ones((3, 2, last), np.float32), np.zeros((0, 2, last), np.float32)]

    def bad_values(self, field):
        last = 3 if field.visibility else 2
        bad = [np.full((1, 2, last), np.nan), np.zeros((1, 3, last)), np.zeros((2, last)), "points", 7]
        return [*bad, np.full((1, 2, 3), 5.0)]


def test_whole_numbers_and_lists_are_taken(tmp_path):
    path = tmp_path / "x.fld"
    with fl.DatasetWriter(path, {"boxes": fl.BoxesField(), "points": fl.KeypointsField(1)}) as writer:
        writer.write_sample({"boxes": np.array([[1, 2, 3, 4]]), "points": [[(5, 6)]]})
        writer.write_sample({"boxes": [], "points": []})
    with fl.open(path) as reader:
        assert reader[0]["boxes"].tolist() == [[1, 2, 3, 4]]
        assert reader[0]["points"].tolist() == [[[5, 6]]]
        assert reader[1]["boxes"].shape == (0, 4)
        assert reader[1]["points"].shape == (0, 1, 2)


@pytest.mark.parametrize("format", ["xyxy", "xywh", "cxcywh"])
@given(
    low=nps.arrays(np.float32, (5, 2), elements=UNIT),
    size=nps.arrays(np.float32, (5, 2), elements=UNIT),
)
def test_a_box_that_does_not_move_stays(format, low, size):
    field = fl.BoxesField(format)
    rows = field.from_edges(np.concatenate([low, low + size], axis=1))
    again = field.moved(rows, field.positions(rows))
    np.testing.assert_allclose(again, rows, atol=1e-4)


def test_formats_mean_the_same_box():
    edges = np.array([[10, 20, 30, 60]], np.float32)
    assert fl.BoxesField("xyxy").from_edges(edges).tolist() == [[10, 20, 30, 60]]
    assert fl.BoxesField("xywh").from_edges(edges).tolist() == [[10, 20, 20, 40]]
    assert fl.BoxesField("cxcywh").from_edges(edges).tolist() == [[20, 40, 20, 40]]


def test_batches_of_boxes_are_padded(tmp_path):
    path = tmp_path / "x.fld"
    with fl.DatasetWriter(path, {"boxes": fl.BoxesField()}) as writer:
        for count in range(4):
            writer.write_sample({"boxes": np.ones((count, 4), np.float32)})
    with fl.open(path) as reader, fl.DataLoader(reader, 4, order="sequential", pad={"boxes": fl.Pad()}) as loader:
        (batch,) = loader
    assert batch["boxes"].shape == (4, 3, 4)
    assert batch["boxes"].sum(axis=(1, 2)).tolist() == [0, 4, 8, 12]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: fl.BoxesField("yolo"), "cxcywh"),
        (lambda: fl.BoxesField(normalized=1), "normalized"),
        (lambda: fl.KeypointsField(0), "points"),
        (lambda: fl.KeypointsField(2.5), "points"),
        (lambda: fl.KeypointsField(2, visibility="yes"), "visibility"),
    ],
)
def test_bad_options_are_refused(make, word):
    with pytest.raises((ValueError, TypeError), match=word):
        make()
