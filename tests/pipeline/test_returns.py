"""What operations drew, returned as fields of the batch: boxes, flips, angles, factors, and how pixels moved."""

from dataclasses import replace

import numpy as np
import pytest
from draws import Draws
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from pillow_ops import inverse_matrix

import fastloader as fl
from fastloader import kernels, ops
from fastloader.ops.drawn import drawn_by, draws_by
from fastloader.pipeline import PipelineError

COUNT, HEIGHT, WIDTH, SEED = 20, 52, 61, 4


def photo(i, height=HEIGHT, width=WIDTH):
    rng = np.random.default_rng(i)
    small = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("returns") / "x.fld"
    with fl.DatasetWriter(path, {"image": fl.RawImageField(HEIGHT, WIDTH), "i": fl.IntField()}) as writer:
        writer.write_many({"image": photo(i), "i": i} for i in range(COUNT))
    return path


def load(path, pipeline, **options):
    options = {"shuffle": False, "seed": SEED, **options}
    batches = list(fl.DataLoader(fl.open(path), 8, pipelines={"image": pipeline}, **options))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


# Each operation


def test_boxes_are_where_the_pixels_come_from(dataset):
    for op in (ops.RandomCrop((20, 30)), ops.RandomResizedCrop(24, filter="box"), ops.CenterCrop(30)):
        found = load(dataset, [op.returning("box")])
        assert found["box"].dtype == np.int32
        for i, (x, y, w, h) in enumerate(found["box"].tolist()):
            part = Image.fromarray(photo(i)[y : y + h, x : x + w])
            across = part.resize((found["image"].shape[2], h), Image.Resampling.BOX)
            wanted = across.resize(found["image"].shape[2:0:-1], Image.Resampling.BOX)
            assert (np.asarray(wanted) == found["image"][i]).all()


def test_a_box_may_begin_in_the_padding(dataset):
    found = load(dataset, [ops.RandomCrop(50, padding=9).returning("box")])
    assert found["box"][:, :2].min() < 0
    for i, (x, y, w, h) in enumerate(found["box"].tolist()):
        padded = np.pad(photo(i), ((9, 9), (9, 9), (0, 0)))
        assert (padded[y + 9 : y + 9 + h, x + 9 : x + 9 + w] == found["image"][i]).all()


@pytest.mark.parametrize(("op", "axis"), [(ops.HorizontalFlip(), 1), (ops.VerticalFlip(), 0)])
def test_flips_say_whether_they_happened(op, axis, dataset):
    found = load(dataset, [op.returning("flipped")])
    assert found["flipped"].dtype == np.bool_
    assert 0 < found["flipped"].sum() < COUNT
    for i, flipped in enumerate(found["flipped"]):
        assert ((np.flip(photo(i), axis) if flipped else photo(i)) == found["image"][i]).all()


@pytest.mark.parametrize("op", [ops.RandomErasing(0.6, value=3), ops.Cutout((9, 14), 3)])
def test_erased_boxes(op, dataset):
    found = load(dataset, [op.returning("box")])
    for i, (x, y, w, h) in enumerate(found["box"].tolist()):
        wanted = photo(i).copy()
        wanted[y : y + h, x : x + w] = 3
        assert (wanted == found["image"][i]).all()
    if isinstance(op, ops.RandomErasing):
        assert 0 < (found["box"] == 0).all(axis=1).sum() < COUNT


FACTORS = [
    (ops.RandomBrightness(0.7, 0.5), ImageEnhance.Brightness), (ops.RandomContrast(0.7), ImageEnhance.Contrast),
    (ops.RandomSaturation(0.7, 0.5), ImageEnhance.Color), (ops.Sharpness((0, 4), 0.5), ImageEnhance.Sharpness),
]  # fmt: skip


@pytest.mark.parametrize(("op", "way"), FACTORS, ids=lambda x: type(x).__name__)
def test_factors_make_the_image_again(op, way, dataset):
    found = load(dataset, [op.returning("factor")])
    assert (found["factor"] == 1).any() == (op.p < 1)
    for i, factor in enumerate(found["factor"].tolist()):
        assert (np.asarray(way(Image.fromarray(photo(i))).enhance(factor)) == found["image"][i]).all()


def test_jitter_returns_factors_and_order(dataset):
    found = load(dataset, [ops.ColorJitter(0.6, 0.6, 0.6, p=0.7).returning("jitter")])["jitter"]
    images = load(dataset, [ops.ColorJitter(0.6, 0.6, 0.6, p=0.7)])["image"]
    ways = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for i, numbers in enumerate(found.tolist()):
        image = Image.fromarray(photo(i))
        for part in map(int, numbers[4:]):
            image = image if part == 3 else ways[part](image).enhance(numbers[part])
        assert (np.asarray(image) == images[i]).all()
    assert (found == [1, 1, 1, 0, 0, 1, 2, 3]).all(axis=1).any()


def blurred(draws):
    return draws.between(0.1, 2) if draws.happens(0.5) else 0


def moved(draws):
    down = draws.below(15) - 7
    return draws.below(15) - 7, down


@pytest.mark.parametrize(
    ("op", "draw"),
    [
        (ops.RandomRotation((-20, 50)), lambda draws: draws.between(-20, 50)),
        (ops.Rotate(33), lambda draws: 33),
        (ops.RandomTranslate(7), moved),
        (ops.RandomHue(0.2, 0.5), lambda draws: draws.between(-0.2, 0.2) if draws.happens(0.5) else 0),
        (ops.GaussianBlur(3, p=0.5), blurred),
        *((op(p=0.4), lambda draws: draws.happens(0.4))
          for op in (ops.Invert, ops.Equalize, ops.AutoContrast, ops.Solarize, ops.RandomGrayscale)),
        (ops.Posterize(3, 0.4), lambda draws: draws.happens(0.4)),
    ],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
def test_other_numbers_are_those_drawn(op, draw, dataset):
    found = load(dataset, [op.returning("drawn")])["drawn"]
    wanted = np.array([draw(Draws(SEED, 0, i, 0)) for i in range(COUNT)])
    assert (found == wanted.astype(found.dtype)).all()
    assert found.dtype == drawn_by(op.step()).dtype
    assert isinstance(op, ops.Rotate) or len(np.unique(found)) > 1


def test_affine_maps_are_from_the_image_before_to_the_one_behind(dataset):
    op = ops.Affine(20, (5, -3), 1.2, (8, 3))
    found = load(dataset, [op.returning("map")])["map"]
    assert found.shape == (COUNT, 2, 3)
    back = np.array(inverse_matrix((WIDTH / 2, HEIGHT / 2), 20, (5, -3), 1.2, (8, 3))).reshape(2, 3)
    forward = np.linalg.inv(np.vstack([back, [0, 0, 1]]))[:2]
    assert np.allclose(found, forward, atol=1e-4)


def test_policies_return_what_they_chose_and_how_far_it_goes(dataset):
    found = load(dataset, [ops.RandAugment(3, 20).returning("chosen")])["chosen"]
    assert found.shape == (COUNT, 3, 2)
    for i, three in enumerate(found.tolist()):
        draws = Draws(SEED, 0, i, 0)
        for number, amount in three:
            assert number == draws.below(14)
            negative = 1 <= number <= 9 and draws.below(2) == 1
            if number == 5:
                assert amount == pytest.approx(20 * (-1 if negative else 1))
            if number in (6, 7, 8, 9):
                assert amount == pytest.approx(1 + 0.6 * (-1 if negative else 1))
    one = load(dataset, [ops.TrivialAugment().returning("chosen")])["chosen"]
    assert one[:, 0].tolist() == [Draws(SEED, 0, i, 0).below(14) for i in range(COUNT)]


def test_every_operation_that_draws_has_something_to_return():
    for kind in kernels.STEPS:
        step = ops.Step(kind, 3, 3, 0, (1.0,) * 16)
        assert draws_by(step) is None or drawn_by(step) is not None
    still = {"resize", "resize_shorter", "centre_crop", "pad", "tell_size", "tell_geometry"}
    assert {kind for kind in kernels.STEPS if draws_by(ops.Step(kind, numbers=(1.0,) * 16)) is None} == still


def test_several_are_returned_at_once_and_the_image_is_the_same(dataset):
    plain = [ops.RandomResizedCrop(30), ops.HorizontalFlip(), ops.RandAugment(), ops.RandomErasing()]
    told = [op.returning(name) for op, name in zip(plain, "abcd", strict=True)]
    found = load(dataset, [*told, ops.Geometry("map"), ops.Normalize(0, 1), ops.Layout("CHW")])
    wanted = load(dataset, [*plain, ops.Normalize(0, 1), ops.Layout("CHW")])
    assert list(found) == ["image", "a", "b", "c", "d", "map", "i"]
    assert (found["image"] == wanted["image"]).all()
    for op, name in zip(plain, "abcd", strict=True):
        alone = load(dataset, [*plain[: plain.index(op)], op.returning("x"), *plain[plain.index(op) + 1 :]])["x"]
        assert (alone == found[name]).all()


def test_they_do_not_depend_on_workers_or_order(dataset):
    pipeline = [ops.RandomResizedCrop(30).returning("box")]
    wanted = load(dataset, pipeline)["box"]
    for options in ({"num_workers": 1}, {"shuffle": True, "num_workers": 5}, {"io": "pread"}):
        found = load(dataset, pipeline, **options)
        assert (found["box"] == wanted[found["i"]]).all()


# How pixels moved


def test_a_marked_pixel_is_where_the_geometry_says(tmp_path):
    picture = np.zeros((40, 60, 3), np.uint8)
    picture[10, 20] = 255
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.RawImageField(40, 60)}) as writer:
        writer.write_many({"image": picture} for _ in range(200))
    pipeline = [
        ops.Pad((3, 5)), ops.HorizontalFlip(), ops.RandomCrop(40), ops.VerticalFlip(), ops.RandomTranslate(4),
        ops.Resize((120, 80), "nearest"), ops.Rotate(90), ops.Geometry("map"),
    ]  # fmt: skip
    found = load(tmp_path / "x.fld", pipeline)
    seen = 0
    for image, matrix in zip(found["image"][..., 0], found["map"], strict=True):
        x, y = matrix @ (20.5, 10.5, 1)
        lit = np.argwhere(image)
        if len(lit) < 6:  # cut off
            continue
        assert np.allclose(lit.mean(axis=0) + 0.5, (y, x), atol=0.51)
        seen += 1
    assert seen > 50


MOVING = [
    ops.RandomResizedCrop((60, 70), (0.5, 1), filter="nearest"), ops.Resize((55, 80), "nearest"), ops.HorizontalFlip(),
    ops.VerticalFlip(), ops.RandomCrop((40, 45), 4), ops.CenterCrop(38), ops.Pad((5, 1, 2, 9)), ops.RandomRotation(180),
    ops.RandomAffine(40, (0.1, 0.1), (0.8, 1.3), 10), ops.RandomTranslate(6), ops.Affine(10, (3, 2), 1.1, 5),
    ops.Resize(50, "nearest"),
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(MOVING), max_size=5), st.integers(0, 2**30))
def test_geometry_leads_back_to_the_pixel(pipeline, sample):
    """Each pixel holds its own place, so that the result tells where it came from."""
    picture = np.dstack([*np.mgrid[:HEIGHT, :WIDTH], np.full((HEIGHT, WIDTH), 255)]).astype(np.uint8)
    pipeline = [*pipeline, ops.Resize((50, 50), "nearest"), ops.Geometry("map")]
    row = ops.Pixels(HEIGHT, WIDTH)
    for op in pipeline:
        row = op.output(row)
    steps = [
        (kernels.STEPS.index(step.kind), i, step.height, step.width, step.filter, step.numbers)
        for i, step in enumerate(op.step() for op in pipeline)
    ]
    program = kernels.Program(
        2, False, (HEIGHT, WIDTH, 3), steps, row.shape, 0, 0, (1.0,) * 4, (0.0,) * 4, SEED, [len(steps) - 1]
    )
    out, told = np.empty(row.shape, np.uint8), np.empty(6)
    program.run(picture, np.array([HEIGHT, WIDTH, 3, 8], np.uint32), 0, sample, out, told)
    back = np.linalg.inv(np.vstack([told.reshape(2, 3), [0, 0, 1]]))
    inside = np.argwhere(out[..., 2] == 255)
    places = np.c_[inside[:, ::-1] + 0.5, np.ones(len(inside))] @ back.T
    found = out[inside[:, 0], inside[:, 1]]
    # Each of the steps may be off by half a pixel, of those that the steps before it left.
    assert (np.abs(places[:, 0] - (found[:, 1] + 0.5)) < 1 + len(pipeline)).all()
    assert (np.abs(places[:, 1] - (found[:, 0] + 0.5)) < 1 + len(pipeline)).all()
    if len(inside):
        assert np.abs(places[:, :2] - (found[:, 1::-1] + 0.5)).mean() < 1


def test_what_a_policy_moves_is_in_the_geometry(dataset):
    found = load(dataset, [ops.RandAugment(3, 25).returning("chosen"), ops.Geometry("map")])
    for three, matrix in zip(found["chosen"], found["map"], strict=True):
        wanted = np.eye(3)
        for number, amount in three:
            back = np.eye(3)
            if number == 1:
                back[0, 1] = amount
            elif number == 2:
                back[1, 0] = amount
            elif number in (3, 4):
                back[int(number) - 3, 2] = -amount
            elif number == 5:
                turn = np.radians(-amount)
                middle = np.array([WIDTH / 2, HEIGHT / 2])
                back[:2, :2] = [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
                back[:2, 2] = middle - back[:2, :2] @ middle
            wanted = np.linalg.inv(back) @ wanted
        assert np.allclose(matrix, wanted[:2], atol=1e-3)
    assert (found["map"] != np.eye(3)[:2]).any()


def test_the_geometry_of_a_jpeg_that_is_decoded_smaller_is_of_its_stored_size(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.JPEGImageField()}) as writer:
        writer.write_sample({"image": photo(1, 400, 600)})
    found = load(tmp_path / "x.fld", [ops.CenterCrop((400, 400)), ops.Resize((40, 50)), ops.Geometry("map")])
    assert np.allclose(found["map"][0], [[0.125, 0, -12.5], [0, 0.1, 0]])


def test_geometry_is_told_at_its_place(dataset):
    found = load(dataset, [ops.Geometry("before"), ops.Resize((26, 122)), ops.Geometry("behind")])
    assert (found["before"] == [[1, 0, 0], [0, 1, 0]]).all()
    assert (found["behind"] == [[2, 0, 0], [0, 0.5, 0]]).all()


# Beside other things


@ops.custom
def mark(image, random):
    image[0, 0, 0] = 7


@pytest.mark.parametrize("jit", [False, True])
def test_operations_behind_a_function_return_the_same(jit, dataset):
    flip, crop = ops.HorizontalFlip().returning("flipped"), ops.RandomCrop(20).shared("crop").returning("box")
    own, still, first = replace(mark, jit=jit), ops.Solarize(256), ops.RandomCrop(40).returning("first")
    found = load(dataset, [first, own, flip, own, crop])
    wanted = load(dataset, [first, still, flip, still, crop])
    for name in ("first", "flipped", "box"):
        assert (found[name] == wanted[name]).all()


def test_an_overlay_moves_nothing(dataset):
    poison = ops.Poison(np.zeros((30, 30, 3), np.uint8), 0.5, [1])
    crop = ops.RandomCrop(30)
    found = load(dataset, [crop, poison, ops.HorizontalFlip(), ops.Geometry("map")])
    wanted = load(dataset, [crop, ops.Solarize(256), ops.HorizontalFlip(), ops.Geometry("map")])
    assert (found["map"] == wanted["map"]).all()


def test_missing_values_have_none(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.RawImageField(9, 9)}) as writer:
        writer.write_many({"image": None if i % 2 else photo(i, 9, 9)} for i in range(6))
    for indices in (None, [1, 3]):
        loader = fl.DataLoader(
            fl.open(tmp_path / "x.fld"), shuffle=False, indices=indices,
            pipelines={"image": [ops.RandomCrop(5).returning("box"), ops.HorizontalFlip().returning("flipped")]},
        )  # fmt: skip
        (batch,) = loader
        missing = [i % 2 == 1 for i in (indices or range(6))]
        for name in ("image", "box", "flipped"):
            assert batch[name].mask.reshape(len(missing), -1).all(axis=1).tolist() == missing


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_what_a_bad_sample_returned_follows_on_error(policy, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.PNGImageField()}) as writer:
        writer.write_many({"image": photo(i, *((9, 9) if i == 2 else (30, 40)))} for i in range(4))
    pipeline = [ops.HorizontalFlip(1).returning("flipped"), ops.RandomCrop(20).returning("box")]
    loader = fl.DataLoader(
        fl.open(tmp_path / "x.fld"), 4, shuffle=False, pipelines={"image": pipeline}, on_error=policy
    )
    (batch,) = loader
    if policy == "skip":
        assert (batch["box"][2] == batch["box"][3]).all()
        assert batch["flipped"].all()
    else:
        assert batch["box"].mask[2].all()
        assert batch["flipped"].mask.tolist() == [False, False, True, False]


def test_transforms_get_what_is_returned(dataset):
    found = load(dataset, [ops.RandomCrop(9).returning("box")], transforms={"box": lambda box: box[:, :2] * 10})
    plain = load(dataset, [ops.RandomCrop(9).returning("box")])
    assert (found["box"] == plain["box"][:, :2] * 10).all()


def test_explain_tells_what_is_returned(dataset):
    pipeline = [ops.RandomCrop(9).shared("crop").returning("box"), ops.Geometry("map")]
    told = fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline}).explain()
    assert ".shared('crop').returning('box'): (9, 9, 3) uint8 HWC; returns 'box', (4,) int32: x, y, width" in told
    assert "returns 'map', (2, 3) float32: from x, y in the stored image to x, y here" in told


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        ([ops.Pad(3).returning("x")], "draws nothing: there is nothing to return"),
        ([ops.Cast("float16").returning("x")], "draws nothing: there is nothing to return"),
        ([mark.returning("x")], "is a function of yours, whose draws are not known"),
        ([mark, ops.Geometry("x")], "can't tell how mark moves pixels"),
        ([ops.Geometry("x").returning("y")], "has the name of its field already"),
        ([ops.Geometry("x").shared("y")], "draws nothing that could be shared"),
        ([ops.RandomCrop(9).returning("i")], "two fields of the batch would be 'i'"),
        ([ops.RandomCrop(9).returning("image")], "two fields of the batch would be 'image'"),
        ([ops.RandomCrop(9).returning("x"), ops.HorizontalFlip().returning("x")], "two fields of the batch would be"),
    ],
)
def test_what_can_not_be_returned(pipeline, why, dataset):
    with pytest.raises(PipelineError, match=why):
        fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline})
