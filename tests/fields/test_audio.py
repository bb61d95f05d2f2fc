"""Sound as numbers: what it takes, what comes back, and how batches of it are laid out."""

import io
import math

import librosa
import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader.errors import MissingLibraryError, SampleError
from fastloader.testing import FieldContract

RATE = 16000


def tone(frames, hertz=440.0, rate=RATE, channels=None):
    """A quiet tone; of several channels each is a little higher."""
    time = np.arange(frames) / rate
    if channels is None:
        return (0.5 * np.sin(2 * np.pi * hertz * time)).astype(np.float32)
    return np.stack([tone(frames, hertz * (1 + c / 10), rate) for c in range(channels)], axis=1)


def write(path, field, values, **options):
    with fl.DatasetWriter(path, {"sound": field}, **options) as writer:
        writer.write_many([value] for value in values)
    return fl.DatasetReader(path)


def stored(tmp_path, field, value):
    return write(tmp_path / "x.fld", field, [value]).read_sample(0)["sound"]


class TestWaveformContract(FieldContract):
    def fields(self):
        return [
            fl.AudioWaveformField(),
            fl.AudioWaveformField(dtype="int16", sample_rate=8000),
            fl.AudioWaveformField(mono=False, max_duration=None),
            fl.AudioWaveformField(mono=False, channels=2, layout="first", truncate=True, max_duration=0.01),
        ]

    def values(self, field):
        if field.mono:
            return [tone(100), tone(257), tone(1)]
        if field.layout == "first":
            return [np.ascontiguousarray(tone(frames, channels=2).T) for frames in (160, 90, 40)]
        return [tone(100, channels=1), tone(64, channels=3), tone(300, channels=2)]

    def equal(self, given, got):
        assert got.dtype == np.dtype("int16" if got.dtype == np.int16 else "float32")
        if got.dtype == np.int16:
            return np.array_equal(got, np.rint(given * 32768).astype(np.int16))
        return np.array_equal(given.T if given.ndim == 2 and given.shape[0] == 2 else given, got)

    def bad_values(self, field):
        bad = [
            np.zeros(0, np.float32),
            np.zeros((2, 2, 2), np.float32),
            np.full(9, np.nan),
            np.array([0.0, np.inf]),
            np.arange(5),
            "no such file.wav",
            b"",
            b"RIFF and nothing else",
            b"\x00" * 300,
            (tone(5), 0),
            (tone(5), "fast"),
            (tone(5), RATE, 1),
            np.array(["a"]),
            1.0,
        ]
        if field.dtype == "int16":
            bad.append(np.array([0.0, 1.5]))
        if field.max_duration == 30:
            bad.append(np.zeros(30 * RATE + 1, np.float32))
        if field.layout == "last" and not field.mono:
            bad.append(np.zeros((2, RATE), np.float32))
        if field.channels == 2:
            bad += [tone(20), tone(20, channels=3).T]
        return bad


def test_integers_are_parts_of_their_range(tmp_path):
    field = fl.AudioWaveformField()
    whole = np.array([-32768, -1, 0, 1, 32767], np.int16)
    assert np.array_equal(stored(tmp_path, field, whole), whole / np.float32(32768))
    assert np.array_equal(stored(tmp_path, field, whole.astype(np.int32) << 16), whole / np.float32(32768))
    assert np.array_equal(stored(tmp_path, field, np.array([0, 128, 255], np.uint8)), np.float32([-1, 0, 127 / 128]))
    assert np.array_equal(stored(tmp_path, fl.AudioWaveformField(dtype="int16"), whole), whole)
    assert stored(tmp_path, field, [0.25, -0.5]).tolist() == [0.25, -0.5]


def test_int16_stays_at_full_scale_where_a_codec_made_it_louder(tmp_path, sounds):
    loud = io.BytesIO()
    soundfile.write(loud, np.float32([0.5, 1.5, -2.0]), RATE, format="WAV", subtype="FLOAT")
    assert stored(tmp_path, fl.AudioWaveformField(dtype="int16"), loud.getvalue()).tolist() == [16384, 32767, -32768]


@pytest.mark.parametrize("name", ["speech.wav", "speech.flac", "music.ogg", "music.opus", "music.mp3", "music24.wav"])
def test_files_come_as_soundfile_reads_them(name, tmp_path, sounds):
    samples, rate = soundfile.read(sounds[name], dtype="float32", always_2d=True)
    field = fl.AudioWaveformField(sample_rate=rate, mono=False)
    values = [sounds[name], str(sounds[name]), sounds[name].read_bytes(), bytearray(sounds[name].read_bytes())]
    with sounds[name].open("rb") as file:
        reader = write(tmp_path / "x.fld", field, [*values, file])
    for sample in reader:
        np.testing.assert_allclose(sample["sound"], samples, rtol=0, atol=2e-7 if "mp3" in name else 0)


def test_other_rates_are_resampled_by_soxr(tmp_path, sounds):
    samples, rate = soundfile.read(sounds["music.wav"], dtype="float32")
    for value in (sounds["music.wav"], (samples, rate)):
        got = stored(tmp_path, fl.AudioWaveformField(sample_rate=RATE), value)
        assert np.array_equal(got, soxr.resample(samples.mean(axis=1), rate, RATE))
        both = stored(tmp_path, fl.AudioWaveformField(sample_rate=RATE, mono=False), value)
        assert np.array_equal(both, soxr.resample(samples, rate, RATE))


def test_channels_are_averaged(tmp_path):
    given = tone(50, channels=3)
    got = stored(tmp_path, fl.AudioWaveformField(), given)
    np.testing.assert_allclose(got, given.mean(axis=1), rtol=0, atol=1e-7)


def test_layout_says_where_channels_are(tmp_path):
    given = tone(50, channels=2)
    for layout, value in (("last", given), ("first", given.T)):
        assert np.array_equal(stored(tmp_path, fl.AudioWaveformField(mono=False, layout=layout), value), given)
    with pytest.raises(SampleError, match=r"the shape \(2, 50\) would be 50 channels .* say so by layout='first'"):
        stored(tmp_path, fl.AudioWaveformField(mono=False), given.T)
    with pytest.raises(SampleError, match="layout='last'"):
        stored(tmp_path, fl.AudioWaveformField(layout="first"), given)


def test_longer_sounds_are_cut_only_where_that_was_asked_for(tmp_path):
    given = tone(RATE + 1)
    with pytest.raises(
        SampleError, match=r"sample 0, field 'sound': the sound has 1.000 seconds, and max_duration is 1"
    ):
        stored(tmp_path, fl.AudioWaveformField(max_duration=1.0), given)
    cut = stored(tmp_path, fl.AudioWaveformField(max_duration=1.0, truncate=True), given)
    assert np.array_equal(cut, given[:RATE])
    assert len(stored(tmp_path, fl.AudioWaveformField(max_duration=None), np.zeros(31 * RATE, np.float32))) == 31 * RATE


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"sample_rate": 0}, ValueError, "sample_rate=0"), ({"sample_rate": "fast"}, TypeError, "sample_rate='fast'"),
        ({"sample_rate": 2**40}, ValueError, "sample_rate"), ({"sample_rate": True}, ValueError, "sample_rate=True"),
        ({"max_duration": -1}, ValueError, "max_duration=-1"), ({"max_duration": "1"}, TypeError, "max_duration='1'"),
        ({"max_duration": math.inf}, ValueError, "max_duration"), ({"dtype": "int8"}, ValueError, "dtype='int8'"),
        ({"layout": "middle"}, ValueError, "layout='middle'"), ({"channels": 2}, ValueError, "mono=True"),
        ({"channels": 0, "mono": False}, ValueError, "channels=0"), ({"channels": 1.5}, TypeError, "channels=1.5"),
        ({"truncate": True, "max_duration": None}, ValueError, "truncate=True"),
    ],
)  # fmt: skip
def test_wrong_options_are_told(options, error, said):
    with pytest.raises(error, match=said):
        fl.AudioWaveformField(**options)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=8), mono=st.booleans())
def test_batches_are_padded_and_joined_by_the_engine(lengths, mono, tmp_path_factory):
    channels = None if mono else 2
    values = [
        tone(n, 300 + 10 * i, channels=channels) if mono or n > 1 else tone(2, channels=2)
        for i, n in enumerate(lengths)
    ]
    field = fl.AudioWaveformField(mono=mono)
    reader = write(tmp_path_factory.mktemp("pad") / "x.fld", field, values)
    (padded,) = fl.DataLoader(reader, len(values), shuffle=False, pad="longest")
    (joined,) = fl.DataLoader(reader, len(values), shuffle=False, pad="ragged")
    assert padded["sound_lengths"].tolist() == list(map(len, values))
    for i, value in enumerate(values):
        assert np.array_equal(padded["sound"][i, : len(value)], value)
        assert not padded["sound"][i, len(value) :].any()
        assert np.array_equal(joined["sound"][slice(*joined["sound_offsets"][i : i + 2])], value)


def test_a_single_sound_is_a_view_of_the_file(tmp_path):
    assert not stored(tmp_path, fl.AudioWaveformField(), tone(5000)).flags.writeable


def test_arrays_need_no_extra_and_files_name_it(tmp_path, sounds, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    monkeypatch.setitem(__import__("sys").modules, "soxr", None)
    field = fl.AudioWaveformField()
    assert len(stored(tmp_path, field, tone(10))) == 10
    for value, package in ((sounds["speech.wav"], "soundfile"), ((tone(10), 8000), "soxr")):
        with pytest.raises(
            SampleError, match=rf'{package} is not installed.*pip install "fastloader\[audio\]"'
        ) as caught:
            stored(tmp_path, field, value)
        assert isinstance(caught.value.__cause__, MissingLibraryError)
        assert isinstance(caught.value.__cause__, ImportError)


# Spectrograms


def librosa_mel(sound, field):
    made = librosa.feature.melspectrogram(
        y=sound, sr=field.sample_rate, n_mels=field.n_mels, n_fft=field.n_fft, hop_length=field.hop_length,
        win_length=field.win_length, fmin=field.fmin, fmax=field.fmax, power=field.power, center=field.center,
        pad_mode=field.pad_mode, norm=field.norm, htk=field.htk,
    )  # fmt: skip
    if field.db:
        made = librosa.power_to_db(
            made, ref=np.max if field.ref == "max" else field.ref, amin=field.amin, top_db=field.top_db
        )
    return made.T


SPECTROGRAMS = [
    {},
    {"n_mels": 128, "n_fft": 2048, "hop_length": 512},
    {"n_fft": 400, "hop_length": 160},
    {"n_fft": 1021},
    {"n_fft": 626},
    {"win_length": 600},
    {"fmin": 50.0, "fmax": 7600.0},
    {"power": 1.0},
    {"center": False},
    {"pad_mode": "reflect"},
    {"pad_mode": "edge"},
    {"norm": None},
    {"htk": True},
    {"db": False},
    {"ref": "max"},
    {"ref": 0.5},
    {"amin": 1e-5},
    {"top_db": None},
    {"top_db": 20.0},
]


@pytest.mark.parametrize("options", SPECTROGRAMS, ids=str)
def test_a_spectrogram_is_librosas(options, tmp_path, sounds):
    field = fl.SpectrogramField(sample_rate=22050, **options)
    sound = soundfile.read(sounds["speech.wav"], dtype="float32")[0][5000:30000]  # neither begins nor ends in silence
    got = stored(tmp_path, field, sound)
    wanted = librosa_mel(sound, field)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 if field.db else 1e-6)
    if options:
        plain = fl.SpectrogramField(sample_rate=22050).spectrogram(sound, 22050)
        assert plain.shape != got.shape or not np.allclose(plain, got, rtol=1e-3, atol=1e-3)


class TestSpectrogramContract(FieldContract):
    def fields(self):
        return [
            fl.SpectrogramField(n_mels=8, n_fft=256, hop_length=64),
            fl.SpectrogramField(
                n_mels=4, n_fft=64, hop_length=32, dtype="float16", ref="max", top_db=None, max_frames=6, truncate=True,
                win_length=32, fmin=10.0, fmax=4000.0, power=1, center=False, pad_mode="reflect", norm=None, htk=True,
                amin=1e-4, sample_rate=8000,
            ),
            fl.SpectrogramField(n_mels=8, n_fft=256, hop_length=64, db=False, max_frames=None),
        ]  # fmt: skip

    def values(self, field):
        rng = np.random.default_rng(5)
        return [rng.random((frames, field.n_mels)).astype(np.float32) for frames in (3, 5, 1)] + [tone(700)]

    def equal(self, given, got):
        if given.ndim == 1:
            return got.ndim == 2 and len(got) > 3
        return np.array_equal(given[: len(got)].astype(got.dtype), got)

    def bad_values(self, field):
        bad = [
            np.zeros((3, field.n_mels), np.int16),
            np.zeros((field.n_mels, 3), np.float32),
            np.zeros((0, field.n_mels)),
            np.full((2, field.n_mels), np.nan),
            np.zeros((2, 2, 2)),
            np.zeros(0),
            b"nothing",
            "no such file",
            np.full(99, np.inf),
        ]
        if field.max_frames == 1000:
            bad.append(np.zeros((1001, field.n_mels), np.float32))
        if not field.center:
            bad.append(tone(20))
        if field.dtype == "float16":
            bad.append(np.full((2, field.n_mels), 1e6, np.float32))
        return bad


def test_ready_spectrograms_in_librosas_order_are_told_apart(tmp_path):
    with pytest.raises(
        SampleError, match=r"expected a spectrogram \(frames, 80\), got \(80, 5\); librosa's has bands first"
    ):
        stored(tmp_path, fl.SpectrogramField(), np.zeros((80, 5), np.float32))


def test_max_frames_cuts_only_where_that_was_asked_for(tmp_path):
    with pytest.raises(SampleError, match="the spectrogram has 5 frames, and max_frames is 4"):
        stored(tmp_path, fl.SpectrogramField(max_frames=4), np.zeros((5, 80), np.float32))
    assert stored(tmp_path, fl.SpectrogramField(max_frames=4, truncate=True), np.zeros((5, 80), np.float32)).shape == (
        4,
        80,
    )


def test_spectrograms_of_files_are_resampled_and_made_mono(tmp_path, sounds):
    samples, rate = soundfile.read(sounds["music.wav"], dtype="float32")
    field = fl.SpectrogramField(sample_rate=RATE)
    wanted = librosa_mel(soxr.resample(samples.mean(axis=1), rate, RATE), field)
    np.testing.assert_allclose(stored(tmp_path, field, sounds["music.wav"]), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"n_mels": 0}, ValueError, "n_mels=0"),
        ({"n_fft": 1.5}, TypeError, "n_fft=1.5"),
        ({"hop_length": -1}, ValueError, "hop_length=-1"),
        ({"win_length": 2000}, ValueError, "win_length=2000"),
        ({"fmin": -1}, ValueError, "fmin=-1"),
        ({"fmax": 9000}, ValueError, "half of the 16000 Hz"),
        ({"fmin": 8000}, ValueError, "below half"),
        ({"fmin": 500, "fmax": 400}, ValueError, "the lesser first"),
        ({"power": 3}, ValueError, "power=3"),
        ({"pad_mode": "wrap"}, ValueError, "pad_mode='wrap'"),
        ({"norm": "l2"}, ValueError, "norm='l2'"),
        ({"ref": 0}, ValueError, "ref=0"),
        ({"ref": "min"}, TypeError, "ref='min'"),
        ({"amin": 0}, ValueError, "amin=0"),
        ({"top_db": -3}, ValueError, "top_db=-3"),
        ({"top_db": "a"}, TypeError, "top_db"),
        ({"max_frames": 0}, ValueError, "max_frames=0"),
        ({"truncate": True, "max_frames": None}, ValueError, "truncate"),
        ({"dtype": "float64"}, ValueError, "dtype='float64'"),
        ({"fmax": math.nan}, ValueError, "fmax"),
    ],
)
def test_wrong_options_of_a_spectrogram_are_told(options, error, said):
    with pytest.raises(error, match=said):
        fl.SpectrogramField(**options)
