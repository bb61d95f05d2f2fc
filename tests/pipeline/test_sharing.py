"""Draws shared by name: an image and its mask are cut, turned and mirrored together, whatever else their lists hold."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fastloader as fl
from fastloader import ops
from fastloader.pipeline import PipelineError
from fastloader.pipeline.draws import FIRST_SHARED, number_of

COUNT = 24


def gray(i, size=None):
    """A picture without colours, of a size of its own."""
    rng = np.random.default_rng(i)
    height, width = size or (int(rng.integers(50, 90)), int(rng.integers(50, 90)))
    small = rng.integers(0, 256, (6, 6)).astype(np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def write(path, mask=lambda i, image: image):
    fields = {"image": fl.PNGImageField(), "mask": fl.PNGImageField(), "i": fl.IntField()}
    with fl.DatasetWriter(path, fields) as writer:
        for i in range(COUNT):
            image = gray(i)
            writer.write_sample({"image": image[:, :, None].repeat(3, 2), "mask": mask(i, image), "i": i})
    return path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sharing") / "x.fld")


def load(path, image, mask, **options):
    pipelines = {"image": image, "mask": mask}
    batches = list(fl.DataLoader(fl.open(path), 8, **{"shuffle": False, **options}, pipelines=pipelines))
    return tuple(np.concatenate([batch[name] for batch in batches]) for name in ("image", "mask"))


SHARED = [
    ops.RandomResizedCrop(32, filter="nearest"), ops.RandomCrop(40, 3), ops.HorizontalFlip(), ops.VerticalFlip(),
    ops.RandomRotation(90), ops.RandomAffine(30, (0.2, 0.1), (0.7, 1.3), 10), ops.RandomTranslate(15),
    ops.RandomErasing(0.7), ops.Cutout(20), ops.RandAugment(3, 20), ops.TrivialAugment(), ops.RandomBrightness(0.9),
    ops.RandomContrast(0.9), ops.Sharpness((0, 3)), ops.GaussianBlur(5), ops.Invert(0.5), ops.Posterize(2, 0.5),
    ops.Solarize(p=0.5), ops.AutoContrast(0.5), ops.Equalize(0.5), ops.ColorJitter(0.9, 0.9),
]  # fmt: skip


@pytest.mark.parametrize("op", SHARED, ids=lambda op: type(op).__name__)
def test_operations_of_one_name_draw_alike_wherever_they_stand(op, dataset):
    size = ops.Resize((44, 46), "nearest")
    before = [ops.Grayscale(), ops.Invert(), ops.Invert(), size]
    image, mask = load(dataset, [size, op.shared("it")], [*before, op.shared("it")])
    assert (image == mask).all()
    by_place, other = load(dataset, [size, op], [*before, op])
    assert (by_place != other).any()
    assert (by_place != image).any()


def test_a_whole_augmentation_is_shared(dataset):
    def turned(way):
        return [
            ops.RandomResizedCrop(40, filter=way).shared("crop"), ops.HorizontalFlip().shared("flip"),
            ops.RandomRotation(30, filter=way).shared("turn"),
        ]  # fmt: skip

    image, mask = load(dataset, turned("nearest"), [ops.Grayscale(), *turned("nearest")], seed=3, shuffle=True)
    assert mask.shape == (COUNT, 40, 40, 1)
    assert (image == mask).all()
    smooth, mask = load(dataset, turned("bilinear"), [ops.Grayscale(), *turned("nearest")], seed=3)
    near = np.abs(smooth.astype(int) - mask) < 64
    assert near.mean() > 0.95


def test_without_a_name_the_place_decides(dataset):
    image, mask = load(dataset, [ops.RandomCrop(30)], [ops.RandomCrop(30)])
    assert (image == mask).all()
    one, other = load(dataset, [ops.RandomCrop(30).shared("a")], [ops.RandomCrop(30).shared("b")])
    assert (one != other).any()


def test_the_number_of_a_name_stays():
    assert number_of("crop") == 3528266638
    assert all(FIRST_SHARED <= number_of(str(i)) < 2**32 for i in range(1000))


def test_the_target_size_may_differ(dataset):
    crop = ops.RandomResizedCrop(48, filter="nearest").shared("crop")
    half = ops.RandomResizedCrop(16, filter="nearest").shared("crop")
    image, mask = load(dataset, [crop], [ops.Grayscale(), half])
    assert (image[:, 1::3, 1::3] != mask).mean() < 0.05  # sums of steps may round to another pixel


# Masks


GEOMETRY = [
    ops.RandomResizedCrop((21, 33), filter="nearest"), ops.Resize((40, 25), "nearest"), ops.HorizontalFlip(),
    ops.VerticalFlip(), ops.RandomCrop(20, 4, 7), ops.RandomRotation(180, fill=7), ops.Pad(3, 7),
    ops.RandomAffine(90, (0.3, 0.3), (0.5, 2), 20, fill=7), ops.RandomTranslate(9, 7), ops.CenterCrop((15, 19)),
    ops.RandomErasing(1, value=7),
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(GEOMETRY), min_size=1, max_size=5), st.integers(0, 2**30),
    st.lists(st.integers(0, 255), min_size=1, max_size=6), st.integers(20, 70), st.integers(20, 70),
)  # fmt: skip
def test_labels_of_a_mask_are_never_mixed(tmp_path_factory, pipeline, seed, labels, height, width):
    mask = np.random.default_rng(seed).choice(np.array(labels, np.uint8), (height, width))
    path = tmp_path_factory.mktemp("labels") / "x.fld"
    with fl.DatasetWriter(path, {"mask": fl.PNGImageField()}) as writer:
        writer.write_sample({"mask": mask})
    end = ops.Resize((30, 30), "nearest")
    loader = fl.DataLoader(
        fl.open(path), pipelines={"mask": [ops.Grayscale(), end, *pipeline, end]}, seed=seed, num_workers=1
    )
    (batch,) = loader
    assert set(np.unique(batch["mask"])) <= {*labels, 7}


# What goes wrong


def test_what_draws_nothing_has_nothing_to_share(dataset):
    with pytest.raises(PipelineError, match=r"--> Resize.*shared\('a'\): draws nothing that could be shared"):
        fl.DataLoader(fl.open(dataset), pipelines={"image": [ops.Resize((4, 4)).shared("a")]})
    with pytest.raises(TypeError, match="shared\\(''\\): a name"):
        ops.RandomCrop(3).shared("")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ops.HorizontalFlip(), ops.HorizontalFlip(0.2)),
        (ops.HorizontalFlip(), ops.VerticalFlip()),
        (ops.RandomCrop(30), ops.RandomCrop(40)),
        (ops.RandomResizedCrop(30), ops.RandomResizedCrop(30, scale=(0.5, 1))),
    ],
)
def test_one_name_for_different_draws_is_refused(one, other, dataset):
    size = ops.Resize((50, 50))
    with pytest.raises(PipelineError, match="shared as 'a' is drawn in two ways") as caught:
        load(dataset, [size, one.shared("a")], [size, other.shared("a")])
    assert str(one) in str(caught.value)
    assert str(other) in str(caught.value)


def half(i, image):
    return image[::2, ::2] if i == 5 else image


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_images_of_different_sizes_can_not_share_a_crop(policy, tmp_path):
    path = write(tmp_path / "x.fld", half)
    crop = ops.RandomResizedCrop(16).shared("crop")
    pipelines = {"image": [crop], "mask": [ops.Grayscale(), crop]}
    loader = fl.DataLoader(fl.open(path), 8, shuffle=False, pipelines=pipelines, on_error=policy)
    whole, small = gray(5).shape, gray(5)[::2, ::2].shape
    if policy == "raise":
        with pytest.raises(fl.OperationError) as caught:
            list(loader)
        assert f"'image' has {whole[0]}x{whole[1]} pixels, 'mask' has {small[0]}x{small[1]}" in str(caught.value)
        assert (caught.value.sample, caught.value.field) == (5, "mask")
        return
    batches = list(loader)
    assert loader.stats()["bad_values"] == 1
    if policy == "skip":
        assert batches[0]["i"].tolist() == [0, 1, 2, 3, 4, 6, 6, 7]
        assert (batches[0]["mask"][5] == batches[0]["mask"][6]).all()
    else:
        assert batches[0]["mask"].mask.reshape(8, -1).all(axis=1).tolist() == [i == 5 for i in range(8)]
        assert not np.ma.isMaskedArray(batches[0]["image"])


def test_images_of_different_sizes_share_flips_and_what_comes_behind_a_resize(tmp_path):
    path = write(tmp_path / "x.fld", half)
    flip, end = ops.HorizontalFlip().shared("flip"), ops.Resize((24, 24), "box")
    image, mask = load(path, [flip, end], [ops.Grayscale(), flip, end])
    assert (np.abs(image.astype(int) - mask).reshape(COUNT, -1).mean(axis=1) < 12).all()
    crop = ops.RandomCrop(20).shared("crop")
    image, mask = load(path, [end, crop], [ops.Grayscale(), end, crop])
    assert (np.abs(image.astype(int) - mask).reshape(COUNT, -1).mean(axis=1) < 12).all()


def test_names_survive_a_trip_to_another_process(dataset):
    crop = ops.RandomCrop(30).shared("crop").returning("box")
    assert pickle.loads(pickle.dumps(crop)) == crop
    loader = fl.DataLoader(fl.open(dataset), 8, shuffle=False, pipelines={"image": [crop]})
    sent = pickle.loads(pickle.dumps(loader))
    for one, other in zip(loader, sent, strict=True):
        assert (one["image"] == other["image"]).all()
        assert (one["box"] == other["box"]).all()
