"""Images turned upright as their EXIF data says, by the field or in a pipeline: what Pillow's exif_transpose gives."""

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from storing import load, picture, saved, written

import fastloader as fl
from fastloader import kernels, ops
from fastloader.pipeline import PipelineError

METHODS = {
    1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip


def exif(orientation, big=True, kind=3):
    """A directory of a make, the orientation, and nothing else."""
    order = "big" if big else "little"
    size = {1: 1, 3: 2, 4: 4}[kind]
    entries = [
        (0x010F).to_bytes(2, order) + (2).to_bytes(2, order) + (4).to_bytes(4, order) + b"abc\0",
        (0x0112).to_bytes(2, order) + kind.to_bytes(2, order) + (1).to_bytes(4, order)
        + orientation.to_bytes(size, order).ljust(4, b"\0"),
    ]  # fmt: skip
    head = (b"MM\0*" if big else b"II*\0") + (8).to_bytes(4, order) + len(entries).to_bytes(2, order)
    return b"Exif\0\0" + head + b"".join(entries) + bytes(4)


def upright(array, orientation):
    method = METHODS[orientation]
    return array if method is None else np.asarray(Image.fromarray(array).transpose(method))


FORMS = {
    "444": ("JPEG", {"quality": 92, "subsampling": "4:4:4"}), "422": ("JPEG", {"quality": 92, "subsampling": "4:2:2"}),
    "420": ("JPEG", {"quality": 92, "subsampling": "4:2:0"}), "webp": ("WEBP", {"quality": 90}), "png": ("PNG", {}),
}  # fmt: skip


def field_of(form, **options):
    return {"JPEG": fl.JPEGImageField, "WEBP": fl.WebPImageField, "PNG": fl.PNGImageField}[form](**options)


@pytest.fixture(scope="module", params=FORMS)
def turned(request, tmp_path_factory):
    """All eight orientations, in a field that turns images and in one that does not, as Pillow has them."""
    form, options = FORMS[request.param]
    folder = tmp_path_factory.mktemp("turned")
    files = [
        saved(picture(70 + 3 * i, 115 - 2 * i, seed=i), form, exif=exif(i, big=bool(i % 3)), **options)
        for i in range(1, 9)
    ]
    kinds = {"plain": field_of(form), "orient": field_of(form, orient=True)}
    if form == "JPEG":
        kinds["slow"] = fl.JPEGImageField(orient=True, seekable=False)
    paths = {name: folder / f"{name}.fld" for name in kinds}
    for name, field in kinds.items():
        with fl.DatasetWriter(paths[name], {"image": field}) as writer:
            writer.write_many({"image": file} for file in files)
    return paths, files


def test_images_are_read_upright_as_pillow_turns_them(turned):
    paths, files = turned
    stored = [sample["image"] for sample in fl.open(paths["plain"])]
    wanted = [upright(image, i) for i, image in enumerate(stored, 1)]
    reader = fl.open(paths["orient"])
    loaded = [image for batch in fl.DataLoader(reader, 3, shuffle=False) for image in batch["image"]]
    for i, image in enumerate(wanted):
        for got in (reader[i]["image"], reader.read_batch([i])["image"][0], loaded[i]):
            assert got.shape == image.shape
            assert (got == image).all()
        assert bytes(reader.read_payload(i, "image")) == files[i]
    assert fl.verify(paths["orient"], decode=True, show_progress=False).ok


PIPELINES = [
    [ops.CenterCrop((40, 30))],
    [ops.RandomCrop((33, 50), padding=3)],
    [ops.RandomResizedCrop(24), ops.HorizontalFlip()],
    [ops.Resize(40), ops.CenterCrop(32)],
    [ops.Resize((90, 20), "lanczos"), ops.VerticalFlip()],
    [ops.RandomResizedCrop((20, 30), filter="bicubic"), ops.RandAugment()],
    [ops.Resize((48, 48)), ops.Grayscale(1)],
]


@settings(max_examples=25, deadline=None)
@given(pipeline=st.sampled_from(PIPELINES), seed=st.integers(0, 1000))
def test_a_pipeline_over_turned_images_is_that_over_images_stored_upright(turned, tmp_path_factory, pipeline, seed):
    """The reference is the full decode, turned by Pillow and stored without loss."""
    paths, _ = turned
    images = [upright(sample["image"], i) for i, sample in enumerate(fl.open(paths["plain"]), 1)]
    reference = written(tmp_path_factory.mktemp("reference"), fl.PNGImageField(), images)
    wanted = load(reference, pipeline, seed=seed)
    for name, path in paths.items():
        if name != "plain":
            assert (load(path, pipeline, seed=seed) == wanted).all()
    first = [ops.Orient(), *pipeline]
    behind = load(paths["plain"], first, seed=seed)  # each draw is by place, and all stand one further back
    assert (load(paths["orient"], first, seed=seed) == behind).all()
    assert (behind == load(reference, [ops.HorizontalFlip(0), *pipeline], seed=seed)).all()


def scaled(file, orientation, cut, shrink, size):
    """A cut of the upright image, resized from the JPEG decoded at 1/shrink of its size."""
    height, width, *_ = shape = kernels.image_info(kernels.JPEG, file)
    small = (0, 0, -(-width // shrink), -(-height // shrink))
    seen = upright(kernels.decode_jpeg_box(file, b"", shape, small, shrink=shrink)[0], orientation)
    sides = (height, width) if orientation < 5 else (width, height)
    begin, end = [], []
    # Pixels were joined from the stored image's first row and column on, which may be the last of the upright one.
    for axis, backwards in enumerate(((3, 4, 7, 8), (2, 3, 6, 7))):
        at = cut[axis] / shrink
        if orientation in backwards:
            at = seen.shape[axis] - (sides[axis] - cut[axis]) / shrink
        begin.append(at)
        end.append(at + cut[2 + axis] / shrink)
    top, left = (math.floor(at) for at in begin)
    part = seen[top : math.ceil(end[0]), left : math.ceil(end[1])]
    return kernels.resize_image(part, size, box=(begin[1] - left, begin[0] - top, end[1] - left, end[0] - top))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_large_jpegs_are_decoded_smaller_whichever_way_they_lie(orientation, tmp_path):
    file = saved(picture(803, 1210), "JPEG", quality=95, exif=exif(orientation))
    path = written(tmp_path, fl.JPEGImageField(orient=True), [file])
    found = load(path, [ops.CenterCrop((699, 725)), ops.Resize((60, 64))])
    height, width = fl.open(path)[0]["image"].shape[:2]
    cut = (round((height - 699) / 2), round((width - 725) / 2), 699, 725)
    assert (found[0] == scaled(file, orientation, cut, 4, (60, 64))).all()


def test_geometry_leads_from_the_image_as_it_is_read(turned):
    """A marked pixel of it is found where the matrix says."""
    paths, _ = turned
    for name, first in (("plain", [ops.Orient()]), ("orient", [])):
        steps = [*first, ops.CenterCrop((60, 64)), ops.HorizontalFlip(1), ops.Geometry("map")]
        (batch,) = fl.DataLoader(fl.open(paths[name]), 8, shuffle=False, pipelines={"image": steps})
        for sample, image, matrix in zip(fl.open(paths[name]), batch["image"], batch["map"], strict=True):
            pixels = sample["image"]
            y, x = pixels.shape[0] // 2 + 3, pixels.shape[1] // 2 - 5
            column, row = matrix @ (x + 0.5, y + 0.5, 1)
            assert (image[int(row), int(column)] == pixels[y, x]).all()


def test_views_may_lie_and_stand(turned):
    paths, _ = turned
    crop = ops.CenterCrop((40, 30))
    views = ops.Views([crop], [ops.Orient(), crop])
    (batch,) = fl.DataLoader(fl.open(paths["plain"]), 8, shuffle=False, pipelines={"image": views})
    assert (batch["image"][:, 0] == load(paths["plain"], [crop])).all()
    assert (batch["image"][:, 1] == load(paths["plain"], [ops.Orient(), crop])).all()


@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize("big", [False, True])
def test_the_orientation_may_be_a_number_of_any_size_and_order(kind, big, tmp_path):
    lying = picture(20, 30)
    path = written(tmp_path, fl.JPEGImageField(orient=True), [saved(lying, "JPEG", exif=exif(6, big, kind))])
    assert fl.open(path)[0]["image"].shape == (30, 20, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"Exif\0\0", b"Exif\0\0MM\0*", exif(6)[:14], exif(6)[:20], exif(6)[:38], b"Exif\0\0MM\0*" + b"\xff" * 4,
        b"Exif\0\0XX\0*" + exif(6)[10:], exif(0), exif(9), exif(65535), exif(6).replace(b"\0\1\0\x06", b"\0\2\0\x06"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_exif_data_that_says_nothing_turns_nothing(data, form, tmp_path):
    lying = picture(20, 30)
    path = written(tmp_path, field_of(form, orient=True), [saved(lying, form, exif=data)])
    assert fl.open(path)[0]["image"].shape == (20, 30, 3)


def test_pil_images_are_turned_before_they_are_encoded(tmp_path):
    lying = picture(20, 30)
    opened = Image.open(io.BytesIO(saved(lying, "PNG", exif=exif(6))))
    path = written(tmp_path, fl.PNGImageField(orient=True), [opened])
    assert (fl.open(path)[0]["image"] == upright(lying, 6)).all()


def test_wide_pixels_are_turned_too(tmp_path):
    lying = (np.arange(20 * 30, dtype=np.uint16) * 97).reshape(20, 30)
    path = written(tmp_path, fl.PNGImageField(orient=True), [saved(lying, "PNG", exif=exif(8))])
    assert (fl.open(path)[0]["image"][..., 0] == np.rot90(lying)).all()


def test_limits_are_for_the_upright_image(tmp_path):
    file = saved(picture(20, 30), "JPEG", exif=exif(6))
    assert written(tmp_path, fl.JPEGImageField(orient=True, max_height=30, max_width=20), [file])
    with pytest.raises(fl.SampleError, match="height 30 is above max_height=20"):
        written(tmp_path, fl.JPEGImageField(orient=True, max_height=20), [file])


def test_orient_comes_first_and_needs_a_file(tmp_path):
    jpeg = written(tmp_path, fl.JPEGImageField(), [picture(20, 30)])
    with pytest.raises(PipelineError, match=r"--> Orient\(\): comes first"):
        load(jpeg, [ops.CenterCrop(8), ops.Orient()])
    told = fl.DataLoader(fl.open(jpeg), 1, pipelines={"image": [ops.Orient(), ops.CenterCrop(8)]}).explain()
    assert "1 steps, 0 folded into the cast, images upright" in told
    raw = written(tmp_path, fl.RawImageField(20, 30), [picture(20, 30)])
    with pytest.raises(PipelineError, match="raw pixels have none"):
        load(raw, [ops.Orient(), ops.CenterCrop(8)])
