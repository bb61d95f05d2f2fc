"""Parts of images: what a pipeline leaves out is neither decoded nor resized, and what it keeps is what it would be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storing import load, picture, saved, written

import fastloader as fl
from fastloader import kernels, ops

FIELDS = {
    "jpeg": fl.JPEGImageField(), "plain jpeg": fl.JPEGImageField(seekable=False, subsampling="422"),
    "png": fl.PNGImageField(), "webp": fl.WebPImageField(), "lossless webp": fl.WebPImageField(lossless=True),
    "raw": fl.RawImageField(97, 141),
}  # fmt: skip


@pytest.fixture(scope="module", params=FIELDS)
def dataset(request, tmp_path_factory):
    images = [picture(97, 141, seed=i) for i in range(3)]
    if "webp" in request.param:
        images[1] = picture(97, 141, 4, seed=1)
    return written(tmp_path_factory.mktemp("parts"), FIELDS[request.param], images)


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(5, 130), st.integers(5, 130)), part=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    name=st.sampled_from(kernels.FILTERS), flips=st.tuples(st.booleans(), st.booleans()), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_crop_behind_a_resize_is_cut_from_all_of_it(dataset, size, part, name, flips, seed):
    crop = tuple(max(1, int(side * share)) for side, share in zip(size, part, strict=True))
    before = [ops.Resize(size, name), ops.HorizontalFlip(float(flips[0]))]
    after = ops.HorizontalFlip(float(flips[1]))
    # A change that changes nothing has all pixels made before the crop.
    wanted = load(dataset, [*before, ops.RandomBrightness((1, 1)), ops.CenterCrop(crop), after])
    assert (load(dataset, [*before, ops.CenterCrop(crop), after]) == wanted).all()
    found = load(dataset, [*before, ops.RandomCrop(crop), after], seed=seed)
    for image, got in zip(load(dataset, before), found, strict=True):
        assert _found_in(image, got[:, ::-1] if flips[1] else got)


def _found_in(image, part):
    """Whether the part is somewhere in the image."""
    windows = np.lib.stride_tricks.sliding_window_view(image, part.shape)
    return bool((windows[:, :, 0] == part).all(axis=(-1, -2, -3)).any())


@settings(max_examples=40, deadline=None)
@given(crop=st.tuples(st.integers(1, 97), st.integers(1, 141)), seed=st.integers(0, 99))
def test_random_crops_are_somewhere_in_the_full_decode(dataset, crop, seed):
    found = load(dataset, [ops.RandomCrop(crop)], seed=seed)
    for sample, got in zip(fl.open(dataset), found, strict=True):
        assert _found_in(sample["image"][..., :3], got)


@pytest.mark.parametrize("seekable", [True, False])
def test_rows_that_a_crop_behind_a_resize_leaves_out_are_not_decoded(seekable, tmp_path):
    """Damage there goes unnoticed; where it matters it is told."""
    whole = saved(picture(400, 100), "JPEG", quality=90)
    field = fl.JPEGImageField(seekable=seekable)
    path = written(tmp_path, field, [whole[: len(whole) * 3 // 4]])
    assert load(path, [ops.Resize(64), ops.CenterCrop(64)]).shape == (1, 64, 64, 3)
    with pytest.raises(fl.DecodeError, match="sample 0, field 'image'"):
        load(path, [ops.Resize((256, 64)), ops.CenterCrop((250, 64))])
