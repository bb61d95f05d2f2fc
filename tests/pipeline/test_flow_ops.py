"""Optical flow through pipelines: pixels go where those of an image go, and vectors are turned and scaled with them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import fastloader as fl
from fastloader import ops
from fastloader.pipeline import PipelineError
from fastloader.testing import identical

HEIGHT, WIDTH = 24, 36


def written(path, flows, **others):
    """Flow of 16 bits, with an image beside it whose pixels are its own places."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    places = np.stack([x * 7, y * 9, x + y], axis=2).astype(np.uint8)
    fields = {"flow": fl.OpticalFlowField(), "image": fl.RawImageField(HEIGHT, WIDTH)}
    with fl.DatasetWriter(path, fields) as writer:
        for flow in flows:
            writer.write_sample({"flow": flow, "image": places} | others)
    return fl.open(path)


def some_flow(seed=0, shape=(HEIGHT, WIDTH)):
    flow = np.random.default_rng(seed).normal(0, 4, (*shape, 2))
    return flow.astype(np.float16).astype(np.float32)


def through(reader, pipeline, **options):
    """All flow, in order."""
    loader = fl.DataLoader(
        reader, 4, shuffle=False, fields=["flow"], pipelines={"flow": pipeline}, num_workers=0, **options
    )
    return [value for batch in loader for value in batch["flow"]]


@pytest.fixture
def reader(tmp_path):
    return written(tmp_path / "x.fld", [some_flow(i) for i in range(8)])


def test_flips_negate_what_they_mirror(reader):
    flow = np.stack([some_flow(i) for i in range(8)])
    across = np.stack(through(reader, [ops.HorizontalFlip(1.0)]))
    assert identical(across, flow[:, :, ::-1] * np.array([-1, 1], np.float32))
    down = np.stack(through(reader, [ops.VerticalFlip(1.0)]))
    assert identical(down, flow[:, ::-1] * np.array([1, -1], np.float32))
    for flip in (ops.HorizontalFlip(1.0), ops.VerticalFlip(1.0)):
        assert np.array_equal(through(reader, [flip, flip]), flow)
    turned = through(reader, [ops.Rotate(180)])
    assert np.array_equal(turned, through(reader, [ops.HorizontalFlip(1.0), ops.VerticalFlip(1.0)]))


def test_crops_keep_vectors_and_padding_has_its_fill(reader):
    flow = [some_flow(i) for i in range(8)]
    assert identical(through(reader, [ops.CenterCrop((10, 12))]), [one[7:17, 12:24] for one in flow])
    padded = through(reader, [ops.Pad((1, 2, 3, 4), fill=5)])
    assert identical(padded, [np.pad(one, ((2, 4), (1, 3), (0, 0)), constant_values=5) for one in flow])
    edges = through(reader, [ops.Pad((3, 1), mode="edge")])
    assert identical(edges, [np.pad(one, ((1, 1), (3, 3), (0, 0)), "edge") for one in flow])
    for found, one in zip(through(reader, [ops.RandomCrop((9, 8), padding=4, fill=7)]), flow, strict=True):
        around = np.pad(one, ((4, 4), (4, 4), (0, 0)), constant_values=7)
        windows = np.lib.stride_tricks.sliding_window_view(around, (9, 8, 2)).reshape(-1, 9, 8, 2)
        assert (windows == found).all(axis=(1, 2, 3)).any()


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(st.integers(1, 50), st.integers(1, 50)),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    vector=st.tuples(st.integers(-50, 50), st.integers(-50, 50)),
    filter=st.sampled_from(["nearest", "box", "bilinear", "bicubic", "lanczos"]),
)
def test_a_resize_scales_vectors(size, shape, vector, filter, tmp_path_factory):
    """A constant flow stays constant; any flow is resized as Pillow resizes each component, times the factors."""
    path = tmp_path_factory.mktemp("resize") / "x.fld"
    factors = np.array([size[1] / shape[1], size[0] / shape[0]])
    flow = some_flow(1, shape)
    reader = fl_only(path, [np.full((*shape, 2), vector, np.float32), flow])
    same, other = through(reader, [ops.Resize(size, filter)])
    np.testing.assert_allclose(same, np.broadcast_to(vector * factors, (*size, 2)), rtol=1e-4, atol=1e-3)
    for c in range(2):
        wanted = Image.fromarray(flow[..., c]).resize(size[::-1], Image.Resampling[filter.upper()])
        np.testing.assert_allclose(other[..., c], np.asarray(wanted) * factors[c], rtol=1e-4, atol=1e-3)


def fl_only(path, flows, field=None):
    with fl.DatasetWriter(path, {"flow": field or fl.OpticalFlowField()}) as writer:
        writer.write_many([flow] for flow in flows)
    return fl.open(path)


MOVES = {
    "resized crop": [ops.RandomResizedCrop((20, 22), scale=(0.3, 1.0)).shared("a")],
    "shorter side": [ops.Resize(16), ops.RandomCrop((16, 20)).shared("a")],
    "crop and flips": [ops.RandomCrop((16, 20)).shared("a"), ops.HorizontalFlip().shared("b"),
                       ops.VerticalFlip().shared("c")],
    "shift": [ops.RandomTranslate(5).shared("a")],
    "turn": [ops.RandomRotation(40, filter="bilinear").shared("a")],
    "map": [ops.RandomAffine(30, (0.1, 0.1), (0.8, 1.3), 10, filter="bilinear").shared("a")],
    "padded": [ops.Pad(4), ops.RandomCrop((22, 30)).shared("a"), ops.HorizontalFlip().shared("b")],
}  # fmt: skip


def motions(shape=(HEIGHT, WIDTH)):
    """An affine motion of the whole picture: where each pixel's middle goes is known everywhere."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    points = np.stack([x, y], axis=-1)
    motion = np.array([[0.11, -0.06], [0.04, -0.08]])
    return points @ motion.T + [1.5, -2.25], motion


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES.keys())
@pytest.mark.parametrize("follows", [False, True], ids=["its own pipeline", "following"])
def test_vectors_point_where_pixels_go(moves, follows, tmp_path):
    """Of a motion p -> p + Mp + t, a picture moved by A has the motion q -> A(A^-1 q + M A^-1 q + t) - q."""
    flow, motion = motions()
    reader = written(tmp_path / "x.fld", [flow] * 8)
    pipelines = {
        "image": [*moves, ops.Geometry("map")],
        "flow": [ops.Follow("image", returns="known")] if follows else list(moves),
    }
    seen = 0
    for batch in fl.DataLoader(reader, 4, seed=11, pipelines=pipelines, num_workers=0):
        for image, found, matrix in zip(batch["image"], batch["flow"], batch["map"].astype(float), strict=True):
            assert found.shape[:2] == image.shape[:2]
            back = np.linalg.inv(matrix[:, :2])
            y, x = np.mgrid[: found.shape[0], : found.shape[1]] + 0.5
            source = (np.stack([x, y], axis=-1) - matrix[:, 2]) @ back.T
            moved = source @ motion.T + [1.5, -2.25]
            wanted = moved @ matrix[:, :2].T
            # Away from the edges, where filters reach no further than the picture, nor than what was cut out.
            inner = ((source > 2.5) & (source < [WIDTH - 2.5, HEIGHT - 2.5])).all(axis=-1)
            inner[:2] = inner[-2:] = inner[:, :2] = inner[:, -2:] = False
            assert inner.mean() > 0.2
            np.testing.assert_allclose(found[inner], wanted[inner], atol=0.02)
            seen += inner.sum()
        if follows:
            assert identical(batch["known"], ~np.isnan(batch["flow"]).any(axis=-1))
    assert seen > 500


def test_flow_draws_as_its_image_does(reader):
    """The same list with the same names: the picture of places tells where each vector was."""
    moves = [ops.RandomCrop((12, 14)).shared("crop"), ops.HorizontalFlip().shared("flip")]
    flips = 0
    for batch in fl.DataLoader(reader, 4, shuffle=False, seed=2, pipelines={"flow": moves, "image": moves}):
        for found, image in zip(batch["flow"], batch["image"], strict=True):
            x, y = image[..., 0] // 7, image[..., 1] // 9
            flips += x[0, 0] > x[0, 1]
            sign = np.array([-1 if x[0, 0] > x[0, 1] else 1, 1], np.float32)
            origin = next(one for one in map(some_flow, range(8)) if np.array_equal(one[y, x] * sign, found))
            assert origin.shape == (HEIGHT, WIDTH, 2)
    assert 0 < flips < 8


def test_following_gives_what_its_own_pipeline_gives(reader):
    moves = [ops.RandomResizedCrop(16, scale=(0.4, 1.0)).shared("a"), ops.HorizontalFlip().shared("b")]
    options = {"shuffle": False, "seed": 4, "num_workers": 0}
    (own,) = fl.DataLoader(reader, 8, pipelines={"flow": moves, "image": moves}, **options)
    (led,) = fl.DataLoader(reader, 8, pipelines={"flow": [ops.Follow("image")], "image": moves}, **options)
    np.testing.assert_allclose(own["flow"], led["flow"], atol=2e-3)
    assert identical(own["image"], led["image"])


def test_what_comes_into_sight_is_not_known(reader):
    pipelines = {"flow": [ops.Follow("image", returns="known")], "image": [ops.Pad(3)]}
    (batch,) = fl.DataLoader(reader, 8, shuffle=False, pipelines=pipelines)
    assert np.array_equal(batch["flow"][:, 3:-3, 3:-3], np.stack([some_flow(i) for i in range(8)]))
    assert batch["known"].sum() == 8 * HEIGHT * WIDTH
    assert np.isnan(batch["flow"][:, :3]).all()


@pytest.mark.parametrize("filter", ["nearest", "bilinear", "bicubic"])
def test_flow_made_of_unknown_flow_is_unknown(filter, tmp_path):
    flow = some_flow(3)
    flow[4, 6] = np.nan
    (found,) = through(fl_only(tmp_path / "x.fld", [flow]), [ops.Resize((HEIGHT * 2, WIDTH * 2), filter)])
    gone = np.isnan(found).all(axis=-1)
    assert identical(gone, np.isnan(found).any(axis=-1))
    assert gone[8:10, 12:14].all()
    assert gone.sum() <= {"nearest": 4, "bilinear": 16, "bicubic": 64}[filter]
    (turned,) = through(fl_only(tmp_path / "y.fld", [flow]), [ops.Rotate(90), ops.Rotate(-90)])
    inner = (slice(4, 20), slice(8, 28))
    assert np.array_equal(turned[inner], flow[inner], equal_nan=True)


def test_pairs_of_a_video_move_alike_and_follow_its_clip(tmp_path):
    rng = np.random.default_rng(5)
    frames = rng.integers(0, 255, (4, HEIGHT, WIDTH, 3)).astype(np.uint8)
    flows = np.stack([some_flow(i) for i in range(3)])
    fields = {"video": fl.VideoFramesField("raw"), "flow": fl.OpticalFlowField()}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        for _ in range(6):
            writer.write_sample({"video": frames, "flow": flows})
    crop = ops.RandomCrop((12, 16))
    pipelines = {"video": [ops.ClipSampler(4), crop.returning("box"), ops.HorizontalFlip().returning("flipped")],
                 "flow": [ops.Follow("video"), ops.Cast("float32")]}  # fmt: skip
    (batch,) = fl.DataLoader(fl.open(tmp_path / "x.fld"), 6, seed=1, pipelines=pipelines)
    assert batch["flow"].shape == (6, 3, 12, 16, 2)
    assert 0 < batch["flipped"].sum() < 6
    for found, clip, (x, y, width, height), flipped in zip(
        batch["flow"], batch["video"], batch["box"], batch["flipped"], strict=True
    ):
        step = -1 if flipped else 1
        assert identical(clip, frames[:, y : y + height, x : x + width][:, :, ::step])
        part = flows[:, y : y + height, x : x + width][:, :, ::step]
        assert np.array_equal(found, part * np.array([step, 1]))
    shared = {"video": [ops.ClipSampler(4), crop.shared("a")], "flow": [crop.shared("a")]}
    (batch,) = fl.DataLoader(fl.open(tmp_path / "x.fld"), 6, pipelines=shared)
    where = np.lib.stride_tricks.sliding_window_view(frames[0], (12, 16, 3))[:, :, 0]
    for found, clip in zip(batch["flow"], batch["video"], strict=True):
        ((y, x),) = np.argwhere((where == clip[0]).all(axis=(2, 3, 4)))
        assert np.array_equal(found, flows[:, y : y + 12, x : x + 16])


def test_shared_draws_are_for_one_size(tmp_path):
    reader = written(tmp_path / "x.fld", [some_flow(0), some_flow(1, (HEIGHT, WIDTH + 1))])
    crop = [ops.RandomCrop(8).shared("a")]
    loader = fl.DataLoader(reader, 2, shuffle=False, pipelines={"flow": crop, "image": crop})
    with pytest.raises(fl.OperationError, match=r"sample 1, field '(flow|image)': .*24x3[67].*24x3[67]"):
        next(iter(loader))


def test_functions_and_numbers_behind(reader):
    @ops.custom
    def length(flow, random):
        return np.hypot(flow[..., 0], flow[..., 1])

    found = through(reader, [ops.CenterCrop(8), length, ops.Cast("float16")])
    assert all(one.shape == (8, 8) and one.dtype == np.float16 for one in found)
    scaled = through(reader, [ops.CenterCrop(8), ops.Normalize((1, 2), 2)])
    plain = through(reader, [ops.CenterCrop(8)])
    first = through(reader, [ops.CenterCrop(8), ops.Layout("CHW")])
    assert np.array_equal(first, np.moveaxis(np.stack(plain), -1, 1))
    usual = through(reader, [ops.CenterCrop(8), ops.Normalize((1, 2), 2), ops.Cast("float16"), ops.Layout("CHW")])
    assert identical(np.stack(usual), np.moveaxis(np.stack(scaled).astype(np.float16), -1, 1).copy())
    np.testing.assert_allclose(scaled, (np.stack(plain) - [1, 2]) / 2, atol=1e-6)
    sizes = fl.DataLoader(reader, 8, pipelines={"flow": [ops.Follow("image"), length], "image": [ops.CenterCrop(8)]})
    assert next(iter(sizes))["flow"].shape == (8, 8, 8)


def test_flow_of_many_sizes_comes_as_a_list(tmp_path):
    reader = fl_only(tmp_path / "x.fld", [some_flow(0), some_flow(1, (8, 9)), None])
    (batch,) = fl.DataLoader(reader, 3, shuffle=False, pipelines={"flow": [ops.HorizontalFlip(1.0)]})
    assert [None if one is None else one.shape for one in batch["flow"]] == [(HEIGHT, WIDTH, 2), (8, 9, 2), None]
    small = fl.DataLoader(reader, 3, shuffle=False, pipelines={"flow": [ops.CenterCrop(10)]}, on_error="replace")
    (batch,) = small
    assert np.ma.getmaskarray(batch["flow"]).reshape(3, -1).all(axis=1).tolist() == [False, True, True]
    with pytest.raises(
        fl.OperationError, match="sample 1, field 'flow': flow of 8x9 is smaller than the crop of 10x10"
    ):
        list(fl.DataLoader(reader, 3, pipelines={"flow": [ops.CenterCrop(10)]}))


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        ([ops.ColorJitter(0.5)], "is no operation on flow.*OpticalFlowField takes RandomResizedCrop, Resize,"),
        ([ops.GaussianBlur(3)], "is no operation on flow"),
        ([ops.Grayscale()], "is no operation on flow"),
        ([ops.RandomErasing()], "is no operation on flow"),
        ([ops.Pad(3, mode="reflect")], "would point the wrong way"),
        ([ops.RandomTranslate(3, fill=(1, 2, 3))], "one number of pixels for both directions"),
        ([ops.HorizontalFlip().returning("x")], "returns nothing of what it draws here"),
        ([ops.Resize((4, 4)), ops.Follow("image")], "begins with one ops.Follow"),
        ([ops.Cast("float16"), ops.HorizontalFlip()], "comes before functions of yours, Normalize, Cast and Layout"),
        ([ops.Layout("CHW"), ops.Normalize((1, 2), 3)], "takes channels last: put it before Layout"),
        ([ops.Follow("image"), ops.HorizontalFlip()], "comes before functions of yours, Normalize, Cast and Layout"),
    ],
)
def test_what_makes_no_sense_of_flow_is_refused(pipeline, why, reader):
    pipelines = {"flow": pipeline, "image": [ops.Resize((8, 8))]}
    with pytest.raises(PipelineError, match=why):
        fl.DataLoader(reader, 2, pipelines=pipelines)


def test_frames_resized_by_the_decoder_are_not_followed(tmp_path):
    import videos

    fields = {"video": fl.VideoCompressedField(), "flow": fl.OpticalFlowField()}
    with fl.DatasetWriter(tmp_path / "x.fld", fields) as writer:
        writer.write_sample({"video": videos.video("h264.mp4"), "flow": some_flow(0)})
    pipelines = {"video": [ops.ClipSampler(2), ops.DecodeResize(8)], "flow": [ops.Follow("video")]}
    with pytest.raises(PipelineError, match="can't follow frames that FFmpeg resizes"):
        fl.DataLoader(fl.open(tmp_path / "x.fld"), 1, pipelines=pipelines)
