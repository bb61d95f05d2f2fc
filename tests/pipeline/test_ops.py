"""Operations on pixels in pipelines: what Pillow makes of the numbers that torchvision's formulas draw."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from draws import Draws
from hypothesis import given, settings
from hypothesis import strategies as st
from pillow_ops import REFERENCES, TRIVIAL_SPACE, drawn_erasure, space, wanted

import fastloader as fl
from fastloader import kernels, ops

COUNT, HEIGHT, WIDTH, SEED = 40, 45, 62, 11


def photo(i, height=HEIGHT, width=WIDTH):
    """Waves and noise between 20 and 230, other ones for every number."""
    rng = np.random.default_rng(i)
    y, x, c = np.mgrid[:height, :width, :3]
    waves = 125 + 90 * np.sin(x / 9 + c * rng.uniform(0.2, 2) + i) * np.cos(y / 7) + rng.normal(0, 9, y.shape)
    return waves.clip(20, 230).astype(np.uint8)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("ops") / "x.fld"
    with fl.DatasetWriter(path, {"image": fl.RawImageField(HEIGHT, WIDTH), "i": fl.IntField()}) as writer:
        writer.write_many({"image": photo(i), "i": i} for i in range(COUNT))
    return path


def load(path, pipeline, **options):
    loader = fl.DataLoader(fl.open(path), 8, shuffle=False, pipelines={"image": pipeline}, seed=SEED, **options)
    return np.concatenate([batch["image"] for batch in loader])


def run_program(pipeline, picture, sample):
    """The native program of a pipeline on one picture."""
    height, width, _ = picture.shape
    row = ops.Pixels(height, width)
    for op in pipeline:
        row = op.output(row)
    steps = [
        (kernels.STEPS.index(step.kind), i, step.height, step.width, step.filter, step.numbers)
        for i, step in enumerate(op.step() for op in pipeline)
    ]
    program = kernels.Program(2, False, (height, width, 3), steps, row.shape, 0, 0, (1.0,) * 4, (0.0,) * 4, SEED)
    out = np.empty(row.shape, np.uint8)
    program.run(picture, np.array([height, width, 3, 8], np.uint32), 0, sample, out)
    return out


def same_value(path, picture, count):
    """A file of one picture many times."""
    with fl.DatasetWriter(path, {"image": fl.RawImageField(*picture.shape[:2])}) as writer:
        writer.write_many({"image": picture} for _ in range(count))
    return path


CASES = [
    ops.ColorJitter(0.4, 0.4, 0.4, 0.1), ops.ColorJitter((0.2, 2.0), 0.9, 0, (-0.5, 0.5), p=0.6),
    ops.ColorJitter(contrast=0.5), ops.ColorJitter(hue=0.3), ops.RandomBrightness(0.7), ops.RandomBrightness((1.5, 3)),
    ops.RandomContrast(0.8, p=0.5), ops.RandomSaturation(2.0), ops.RandomHue(0.5), ops.RandomHue((0.1, 0.2), p=0.5),
    ops.Grayscale(), ops.Grayscale(3), ops.RandomGrayscale(0.5), ops.GaussianBlur(5),
    ops.GaussianBlur((3, 9), 1.5, 0.5),
    ops.Sharpness(1.9), ops.Sharpness((0.0, 4.0), p=0.5), ops.Solarize(), ops.Solarize(99.5, 0.5), ops.Posterize(3),
    ops.Posterize(1, 0.5), ops.Equalize(), ops.Equalize(0.5), ops.AutoContrast(), ops.AutoContrast(0.5), ops.Invert(),
    ops.Invert(0.5), ops.Rotate(33), ops.Rotate(-90, "bilinear"), ops.Rotate(180, fill=7), ops.Rotate(0, "bilinear"),
    ops.RandomRotation(180), ops.RandomRotation((10, 400), "bilinear", (9, 200, 30)),
    ops.Affine(20, (5, -7), 1.3, 8), ops.Affine(translate=(3, 4)),
    ops.Affine(-50, (0, 2), 0.7, (5, 60), "bilinear", 99),
    ops.RandomAffine(30), ops.RandomAffine((0, 0), (0.3, 0.2), fill=(1, 2, 3)),
    ops.RandomAffine(90, (0.1, 0.4), (0.5, 2), 20, "bilinear"),
    ops.RandomAffine(15, scale=(0.8, 1.2), shear=(-5, 10, -20, 30)), ops.RandomTranslate(12, (4, 5, 6)), ops.Pad(3),
    ops.Pad((1, 20), (9, 8, 7)), ops.Pad((0, 5, 100, 2), mode="reflect"), ops.Pad(70, mode="symmetric"),
    ops.Pad((4, 3, 2, 1), mode="edge"), ops.RandomErasing(1),
    ops.RandomErasing(0.5, (0.1, 1.0), (0.1, 9), (1, 99, 200)),
    ops.RandomErasing(0.9, value="random"), ops.Cutout(16), ops.Cutout((45, 3), 200), ops.RandAugment(),
    ops.RandAugment(4, 30, filter="bilinear", fill=128), ops.RandAugment(3, 5, 11), ops.TrivialAugment(),
    ops.TrivialAugment(7, "bilinear", (50, 60, 70)), ops.RandomCrop((40, 70), 9, (1, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("op", CASES, ids=str)
def test_each_operation_gives_what_pillow_does(op, dataset):
    for i, got in enumerate(load(dataset, [op])):
        expected = wanted([op], i, photo(i), SEED)
        if getattr(op, "filter", "") == "bilinear":  # a sine that differs in its last bit may show by 1
            difference = np.abs(expected.astype(int) - got)
            assert difference.max() <= 1
            assert (difference > 0).mean() < 1e-3
        else:
            np.testing.assert_array_equal(got, expected, f"sample {i}")


def test_every_operation_has_a_case():
    cast = {"Cast", "Layout", "Normalize"}  # what the last step does
    crops = {"CenterCrop", "HorizontalFlip", "RandomResizedCrop", "Resize", "VerticalFlip"}  # in test_pipelines.py
    described = {
        "ArrayOp", "BatchOp", "ClipOp", "CustomOp", "Drawn", "LabelOp", "Named", "Numbers", "Op", "Pixels", "Random",
        "Sound", "SoundOp", "Step", "custom",
    }  # fmt: skip
    sounds = {
        name
        for name in ops.__all__
        if isinstance(getattr(ops, name), type) and issubclass(getattr(ops, name), ops.SoundOp)
    }
    elsewhere = sounds | {
        "Choose", "ClipSampler", "CutMix", "DecodeResize", "Follow", "Geometry", "LabelSmoothing", "Mixup", "OneHot",
        "Orient", "Poison", "ReplaceLabel", "Size", "TemporalSubsample", "Views",
    }  # fmt: skip
    assert set(ops.__all__) - cast - crops - described - elsewhere == {type(op).__name__ for op in CASES}


# In any order

ANY = [
    *(op for op in CASES if not isinstance(op, ops.Pad | ops.Cutout | ops.GaussianBlur | ops.Grayscale)
      and getattr(op, "filter", "") != "bilinear"),
    ops.Pad(2), ops.Cutout(3), ops.GaussianBlur(3), ops.Grayscale(3), ops.HorizontalFlip(), ops.HorizontalFlip(1),
    ops.VerticalFlip(), ops.Resize((50, 40)), ops.Resize((20, 31)), ops.CenterCrop((18, 19)), ops.RandomCrop(17, 2),
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(ANY), min_size=2, max_size=6), st.integers(0, 2**40))
def test_operations_follow_each_other_in_any_order(pipeline, sample):
    picture = photo(sample % 1000)
    row = ops.Pixels(HEIGHT, WIDTH)
    for i, op in enumerate(pipeline):
        try:
            row = op.output(row)
        except ValueError:  # a crop of more than is there: as far as it goes
            pipeline = pipeline[:i]
            break
    found = run_program(pipeline, picture, sample)
    np.testing.assert_array_equal(found, wanted(pipeline, sample, picture, SEED))


@pytest.mark.parametrize(
    "pipeline",
    [
        [ops.HorizontalFlip(1), ops.RandomCrop(17)],
        [ops.HorizontalFlip(1), ops.RandomCrop(30), ops.HorizontalFlip(), ops.CenterCrop((20, 9))],
        [ops.HorizontalFlip(1), ops.Resize((20, 31))],
        [ops.Resize((50, 40)), ops.Resize((20, 31)), ops.HorizontalFlip(1)],
        [ops.Resize((50, 40)), ops.RandomCrop(30), ops.Resize((20, 31))],
        [ops.Invert(), ops.RandomCrop(30), ops.RandomCrop(20)],
        [ops.Invert(), ops.RandomCrop(30), ops.HorizontalFlip(), ops.VerticalFlip()],
        [ops.Invert(), ops.RandomCrop(30), ops.Resize((20, 31)), ops.HorizontalFlip(), ops.Solarize(p=0.5)],
        [ops.RandomCrop(30), ops.RandomRotation(20), ops.CenterCrop(20)],
    ],
    ids=range(9),
)
def test_what_is_only_noted_at_first_comes_in_its_turn(pipeline, dataset):
    for i, got in enumerate(load(dataset, pipeline)):
        np.testing.assert_array_equal(got, wanted(pipeline, i, photo(i), SEED))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**40))
def test_erasing_leaves_a_part_of_the_smallest_images(height, width, sample):
    op = ops.RandomErasing(1, (0.3, 1.0), (0.2, 5), (1, 2, 3))
    picture = photo(1, height, width)
    np.testing.assert_array_equal(run_program([op], picture, sample), wanted([op], sample, picture, SEED))


@pytest.mark.parametrize(
    "pipeline",
    [
        [ops.Grayscale(), ops.RandomContrast(0.5), ops.RandomRotation(40), ops.RandAugment(3)],
        [ops.Resize((30, 33)), ops.Grayscale(), ops.HorizontalFlip(), ops.TrivialAugment()],
        [
            ops.CenterCrop(30),
            ops.Grayscale(),
            ops.Resize((20, 50)),
            ops.Equalize(),
            ops.RandomErasing(1, value="random"),
        ],
        [ops.HorizontalFlip(1), ops.Grayscale(), ops.ColorJitter(0.5, 0.5), ops.GaussianBlur(3), ops.Pad(2, 9)],
    ],
    ids=range(4),
)
def test_gray_from_any_place_on(pipeline, dataset):
    found = load(dataset, pipeline)
    assert found.shape[3] == 1
    for i, got in enumerate(found):
        np.testing.assert_array_equal(got, wanted(pipeline, i, photo(i), SEED))


@pytest.mark.parametrize("field", [fl.JPEGImageField(), fl.PNGImageField()], ids=["jpeg", "png"])
def test_operations_take_decoded_images(field, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": field}) as writer:
        writer.write_many({"image": photo(i, 50 + i, 70 - i)} for i in range(16))
    pipeline = [ops.ColorJitter(0.4, 0.4, 0.4, 0.1), ops.RandomCrop(48), ops.RandomGrayscale(0.3), ops.GaussianBlur(5)]
    found = load(tmp_path / "x.fld", pipeline)
    for i, (sample, got) in enumerate(zip(fl.open(tmp_path / "x.fld"), found, strict=True)):
        np.testing.assert_array_equal(got, wanted(pipeline, i, sample["image"], SEED))


def test_pixels_are_cast_as_ever_after_an_operation(dataset):
    plain = load(dataset, [ops.TrivialAugment()])
    found = load(dataset, [ops.TrivialAugment(), ops.Normalize(100, 50), ops.Cast("float16"), ops.Layout("CHW")])
    expected = (plain.astype(np.float32) * np.float32(1 / 50) + np.float32(-2)).astype(np.float16)
    np.testing.assert_array_equal(found, expected.transpose(0, 3, 1, 2))


# The same every time


def test_draws_depend_on_seed_epoch_and_sample_alone(dataset):
    pipeline = [
        ops.RandomResizedCrop(24), ops.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8), ops.RandAugment(), ops.TrivialAugment(),
        ops.RandomErasing(value="random"),
    ]  # fmt: skip

    def run(**options):
        loader = fl.DataLoader(fl.open(dataset), 5, pipelines={"image": pipeline}, seed=SEED, **options)
        return {int(i): image for batch in loader for i, image in zip(batch["i"], batch["image"], strict=True)}

    first = run(num_workers=1)
    for options in ({"num_workers": 7}, {"order": "sequential"}):
        again = run(**options)
        assert all((again[i] == first[i]).all() for i in range(COUNT))
    followed = load(dataset, [*pipeline, ops.Invert(0)])  # by what never happens: nobody draws another number
    assert all((followed[i] == first[i]).all() for i in range(COUNT))
    loader = fl.DataLoader(fl.open(dataset), 5, pipelines={"image": pipeline}, seed=SEED)
    loader.set_epoch(1)
    later = {int(i): image for batch in loader for i, image in zip(batch["i"], batch["image"], strict=True)}
    assert any((later[i] != first[i]).any() for i in range(COUNT))


def test_two_operations_of_a_kind_draw_apart(tmp_path):
    path = same_value(tmp_path / "x.fld", np.full((2, 2, 3), 100, np.uint8), 200)
    once, twice = (load(path, [ops.RandomBrightness(0.5)] * n)[:, 0, 0, 0] for n in (1, 2))
    assert (twice != np.floor(once * (once / 100))).mean() > 0.8


# How often, and how much


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("kind", [kind for kind in REFERENCES if "p" in {field.name for field in fields(kind)}])
def test_operations_happen_as_often_as_asked(kind, p, tmp_path):
    change = {
        ops.ColorJitter: ops.ColorJitter(brightness=(2, 3)), ops.RandomBrightness: ops.RandomBrightness((2, 3)),
        ops.RandomContrast: ops.RandomContrast((2, 3)), ops.RandomSaturation: ops.RandomSaturation((2, 3)),
        ops.RandomHue: ops.RandomHue((0.3, 0.4)), ops.GaussianBlur: ops.GaussianBlur(3, 2.0),
        ops.Sharpness: ops.Sharpness(5), ops.Posterize: ops.Posterize(2),
        ops.RandomErasing: ops.RandomErasing(scale=(0.3, 0.4), ratio=(1, 1), value="random"),
    }  # fmt: skip
    picture = photo(3, 20, 20)  # enough pixels for tones to be equalized
    path = same_value(tmp_path / "x.fld", picture, 1000)
    found = load(path, [replace(change.get(kind) or kind(), p=p)])
    share = (found != picture).any(axis=(1, 2, 3)).mean()
    assert abs(share - p) < (0.05 if 0 < p < 1 else 1e-9)


def test_factors_are_spread_evenly_over_their_range(tmp_path):
    path = same_value(tmp_path / "x.fld", np.full((2, 2, 3), 100, np.uint8), 4000)
    values = load(path, [ops.RandomBrightness((0.5, 2.0))])[:, 0, 0, 0]
    shares = np.histogram(values, bins=[50, 80, 110, 140, 170, 200])[0] / len(values)
    assert np.abs(shares - 0.2).max() < 0.03
    assert load(path, [ops.RandomBrightness(3.0)])[:, 0, 0, 0].min() < 3  # from 0, not from -2


def test_the_order_of_a_jitter_is_each_as_likely(tmp_path):
    """Brightness before or after contrast shows in a picture whose lighter half is cut off at white."""
    picture = np.array([[[60] * 3, [200] * 3]], np.uint8)
    path = same_value(tmp_path / "x.fld", picture, 2000)
    found = load(path, [ops.ColorJitter(brightness=(2.0, 2.0), contrast=(0.5, 0.5))])
    results, counts = np.unique(found[:, 0, :, 0], axis=0, return_counts=True)
    assert len(results) == 2
    assert abs(counts[0] / counts.sum() - 0.5) < 0.04


def test_erased_areas_are_distributed_as_torchvisions(tmp_path):
    path = same_value(tmp_path / "x.fld", np.full((60, 80, 3), 255, np.uint8), 2000)
    found = load(path, [ops.RandomErasing(1)])
    black = found[..., 0] == 0
    heights, widths = black.any(axis=2).sum(axis=1), black.any(axis=1).sum(axis=1)

    class Plain:
        def __init__(self):
            self.rng = np.random.default_rng(1)

        def between(self, low, high):
            return self.rng.uniform(low, high)

        def below(self, bound):
            return int(self.rng.integers(bound))

    plain = Plain()
    boxes = [drawn_erasure(plain, 60, 80, (0.02, 0.33), (0.3, 3.3)) for _ in range(4000)]
    quantiles = [0.05, 0.25, 0.5, 0.75, 0.95]
    for got, index in ((heights, 2), (widths, 3)):
        expected = [box[index] for box in boxes]
        assert np.abs(np.quantile(got, quantiles) - np.quantile(expected, quantiles)).max() <= 3


def test_translations_reach_every_place_alike(tmp_path):
    picture = np.zeros((5, 5, 3), np.uint8)
    picture[2, 2] = 255
    found = load(same_value(tmp_path / "x.fld", picture, 3000), [ops.RandomTranslate(2)])
    counts = (found[..., 0] == 255).sum(axis=0)
    assert counts.sum() == 3000
    assert 80 <= counts.min() <= counts.max() <= 165


def test_augmentations_are_chosen_alike(tmp_path):
    """Of fourteen, one is the identity and two need no magnitude; the draws tell which was taken."""
    names = list(space(31, TRIVIAL_SPACE, 32.0, 32.0))
    chosen = np.bincount([Draws(SEED, 0, i, 0).below(14) for i in range(2800)], minlength=14)
    assert len(names) == 14
    assert 140 <= chosen.min() <= chosen.max() <= 260
    picture = photo(1, 40, 40)
    found = load(same_value(tmp_path / "x.fld", picture, 2800), [ops.TrivialAugment()])
    same = [i for i, image in enumerate(found) if (image == picture).all()]
    assert {i for i in range(2800) if Draws(SEED, 0, i, 0).below(14) == 0} <= set(same)


@pytest.mark.parametrize("bins", [2, 11, 31])
def test_magnitudes_are_torchs_linspace(bins):
    table = space(bins, TRIVIAL_SPACE, 32.0, 32.0)
    for name, end in (("ShearX", 0.99), ("TranslateX", 32.0), ("Rotate", 135.0), ("Brightness", 0.99)):
        np.testing.assert_allclose(table[name], torch.linspace(0.0, end, bins).numpy(), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(table["Solarize"], torch.linspace(255.0, 0.0, bins).numpy(), rtol=1e-6, atol=1e-4)
    assert table["Posterize"] == (8 - (torch.arange(bins) / ((bins - 1) / 6)).round().int()).tolist()


def test_blurs_are_torchvisions_within_one(dataset):
    found = load(dataset, [ops.GaussianBlur((5, 9), (0.5, 3.0))])
    for i, got in enumerate(found):
        draws = Draws(SEED, 0, i, 0)
        draws.uniform()
        sigma = draws.between(0.5, 3.0)

        def weights(count, sigma=sigma):
            half = (count - 1) / 2
            density = torch.exp(-0.5 * (torch.linspace(-half, half, count) / sigma) ** 2)
            return density / density.sum()

        planes = torch.from_numpy(photo(i).transpose(2, 0, 1).copy()).float()[:, None]
        kernel = weights(9)[:, None] * weights(5)[None, :]
        done = torch.nn.functional.conv2d(torch.nn.functional.pad(planes, (2, 2, 4, 4), "reflect"), kernel[None, None])
        assert np.abs(done[:, 0].round().numpy().transpose(1, 2, 0) - got).max() <= 1


@pytest.mark.parametrize("op", CASES, ids=str)
def test_an_operation_can_be_made_again_from_its_options(op):
    assert replace(op) == op
