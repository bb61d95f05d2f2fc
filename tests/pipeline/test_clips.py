"""Pipelines of videos: which frames, and the same operations on all of them as on images."""

import sys

import numpy as np
import pytest
import videos

import fastloader as fl
from fastloader import ops
from fastloader.errors import DecodeError, OperationError
from fastloader.fields import libav
from fastloader.ops.clips import Chosen, Frames
from fastloader.pipeline import PipelineError
from fastloader.testing import identical

FIRST = 1 << 30
"""The number of the first operation on frames."""
NAMES = ("h264.mp4", "vp9.webm", "h264_open.mkv", "mpeg2.ts", videos.VARIABLE_RATE)
SPATIAL = [ops.RandomResizedCrop(24), ops.HorizontalFlip(), ops.ColorJitter(0.4, 0.4, 0.4), ops.RandomErasing()]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp("clips") / "x.fld"
    with fl.DatasetWriter(path, {"clip": fl.VideoCompressedField(), "n": fl.IntField()}) as writer:
        for i in range(10):
            writer.write_sample({"clip": videos.video(NAMES[i % len(NAMES)]), "n": i})
    return path


def clips(path, pipeline, **options):
    """All clips of an epoch, in the order of the dataset."""
    options = {"batch_size": 4, "shuffle": False, "seed": 5, **options}
    loader = fl.DataLoader(fl.open(path), pipelines={"clip": pipeline}, fields=["clip"], **options)
    return np.concatenate([batch["clip"] for batch in loader])


def chosen(count, fps=10.0):
    return Chosen(np.arange(count), np.arange(count) / fps, count / fps)


def picks(op, given=None, sample=0):
    return op.choose(chosen(40) if given is None else given, ops.Random(5, 0, sample, FIRST)).numbers.tolist()


def test_random_clips_start_where_their_place_says(dataset):
    made = clips(dataset, [ops.ClipSampler(6, 3), ops.DecodeResize((64, 80))])
    assert made.shape == (10, 6, 64, 80, 3)
    for i in range(10):
        wanted = videos.rgb(NAMES[i % len(NAMES)])
        start = int(ops.Random(5, 0, i, FIRST).below(len(wanted) - 16 + 1))
        assert np.array_equal(made[i], wanted[start : start + 16 : 3]), f"sample {i}"


def test_modes_choose_their_frames():
    assert picks(ops.ClipSampler(4, 2, mode="center")) == [16, 18, 20, 22]
    assert picks(ops.ClipSampler(4, mode="uniform")) == [5, 15, 25, 35]
    assert picks(ops.ClipSampler(4, mode="uniform"), chosen(3)) == [0, 1, 1, 2]
    assert picks(ops.ClipSampler(2, 5, mode="dense", clips=3)) == [0, 5, 17, 22, 34, 39]
    assert picks(ops.ClipSampler(2, mode="dense")) == [19, 20]
    drawn = [picks(ops.ClipSampler(4, mode="segments"), sample=i) for i in range(50)]
    assert all(10 * k <= one[k] < 10 * k + 10 for one in drawn for k in range(4))
    assert {one[0] for one in drawn} == set(range(10))
    starts = {picks(ops.ClipSampler(3, 18, mode="random"), sample=i)[0] for i in range(60)}
    assert starts == {0, 1, 2, 3}


def test_clips_by_seconds_do_not_depend_on_the_rate():
    assert picks(ops.ClipSampler(4, seconds=1, mode="center")) == [15, 17, 20, 22]
    assert picks(ops.ClipSampler(4, seconds=1, mode="center"), chosen(80, 20)) == [30, 35, 40, 45]
    assert picks(ops.ClipSampler(2, seconds=1, mode="dense", clips=2)) == [0, 5, 30, 35]
    uneven = Chosen(np.arange(4), np.array([0.0, 0.1, 0.9, 1.0]), 2.0)
    assert picks(ops.ClipSampler(4, seconds=2, mode="center"), uneven) == [0, 1, 3, 3]
    starts = {picks(ops.ClipSampler(1, seconds=0.5), sample=i)[0] for i in range(300)}
    assert (min(starts), max(starts)) == (0, 34)


def test_frames_by_seconds_are_those_that_a_video_gives_at_these_times(dataset):
    made = clips(dataset, [ops.ClipSampler(5, seconds=1.5, mode="center"), ops.DecodeResize((64, 80))])
    for i, sample in enumerate(fl.open(dataset)):
        video = sample["clip"]
        start = (video.duration - 1.5) / 2
        assert np.array_equal(made[i], video.at(start + np.arange(5) * 0.3))


def test_a_video_that_is_too_short():
    op = ops.ClipSampler(4, 20)
    with pytest.raises(OperationError, match=r"takes 61, and the video has 40 frames; short='repeat'"):
        picks(op)
    assert picks(ops.ClipSampler(4, 20, short="repeat")) == [0, 20, 39, 39]
    assert picks(ops.ClipSampler(4, 20, short="loop")) == [0, 20, 0, 20]
    with pytest.raises(OperationError, match="takes 5 s, and the video has 4 s"):
        picks(ops.ClipSampler(5, seconds=5))
    assert picks(ops.ClipSampler(5, seconds=5, short="repeat")) == [0, 10, 20, 30, 39]
    assert picks(ops.ClipSampler(5, seconds=5, short="loop")) == [0, 10, 20, 30, 0]
    with pytest.raises(OperationError, match="takes 50 frames, and the video has 40"):
        picks(ops.TemporalSubsample(num_frames=50))


def test_subsampling_before_and_behind_a_sampler():
    assert picks(ops.TemporalSubsample(15)) == [0, 15, 30]
    assert picks(ops.TemporalSubsample(num_frames=2)) == [10, 30]
    fewer = ops.TemporalSubsample(4).choose(chosen(40), ops.Random(0, 0, 0, 0))
    assert picks(ops.ClipSampler(4, mode="center"), fewer) == [12, 16, 20, 24]
    assert picks(ops.ClipSampler(2, seconds=2, mode="center"), fewer) == [8, 20]
    assert ops.TemporalSubsample(3).output(Frames(8)).count == 3
    assert ops.TemporalSubsample(3).output(Frames()).count is None


def test_what_is_left_out_is_not_decoded(dataset, monkeypatch):
    sent, real = [], libav.send
    monkeypatch.setattr(libav, "send", lambda context, packet: (sent.append(packet), real(context, packet))[1])
    pipeline = [ops.ClipSampler(40, mode="uniform"), ops.TemporalSubsample(40), ops.DecodeResize(8)]
    made = clips(dataset, pipeline, indices=[0], num_workers=0)
    assert made.shape == (1, 1, 8, 8, 3)
    assert len(sent) == 2  # a key frame, and the end


def as_images(tmp_path, samples, field):
    """The same samples, one dataset for each place in the clip, as images."""
    readers = []
    for t in range(samples.shape[1]):
        path = tmp_path / f"{t}.fld"
        with fl.DatasetWriter(path, {"image": field}) as writer:
            for frames in samples:
                writer.write_sample({"image": frames[t]})
        readers.append(fl.open(path))
    return readers


def through_images(readers, pipeline, **options):
    made = []
    for reader in readers:
        loader = fl.DataLoader(reader, 4, False, pipelines={"image": pipeline}, seed=5, **options)
        made.append(np.concatenate([batch["image"] for batch in loader]))
    return np.stack(made, 1)


@pytest.mark.parametrize("behind", [[], [ops.Normalize(127, 50), ops.Cast("float16"), ops.Layout("CHW")]])
def test_each_frame_is_made_as_an_image_with_the_same_draws(dataset, tmp_path, behind):
    plain = clips(dataset, [ops.ClipSampler(3, 2), ops.DecodeResize((64, 80))])
    readers = as_images(tmp_path, plain, fl.RawImageField(64, 80))
    wanted = through_images(readers, [*SPATIAL, *behind])
    assert identical(clips(dataset, [ops.ClipSampler(3, 2), *SPATIAL, *behind]), wanted)


@pytest.mark.parametrize(
    ("field", "image"),
    [
        (fl.VideoFramesField(), fl.JPEGImageField()),
        (fl.VideoFramesField(seekable=False), fl.JPEGImageField(seekable=False)),
        (fl.VideoFramesField("png"), fl.PNGImageField()),
        (fl.VideoFramesField("raw"), fl.RawImageField(64, 80)),
    ],
    ids=repr,
)
def test_stored_frames_are_made_as_images_are(tmp_path, field, image):
    given = np.stack([videos.rgb(name)[:12] for name in NAMES])
    with fl.DatasetWriter(tmp_path / "x.fld", {"clip": field}) as writer:
        writer.write_many({"clip": list(given)})
    pipeline = [ops.RandomResizedCrop(20, scale=(0.1, 0.4)), ops.HorizontalFlip(), ops.Layout("CHW")]
    made = clips(tmp_path / "x.fld", [ops.ClipSampler(4, 3, mode="center"), *pipeline])
    readers = as_images(tmp_path, given[:, 1:11:3], image)
    assert identical(made, through_images(readers, pipeline))


@pytest.mark.parametrize("format_", ["jpeg", "png", "raw"])
def test_gray_frames_become_rgb(tmp_path, format_):
    gray = np.arange(3 * 16 * 16).reshape(3, 16, 16).astype(np.uint8) // 8 * 8
    with fl.DatasetWriter(tmp_path / "x.fld", {"clip": fl.VideoFramesField(format_)}) as writer:
        writer.write_sample({"clip": gray})
    made = clips(tmp_path / "x.fld", [ops.ClipSampler(3), ops.Resize((16, 16))])
    assert made.shape == (1, 3, 16, 16, 3)
    assert np.abs(made[0] - gray[..., None].astype(int)).max() <= (8 if format_ == "jpeg" else 0)


def test_repeated_frames_are_decoded_once_and_come_at_all_their_places(dataset):
    made = clips(dataset, [ops.ClipSampler(90, mode="center", short="loop"), ops.DecodeResize((64, 80))], indices=[0])
    wanted = videos.rgb("h264.mp4")
    assert np.array_equal(made[0], wanted[np.arange(90) % 40])


def test_batches_do_not_depend_on_the_workers_and_epochs_differ(dataset):
    pipeline = [ops.ClipSampler(4), *SPATIAL]
    by_workers = [clips(dataset, pipeline, num_workers=workers) for workers in (0, 1, 4)]
    assert identical(by_workers[0], by_workers[1])
    assert identical(by_workers[0], by_workers[2])
    assert not identical(by_workers[0], clips(dataset, pipeline, seed=6))
    loader = fl.DataLoader(fl.open(dataset), 10, False, pipelines={"clip": pipeline}, seed=5)
    first, second = (next(iter(loader))["clip"] for _ in range(2))
    assert identical(first, by_workers[0])
    assert not identical(first, second)


def test_clips_count_for_the_memory_limit(dataset):
    pipeline = {"clip": [ops.ClipSampler(10), ops.Resize((300, 300))]}
    reader = fl.open(dataset)
    seen = {}
    for limit in (None, "40MiB", "1GiB"):
        with fl.DataLoader(reader, 2, num_workers=4, memory_limit=limit, pipelines=pipeline, io="mmap") as loader:
            for _ in loader:
                seen[limit] = loader._runner._allowed_depth()
    assert seen[None] == seen["1GiB"] == 8
    assert seen["40MiB"] < 8


def test_an_epoch_goes_on_where_it_was_left(dataset):
    def loader():
        return fl.DataLoader(fl.open(dataset), 2, seed=9, pipelines={"clip": [ops.ClipSampler(2), *SPATIAL]})

    whole = list(loader())
    begun = loader()
    steps = iter(begun)
    next(steps), next(steps)
    state = begun.state_dict()
    steps.close()
    again = loader()
    again.load_state_dict(state)
    for one, other in zip(whole[2:], again, strict=True):
        assert identical(one["clip"], other["clip"])
        assert identical(one["n"], other["n"])


@ops.custom(jit=False)
def darker(image, random):
    image //= 2 + int(random.below(3))


@ops.custom
def brighter(image, random):
    image[0, 0, 0] = 255 - image[0, 0, 0]
    image[1, 2, 1] = random.below(50)


@pytest.mark.parametrize("op", [darker, brighter], ids=str)
def test_operations_of_the_users_work_on_clips(dataset, tmp_path, op):
    plain = clips(dataset, [ops.ClipSampler(2), ops.DecodeResize((64, 80))])
    pipeline = [ops.CenterCrop(30), op, ops.Invert()]
    wanted = through_images(as_images(tmp_path, plain, fl.RawImageField(64, 80)), pipeline)
    assert identical(clips(dataset, [ops.ClipSampler(2), *pipeline]), wanted)


def test_missing_and_bad_videos_follow_on_error(tmp_path, monkeypatch):
    whole = videos.video("mpeg4.mp4").read_bytes()
    index, height, width = libav.scan(whole)
    bad = bytearray(whole)
    start = int(index.offsets[0])
    bad[start : start + int(index.sizes.sum())] = np.random.default_rng(0).bytes(int(index.sizes.sum()))
    monkeypatch.setattr(libav, "scan", lambda video: (index, height, width))
    with fl.DatasetWriter(tmp_path / "x.fld", {"clip": fl.VideoCompressedField(), "n": fl.IntField()}) as writer:
        for i, value in enumerate((whole, None, bytes(bad), whole)):
            writer.write_sample({"clip": value, "n": i})
    reader = fl.open(tmp_path / "x.fld")
    options = {"shuffle": False, "pipelines": {"clip": [ops.ClipSampler(2, mode="center"), ops.Resize((9, 9))]}}
    with pytest.raises(DecodeError, match=r"x.fld: sample 2, field 'clip': .*") as caught:
        next(iter(fl.DataLoader(reader, 4, **options)))
    assert (caught.value.sample, caught.value.field) == (2, "clip")
    (batch,) = fl.DataLoader(reader, 4, on_error="replace", **options)
    assert np.ma.getmaskarray(batch["clip"]).reshape(4, -1).all(1).tolist() == [False, True, True, False]
    (batch,) = fl.DataLoader(reader, 4, on_error="skip", **options)
    assert batch["n"].tolist() == [0, 1, 3, 3]
    assert np.array_equal(batch["clip"].data[2], batch["clip"].data[3])


def test_a_crop_larger_than_the_video_is_an_error_of_its_sample(dataset):
    with pytest.raises(DecodeError, match=r"sample 0, field 'clip': .*65"):
        clips(dataset, [ops.ClipSampler(2), ops.CenterCrop(65)])


def test_decode_resize_is_the_size_of_the_decoder(dataset):
    reader = fl.open(dataset)
    made = clips(dataset, [ops.ClipSampler(3, mode="uniform"), ops.DecodeResize((20, 30), filter="area")])
    for i in range(10):
        video = reader[i]["clip"]
        numbers = [int((k + 0.5) * len(video) / 3) for k in range(3)]
        assert np.array_equal(made[i], video.frames(numbers, size=(20, 30), filter="area"))


def test_explain_tells_what_runs_where(dataset):
    pipeline = [ops.ClipSampler(8, 2), ops.DecodeResize((40, 50)), ops.RandomCrop(32), ops.Layout("CHW")]
    told = fl.DataLoader(fl.open(dataset), pipelines={"clip": pipeline}).explain().splitlines()
    assert told[0] == "VideoCompressedField 'clip': ? frames"
    assert told[1].startswith("    ClipSampler(num_frames=8, stride=2")
    assert told[1].endswith(": 8 frames")
    assert told[2].endswith(": 8 frames of 40x50")
    assert told[4] == "    Layout(order='CHW'): (3, 32, 32) uint8 CHW"
    assert "Python threads" in told[5]
    assert "FFmpeg" in told[6]
    assert told[7].startswith("    each frame: native")


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ([ops.Resize((4, 4))], r"    VideoCompressedField 'clip': \? frames\n--> the clips .* must have one length"),
        ([], "must have one length: begin with a ClipSampler"),
        ([ops.TemporalSubsample(2), ops.Resize((4, 4))], r"TemporalSubsample.*: \? frames\n--> the clips"),
        ([ops.ClipSampler(4)], r": 4 frames\n--> the images of a batch must have one size"),
        ([ops.ClipSampler(4), ops.Resize(5)], "the images of a batch must have one size"),
        (
            [ops.ClipSampler(4), ops.Resize((9, 9)), ops.TemporalSubsample(2)],
            r"Resize\(.*\n--> TemporalSubsample.*put it before operations on images",
        ),
        ([ops.ClipSampler(4), ops.ClipSampler(5)], r": 4 frames\n--> ClipSampler.*takes 5 frames, and gets 4"),
        ([ops.ClipSampler(4), ops.TemporalSubsample(num_frames=5)], "takes 5 frames, and gets 4"),
        ([ops.ClipSampler(4), ops.DecodeResize(8), ops.DecodeResize(9)], "the second of its kind"),
        (
            [ops.ClipSampler(4), ops.Resize((5, 5)), ops.CenterCrop(9)],
            r"\? frames\n    ClipSampler.*\n    Resize.*\n--> CenterCrop.*takes 9 pixels of height, and gets 5",
        ),
        ([ops.ClipSampler(4), ops.DecodeResize(5), ops.CenterCrop(9)], "takes 9 pixels of height, and gets 5"),
        (ops.Views(2, [ops.Resize((4, 4))]), "Views are of images"),
        ([ops.ClipSampler(4), ops.Resize((5, 5)), "flip"], "--> flip: is no operation but a str"),
    ],
)
def test_pipelines_that_do_not_fit_are_drawn_with_the_place_marked(dataset, pipeline, words):
    with pytest.raises(PipelineError, match=words):
        fl.DataLoader(fl.open(dataset), pipelines={"clip": pipeline})


def test_clip_operations_are_for_videos(dataset, tmp_path):
    with pytest.raises(PipelineError, match=r"IntField\(\) has no videos; ClipSampler"):
        fl.DataLoader(fl.open(dataset), pipelines={"n": [ops.ClipSampler(3)]})
    with fl.DatasetWriter(tmp_path / "x.fld", {"clip": fl.VideoFramesField("raw")}) as writer:
        writer.write_sample({"clip": np.zeros((3, 8, 8, 3), np.uint8)})
    with pytest.raises(PipelineError, match="these frames are pictures: use Resize"):
        fl.DataLoader(fl.open(tmp_path / "x.fld"), pipelines={"clip": [ops.ClipSampler(3), ops.DecodeResize(4)]})


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: ops.ClipSampler(0), ValueError, "num_frames=0: from 1"),
        (lambda: ops.ClipSampler(2.5), TypeError, "num_frames=2.5: a whole number"),
        (lambda: ops.ClipSampler(2, 0), ValueError, "stride=0"),
        (lambda: ops.ClipSampler(2, mode="middle"), ValueError, "mode='middle': one of random"),
        (lambda: ops.ClipSampler(2, short="pad"), ValueError, "short='pad': one of error"),
        (lambda: ops.ClipSampler(2, seconds=0), ValueError, "seconds=0"),
        (lambda: ops.ClipSampler(2, seconds="1"), TypeError, "seconds='1': a number"),
        (lambda: ops.ClipSampler(2, 2, seconds=1), ValueError, "give one"),
        (lambda: ops.ClipSampler(2, clips=2), ValueError, "is for mode='dense'"),
        (lambda: ops.ClipSampler(2, 2, mode="uniform"), ValueError, "takes all of a video"),
        (lambda: ops.ClipSampler(2, mode="segments", short="loop"), ValueError, "takes all of a video"),
        (lambda: ops.TemporalSubsample(), ValueError, "either stride or num_frames"),
        (lambda: ops.TemporalSubsample(2, 3), ValueError, "either stride or num_frames"),
        (lambda: ops.TemporalSubsample(0), ValueError, "stride=0"),
        (lambda: ops.TemporalSubsample(num_frames="3"), TypeError, "num_frames='3'"),
        (lambda: ops.DecodeResize(0), ValueError, "size=0"),
        (lambda: ops.DecodeResize(4, "hamming"), ValueError, "filter='hamming': one of nearest"),
    ],
)
def test_wrong_arguments_are_told(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_without_pyav_a_loader_of_clips_is_not_made(dataset, monkeypatch):
    reader = fl.open(dataset)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(fl.MissingExtraError, match=r'pip install "fastloader\[video\]"'):
        fl.DataLoader(reader, pipelines={"clip": [ops.ClipSampler(2), ops.Resize((8, 8))]})
