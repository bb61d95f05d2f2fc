"""Sound files: stored as they are or encoded, and segments of them against decoding the whole."""

import contextlib
import io
import pickle
import sys

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels
from fastloader.errors import DecodeError, FormatError, MissingLibraryError, SampleError
from fastloader.fields import sound_files
from fastloader.testing import FieldContract

EXACT = ("wav", "flac")
FILES = [
    f"{name}.{ending}"
    for name in ("speech", "music")
    for ending in ("wav", "flac", "ogg", "opus", "mp3", "sox.flac", "sox.ogg")
]


def tone(frames, channels=1, rate=16000):
    time = np.arange(frames) / rate
    return np.stack([0.4 * np.sin(2 * np.pi * (400 + 70 * c) * time) for c in range(channels)], axis=1).astype(
        np.float32
    )


def wav(samples, rate=16000, **options):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", **options)
    return file.getvalue()


def write(path, field, values, **options):
    with fl.DatasetWriter(path, {"sound": field}, **options) as writer:
        writer.write_many([value] for value in values)
    return fl.DatasetReader(path)


def stored(tmp_path, field, value):
    return write(tmp_path / "x.fld", field, [value]).read_sample(0)["sound"]


class TestCompressedContract(FieldContract):
    def fields(self):
        return [
            fl.AudioCompressedField(),
            fl.AudioCompressedField(encoding="flac", sample_rate=16000, bits=24, max_duration=1.0, check=True),
            fl.AudioCompressedField(encoding="opus", channels=1, sample_rate=16000),
        ]

    def values(self, field):
        return [wav(tone(800)), (tone(300), 16000), wav(tone(1000), subtype="PCM_U8")]

    def equal(self, given, got):
        samples = soundfile.read(io.BytesIO(given), dtype="float32")[0] if isinstance(given, bytes) else given[0][:, 0]
        if got.codec == "opus":
            return got.frames == len(samples) and got.sample_rate == 16000 and got.channels == 1
        if got.codec == "wav" and bytes(got.data) != given:
            return False
        return bool(np.abs(got.decode() - samples).max() <= 2**-16)

    def bad_values(self, field):
        bad = [
            b"",
            b"nothing",
            wav(np.zeros((0, 1))),
            np.array(["a"]),
            (np.full(5, np.nan), 16000),
            (tone(5), -1),
            "no such file",
            (np.zeros((2, 900)), 16000),
            io.StringIO("text"),
        ]
        bad += [np.zeros(50)] if field.sample_rate is None else []
        bad += [wav(tone(30, 2))] if field.channels == 1 else []
        bad += [tone(16001), wav(tone(16001))] if field.max_duration else []
        return bad


@pytest.mark.parametrize("name", FILES)
def test_files_are_stored_as_they_are(name, tmp_path, sounds):
    data = sounds[name].read_bytes()
    got = stored(tmp_path, fl.AudioCompressedField(check=True), sounds[name])
    facts = soundfile.info(str(sounds[name]))
    assert bytes(got.data) == data
    assert (got.frames, got.sample_rate, got.channels) == (facts.frames, facts.samplerate, facts.channels)
    assert got.codec == {"ogg": "vorbis"}.get(name.split(".")[-1], name.split(".")[-1])
    whole = soundfile.read(sounds[name], dtype="float32")[0]
    np.testing.assert_allclose(got.decode(), whole, rtol=0, atol=0 if got.codec != "mp3" else 2e-7)
    assert got.duration == pytest.approx(facts.duration)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_segment_is_that_part_of_the_whole(name, data, sounds):
    """To the last bit for WAV and FLAC; Vorbis and Opus come out so too, and MP3 but for the last bits of a float."""
    file = sounds[name].read_bytes()
    facts = sound_files.facts_of(file)
    sound = fl.EncodedAudio(file, facts.codec, facts.sample_rate, facts.channels, facts.frames)
    start = data.draw(st.integers(0, facts.frames))
    stop = data.draw(st.integers(start, min(facts.frames, start + 9000)))
    whole, part = sound.decode(), sound.decode(start, stop)
    if facts.codec in EXACT:
        assert np.array_equal(part, whole[start:stop])
    else:
        bound = {"vorbis": 1e-6, "opus": 1e-4, "mp3": 1e-6}[facts.codec]
        np.testing.assert_allclose(part, whole[start:stop], rtol=0, atol=bound)


def test_segments_near_the_end_of_a_vorbis_file_are_where_they_should_be(sounds):
    """What libsndfile itself gives is off by a part of a block in the last page of such a file."""
    for name in ("music.ogg", "music.sox.ogg", "speech.ogg"):
        file = sounds[name].read_bytes()
        facts = sound_files.facts_of(file)
        whole = sound_files.decode(file, facts, 0, facts.frames)
        for back in (1, 100, 700, 3000, 12000):
            part = sound_files.decode(file, facts, facts.frames - back, facts.frames)
            np.testing.assert_allclose(part, whole[-back:], rtol=0, atol=1e-6)


def test_a_segment_of_a_long_file_is_decoded_without_the_rest():
    """All that lies far from it may be damaged."""
    rng = np.random.default_rng(0)
    file = io.BytesIO()
    soundfile.write(file, rng.normal(size=16000 * 20) * 0.1, 16000, format="FLAC")
    data = bytearray(file.getvalue())
    facts = sound_files.facts_of(data)
    wanted = sound_files.decode(data, facts, 160000, 161000)
    data[len(data) * 3 // 4 :] = bytes(len(data) - len(data) * 3 // 4)
    assert np.array_equal(sound_files.decode(data, facts, 160000, 161000), wanted)


def test_negative_places_count_from_the_end_and_arrays_decode_all(sounds):
    file = sounds["speech.flac"].read_bytes()
    facts = sound_files.facts_of(file)
    sound = fl.EncodedAudio(file, facts.codec, facts.sample_rate, facts.channels, facts.frames)
    whole = sound.decode()
    assert whole.shape == (facts.frames,)
    assert np.array_equal(sound.decode(-100), whole[-100:])
    assert np.array_equal(sound.decode(50, -50), whole[50:-50])
    assert len(sound.decode(20, 10)) == 0
    assert np.array_equal(np.asarray(sound), whole)
    assert np.asarray(sound, np.float64).dtype == np.float64
    assert pickle.loads(pickle.dumps(sound)) == sound
    assert repr(sound).startswith("EncodedAudio(flac, 22050 Hz, 1 channel, ")


def test_flac_keeps_samples_of_16_and_24_bits(tmp_path):
    whole = np.random.default_rng(1).integers(-(2**15), 2**15, (500, 2)).astype(np.int16)
    got = stored(tmp_path, fl.AudioCompressedField(encoding="flac"), (whole, 44100))
    assert (got.codec, got.sample_rate, got.channels) == ("flac", 44100, 2)
    assert np.array_equal(got.decode(), whole / np.float32(2**15))
    fine = np.random.default_rng(1).integers(-(2**23), 2**23, 500).astype(np.int32) << 8
    exact = fine / np.float32(2**31)
    assert np.array_equal(stored(tmp_path, fl.AudioCompressedField(bits=24), (fine, 8000)).decode(), exact)
    assert not np.array_equal(stored(tmp_path, fl.AudioCompressedField(bits=16), (fine, 8000)).decode(), exact)


def test_everything_becomes_the_encoding_unless_it_is(tmp_path, sounds):
    flac = sounds["speech.flac"].read_bytes()
    assert bytes(stored(tmp_path, fl.AudioCompressedField(encoding="flac"), flac).data) == flac
    made = stored(tmp_path, fl.AudioCompressedField(encoding="flac"), sounds["speech.wav"])
    assert made.codec == "flac"
    assert np.array_equal(made.decode(), soundfile.read(sounds["speech.wav"], dtype="float32")[0])
    small = stored(tmp_path, fl.AudioCompressedField(encoding="opus", sample_rate=16000), sounds["speech.wav"])
    assert (small.codec, small.sample_rate) == ("opus", 16000)
    wanted = soxr.resample(soundfile.read(sounds["speech.wav"], dtype="float32")[0], 22050, 16000)
    assert np.corrcoef(small.decode(), wanted)[0, 1] > 0.95
    again = stored(tmp_path, fl.AudioCompressedField(), small)
    assert bytes(again.data) == bytes(small.data)


def test_what_does_not_fit_is_told(tmp_path, sounds):
    for field, value, said in (
        (
            fl.AudioCompressedField(sample_rate=16000),
            sounds["speech.wav"],
            "the file has 22050 Hz, and sample_rate is 16000",
        ),
        (fl.AudioCompressedField(encoding="opus"), sounds["speech.wav"], "Opus has no 22050 Hz"),
        (fl.AudioCompressedField(), sounds["music.aiff"], "none of WAV, FLAC, Ogg Vorbis, Ogg Opus and MP3"),
        (fl.AudioCompressedField(channels=1), sounds["music.flac"], "expected 1 channels, got 2"),
        (
            fl.AudioCompressedField(max_duration=1),
            sounds["music.flac"],
            "the sound has 2.000 seconds, and max_duration is 1",
        ),
        (
            fl.AudioCompressedField(encoding="flac"),
            (np.zeros((50, 12)), 8000),
            "flac can't hold 12 channels at 8000 Hz",
        ),
        (fl.AudioCompressedField(), np.zeros(50), "an array without its rate"),
    ):
        with pytest.raises(SampleError, match=f"sample 0, field 'sound': .*{said}"):
            stored(tmp_path, field, value)


def test_check_refuses_a_file_that_ends_early(tmp_path, sounds):
    cut = sounds["music.flac"].read_bytes()[:-3000]
    with pytest.raises(SampleError, match="sample 0, field 'sound': the flac file ends after "):
        stored(tmp_path, fl.AudioCompressedField(check=True), cut)
    got = stored(tmp_path, fl.AudioCompressedField(), cut)
    with pytest.raises(DecodeError, match="ends after"):
        got.decode()
    assert len(got.decode(0, 1000)) == 1000
    report = fl.verify(tmp_path / "x.fld", decode=True)
    assert not report.ok
    assert "ends after" in str(report.problems[0])


def test_a_file_that_is_not_what_its_row_says_is_refused(sounds):
    data = sounds["speech.flac"].read_bytes()
    frames, rate, channels, _ = kernels.sound_info(data)
    for other in ((frames + 1, rate, channels), (frames, rate + 1, channels), (frames, rate, channels + 1)):
        with pytest.raises(DecodeError, match="not those stored here"):
            sound_files.decode(data, sound_files.SoundFacts(*other, "flac"), 0, 10)
    decoder = fl.AudioCompressedField().get_decoder_class()(fl.AudioCompressedField())
    row = np.array([(5, 16000, 1, 9, 0)], fl.AudioCompressedField().metadata_type)[0]
    with pytest.raises(FormatError, match="codec 9"):
        decoder(row, lambda: memoryview(b""))


def test_a_file_that_claims_much_takes_no_memory(sounds):
    """A FLAC header has 36 bits for the number of samples."""
    data = bytearray(sounds["speech.flac"].read_bytes())
    data[21] |= 0x0F
    data[22:26] = b"\xff" * 4
    facts = sound_files.facts_of(data)
    assert facts.frames == 2**36 - 1
    with pytest.raises(DecodeError):
        sound_files.decode(data, facts, 0, facts.frames)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_give_an_error_or_sound(data, sounds):
    name = data.draw(st.sampled_from(["speech.flac", "speech.wav", "speech.ogg", "speech.opus"]))
    file = bytearray(sounds[name].read_bytes()[:20000])
    for _ in range(data.draw(st.integers(1, 8))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):  # anything else is a bug
        facts = sound_files.facts_of(file)
        stop = min(facts.frames, 50000)
        assert sound_files.decode(file, facts, 0, stop).shape == (stop, facts.channels)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"encoding": "mp3"}, "encoding='mp3'"),
        ({"sample_rate": 0}, "sample_rate=0"),
        ({"channels": 0}, "channels=0"),
        ({"max_duration": 0}, "max_duration=0"),
        ({"bits": 8}, "bits=8"),
        ({"bits": True}, "bits=True"),
    ],
)
def test_wrong_options_are_told(options, said):
    with pytest.raises(ValueError, match=said):
        fl.AudioCompressedField(**options)


def test_without_the_extra_files_are_read_and_only_decoding_names_it(tmp_path, sounds, monkeypatch):
    reader = write(tmp_path / "x.fld", fl.AudioCompressedField(), [sounds["speech.flac"]])
    monkeypatch.setitem(sys.modules, "soundfile", None)
    got = reader.read_sample(0)["sound"]
    assert got.codec == "flac"
    with pytest.raises(
        MissingLibraryError, match=r'soundfile is not installed.*pip install "fastloader\[audio\]" brings it'
    ):
        got.decode()
    with pytest.raises(SampleError, match=r'pip install "fastloader\[audio\]"'):
        write(tmp_path / "y.fld", fl.AudioCompressedField(), [sounds["speech.flac"]])


def test_batches_are_lists_of_files(tmp_path, sounds):
    reader = write(tmp_path / "x.fld", fl.AudioCompressedField(), [sounds["speech.flac"], None, sounds["music.mp3"]])
    (batch,) = fl.DataLoader(reader, 3, shuffle=False)
    assert [None if one is None else one.codec for one in batch["sound"]] == ["flac", None, "mp3"]
    assert len(batch["sound"][0].decode(100, 300)) == 200
