"""Boxes and keypoints that move with their image."""

from itertools import pairwise

import numpy as np
import pytest

import fastloader as fl
from fastloader import ops
from fastloader.pipeline import PipelineError

SPOT = 6
"""The side of the bright square that marks a place."""


def scenes(path, samples=24, *, boxes="xyxy", normalized=False, visibility=False):
    """Dark images, each with a bright square; its box and its centre are known."""
    rng = np.random.default_rng(1)
    field_boxes = fl.BoxesField(boxes, normalized=normalized)
    points = fl.KeypointsField(1, normalized=normalized, visibility=visibility)
    fields = {"image": fl.PNGImageField(), "boxes": field_boxes, "points": points, "label": fl.IntField()}
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(samples):
            height, width = rng.integers(60, 100, 2).tolist()
            y, x = int(rng.integers(0, height - SPOT)), int(rng.integers(0, width - SPOT))
            image = np.zeros((height, width, 3), np.uint8)
            image[y : y + SPOT, x : x + SPOT] = 255
            scale = np.array([width, height], np.float32) if normalized else np.ones(2, np.float32)
            edges = np.array([[x, y, x + SPOT, y + SPOT]], np.float32) / np.tile(scale, 2)
            centre = np.array([[[x + SPOT / 2, y + SPOT / 2]]], np.float32) / scale
            if visibility:
                centre = np.concatenate([centre, np.full((1, 1, 1), 2, np.float32)], axis=-1)
            writer.write_sample(
                {"image": image, "boxes": field_boxes.from_edges(edges), "points": centre, "label": i}
            )  # fmt: skip
    return fl.open(path)


MOVES = {
    "resize": [ops.Resize((48, 40))],
    "crop": [ops.RandomResizedCrop((64, 56), scale=(0.5, 1.0))],
    "flips": [ops.Resize((50, 70)), ops.HorizontalFlip(), ops.VerticalFlip()],
    "pad": [ops.Resize((40, 40)), ops.Pad(7), ops.RandomCrop((48, 44))],
    "translate": [ops.Resize((60, 60)), ops.RandomTranslate(9)],
    "turned": [ops.Resize((64, 64)), ops.RandomRotation(30, filter="bilinear")],
    "cast": [ops.RandomResizedCrop(64, scale=(0.6, 1.0)), ops.HorizontalFlip(), ops.Cast("float32"), ops.Layout("CHW")],
}  # fmt: skip


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES.keys())
@pytest.mark.parametrize("normalized", [False, True])
def test_boxes_and_points_are_where_the_pixels_are(moves, normalized, tmp_path):
    pipelines = {
        "image": moves,
        "boxes": [ops.Follow("image", returns="seen")],
        "points": [ops.Follow("image", returns="point_seen")],
    }
    found = 0
    with scenes(tmp_path / "x.fld", normalized=normalized) as reader:
        for batch in fl.DataLoader(reader, 8, pipelines=pipelines, seed=3):
            assert not any(name.startswith("\0") for name in batch)
            images = batch["image"].astype(np.float32)
            if images.shape[1] == 3:
                images = images.transpose(0, 2, 3, 1)
            images = images - images.min(axis=(1, 2, 3), keepdims=True)
            for image, box, point, seen, inside in zip(
                images, batch["boxes"], batch["points"], batch["seen"], batch["point_seen"], strict=True
            ):
                height, width = image.shape[:2]
                scale = np.array([width, height]) if normalized else np.ones(2)
                left, top, right, bottom = box[0] * np.tile(scale, 2)
                assert 0 <= left <= right <= width
                assert 0 <= top <= bottom <= height
                if seen[0] < 1:
                    continue
                assert inside[0, 0]
                found += 1
                bright = np.argwhere(image[..., 0] > image.max() / 2) + 0.5
                centre = bright.mean(axis=0)
                np.testing.assert_allclose(point[0, 0] * scale, centre[::-1], atol=0.8)
                np.testing.assert_allclose([(left + right) / 2, (top + bottom) / 2], centre[::-1], atol=0.8)
                assert (bright >= [top - 1, left - 1]).all()
                assert (bright <= [bottom + 1, right + 1]).all()
    assert found >= 8


@pytest.mark.parametrize("format", ["xyxy", "xywh", "cxcywh"])
def test_boxes_keep_their_format(format, tmp_path):
    with scenes(tmp_path / "a.fld") as plain, scenes(tmp_path / "b.fld", boxes=format) as other:
        pipelines = {"image": [ops.RandomResizedCrop(32)], "boxes": [ops.Follow()]}
        first = next(iter(fl.DataLoader(plain, 24, pipelines=pipelines, seed=5)))
        second = next(iter(fl.DataLoader(other, 24, pipelines=pipelines, seed=5)))
    edges = fl.BoxesField(format).edges(second["boxes"].reshape(-1, 4))
    np.testing.assert_allclose(edges, first["boxes"].reshape(-1, 4), atol=1e-3)


def test_a_box_that_left_the_picture_is_empty_and_not_seen(tmp_path):
    with scenes(tmp_path / "x.fld", 64, visibility=True) as reader:
        pipelines = {
            "image": [ops.CenterCrop(20)],
            "boxes": [ops.Follow(returns="seen")],
            "points": [ops.Follow(returns="point_seen")],
        }
        (batch,) = fl.DataLoader(reader, 64, pipelines=pipelines)
        unclipped = {
            "image": [ops.CenterCrop(20)],
            "boxes": [ops.Follow(clip=False)],
            "points": [ops.Follow(clip=False)],
        }
        (whole,) = fl.DataLoader(reader, 64, pipelines=unclipped)
    seen = batch["seen"][:, 0]
    boxes = batch["boxes"][:, 0]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    np.testing.assert_allclose(areas, seen * SPOT * SPOT, atol=1e-3)
    assert ((seen > 0) & (seen < 1)).any()
    assert (seen == 0).any()
    assert (batch["points"][:, 0, 0, 2] == 2 * batch["point_seen"][:, 0, 0]).all()
    assert (whole["points"][..., 2] == 2).all()
    np.testing.assert_array_equal(whole["boxes"][:, 0, 2:] - whole["boxes"][:, 0, :2], SPOT)


def crowds(path):
    """Any number of boxes a sample, and a class for each."""
    rng = np.random.default_rng(2)
    fields = {"image": fl.JPEGImageField(), "boxes": fl.BoxesField(), "classes": fl.NDArrayField("int64", (None,))}
    with fl.DatasetWriter(path, fields) as writer:
        for count in (3, 0, 5, 1, 2, 2):
            low = rng.uniform(0, 40, (count, 2))
            boxes = np.concatenate([low, low + rng.uniform(1, 20, (count, 2))], axis=1)
            image = rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)
            writer.write_sample({"image": image, "boxes": boxes, "classes": np.arange(count)})
    return fl.open(path)


@pytest.mark.parametrize("pad", [None, "ragged", fl.Pad(value=-1), fl.Pad(8, value=-1)], ids=str)
def test_layouts_hold_the_same_boxes(pad, tmp_path):
    pipelines = {"image": [ops.RandomResizedCrop(32), ops.HorizontalFlip()], "boxes": [ops.Follow(returns="seen")]}
    with crowds(tmp_path / "x.fld") as reader:
        (plain,) = fl.DataLoader(reader, 6, pipelines=pipelines, seed=1)
        (batch,) = fl.DataLoader(
            reader, 6, pipelines=pipelines, seed=1, pad=pad and {"boxes": pad, "classes": fl.Pad(value=-1)}
        )
    counts = [len(one) for one in plain["classes"]]
    assert sorted(counts) == [0, 1, 2, 2, 3, 5]
    if pad is None:
        found, seen = batch["boxes"], batch["seen"]
    elif pad == "ragged":
        ends = batch["boxes_offsets"]
        found = [batch["boxes"][a:b] for a, b in pairwise(ends)]
        seen = [batch["seen"][a:b] for a, b in pairwise(ends)]
    else:
        lengths = batch["boxes_lengths"]
        assert lengths.tolist() == counts
        assert (batch["classes_lengths"] == lengths).all()
        found = [row[:n] for row, n in zip(batch["boxes"], lengths, strict=True)]
        seen = [row[:n] for row, n in zip(batch["seen"], lengths, strict=True)]
        assert all((row[n:] == -1).all() for row, n in zip(batch["boxes"], lengths, strict=True))
        assert all((row[n:] == 0).all() for row, n in zip(batch["seen"], lengths, strict=True))
    for one, other, share, wanted in zip(found, plain["boxes"], seen, plain["seen"], strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(share, wanted)


def test_what_is_followed_draws_as_it_did(tmp_path):
    moves = [ops.RandomResizedCrop(32), ops.HorizontalFlip(), ops.ColorJitter(0.4, 0.4, 0.4, 0.1)]
    with scenes(tmp_path / "x.fld", normalized=True) as reader:
        alone = next(iter(fl.DataLoader(reader, 24, pipelines={"image": moves}, seed=4)))
        pipelines = {"boxes": [ops.Follow()], "image": moves}
        followed = next(iter(fl.DataLoader(reader, 24, pipelines=pipelines, seed=4)))
    np.testing.assert_array_equal(alone["image"], followed["image"])


def test_a_map_that_the_user_asks_for_is_used_and_kept(tmp_path):
    with scenes(tmp_path / "x.fld") as reader:
        moves = [ops.RandomResizedCrop(32), ops.Geometry("map")]
        (batch,) = fl.DataLoader(reader, 24, pipelines={"image": moves, "points": [ops.Follow(clip=False)]})
        (stored,) = fl.DataLoader(reader, 24, fields=["points"])
    points = stored["points"][:, 0, 0]
    moved = np.einsum("nij,nj->ni", batch["map"], np.c_[points, np.ones(len(points))])
    np.testing.assert_allclose(batch["points"][:, 0, 0], moved, atol=1e-3)


def test_a_missing_image_takes_its_boxes_along(tmp_path):
    path = tmp_path / "x.fld"
    with fl.DatasetWriter(path, {"image": fl.JPEGImageField(), "boxes": fl.BoxesField()}) as writer:
        for i in range(4):
            image = None if i == 2 else np.zeros((20, 20, 3), np.uint8)
            writer.write_sample({"image": image, "boxes": [[1, 1, 5, 5]]})
    with fl.open(path) as reader:
        pipelines = {"image": [ops.Resize((10, 10))], "boxes": [ops.Follow()]}
        (batch,) = fl.DataLoader(reader, 4, pipelines=pipelines, order="sequential")
    mask = np.ma.getmaskarray(batch["boxes"]).reshape(4, -1)
    assert mask.all(axis=1).tolist() == [False, False, True, False]
    np.testing.assert_allclose(batch["boxes"][0], [[0.5, 0.5, 2.5, 2.5]])


def test_explain_tells_who_follows(tmp_path):
    with scenes(tmp_path / "x.fld") as reader:
        pipelines = {"image": [ops.Resize((10, 20))], "boxes": [ops.Follow(returns="seen")]}
        told = fl.DataLoader(reader, 4, pipelines=pipelines).explain()
    assert "moves as 'image' does, in a picture of 10 x 20" in told
    assert "returns 'seen'" in told
    assert "\0" not in told


@pytest.mark.parametrize(
    ("pipelines", "word"),
    [
        ({"boxes": [ops.Follow()]}, "has no pipeline"),
        ({"boxes": [ops.Follow("boxes")]}, "has no pipeline"),
        ({"boxes": [ops.Follow("label")], "label": [ops.OneHot(64)]}, "Geometry|no images"),
        ({"boxes": [ops.Follow(), ops.Follow()], "image": [ops.Resize((8, 8))]}, "begins with one ops.Follow"),
        ({"boxes": [ops.HorizontalFlip()], "image": [ops.Resize((8, 8))]}, "BoxesField takes Follow first, Normalize"),
        ({"label": [ops.Follow()], "image": [ops.Resize((8, 8))]}, "no boxes"),
        ({"boxes": [ops.Follow()], "image": ops.Views(2, [ops.Resize((8, 8))])}, "views"),
        ({"boxes": [ops.Follow(returns="label")], "image": [ops.Resize((8, 8))]}, "'label'"),
    ],
)
def test_what_can_not_be_followed_is_told_at_once(pipelines, word, tmp_path):
    with scenes(tmp_path / "x.fld", 2) as reader, pytest.raises(PipelineError, match=word):
        fl.DataLoader(reader, 2, pipelines=pipelines)


@pytest.mark.parametrize("options", [{"image": 3}, {"image": ""}, {"clip": 1}, {"returns": 5}, {"returns": ""}])
def test_wrong_options_are_refused(options):
    with pytest.raises(TypeError, match=next(iter(options))):
        ops.Follow(**options)
