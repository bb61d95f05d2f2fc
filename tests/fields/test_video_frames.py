"""Videos as single pictures: each frame without the others."""

import io
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

import fastloader as fl
from fastloader import kernels
from fastloader.errors import DecodeError, FormatError
from fastloader.fields.video_frames import ROW, FramesVideo
from fastloader.testing import FieldContract
from fastloader.testing.fields import write


def frames(count=5, height=24, width=40, channels=3, seed=0):
    """A slope that moves, with some grain."""
    y, x = np.mgrid[:height, :width]
    grain = np.random.default_rng(seed).integers(0, 8, (count, height, width, channels))
    slope = np.stack([(x * 4 + y * 3 + 17 * i + 5 * seed) % 200 for i in range(count)])
    return (slope[..., None] + grain).astype(np.uint8)


def encoded(picture, format_, **options):
    out = io.BytesIO()
    Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture).save(out, format_, **options)
    return out.getvalue()


def opened(field, value):
    made = field.encode(field.prepare(value))
    return FramesVideo(field, np.array(made.metadata, ROW)[()], memoryview(made.payload))


class TestVideoFramesField(FieldContract):
    def fields(self):
        return [
            fl.VideoFramesField(),
            fl.VideoFramesField("jpeg", fps=30, quality=75, subsampling="444", seekable=False),
            fl.VideoFramesField("png", fps=12.5),
            fl.VideoFramesField("raw"),
        ]

    def values(self, field):
        given = [frames(), list(frames(3, 16, 16, seed=1)), frames(2, 8, 12, 1)[..., 0], frames(1, 9, 7, 1)]
        given.append([Image.fromarray(one) for one in frames(2, seed=2)])
        if field.format != "raw":
            given.append([encoded(one, field.format) for one in frames(3, seed=3)])
        return given

    def bad_values(self, field):
        ready = encoded(frames()[0], "jpeg" if field.format == "png" else "png")
        return [
            frames()[:0], [], frames()[0, 0], frames().astype(np.float32), frames(channels=5), 5, "text", b"bytes",
            [frames()[0], frames(1, 9, 9)[0]], [ready], [b""], [None], np.zeros((2, 0, 4, 3), np.uint8),
        ]  # fmt: skip

    def equal(self, given, got):
        if not isinstance(got, fl.Video) or len(got) != len(given):
            return False
        for one, found in zip(given, got.frames(), strict=True):
            want = np.asarray(Image.open(io.BytesIO(one)) if isinstance(one, bytes) else one)
            want = want[..., None] if want.ndim == 2 else want
            near = np.abs(found.astype(int) - want).mean() < 6 if got.codec == "jpeg" else np.array_equal(found, want)
            if found.shape != want.shape or not near:
                return False
        return True


@pytest.mark.parametrize("format_", ["jpeg", "png", "raw"])
def test_frames_clips_and_times(format_):
    given = frames(12)
    video = opened(fl.VideoFramesField(format_, fps=4), given)
    everything = video.frames()
    assert everything.shape == given.shape
    assert np.array_equal(video.frames([7, 2, 7]), everything[[7, 2, 7]])
    assert np.array_equal(video.clip(1, 4, 3), everything[1:11:3])
    assert np.array_equal(video[-1], everything[-1])
    assert np.array_equal(video.at([0, 0.6, 2.99]), everything[[0, 2, 11]])
    assert (video.duration, video.fps, video.times[3]) == (3, 4, 0.75)
    assert (video.num_frames, video.height, video.width, video.channels, video.codec) == (12, 24, 40, 3, format_)
    assert pickle.loads(pickle.dumps(video)) == video


def test_a_frame_is_reached_without_touching_another():
    given = frames(6)
    made = fl.VideoFramesField().encode(given)
    video = FramesVideo(fl.VideoFramesField(), np.array(made.metadata, ROW)[()], memoryview(made.payload))
    spoiled = bytearray(made.payload)
    for other in (0, 1, 2, 3, 5):
        begin, end = int(video.offsets[other]), int(video.offsets[other + 1])
        spoiled[begin:end] = bytes(end - begin)
    one = FramesVideo(fl.VideoFramesField(), np.array(made.metadata, ROW)[()], memoryview(spoiled))
    assert np.array_equal(one.frames([4, 4]), video.frames([4, 4]))
    with pytest.raises(DecodeError):
        one.frames([4, 5])


def test_encoded_frames_are_kept_as_they_are(tmp_path):
    jpegs = [encoded(one, "jpeg", quality=80) for one in frames(3)]
    names = []
    for i, data in enumerate(jpegs):
        names.append(tmp_path / f"{i}.jpg")
        names[-1].write_bytes(data)
    video = opened(fl.VideoFramesField(), [str(names[0]), names[1], jpegs[2]])
    assert [bytes(video.encoded(i)) for i in range(3)] == jpegs
    assert bytes(opened(fl.VideoFramesField("raw"), frames(2)).encoded(-1)) == frames(2)[1].tobytes()


def test_frames_are_resized_by_the_filters_of_images():
    video = opened(fl.VideoFramesField("raw"), frames(3))
    for filter, name in (("nearest", "nearest"), ("bilinear", "bilinear"), ("bicubic", "bicubic"), ("area", "box"),
                         ("lanczos", "lanczos")):  # fmt: skip
        wanted = kernels.resize_image(frames(3)[1], (10, 11), filter=name)
        assert np.array_equal(video.frames([1], size=(10, 11), filter=filter)[0], wanted)


def test_options_of_jpeg_have_an_effect():
    plain, small = fl.VideoFramesField(), fl.VideoFramesField(quality=20)
    size = {field: len(field.encode(frames()).payload) for field in (plain, small)}
    assert size[small] < size[plain]
    assert len(fl.VideoFramesField(seekable=False).encode(frames()).payload) < size[plain]
    assert len(fl.VideoFramesField(subsampling="444").encode(frames()).payload) != size[plain]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"format": "gif"}, ValueError, "format='gif': one of jpeg, png, raw"),
        ({"fps": 0}, ValueError, "fps=0.0: above 0"),
        ({"fps": "24"}, TypeError, "fps='24'"),
        ({"fps": float("nan")}, ValueError, "fps=nan"),
        ({"quality": 101}, ValueError, "quality=101"),
        ({"format": "png", "quality": 50}, ValueError, "are for 'jpeg'"),
        ({"format": "raw", "seekable": False}, ValueError, "are for 'jpeg'"),
    ],
)
def test_wrong_options_are_told(options, error, words):
    with pytest.raises(error, match=words):
        fl.VideoFramesField(**options)


@pytest.mark.parametrize("format_", ["jpeg", "png", "raw"])
def test_the_payload_lies_as_the_format_says(format_):
    metadata, payload = fl.VideoFramesField(format_).encode(frames(3, 8, 16))
    assert metadata == (8, 16, 3, 3)
    if format_ == "raw":
        assert payload == frames(3, 8, 16).tobytes()
    else:
        offsets = struct.unpack("<4Q", payload[-32:])
        assert (offsets[0], offsets[3]) == (0, len(payload) - 32)
        assert payload[offsets[1] :].startswith(b"\xff\xd8\xff" if format_ == "jpeg" else b"\x89PNG")


def test_claims_are_checked(tmp_path):
    field = fl.VideoFramesField("png")
    metadata, payload = field.encode(frames(3, 8, 16))
    for row, data, words in (
        ((8, 16, 3, 3), payload[:-1], "do not ascend"),
        ((8, 16, 3, 10**6), payload, "are not the 1000000 frames"),
        ((8, 17, 3, 3), payload, "frame 0 is not the 8x17x3 picture"),
        ((60000, 60000, 3, 3), payload, "frame 0 is not the"),
        ((8, 16, 3, 3), payload[:-24] + struct.pack("<3Q", 2**63, 5, len(payload) - 32), "do not ascend"),
    ):
        with pytest.raises(FormatError, match=words):
            FramesVideo(field, np.array(row, ROW)[()], memoryview(data)).frames([0])
    with pytest.raises(FormatError, match="are not the 3 frames"):
        FramesVideo(fl.VideoFramesField("raw"), np.array(metadata, ROW)[()], memoryview(payload))


def test_a_frame_that_does_not_decode_names_sample_and_field(tmp_path):
    sound, broken = [encoded(one, "jpeg") for one in frames(2, 64, 96)]
    reader = write(tmp_path / "x.fld", fl.VideoFramesField(seekable=False), [[sound], [sound, broken[:-300]]])
    assert reader[1]["it"].frames([0]).shape == (1, 64, 96, 3)
    with pytest.raises(DecodeError, match="sample 1, field 'it'"):
        reader[1]["it"].frames([1])
