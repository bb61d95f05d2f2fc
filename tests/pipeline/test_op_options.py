"""Operations told wrongly, and what is told of them."""

import math
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest

import fastloader as fl
from fastloader import kernels, ops
from fastloader.pipeline import PipelineError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("ops") / "x.fld"
    with fl.DatasetWriter(path, {"image": fl.RawImageField(45, 62)}) as writer:
        writer.write_sample({"image": np.zeros((45, 62, 3), np.uint8)})
    return path


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
        writer.write_many({"image": np.zeros((12 if i == 3 else 40, 40, 3), np.uint8)} for i in range(5))
    with pytest.raises(fl.FormatError, match=why) as caught:
        list(fl.DataLoader(fl.open(tmp_path / "x.fld"), pipelines={"image": [op, ops.Resize((8, 8))]}))
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
    described = {
        "ArrayOp", "BatchOp", "ClipOp", "CustomOp", "Drawn", "LabelOp", "Named", "Numbers", "Op", "Pixels", "Random",
        "Sound", "SoundOp", "Step", "custom",
    }  # fmt: skip
    for name in set(ops.__all__) - described:
        if issubclass(getattr(ops, name), ops.SoundOp):  # on a page of their own, with a test for each option
            continue
        assert f"`{name}(" in page, name
        for field in fields(getattr(ops, name)):
            row = next(line for line in page.splitlines() if f"`{name}(" in line)
            assert field.name in row, (name, field.name)


def test_arrays_of_numbers_normalise_as_tuples_do() -> None:
    made = ops.Normalize(np.array([1.0, 2.0, 3.0]), np.float32(4))
    assert made == ops.Normalize((1.0, 2.0, 3.0), 4)
    assert ops.Normalize(np.array(1.0), np.array([2])) == ops.Normalize(1, 2)
