"""Compressed videos: any frames, exactly those of a full decode, from as few packets as there can be."""

import pickle
import struct
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import videos
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.errors import DecodeError, FormatError
from fastloader.fields import libav
from fastloader.fields.video_compressed import ROW, CompressedVideo
from fastloader.testing import FieldContract
from fastloader.testing.fields import write

FIELD = fl.VideoCompressedField()


def opened(name):
    encoded = FIELD.encode(videos.video(name))
    return CompressedVideo(FIELD, np.array(encoded.metadata, ROW)[()], memoryview(encoded.payload))


def decoded(video, frames):
    """Frames as the decoder gives them, by number."""
    made = libav.decode(video.index, memoryview(video.bytes), np.array(frames))
    return {number: frame.to_ndarray().tobytes() for number, frame in made}


class TestVideoCompressedField(FieldContract):
    def fields(self):
        return [fl.VideoCompressedField(), fl.VideoCompressedField(check=True)]

    def values(self, field):
        return [
            videos.video("h264.mp4").read_bytes(),
            videos.video("vp9.webm"),
            bytearray(videos.video("mpeg4.avi").read_bytes()),
            str(videos.video("h264.ts")),
        ]

    def bad_values(self, field):
        whole = videos.video("h264.mp4").read_bytes()
        bad = [b"", b"no video", whole[:200], videos.video(videos.SOUND), "no/such/file.mp4", 5, np.zeros((2, 4, 4, 3))]
        if field.check:
            noise = np.random.default_rng(0).bytes(4000)
            spoiled = bytearray(videos.video("mpeg2.ts").read_bytes())
            del spoiled[400:-4000:3]
            bad += [bytes(spoiled), whole[:3000] + noise]
        return bad

    def equal(self, given, got):
        data = given if isinstance(given, bytes | bytearray) else Path(given).read_bytes()
        return isinstance(got, fl.Video) and got.bytes == bytes(data) and len(got) == videos.FRAMES


@pytest.mark.parametrize("name", videos.ALL)
def test_every_frame_alone_is_that_of_a_full_decode(name):
    video, wanted = opened(name), videos.planes(name)
    assert video.num_frames == len(wanted)
    assert decoded(video, range(len(wanted))) == dict(enumerate(wanted))
    for i, frame in enumerate(wanted):
        assert decoded(video, [i]) == {i: frame}, f"frame {i}"


@pytest.mark.parametrize("name", videos.ALL)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_any_set_of_frames_is_that_of_a_full_decode(name, data):
    video, wanted = opened(name), videos.planes(name)
    frames = sorted(data.draw(st.sets(st.integers(0, len(wanted) - 1), min_size=1, max_size=9)))
    assert decoded(video, frames) == {i: wanted[i] for i in frames}


@pytest.mark.parametrize("name", ["h264.mp4", "h264_709.mp4", "mpeg4.mp4", "vp9.webm"])
def test_pixels_are_those_of_ffmpegs_own_conversion(name):
    video, wanted = opened(name), videos.rgb(name)
    assert np.array_equal(video.frames(), wanted)
    assert np.array_equal(np.asarray(video), wanted)
    assert np.array_equal(video.frames([5, 3, 5, -1]), wanted[[5, 3, 5, -1]])
    assert np.array_equal(video[7], wanted[7])
    assert np.array_equal(video[30:4:-6], wanted[30:4:-6])
    assert np.array_equal(video.clip(3, 4, 7), wanted[3:31:7])


def test_the_colours_of_bt709_are_told_from_others():
    assert np.abs(videos.rgb("h264.mp4").astype(int) - videos.rgb("h264_709.mp4")).mean() > 1


@pytest.mark.parametrize("name", [videos.VARIABLE_RATE, "h264_open.mp4", "h264_open.mkv", videos.CUT, "mpeg2.ts"])
def test_times_are_those_of_the_container(name):
    video, wanted = opened(name), videos.times(name)
    assert np.allclose(video.times, wanted, atol=1e-5)
    assert video.times[0] == 0
    assert video.duration > wanted[-1]
    middle = (wanted[:-1] + wanted[1:]) / 2
    assert video.indices_at(middle).tolist() == list(range(len(middle)))
    assert np.array_equal(video.at([middle[4], middle[1]]), video.frames([4, 1]))
    assert video.fps == pytest.approx(len(wanted) / video.duration)


def test_a_varying_rate_varies():
    steps = np.diff(opened(videos.VARIABLE_RATE).times)
    assert steps.max() > 1.5 * steps.min()


@pytest.fixture
def sent(monkeypatch):
    """The packets given to decoders, by size, and what came out."""
    seen, real = [], libav.send

    def send(context, packet):
        frames = real(context, packet)
        seen.append((0 if packet is None else packet.size, len(frames)))
        return frames

    monkeypatch.setattr(libav, "send", send)
    return seen


def test_only_the_groups_of_pictures_that_are_needed_are_decoded(sent):
    video = opened("h264.mp4")
    assert video.index.keys.tolist() == [0, 10, 20, 30]
    video.frames([0])
    assert len(sent) == 2  # the key frame, and the end
    sent.clear()
    video.frames([25])
    packets = int(video.index.packets[25]) - 20 + 1
    assert [size for size, _ in sent] == [*video.index.sizes[20 : 20 + packets].tolist(), 0]
    sent.clear()
    video.frames([1, 39])
    assert len(sent) < 2 * 10 + 2
    sent.clear()
    video.frames()
    assert len(sent) == videos.FRAMES + 1


def test_pictures_that_nothing_refers_to_are_not_decoded_unless_wanted(sent):
    video = opened("h264.mp4")
    last = int(video.index.frame_of[9])
    video.frames([last])
    assert len(sent) == 11
    assert sum(frames for _, frames in sent) < 10


def test_leading_pictures_of_an_open_group_are_decoded_from_the_group_before():
    index = opened("h264_open.mp4").index
    leading = [f for f, p in enumerate(index.packets) if (index.pts[index.keys[1:]] > index.pts[p]).any()
               and p > index.keys[1:][index.pts[index.keys[1:]] > index.pts[p]].min()]  # fmt: skip
    assert leading
    for frame in leading:
        (run,) = index.runs(np.array([frame]))
        assert index.pts[run.start] <= index.pts[index.packets[frame]]


def test_hidden_packets_are_no_frames():
    index = opened("vp8_hidden.webm").index
    assert index.hidden.any()
    assert len(index.sizes) > len(index.packets) == videos.FRAMES
    assert opened(videos.CUT).index.hidden.any()


def test_a_container_whose_packets_are_in_pieces_is_taken_apart_again():
    assert not opened("h264.ts").index.in_place
    assert all(opened(name).index.in_place for name in videos.ALL if not name.endswith(".ts"))


def test_frames_are_resized_while_they_are_decoded():
    video = opened("h264.mp4")
    wanted = videos.ffmpeg(
        "-i", videos.video("h264.mp4"), "-vf", "scale=32:24:flags=bilinear,format=rgb24", "-f", "rawvideo", "-"
    )
    wanted = np.frombuffer(wanted, np.uint8).reshape(-1, 24, 32, 3)
    small = video.frames(size=(24, 32))
    assert small.shape == wanted.shape
    # Versions of swscale place chroma differently; luma is where it was.
    luma = np.array([0.299, 0.587, 0.114])
    assert np.abs(small @ luma - wanted @ luma).mean() < 1
    assert np.abs(small[..., ::-1] @ luma - wanted @ luma).mean() > 10
    made = {filter: video.frames([3], size=(20, 30), filter=filter).tobytes() for filter in fl.Video.filters}
    assert len(set(made.values())) == len(made) == 5


def test_wrong_arguments_are_told():
    video = opened("h264.mp4")
    for call, error, words in (
        (lambda: video.frames([40]), IndexError, "frame 40 of a video of 40"),
        (lambda: video.frames([-41]), IndexError, "frame -41 of a video of 40"),
        (lambda: video.frames([1.5]), TypeError, "whole numbers"),
        (lambda: video.frames([[1]]), TypeError, "one dimension"),
        (lambda: video.frames([1], size=(0, 4)), ValueError, "sides from 1"),
        (lambda: video.frames([1], size=4), TypeError, "height and width"),
        (lambda: video.frames([1], size=(4, 4), filter="cubic"), ValueError, "filter='cubic': one of"),
        (lambda: video.clip(38, 3), IndexError, "frames 38 to 40 of a video of 40"),
        (lambda: video.clip(-1, 1), IndexError, "frames -1 to -1"),
        (lambda: video.clip(0, 0), ValueError, "at least 1"),
        (lambda: video.clip(0, 2, 0), ValueError, "at least 1"),
        (lambda: video.at(2.0), IndexError, "2 s of a video from 0 to 2 s"),
        (lambda: video.at([-0.1]), IndexError, "-0.1 s"),
        (lambda: video.at([np.nan]), IndexError, "nan s"),
        (lambda: list(video), TypeError, "iterate over video.frames"),
        (lambda: fl.VideoCompressedField(check=1), TypeError, "check=1"),
        (lambda: np.array(video, copy=False), ValueError, "without a copy"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert video.frames([]).shape == (0, 64, 80, 3)
    assert video.frames([], size=(5, 6)).shape == (0, 5, 6, 3)


def test_a_video_says_what_it_is_and_can_be_pickled():
    video = opened("h264_open.mkv")
    assert repr(video) == "CompressedVideo(40 frames, 64x80, 2.000 s, h264)"
    assert opened("av1.mp4").codec == "av1"
    again = pickle.loads(pickle.dumps(video))
    assert again == video
    assert np.array_equal(again[3], video[3])
    assert video != opened("h264.mp4")
    assert video != 3


def test_the_file_comes_back_byte_for_byte(tmp_path):
    reader = write(tmp_path / "x.fld", FIELD, [videos.video("h264_open.mkv")])
    assert reader.read_payload(0, "it") == videos.video("h264_open.mkv").read_bytes()


def spoiled(tmp_path, monkeypatch, start, stop):
    """A dataset of a sound video and one with other bytes in it than its index was made of."""
    whole = videos.video("mpeg4.mp4").read_bytes()
    index = libav.scan(whole)
    bad = bytearray(whole)
    bad[start:stop] = np.random.default_rng(1).bytes(stop - start)
    monkeypatch.setattr(libav, "scan", lambda video: index)
    return write(tmp_path / "x.fld", FIELD, [whole, bytes(bad)])


def test_what_does_not_decode_names_sample_and_field(tmp_path, monkeypatch):
    index = opened("mpeg4.mp4").index
    start = int(index.offsets[0])
    reader = spoiled(tmp_path, monkeypatch, start, start + int(index.sizes[:3].sum()))
    assert reader[0]["it"].frames([1]).shape == (1, 64, 80, 3)
    (batch,) = fl.DataLoader(reader, batch_size=2, shuffle=False)
    for video in (reader[1]["it"], reader.read_batch([1])["it"][0], batch["it"][1]):
        with pytest.raises(DecodeError, match=r"x.fld: sample 1, field 'it': .*does not .*verify --decode") as caught:
            video.frames([1])
        assert (caught.value.sample, caught.value.field) == (1, "it")
        assert np.array_equal(video[25], videos.rgb("mpeg4.mp4")[25])  # another group of pictures is sound
    monkeypatch.undo()
    report = fl.verify(reader.path, decode=True)
    assert [(problem.sample, problem.field) for problem in report.problems] == [(1, "it")]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_hostile_bytes_are_an_error_or_frames(data):
    name = data.draw(st.sampled_from(["h264.mp4", "vp9.webm", "mpeg2.ts"]))
    encoded = FIELD.encode(videos.video(name))
    payload = bytearray(encoded.payload)
    for _ in range(data.draw(st.integers(1, 4))):
        # As often in the index, which is small, as in the video.
        low = data.draw(st.sampled_from([0, len(payload) - 200, len(payload) - 20]))
        payload[data.draw(st.integers(low, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 8, 100]))
    row = np.array(encoded.metadata, ROW)[()]
    try:
        video = CompressedVideo(FIELD, row, memoryview(bytes(payload))[: len(payload) - cut])
        assert video.frames([3, 30]).shape == (2, 64, 80, 3)
    except FormatError:
        pass


def test_claims_of_the_table_must_be_those_of_the_video():
    encoded = FIELD.encode(videos.video("h264.mp4"))
    for name, value, words in (("frames", 41, "the table 41"), ("height", 4000, "is 64x80, the video is 4000x80")):
        row = np.array(encoded.metadata, ROW)
        row[name] = value
        with pytest.raises(FormatError, match=words):
            CompressedVideo(FIELD, row[()], memoryview(encoded.payload)).frames([0])
    row = np.array(encoded.metadata, ROW)[()]
    with pytest.raises(FormatError, match="no frame index"):
        CompressedVideo(FIELD, row, memoryview(encoded.payload)[:-1])


def test_the_index_of_another_video_is_found_by_verify(tmp_path, monkeypatch):
    whole = videos.video("h264.mp4").read_bytes()
    index, height, width = libav.scan(whole)
    other = replace(index, key=~index.key)
    monkeypatch.setattr(libav, "scan", lambda video: (other, height, width))
    reader = write(tmp_path / "x.fld", FIELD, [whole])
    monkeypatch.undo()
    (problem,) = fl.verify(reader.path, decode=True).problems
    assert problem.message == "does not decode: the frame index is not that of the video"


def test_the_index_lies_where_the_format_says():
    whole = videos.video("h264.mp4").read_bytes()
    payload = bytes(FIELD.encode(whole).payload)
    size, magic = struct.unpack_from("<I4s", payload, len(payload) - 8)
    assert magic == b"FLVX"
    assert payload[:-size] == whole
    head = payload[-size:]
    form, flags, stream, packets, frames, num, den, end = struct.unpack_from("<HHIIIIIq", head, 0)
    codec, tag, extradata, table, pad = struct.unpack_from("<16s4sIII", head, 32)
    assert (form, flags, stream, packets, frames, pad) == (1, 1, 0, 40, 40, 0)
    assert (end * num / den, codec.rstrip(b"\0"), tag) == (2.0, b"h264", b"avc1")
    assert size == 64 + extradata + table + 8
    rows = np.empty(21 * packets, np.uint8)
    fl.kernels.decompress(head[64 + extradata : -8], 2, rows)
    sizes = rows[:160].view("<u4")
    gaps, steps = rows[160:800].view("<i8").reshape(2, 40)
    assert (rows[800:] & 1).nonzero()[0].tolist() == [0, 10, 20, 30]
    first = int(gaps[0])
    assert whole[first : first + int(sizes[0])] in whole
    assert np.sort(np.cumsum(steps)).tolist() == sorted(set(np.cumsum(steps).tolist()))


def test_without_pyav_reading_works_until_frames_are_asked_for(tmp_path, monkeypatch):
    reader = write(tmp_path / "x.fld", FIELD, [videos.video("h264.mp4")])
    monkeypatch.setitem(sys.modules, "av", None)
    video = reader[0]["it"]
    assert (len(video), video.times[1]) == (40, 0.05)
    words = r'PyAV is not installed; pip install "fastloader\[video\]" brings it'
    with pytest.raises(fl.MissingExtraError, match=words):
        video.frames([0])
    with pytest.raises(fl.SampleError, match=words):
        write(tmp_path / "y.fld", FIELD, [videos.video("h264.mp4")])
