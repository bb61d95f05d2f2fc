"""Files that are rare, or broken: decoded right by a slower way, or an error that names the sample."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from storing import load, picture, saved, written

import fastloader as fl
from fastloader import kernels, ops
from fastloader.pipeline import compile_pipeline

ARITHMETIC = Path(__file__).parents[1] / "vectors" / "images" / "arithmetic" / "rgb-420.jpg"


def ink(ycck=False, **options):
    out = io.BytesIO()
    Image.fromarray(picture(90, 130, 4), "CMYK").save(out, "JPEG", quality=92, **options)
    data = out.getvalue()
    at = data.index(b"Adobe") + 11
    return data[:at] + b"\2" + data[at + 1 :] if ycck else data


RARE = {
    "cmyk": ink(), "cmyk 420": ink(subsampling=2), "ycck": ink(ycck=True, subsampling=2),
    "progressive cmyk": ink(progressive=True), "arithmetic": ARITHMETIC.read_bytes(),
    "restarts": saved(picture(90, 130), "JPEG", quality=90, restart_marker_blocks=3),
    "progressive": saved(picture(90, 130), "JPEG", quality=90, progressive=True),
    "gray": saved(picture(90, 130)[..., 0], "JPEG", quality=90),
}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"seekable": False}, {"verbatim": True}, {"orient": True}], ids=str)
@pytest.mark.parametrize("name", RARE)
def test_rare_jpegs_are_read_as_pillow_reads_them(name, options, tmp_path):
    file = RARE[name]
    path = written(tmp_path, fl.JPEGImageField(check=True, **options), [file] * 3)
    reader = fl.open(path)
    image = reader[0]["image"]
    seen = Image.open(io.BytesIO(file))
    wanted = np.asarray(seen if seen.mode == "L" else seen.convert("RGB"))
    assert np.abs(image.astype(int) - wanted.reshape(image.shape)).max() <= 2  # where Pillow's libjpeg rounds otherwise
    for batch in (reader.read_batch([0, 1]), *fl.DataLoader(reader, 3, num_workers=2)):
        assert all((one == image).all() for one in batch["image"])
    assert fl.verify(path, decode=True, show_progress=False).ok

    height, width = image.shape[:2]
    colours = np.broadcast_to(image, (height, width, 3))
    top, left = round((height - 40) / 2), round((width - 56) / 2)
    found = load(path, [ops.CenterCrop((40, 56))])
    assert (found == colours[top : top + 40, left : left + 56]).all()
    assert (load(path, [ops.Resize((31, 33))])[0] == kernels.resize_image(colours, (31, 33))).all()


def test_twelve_bits_are_refused_with_the_sample(tmp_path):
    deep = bytearray(saved(picture(20, 30), "JPEG"))
    deep[deep.index(b"\xff\xc0") + 4] = 12
    with pytest.raises(fl.SampleError, match=r"sample 1, field 'image': JPEG: .*precision 12"):
        written(tmp_path, fl.JPEGImageField(), [picture(20, 30), bytes(deep)])


def test_two_components_are_refused_with_the_sample(tmp_path):
    two = bytearray(saved(picture(20, 30), "JPEG"))
    at = two.index(b"\xff\xc0")
    two[at + 9] = 2
    two[at + 2 : at + 4] = (14).to_bytes(2, "big")
    del two[at + 16 : at + 19]
    with pytest.raises(fl.SampleError, match="sample 0, field 'image': JPEG"):
        written(tmp_path, fl.JPEGImageField(), [bytes(two)])


JPEG = saved(picture(96, 128), "JPEG", quality=85)
PROGRESSIVE = saved(picture(96, 128), "JPEG", quality=85, progressive=True)
WHOLE = {
    "jpeg": (JPEG, fl.JPEGImageField()), "plain jpeg": (JPEG, fl.JPEGImageField(seekable=False)),
    "ink": (ink(), fl.JPEGImageField()),
    "gray": (saved(picture(96, 128)[..., 0], "JPEG", quality=85), fl.JPEGImageField()),
    "progressive": (PROGRESSIVE, fl.JPEGImageField()), "verbatim": (PROGRESSIVE, fl.JPEGImageField(verbatim=True)),
    "arithmetic": (ARITHMETIC.read_bytes(), fl.JPEGImageField()),
    "png": (saved(picture(96, 128), "PNG"), fl.PNGImageField()),
    "webp": (saved(picture(96, 128), "WEBP", quality=85), fl.WebPImageField()),
    "lossless webp": (saved(picture(96, 128, 4), "WEBP", lossless=True), fl.WebPImageField()),
}  # fmt: skip


PIPELINES = {
    "part": [ops.CenterCrop((40, 48)), ops.CenterCrop((12, 20))],
    "window": [ops.Resize(60), ops.CenterCrop(30)],
    "all": [ops.Resize((40, 50)), ops.Equalize()],
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", WHOLE)
def test_a_file_that_was_cut_short_gives_the_right_pixels_or_an_error(name, pipeline, tmp_path):
    """At fifty places: never a part that is gray. What was left out may be missing, what was asked for may not."""
    whole, field, steps = WHOLE[name][0], WHOLE[name][1], PIPELINES[pipeline]
    (wanted,) = load(written(tmp_path, field, [whole]), steps)
    cuts = [keep for keep in range(0, len(whole), len(whole) // 50) if _is_stored(field, whole[:keep])]
    path = written(tmp_path, field, [*(whole[:keep] for keep in cuts), whole])
    bad, named = [], []
    for i, keep in enumerate(cuts):
        loader = fl.DataLoader(fl.open(path), 1, sampler=[i], pipelines={"image": steps})
        try:
            found = next(iter(loader))["image"][0]
        except fl.DecodeError as error:
            bad.append(i)
            named.append((error.sample, error.field))
        else:
            assert (found == wanted).all(), keep
    assert len(bad) > len(cuts) / 3
    assert named == [(i, "image") for i in bad]
    for policy in ("skip", "replace"):
        loader = fl.DataLoader(fl.open(path), len(cuts) + 1, shuffle=False, pipelines={"image": steps}, on_error=policy)
        (batch,) = loader
        assert loader.stats()["bad_values"] == len(bad)
        if policy == "skip":
            assert (batch["image"] == wanted).all()
        else:
            assert np.flatnonzero(batch["image"].mask.all(axis=(1, 2, 3))).tolist() == bad
            assert (np.delete(batch["image"].data, bad, axis=0) == wanted).all()


def _is_stored(field, file):
    """Whether the header is whole, which is all a writer looks at."""
    try:
        field.encode(file)
    except (ValueError, kernels.Failure):
        return False
    return True


@pytest.mark.parametrize("interval", [4, 1])
def test_damage_behind_an_index_is_told_where_it_matters(interval):
    """The JPEG was whole when its index was made; then bytes of it were lost or overwritten."""
    whole = JPEG
    index, why_not = kernels.jpeg_index(whole, interval)
    assert not why_not
    shape = np.array(kernels.image_info(kernels.JPEG, whole), np.uint32)
    compiled = compile_pipeline("image", fl.JPEGImageField(), [ops.CenterCrop((16, 24))], 0)
    wanted, out = np.empty((2, 16, 24, 3), np.uint8)
    compiled.program.run(whole + index, shape, 0, 0, wanted)
    scan = whole.index(b"\xff\xda") + 14
    outcomes = set()
    for keep in range(scan, len(whole), 7):
        # Cut short, and the rest of the scan replaced by an end of image: either is what a broken download leaves.
        for payload in (whole[:keep] + index, whole[:keep] + b"\xff\xd9" * ((len(whole) - keep) // 2) + index):
            try:
                compiled.program.run(payload, shape, 0, 0, out)
            except kernels.Failure as failure:
                outcomes.add(failure.args[0])
            else:
                assert (out == wanted).all(), keep
                outcomes.add("right")
    assert outcomes == {"decode", "right"}


@pytest.mark.parametrize("name", ["png", "mask"])
@pytest.mark.parametrize("sides", [(0, 9), (9, 0)])
def test_a_stored_shape_without_pixels_is_refused(name, sides):
    field = fl.PNGImageField() if name == "png" else fl.MaskField()
    payload = field.encode(np.zeros((9, 9), np.uint8)).payload
    compiled = compile_pipeline("it", field, [ops.Resize(8, "nearest"), ops.CenterCrop(8)], 0)
    shape = np.array([*sides, 1, 8], np.uint32)
    with pytest.raises(kernels.Failure, match="an image without pixels"):
        compiled.program.run(payload, shape, 0, 0, np.empty(compiled.row_bytes, np.uint8), None)
