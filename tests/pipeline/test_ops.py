"""Operations on pixels in pipelines: what Pillow makes of the numbers that torchvision's formulas draw."""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from draws import Draws
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

import fastloader as fl
from fastloader import kernels, ops
from fastloader.pipeline import PipelineError

COUNT, HEIGHT, WIDTH, SEED = 40, 45, 62, 11
NEAREST, BILINEAR = Image.Resampling.NEAREST, Image.Resampling.BILINEAR


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


# What each operation is held against: a function of the draws and of Pillow's image that gives Pillow's image.


def sides(image):
    return image.height, image.width


def colour_of(image, fill):
    three = fill if isinstance(fill, tuple) else (fill, fill, fill)
    return three if image.mode == "RGB" else three[0]


def with_hue(image, turns):
    """Torchvision's adjust_hue of a PIL image."""
    hue, saturation, value = image.convert("HSV").split()
    turned = Image.fromarray(np.asarray(hue) + np.uint8(int(turns * 255) % 256))
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


def enhanced(way):
    return lambda op, draws, image: way(image).enhance(draws.between(*op.amount)) if draws.happens(op.p) else image


def jittered(op, draws, image):
    """Torchvision's ColorJitter.forward."""
    if not draws.happens(op.p):
        return image
    order = [0, 1, 2, 3]
    for i in (3, 2, 1):
        j = draws.below(i + 1)
        order[i], order[j] = order[j], order[i]
    ranges = (op.brightness, op.contrast, op.saturation, op.hue)
    factors = [draws.between(*one) for one in ranges]
    ways = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for i in order:
        if i == 3:
            image = with_hue(image, factors[3]) if op.hue != (0, 0) else image
        elif ranges[i] != (1, 1):
            image = ways[i](image).enhance(factors[i])
    return image


def by_chance(change):
    return lambda op, draws, image: change(op, draws, image) if draws.happens(op.p) else image


def blurred(op, draws, image):
    """The kernel, which is held against torchvision's formula elsewhere."""
    sigma = draws.between(*op.sigma)
    pixels = np.asarray(image)
    out = np.empty_like(pixels)
    shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
    kernels.gaussian_blur(pixels.copy(), shape, op.kernel_size[::-1], (sigma, sigma), out)
    return Image.fromarray(out)


def rotated(image, degrees, op):
    way = NEAREST if op.filter == "nearest" else BILINEAR
    return image.rotate(degrees, way, fillcolor=colour_of(image, op.fill))


def mapped(image, matrix, op):
    way = NEAREST if op.filter == "nearest" else BILINEAR
    return image.transform(image.size, Image.Transform.AFFINE, matrix, way, fillcolor=colour_of(image, op.fill))


def inverse_matrix(middle, angle, translate, scale, shear):
    """Torchvision's _get_inverse_affine_matrix."""
    turn, sx, sy = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(turn - sy) / math.cos(sy)
    b = -math.cos(turn - sy) * math.tan(sx) / math.cos(sy) - math.sin(turn)
    c = math.sin(turn - sy) / math.cos(sy)
    d = -math.sin(turn - sy) * math.tan(sx) / math.cos(sy) + math.cos(turn)
    m = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
    (cx, cy), (tx, ty) = middle, translate
    m[2] += m[0] * (-cx - tx) + m[1] * (-cy - ty) + cx
    m[5] += m[3] * (-cx - tx) + m[4] * (-cy - ty) + cy
    return m


def affine(op, draws, image):
    """Torchvision's RandomAffine.get_params, and its affine of a PIL image; shears are always two ranges."""
    angle = draws.between(*op.degrees)
    across, down = op.translate[0] * image.width, op.translate[1] * image.height
    moved = round(draws.between(-across, across)), round(draws.between(-down, down))
    scale = draws.between(*op.scale)
    shear = draws.between(*op.shear[:2]), draws.between(*op.shear[2:])
    middle = (image.width * 0.5, image.height * 0.5)
    return mapped(image, inverse_matrix(middle, angle, moved, scale, shear), op)


def affine_fixed(op, draws, image):
    middle = (image.width * 0.5, image.height * 0.5)
    return mapped(image, inverse_matrix(middle, op.degrees, op.translate, op.scale, op.shear), op)


def pasted(image, left, top, height, width, fill):
    wanted = Image.new(image.mode, (width, height), colour_of(image, fill))
    wanted.paste(image, (left, top))
    return wanted


def translated(op, draws, image):
    down, right = (draws.below(2 * op.padding + 1) - op.padding for _ in range(2))
    return pasted(image, right, down, image.height, image.width, op.fill)


def padded(op, draws, image):
    left, top, right, bottom = op.padding
    if op.mode == "constant":
        return pasted(image, left, top, image.height + top + bottom, image.width + left + right, op.fill)
    pixels = np.asarray(image)
    around = ((top, bottom), (left, right), (0, 0))[: pixels.ndim]
    return Image.fromarray(np.pad(pixels, around, mode=op.mode))


def drawn_erasure(draws, height, width, scale, ratio):
    """Torchvision's RandomErasing.get_params: top, left, height, width."""
    for _ in range(10):
        area = height * width * draws.between(*scale)
        shape = math.exp(draws.between(math.log(ratio[0]), math.log(ratio[1])))
        h, w = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if h < height and w < width:
            return draws.below(height - h + 1), draws.below(width - w + 1), h, w
    return None


def erased(op, draws, image):
    box = drawn_erasure(draws, *sides(image), op.scale, op.ratio)
    if box is None:
        return image
    top, left, h, w = box
    pixels = np.array(image)
    if op.value == "random":
        channels = 1 if pixels.ndim == 2 else 3
        noise = draws.rest((h, w * channels))
        pixels[top : top + h, left : left + w] = noise.reshape((h, w, channels)[: pixels.ndim])
    else:
        pixels[top : top + h, left : left + w] = colour_of(image, op.value)
    return Image.fromarray(pixels)


def cut_out(op, draws, image):
    h, w = op.size
    top, left = draws.below(image.height - h + 1), draws.below(image.width - w + 1)
    pixels = np.array(image)
    pixels[top : top + h, left : left + w] = colour_of(image, op.fill)
    return Image.fromarray(pixels)


SIGNED = {
    "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness",
}  # fmt: skip
RAND_SPACE = {"shear": 0.3, "degrees": 30.0, "factor": 0.9, "bits": 4}
TRIVIAL_SPACE = {"shear": 0.99, "degrees": 135.0, "factor": 0.99, "bits": 6}


def space(bins, most, across, down):
    """Torchvision's _augmentation_space: the magnitudes of each operation, in its order."""

    def up_to(end):
        return [end * (k / (bins - 1)) for k in range(bins)]

    return {
        "Identity": None, "ShearX": up_to(most["shear"]), "ShearY": up_to(most["shear"]), "TranslateX": up_to(across),
        "TranslateY": up_to(down), "Rotate": up_to(most["degrees"]), "Brightness": up_to(most["factor"]),
        "Color": up_to(most["factor"]), "Contrast": up_to(most["factor"]), "Sharpness": up_to(most["factor"]),
        "Posterize": [8 - round(k / ((bins - 1) / most["bits"])) for k in range(bins)],
        "Solarize": [255.0 - x for x in up_to(255.0)], "AutoContrast": None, "Equalize": None,
    }  # fmt: skip


def augmented(op, image, name, amount):
    """Torchvision's _apply_op of a PIL image."""
    if name in ("ShearX", "ShearY"):
        angle = math.degrees(math.atan(amount))
        shear = (angle, 0.0) if name == "ShearX" else (0.0, angle)
        return mapped(image, inverse_matrix((0, 0), 0.0, (0, 0), 1.0, shear), op)
    if name in ("TranslateX", "TranslateY"):
        moved = (int(amount), 0) if name == "TranslateX" else (0, int(amount))
        return mapped(image, inverse_matrix((image.width * 0.5, image.height * 0.5), 0.0, moved, 1.0, (0, 0)), op)
    if name == "Rotate":
        return rotated(image, amount, op)
    if name in ("Brightness", "Color", "Contrast", "Sharpness"):
        return getattr(ImageEnhance, name)(image).enhance(1 + amount)
    change = {
        "Identity": lambda: image, "Posterize": lambda: ImageOps.posterize(image, int(amount)),
        "Solarize": lambda: ImageOps.solarize(image, amount), "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
    }  # fmt: skip
    return change[name]()


def rand_augmented(op, draws, image):
    """Torchvision's RandAugment.forward."""
    table = space(op.num_magnitude_bins, RAND_SPACE, 150 / 331 * image.width, 150 / 331 * image.height)
    for _ in range(op.num_ops):
        name = list(table)[draws.below(len(table))]
        amount = 0.0 if table[name] is None else table[name][op.magnitude]
        if name in SIGNED and draws.below(2):
            amount = -amount
        image = augmented(op, image, name, amount)
    return image


def trivially_augmented(op, draws, image):
    """Torchvision's TrivialAugmentWide.forward."""
    table = space(op.num_magnitude_bins, TRIVIAL_SPACE, 32.0, 32.0)
    name = list(table)[draws.below(len(table))]
    amount = 0.0 if table[name] is None else table[name][draws.below(op.num_magnitude_bins)]
    if name in SIGNED and draws.below(2):
        amount = -amount
    return augmented(op, image, name, amount)


def center_cropped(op, draws, image):
    h, w = op.size
    top, left = round((image.height - h) / 2), round((image.width - w) / 2)
    return image.crop((left, top, left + w, top + h))


def randomly_cropped(op, draws, image):
    h, w = op.size
    top = draws.below(image.height + 2 * op.padding - h + 1) - op.padding
    left = draws.below(image.width + 2 * op.padding - w + 1) - op.padding
    return pasted(image, -left, -top, h, w, op.fill)


def resized(op, draws, image):
    """Across first, then down."""
    h, w = op.size
    return image.resize((w, image.height), BILINEAR).resize((w, h), BILINEAR)


REFERENCES = {
    ops.ColorJitter: jittered,
    ops.RandomBrightness: enhanced(ImageEnhance.Brightness),
    ops.RandomContrast: enhanced(ImageEnhance.Contrast),
    ops.RandomSaturation: enhanced(ImageEnhance.Color),
    ops.RandomHue: by_chance(lambda op, draws, image: with_hue(image, draws.between(*op.amount))),
    ops.Grayscale: lambda op, draws, image: image.convert("L").convert("L" if op.channels == 1 else "RGB"),
    ops.RandomGrayscale: by_chance(lambda op, draws, image: image.convert("L").convert("RGB")),
    ops.GaussianBlur: by_chance(blurred),
    ops.Sharpness: by_chance(
        lambda op, draws, image: ImageEnhance.Sharpness(image).enhance(
            draws.between(*(op.factor if isinstance(op.factor, tuple) else (op.factor, op.factor)))
        )
    ),
    ops.Solarize: by_chance(lambda op, draws, image: ImageOps.solarize(image, op.threshold)),
    ops.Posterize: by_chance(lambda op, draws, image: ImageOps.posterize(image, op.bits)),
    ops.Equalize: by_chance(lambda op, draws, image: ImageOps.equalize(image)),
    ops.AutoContrast: by_chance(lambda op, draws, image: ImageOps.autocontrast(image)),
    ops.Invert: by_chance(lambda op, draws, image: ImageOps.invert(image)),
    ops.Rotate: lambda op, draws, image: rotated(image, op.degrees, op),
    ops.RandomRotation: lambda op, draws, image: rotated(image, draws.between(*op.degrees), op),
    ops.Affine: affine_fixed,
    ops.RandomAffine: affine,
    ops.RandomTranslate: translated,
    ops.Pad: padded,
    ops.RandomErasing: by_chance(erased),
    ops.Cutout: cut_out,
    ops.RandAugment: rand_augmented,
    ops.TrivialAugment: trivially_augmented,
    ops.HorizontalFlip: by_chance(lambda op, draws, image: ImageOps.mirror(image)),
    ops.VerticalFlip: by_chance(lambda op, draws, image: ImageOps.flip(image)),
    ops.CenterCrop: center_cropped,
    ops.RandomCrop: randomly_cropped,
    ops.Resize: resized,
}


def wanted(pipeline, sample, image):
    """Pillow's image after the whole pipeline, as (H, W, C)."""
    image = Image.fromarray(image)
    for number, op in enumerate(pipeline):
        image = REFERENCES[type(op)](op, Draws(SEED, 0, sample, number), image)
    pixels = np.asarray(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


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
        expected = wanted([op], i, photo(i))
        if getattr(op, "filter", "") == "bilinear":  # a sine that differs in its last bit may show by 1
            difference = np.abs(expected.astype(int) - got)
            assert difference.max() <= 1
            assert (difference > 0).mean() < 1e-3
        else:
            np.testing.assert_array_equal(got, expected, f"sample {i}")


def test_every_operation_has_a_case():
    cast = {"Cast", "Layout", "Normalize"}  # what the last step does
    crops = {"CenterCrop", "HorizontalFlip", "RandomResizedCrop", "Resize", "VerticalFlip"}  # in test_pipelines.py
    described = {"Op", "Pixels", "Step"}
    assert set(ops.__all__) - cast - crops - described == {type(op).__name__ for op in CASES}


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
    np.testing.assert_array_equal(found, wanted(pipeline, sample, picture))


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
        np.testing.assert_array_equal(got, wanted(pipeline, i, photo(i)))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**40))
def test_erasing_leaves_a_part_of_the_smallest_images(height, width, sample):
    op = ops.RandomErasing(1, (0.3, 1.0), (0.2, 5), (1, 2, 3))
    picture = photo(1, height, width)
    np.testing.assert_array_equal(run_program([op], picture, sample), wanted([op], sample, picture))


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
        np.testing.assert_array_equal(got, wanted(pipeline, i, photo(i)))


@pytest.mark.parametrize("field", [fl.JPEGImageField(), fl.PNGImageField()], ids=["jpeg", "png"])
def test_operations_take_decoded_images(field, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": field}) as writer:
        writer.write_many({"image": photo(i, 50 + i, 70 - i)} for i in range(16))
    pipeline = [ops.ColorJitter(0.4, 0.4, 0.4, 0.1), ops.RandomCrop(48), ops.RandomGrayscale(0.3), ops.GaussianBlur(5)]
    found = load(tmp_path / "x.fld", pipeline)
    for i, (sample, got) in enumerate(zip(fl.open(tmp_path / "x.fld"), found, strict=True)):
        np.testing.assert_array_equal(got, wanted(pipeline, i, sample["image"]))


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


# What goes wrong


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.ColorJitter(brightness=-0.1), "brightness=-0.1: from 0 to"),
        (lambda: ops.ColorJitter(hue=0.6), "hue=0.6: from 0 to 0.5"),
        (lambda: ops.ColorJitter(hue=(-0.6, 0)), "from -0.5 to 0.5"),
        (lambda: ops.ColorJitter(contrast=(2, 1)), "contrast=\\(2, 1\\): the lesser number first"),
        (lambda: ops.ColorJitter(saturation=(1, 1, 1)), "one number, or the least and the most"),
        (lambda: ops.ColorJitter(p=2), "p=2: from 0 to 1"),
        (lambda: ops.RandomBrightness(math.nan), "amount=nan"),
        (lambda: ops.Grayscale(2), "channels=2: 1 or 3"),
        (lambda: ops.GaussianBlur(4), "kernel_size=4: odd numbers"),
        (lambda: ops.GaussianBlur(3, 0), "sigma=\\(0, 0\\)|sigma=0"),
        (lambda: ops.Sharpness(-1), "factor=-1: from 0"),
        (lambda: ops.Solarize(257), "threshold=257: from 0 to 256"),
        (lambda: ops.Posterize(0), "bits=0: from 1 to 8"),
        (lambda: ops.Rotate(10, "bicubic"), "filter='bicubic': nearest or bilinear"),
        (lambda: ops.Rotate(10, fill=256), "fill=256: from 0 to 255"),
        (lambda: ops.Rotate(10, fill=(1, 2)), "one number from 0 to 255, or three"),
        (lambda: ops.RandomRotation((5, -5)), "the lesser number first"),
        (lambda: ops.Affine(translate=(0.5, 1)), "whole numbers of pixels"),
        (lambda: ops.Affine(scale=0), "scale=0: from"),
        (lambda: ops.Affine(shear=90), "shear=90: from -89.9 to 89.9"),
        (lambda: ops.RandomAffine(10, (0.5, 1.5)), "translate=1.5: from 0 to 1"),
        (lambda: ops.RandomAffine(10, scale=(0, 1)), "scale=0: from"),
        (lambda: ops.RandomAffine(10, shear=(1, 2, 3)), "one number, or the least and the most"),
        (lambda: ops.RandomTranslate(-1), "padding=-1: from 0"),
        (lambda: ops.Pad((1, 2, 3)), "one number, \\(across, down\\), or"),
        (lambda: ops.Pad(1, mode="wrap"), "mode='wrap': one of constant, edge, reflect, symmetric"),
        (lambda: ops.Pad(1, 5, "edge"), "fill=5 has no effect with mode='edge'"),
        (lambda: ops.RandomErasing(scale=(0, 0.1)), "above 0"),
        (lambda: ops.Cutout(0), "size=0: from 1"),
        (lambda: ops.RandAugment(0), "num_ops=0: from 1"),
        (lambda: ops.RandAugment(magnitude=31), "magnitude=31: from 0 to 30"),
        (lambda: ops.TrivialAugment(1), "num_magnitude_bins=1: from 2"),
    ],
)
def test_wrong_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.RandomBrightness("0.5"), "amount='0.5': a number"),
        (lambda: ops.Posterize(2.5), "bits=2.5: a whole number"),
        (lambda: ops.Invert(True), "p=True: a number"),
        (lambda: ops.RandomErasing(value="noise"), "value='noise': a whole number"),
        (lambda: ops.RandomAffine(10, scale=2), "scale=2: the least and the most factor"),
    ],
)
def test_options_of_the_wrong_type(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        ([ops.Grayscale(), ops.RandomHue(0.1)], "takes 3 channels, and gets 1: put it before Grayscale"),
        ([ops.Grayscale(), ops.RandomSaturation(0.1)], "takes 3 channels"),
        ([ops.Grayscale(), ops.ColorJitter(hue=0.1)], "takes 3 channels"),
        ([ops.Grayscale(), ops.RandomGrayscale()], "takes 3 channels"),
        ([ops.Grayscale(), ops.Pad(2, (1, 2, 3))], "has fill=\\(1, 2, 3\\) for 1 channel: give it one number"),
        ([ops.Grayscale(), ops.RandomErasing(value=(1, 2, 3))], "has value="),
        ([ops.Normalize(0, 1), ops.Invert()], "takes uint8 pixels, and gets float32"),
        ([ops.Layout("CHW"), ops.RandAugment()], "gets CHW"),
        ([ops.CenterCrop(4), ops.GaussianBlur(9)], "takes at least 5 pixels of width, and gets 4"),
        ([ops.CenterCrop(4), ops.Cutout(5)], "takes 5 pixels of height, and gets 4"),
        ([ops.Pad(65000)], "gives a side of 130045 pixels"),
    ],
)
def test_a_mistake_is_shown_in_its_place(pipeline, why, dataset):
    with pytest.raises(PipelineError, match=why) as caught:
        fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline})
    assert "\n--> " in str(caught.value)


@pytest.mark.parametrize(
    ("op", "why"), [(ops.GaussianBlur(31), "too small to be reflected"), (ops.Cutout(20), "smaller than the cutout")]
)
def test_an_image_too_small_for_an_operation_is_named(op, why, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.PNGImageField()}) as writer:
        writer.write_many({"image": photo(i, 12 if i == 3 else 40, 40)} for i in range(5))
    with pytest.raises(fl.FormatError, match=why) as caught:
        load(tmp_path / "x.fld", [op, ops.Resize((8, 8))])
    assert (caught.value.sample, caught.value.field) == (3, "image")


@dataclass(frozen=True)
class Wrong(ops.Op):
    numbers: tuple

    def output(self, given):
        return given

    def step(self):
        return ops.Step("erase", numbers=self.numbers)


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((0.5,), "a step has 1 numbers, not 9"),
        ((0.5, 0.1, 0.2, 1, math.inf, 0, 0, 0, 0), "not finite"),
        ((0.5, 0.2, 0.1, 1, 1, 0, 0, 0, 0), "scale"),
        ((0.5, 0.1, 0.2, 1, 1, 0, 0, 0, 300), "a fill"),
    ],
)
def test_the_native_part_checks_its_numbers_too(numbers, why, dataset):
    with pytest.raises(kernels.Failure, match=why):
        fl.DataLoader(fl.open(dataset), pipelines={"image": [Wrong(numbers)]})


# What is told


def test_explain_tells_every_operation_with_its_options(dataset):
    pipeline = [ops.RandomCrop(32), ops.ColorJitter(0.5, hue=0.25), ops.Grayscale(), ops.RandAugment(), ops.Layout()]
    told = fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline}).explain()
    assert (
        "ColorJitter(brightness=(0.5, 1.5), contrast=(1.0, 1.0), saturation=(1.0, 1.0), hue=(-0.25, 0.25), p=1.0)"
        in told
    )
    assert "Grayscale(channels=1): (32, 32, 1) uint8 HWC" in told
    assert "RandAugment(num_ops=2, magnitude=9" in told
    assert "4 steps, 1 folded into the cast; 1,024 bytes a sample" in told


def test_every_operation_is_on_its_page():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "ops.md").read_text()
    for name in set(ops.__all__) - {"Op", "Pixels", "Step"}:
        assert f"`{name}(" in page, name
        for field in fields(getattr(ops, name)):
            row = next(line for line in page.splitlines() if f"`{name}(" in line)
            assert field.name in row, (name, field.name)


@pytest.mark.parametrize("op", CASES, ids=str)
def test_an_operation_can_be_made_again_from_its_options(op):
    assert replace(op) == op
