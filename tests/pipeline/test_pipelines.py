"""Pipelines of the loader: what comes out is what Pillow makes of the same draws, the same every time."""

import io
import json
import math

import numpy as np
import pytest
from draws import Draws
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fastloader as fl
from fastloader import kernels, ops
from fastloader.fields import BY_TYPE_ID, register_type
from fastloader.pipeline import PipelineError, compile_pipeline

COUNT = 24
BILINEAR = Image.Resampling.BILINEAR


def photo(i, size=None):
    """Smooth enough for a JPEG, different everywhere."""
    rng = np.random.default_rng(i)
    height, width = size or (int(rng.integers(60, 200)), int(rng.integers(60, 200)))
    small = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


@pytest.fixture(scope="module", params=["jpeg", "plain jpeg", "png", "webp", "raw", "shards"])
def dataset(request, tmp_path_factory):
    field = {
        "jpeg": fl.JPEGImageField(), "plain jpeg": fl.JPEGImageField(seekable=False), "png": fl.PNGImageField(),
        "webp": fl.WebPImageField(), "raw": fl.RawImageField(90, 120), "shards": fl.JPEGImageField(),
    }[request.param]  # fmt: skip
    size = (90, 120) if request.param == "raw" else None
    path = tmp_path_factory.mktemp("pipeline") / "x.fld"
    options = {"shard_size": 20_000} if request.param == "shards" else {}
    with fl.DatasetWriter(path, {"image": field, "i": fl.IntField()}, **options) as writer:
        writer.write_many({"image": photo(i, size), "i": i} for i in range(COUNT))
    return path


def resized(image, height, width, way=BILINEAR):
    """Pillow's resize, across first and then down, as it was in one call before Pillow 13."""
    across = Image.fromarray(np.ascontiguousarray(image)).resize((width, image.shape[0]), way)
    return np.asarray(across.resize((width, height), way))


def load(path, pipeline, **options):
    loader = fl.DataLoader(fl.open(path), 8, shuffle=False, pipelines={"image": pipeline}, **options)
    return np.concatenate([batch["image"] for batch in loader])


def decoded(path):
    return [sample["image"] for sample in fl.open(path)]


# Equal to Pillow


@pytest.mark.parametrize("filter_name", kernels.FILTERS)
def test_resize_is_pillows(filter_name, dataset):
    found = load(dataset, [ops.Resize((40, 56), filter_name)])
    way = Image.Resampling[filter_name.upper()]
    for image, got in zip(decoded(dataset), found, strict=True):
        assert (resized(image, 40, 56, way) == got).all()


def test_the_shorter_side_and_the_middle(dataset):
    found = load(dataset, [ops.Resize(64), ops.CenterCrop((48, 60))])
    for image, got in zip(decoded(dataset), found, strict=True):
        height, width = image.shape[:2]
        size = (64, 64 * width // height) if height <= width else (64 * height // width, 64)
        whole = resized(image, *size)
        top, left = round((size[0] - 48) / 2), round((size[1] - 60) / 2)
        assert (whole[top : top + 48, left : left + 60] == got).all()


def test_a_crop_of_the_middle_is_cut_from_the_full_decode(dataset):
    found = load(dataset, [ops.CenterCrop(50)])
    for image, got in zip(decoded(dataset), found, strict=True):
        top, left = round((image.shape[0] - 50) / 2), round((image.shape[1] - 50) / 2)
        assert (image[top : top + 50, left : left + 50] == got).all()


def drawn_box(draws, height, width, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)):
    """Torchvision's RandomResizedCrop.get_params, in its words."""
    for _ in range(10):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * draws.uniform())
        low, high = math.log(ratio[0]), math.log(ratio[1])
        shape = math.exp(low + (high - low) * draws.uniform())
        w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < w <= width and 0 < h <= height:
            top = draws.below(height - h + 1)
            return draws.below(width - w + 1), top, w, h
    raise AssertionError("these images are not that narrow")


@pytest.mark.parametrize("flip", [0, 1])
def test_random_crops_are_pillows_resize_of_the_part_that_torchvision_would_draw(flip, dataset):
    found = load(dataset, [ops.RandomResizedCrop(32), ops.HorizontalFlip(flip)], seed=5)
    for i, (image, got) in enumerate(zip(decoded(dataset), found, strict=True)):
        left, top, w, h = drawn_box(Draws(5, 0, i, 0), *image.shape[:2])
        wanted = resized(image[top : top + h, left : left + w], 32, 32)
        difference = np.abs(wanted.astype(int) - (got[:, ::-1] if flip else got))
        if min(w, h) < 128:
            assert not difference.any()
        else:  # of much larger parts a JPEG is decoded at half its size, four times what is asked for
            assert difference.mean() < 1
            assert difference.max() < 12


# The same every time


def test_batches_depend_on_seed_epoch_and_sample_alone(dataset):
    pipeline = [ops.RandomResizedCrop(24), ops.HorizontalFlip(), ops.VerticalFlip(0.3)]

    def run(**options):
        loader = fl.DataLoader(fl.open(dataset), 5, pipelines={"image": pipeline}, seed=7, **options)
        return {int(i): image for batch in loader for i, image in zip(batch["i"], batch["image"], strict=True)}

    wanted = run(num_workers=1)
    for options in ({"num_workers": 7}, {"order": "sequential"}, {"io": "pread"}):
        got = run(**options)
        assert all((got[i] == wanted[i]).all() for i in range(COUNT))


def test_each_epoch_draws_anew_and_can_be_had_again(dataset):
    loader = fl.DataLoader(fl.open(dataset), 8, shuffle=False, pipelines={"image": [ops.RandomResizedCrop(16)]})
    first, second = (np.concatenate([batch["image"] for batch in loader]) for _ in range(2))
    assert (first != second).any()
    loader.set_epoch(0)
    assert (np.concatenate([batch["image"] for batch in loader]) == first).all()


def test_a_restart_in_the_middle_gives_the_same_rest(dataset):
    pipeline = {"image": [ops.RandomResizedCrop(16), ops.HorizontalFlip()]}
    loader = fl.DataLoader(fl.open(dataset), 4, pipelines=pipeline, seed=3)
    passing = iter(loader)
    seen = [next(passing)["image"].copy() for _ in range(2)]
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [batch["image"].copy() for batch in passing]
    resumed = fl.DataLoader(fl.open(dataset), 4, pipelines=pipeline, seed=3)
    resumed.load_state_dict(state)
    assert len(seen) == 2
    assert all((a["image"] == b).all() for a, b in zip(resumed, rest, strict=True))


# What the last step makes of pixels


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_normalised_casts_equal_numpys(dtype, layout, dataset):
    mean, std = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
    plain = load(dataset, [ops.Resize((20, 28))])
    found = load(dataset, [ops.Resize((20, 28)), ops.Normalize(mean, std), ops.Cast(dtype), ops.Layout(layout)])
    scale = np.array([1 / s for s in std], np.float32)
    bias = np.array([-m / s for m, s in zip(mean, std, strict=True)], np.float32)
    wanted = (plain.astype(np.float32) * scale + bias).astype(dtype)
    assert found.dtype == dtype
    assert (found == (wanted.transpose(0, 3, 1, 2) if layout == "CHW" else wanted)).all()


def test_gray_images_come_as_colours_and_colours_as_gray(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.PNGImageField()}) as writer:
        writer.write_sample({"image": photo(1, (40, 50))[:, :, 0]})
        writer.write_sample({"image": photo(2, (50, 40))})
        writer.write_sample({"image": np.dstack([photo(3, (50, 40)), photo(4, (50, 40))[:, :, :1]])})
    images = decoded(tmp_path / "x.fld")
    found = load(tmp_path / "x.fld", [ops.CenterCrop(40)])
    assert (found[0] == images[0][:, 5:45].repeat(3, axis=2)).all()
    assert (found[2] == images[2][5:45, :, :3]).all()
    gray = load(tmp_path / "x.fld", [ops.Grayscale(), ops.CenterCrop(40)])
    assert (gray[1][:, :, 0] == np.asarray(Image.fromarray(images[1]).convert("L"))[5:45]).all()


# Draws


@settings(max_examples=20, deadline=None)
@given(height=st.integers(1, 300), width=st.integers(1, 300), sample=st.integers(0, 10**9))
def test_parts_lie_inside_any_image(height, width, sample):
    png = io.BytesIO()
    Image.new("RGB", (width, height), (9, 8, 7)).save(png, "png")
    program = kernels.Program(
        1, False, (0, 0, 0), [(0, 0, 8, 8, 2, (0.08, 1.0, 3 / 4, 4 / 3))], (8, 8, 3), 0, 0, (1.0,) * 4, (0.0,) * 4, 5
    )
    out = np.empty((8, 8, 3), np.uint8)
    program.run(png.getvalue(), np.array([height, width, 3, 8], np.uint32), 0, sample, out)
    assert (out == (9, 8, 7)).all()


def test_flips_happen_as_often_as_asked(tmp_path):
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:, 0] = 255
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.RawImageField(4, 4)}) as writer:
        writer.write_many({"image": picture} for _ in range(4000))
    found = load(tmp_path / "x.fld", [ops.HorizontalFlip(0.25)])
    assert 0.22 < (found[:, 0, 0, 0] == 0).mean() < 0.28


def test_random_crops_reach_everywhere_and_padding_is_black(tmp_path):
    picture = np.arange(1, 26, dtype=np.uint8).reshape(5, 5, 1).repeat(3, axis=2)
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.RawImageField(5, 5)}) as writer:
        writer.write_many({"image": picture} for _ in range(500))
    assert set(load(tmp_path / "x.fld", [ops.RandomCrop(1)])[..., 0].ravel()) == set(range(1, 26))
    padded = load(tmp_path / "x.fld", [ops.RandomCrop(3, padding=2)])
    whole = np.pad(picture[..., 0], 2)
    windows = {whole[y : y + 3, x : x + 3].tobytes() for y in range(7) for x in range(7)}
    assert {one.tobytes() for one in np.ascontiguousarray(padded[..., 0])} == windows


# What goes wrong


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        ([ops.Normalize(0, 1), ops.Resize((4, 4))], "takes uint8 pixels, and gets float32"),
        ([ops.Layout("CHW"), ops.CenterCrop(4)], "takes \\(height, width, channels\\), and gets CHW"),
        ([ops.Resize((30, 30)), ops.CenterCrop(40)], "takes 40 pixels of height, and gets 30"),
        ([ops.Resize((30, 30)), ops.Cast("float16"), ops.Normalize(0, 1)], "gets float16: put it before Cast"),
        ([ops.Resize((30, 30)), "flip"], "is no operation but a str"),
        ([ops.Resize((30, 30)), ops.Grayscale(), ops.Grayscale()], "takes 3 channels, and gets 1"),
    ],
)
def test_a_mistake_is_shown_in_its_place_before_anything_is_read(pipeline, why, dataset):
    with pytest.raises(PipelineError, match=why) as caught:
        fl.DataLoader(fl.open(dataset), pipelines={"image": pipeline})
    assert "\n--> " in str(caught.value)


def test_images_of_one_size_are_asked_for(tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.JPEGImageField(), "i": fl.IntField()}) as writer:
        writer.write_sample({"image": photo(1), "i": 1})
    reader = fl.open(tmp_path / "x.fld")
    with pytest.raises(PipelineError, match="must have one size: add a crop"):
        fl.DataLoader(reader, pipelines={"image": [ops.Resize(40)]})
    with pytest.raises(
        PipelineError, match=r"is no operation on whole numbers: IntField takes OneHot, .*functions of yours"
    ):
        fl.DataLoader(reader, pipelines={"i": [ops.Resize((4, 4))]})
    with pytest.raises(ValueError, match="pipelines for unknown fields nope"):
        fl.DataLoader(reader, pipelines={"nope": []})


@pytest.mark.parametrize("side", [2**20 + 1, 2**32, 2**63])
def test_raw_images_of_any_claimed_size_are_told(side):
    with pytest.raises(PipelineError, match=f"images of 3x{side} pixels; a side has at most 1048576"):
        compile_pipeline("image", fl.RawImageField(3, side), [ops.CenterCrop(2)], 0)


def test_a_field_of_an_unknown_type_hinders_no_pipeline_of_another(tmp_path):
    path = tmp_path / "x.fld"
    other = register_type(640_010)(type("OtherField", (fl.BytesField,), {}))
    with fl.DatasetWriter(path, {"image": fl.PNGImageField(), "other": other(), "n": fl.NDArrayField("u1")}) as writer:
        writer.write_sample({"image": photo(1, (9, 9)), "other": b"", "n": np.zeros(3, np.uint8)})
    del BY_TYPE_ID[640_010]
    pipelines = {"image": [ops.CenterCrop(5)]}
    (batch,) = fl.DataLoader(fl.open(path), 1, fields=["image", "n"], pipelines=pipelines, pad={"n": "longest"})
    assert batch["image"].shape == (1, 5, 5, 3)
    with pytest.raises(fl.UnknownTypeError, match="'other'"):
        list(fl.DataLoader(fl.open(path), 1, pipelines=pipelines))


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_an_image_too_small_for_a_crop_follows_on_error(policy, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.JPEGImageField(), "i": fl.IntField()}) as writer:
        for i in range(4):
            writer.write_sample({"image": photo(i, (20, 20) if i == 2 else (40, 40)), "i": i})
    loader = fl.DataLoader(
        fl.open(tmp_path / "x.fld"), 4, shuffle=False, pipelines={"image": [ops.CenterCrop(30)]}, on_error=policy
    )
    if policy == "raise":
        with pytest.raises(fl.FormatError, match="20x20 is smaller than the crop of 30x30") as caught:
            list(loader)
        assert (caught.value.sample, caught.value.field) == (2, "image")
        return
    (batch,) = loader
    assert loader.stats()["bad_values"] == 1
    assert batch["i"].tolist() == ([0, 1, 3, 3] if policy == "skip" else [0, 1, 2, 3])
    if policy == "replace":
        assert batch["image"].mask[2].all()
        assert not batch["image"].mask[[0, 1, 3]].any()


def test_explain_tells_every_step(dataset):
    loader = fl.DataLoader(
        fl.open(dataset), pipelines={"image": [ops.RandomResizedCrop(32), ops.Layout("CHW")]}, transforms={"i": abs}
    )
    told = loader.explain()
    assert "(32, 32, 3) uint8 HWC" in told
    assert "(3, 32, 32) uint8 CHW" in told
    assert "3,072 bytes a sample" in told
    assert "'i': loaded as it is stored" in told
    assert "in Python" in told


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.Resize(0), "size=0: from 1 to"),
        (lambda: ops.Resize((1, 2, 3)), "one number, or height and width"),
        (lambda: ops.RandomResizedCrop(8, scale=(0.5, 0.1)), "the lesser first"),
        (lambda: ops.RandomResizedCrop(8, filter="magic"), "filter='magic': one of nearest"),
        (lambda: ops.HorizontalFlip(1.5), "p=1.5: from 0 to 1"),
        (lambda: ops.Normalize(0, 0), "none of them 0"),
        (lambda: ops.Normalize((), 3), "one number, or one a channel"),
        (lambda: ops.Cast("int8"), "one of float16, bfloat16, float32"),
        (lambda: ops.Layout("WHC"), "'CHW' or 'HWC'"),
    ],
)
def test_wrong_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()
