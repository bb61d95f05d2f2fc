"""Pipelines of sounds: what comes out is what the slow twin makes of the same draws, the same every time."""

import io
import pickle
import sys

import librosa
import numpy as np
import pytest
import slow_sound
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

import fastloader as fl
from fastloader import kernels, ops
from fastloader.errors import DecodeError, FormatError, MissingLibraryError, ShapeError
from fastloader.pipeline import PipelineError, compile_sound

RATE = 8000


def sound_of(frames, channels=1, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(frames, channels)) * 0.2).clip(-1, 1).astype(np.float32)


def flac(samples, rate=RATE):
    file = io.BytesIO()
    soundfile.write(file, np.rint(samples * 2**15).clip(-(2**15), 2**15 - 1).astype(np.int16), rate, format="FLAC")
    return file.getvalue()


def run(field, pipeline, value, place=(7, 3, 11)):
    """The native program alone, on one value."""
    compiled = compile_sound("x", field, pipeline, place[0])
    encoded = field.encode(field.prepare(value))
    row = np.array([encoded.metadata], field.metadata_type)
    out = np.zeros(compiled.row_bytes, np.uint8)
    compiled.program.run(bytes(memoryview(encoded.payload).cast("B")), row.view(np.uint8), place[1], place[2], out)
    return compiled.values(out, 1)[0]


def fields_of(channels):
    """Fields that hold a sound of these channels, and what the sound is when it comes back."""
    exact = [
        fl.AudioWaveformField(RATE, mono=False, max_duration=None),
        fl.AudioWaveformField(RATE, mono=False, channels=channels, dtype="int16"),
        fl.AudioCompressedField("flac", RATE, channels),
        fl.AudioCompressedField("flac", RATE),
    ]
    return [fl.AudioWaveformField(RATE), *exact] if channels == 1 else exact


lengths = st.one_of(
    st.builds(dict, seconds=st.floats(0.001, 0.05)), st.builds(dict, frames=st.integers(1, 400))
)  # fmt: skip
likely = st.sampled_from([0.0, 0.5, 1.0])
changes = st.one_of(
    st.builds(lambda n: ops.RandomSegment(**n, pad=True), lengths),
    st.builds(
        lambda n, a, v: ops.PadOrTrim(**n, align=a, value=v),
        lengths,
        st.sampled_from(["start", "center", "end"]),
        st.sampled_from([0.0, 0.5]),
    ),
    st.builds(ops.Gain, st.one_of(st.floats(0, 12), st.tuples(st.floats(-6, 0), st.floats(0, 6))), likely),
    st.builds(ops.AddNoise, st.one_of(st.floats(0, 30), st.tuples(st.floats(0, 10), st.floats(10, 20))), likely),
    st.builds(lambda n, w, p: ops.TimeShift(**n, wrap=w, p=p), lengths, st.booleans(), likely),
    st.just(ops.Mono()),
    st.sampled_from([ops.Resample(6000), ops.Resample(11025), ops.Resample(RATE)]),
)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), frames=st.integers(1, 600), channels=st.integers(1, 3), pipeline=st.lists(changes, max_size=4))
def test_any_pipeline_gives_what_the_slow_twin_gives(data, frames, channels, pipeline):
    frames = max(frames, channels)
    field = data.draw(st.sampled_from(fields_of(channels)))
    place = tuple(data.draw(st.integers(0, 2**40)) for _ in range(3))
    pipeline = [*pipeline, ops.Mono(), ops.PadOrTrim(frames=250)]
    whole = np.rint(sound_of(frames, channels, frames) * 2**15).astype(np.int16)
    got = run(field, pipeline, (whole, RATE), place)
    wanted = slow_sound.run(pipeline, whole / np.float32(2**15), RATE, place)
    assert got.shape == (250,)
    np.testing.assert_allclose(got, wanted[:, 0], rtol=1e-4, atol=2e-6)


EACH = [
    ops.RandomSegment(0.02), ops.RandomSegment(frames=200), ops.RandomSegment(frames=400, pad=True),
    ops.PadOrTrim(0.02), ops.PadOrTrim(frames=100, align="center"), ops.PadOrTrim(frames=100, align="end"),
    ops.PadOrTrim(frames=401, align="center", value=0.25), ops.PadOrTrim(frames=401, align="end"),
    ops.Resample(6000), ops.Resample(11025), ops.Mono(), ops.Gain(6), ops.Gain((3, 9)), ops.Gain(6, p=0.5),
    ops.AddNoise(10), ops.AddNoise((0, 30)), ops.AddNoise(10, p=0.5), ops.TimeShift(0.02), ops.TimeShift(frames=150),
    ops.TimeShift(frames=150, wrap=True), ops.TimeShift(frames=150, p=0.5),
]  # fmt: skip


@pytest.mark.parametrize("op", EACH, ids=str)
def test_every_option_does_what_the_slow_twin_does(op):
    given_ = np.rint(sound_of(300, 2) * 2**15).astype(np.int16)
    pipeline = [op, ops.Mono(), ops.PadOrTrim(frames=450)]
    for sample in range(8):
        got = run(fl.AudioWaveformField(RATE, mono=False), pipeline, given_, (7, 0, sample))
        wanted = slow_sound.run(pipeline, given_ / np.float32(2**15), RATE, (7, 0, sample))[:, 0]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-6)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), frames=st.integers(1, 60), dtype=st.sampled_from(["float32", "float16"]))
def test_masks_and_parts_of_stored_spectrograms_are_those_of_the_slow_twin(data, frames, dtype):
    field = fl.SpectrogramField(n_mels=12, dtype=dtype, db=False)
    values = sound_of(frames, 12).astype(dtype)
    augment = data.draw(
        st.builds(
            ops.SpecAugment,
            st.integers(0, 3),
            st.integers(0, 30),
            st.integers(0, 3),
            st.integers(0, 15),
            st.floats(0, 1),
            st.sampled_from([0.0, -3.5, "mean"]),
        )
    )
    pipeline = [ops.RandomSegment(frames=20, pad=True), augment, ops.PadOrTrim(frames=25, value=1.0)]
    got = run(field, pipeline, values)
    wanted = slow_sound.run(pipeline, values.astype(np.float32), 0, (7, 3, 11)).astype(dtype)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-3 if dtype == "float16" else 1e-6)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), frames=st.integers(0, 60), books=st.integers(1, 5), size=st.sampled_from([2, 1024, 70000]))
def test_tokens_are_cut_and_padded_as_by_the_slow_twin(data, frames, books, size):
    field = fl.AudioTokensField(books, size)
    tokens = np.random.default_rng(frames).integers(0, size, (books, frames))
    pad = data.draw(st.sampled_from([0, 1]))
    align = data.draw(st.sampled_from(["start", "center", "end"]))
    pipeline = [
        ops.PadOrTrim(frames=30, align=align, value=pad),
        ops.RandomSegment(frames=data.draw(st.integers(1, 30))),
    ]
    pipeline += [ops.PadOrTrim(frames=40, value=pad, align="end")]
    got = run(field, pipeline, tokens)
    assert got.dtype == field.dtype
    assert np.array_equal(got, slow_sound.run(pipeline, tokens.T, 0, (7, 3, 11)).T)


def test_padding_with_a_number_outside_the_codebook_fits_the_type():
    got = run(fl.AudioTokensField(1, 1024), [ops.PadOrTrim(frames=3, value=1024)], [[5]])
    assert got.tolist() == [[5, 1024, 1024]]


@pytest.mark.parametrize(
    "options", [{}, {"bands_first": True}, {"dtype": "float16"}, {"n_mels": 40, "db": False}], ids=str
)
def test_a_spectrogram_in_a_pipeline_is_librosas(options):
    given_ = sound_of(4000)
    op = ops.MelSpectrogram(n_fft=512, hop_length=128, **options)
    got = run(fl.AudioWaveformField(RATE), [ops.PadOrTrim(frames=3000), op], given_[:, 0])
    wanted = librosa.feature.melspectrogram(y=given_[:3000, 0], sr=RATE, n_fft=512, hop_length=128, n_mels=op.n_mels)
    wanted = librosa.power_to_db(wanted) if op.db else wanted
    assert got.dtype == op.dtype
    half = op.dtype == "float16"
    np.testing.assert_allclose(
        got if op.bands_first else got.T, wanted, rtol=1e-3 if half else 1e-4, atol=3e-2 if half else 1e-4
    )


def test_noise_lies_as_far_below_the_sound_as_was_asked_for():
    given_ = sound_of(20000)[:, 0]
    for snr in (0, 20):
        noise = run(fl.AudioWaveformField(RATE), [ops.PadOrTrim(frames=20000), ops.AddNoise(snr)], given_) - given_
        found = 10 * np.log10(np.square(given_).mean() / np.square(noise).mean())
        assert found == pytest.approx(snr, abs=0.2)
        assert abs(noise.mean()) < 0.05 * noise.std()
        assert np.mean(np.abs(noise) < noise.std()) == pytest.approx(0.683, abs=0.01)
    silence = np.zeros(50, np.float32)
    assert not run(fl.AudioWaveformField(RATE), [ops.PadOrTrim(frames=50), ops.AddNoise(0)], silence).any()


@pytest.mark.parametrize(
    ("rate", "wanted"), [(44100, 16000), (16000, 44100), (48000, 16000), (16000, 8000), (22050, 24000)]
)
def test_resampling_gives_the_sound_at_other_places(rate, wanted):
    low = min(rate, wanted)

    def sound(time):
        return sum(np.sin(2 * np.pi * hertz * time + hertz) for hertz in (low * 0.011, low * 0.13, low * 0.37)) / 4

    def decibels(error):
        return 10 * np.log10(np.square(exact[400:-400]).mean() / np.square(error[400:-400]).mean())

    given_ = sound(np.arange(rate // 2) / rate).astype(np.float32)
    got = kernels.resample_sound(given_, 1, rate, wanted)
    assert len(got) == -(-len(given_) * wanted // rate)
    exact = sound(np.arange(len(got)) / wanted)
    assert decibels(got - exact) > 120
    assert decibels(got - soxr.resample(given_, rate, wanted)[: len(got)]) > 75  # soxr is off by a part of a sample
    both = kernels.resample_sound(np.stack([given_, -given_], axis=1), 2, rate, wanted).reshape(-1, 2)
    assert np.array_equal(both, np.stack([got, -got], axis=1))
    if wanted < rate:  # what the new rate can't hold is gone
        high = np.sin(2 * np.pi * 0.53 * wanted * np.arange(rate // 2) / rate).astype(np.float32)
        assert np.abs(kernels.resample_sound(high, 1, rate, wanted)[400:-400]).max() < 1e-4


def write(path, field, values, **options):
    with fl.DatasetWriter(path, {"sound": field, "i": fl.IntField()}, **options) as writer:
        writer.write_many({"sound": value, "i": i} for i, value in enumerate(values))
    return fl.DatasetReader(path)


PIPELINE = [
    ops.RandomSegment(0.05),
    ops.Gain(6),
    ops.AddNoise(),
    ops.MelSpectrogram(n_fft=128, hop_length=64, n_mels=10),
]


@pytest.fixture(params=["waveform", "int16", "lz4", "flac", "shards", "ndarray"])
def dataset(request, tmp_path):
    values = [sound_of(500 + 37 * i, seed=i)[:, 0] for i in range(20)]
    fields = {
        "int16": fl.AudioWaveformField(RATE, dtype="int16"), "flac": fl.AudioCompressedField("flac", RATE, 1),
        "ndarray": fl.NDArrayField("float32", (None,)),
    }  # fmt: skip
    options = {"lz4": {"compression": "lz4"}, "shards": {"shard_size": 9000}}.get(request.param, {})
    return write(tmp_path / "x.fld", fields.get(request.param, fl.AudioWaveformField(RATE)), values, **options), values


def test_the_loader_gives_what_the_slow_twin_gives_whatever_the_threads(dataset):
    reader, values = dataset
    pipeline = PIPELINE
    if isinstance(reader.fields["sound"], fl.NDArrayField):
        pipeline = [ops.RandomSegment(frames=400), *PIPELINE[1:3]]
    seen = {}
    for workers in (0, 1, 3):
        loader = fl.DataLoader(reader, 6, num_workers=workers, seed=5, pipelines={"sound": pipeline})
        for epoch in range(2):
            for batch in loader:
                for i, value in zip(batch["i"].tolist(), batch["sound"], strict=True):
                    seen.setdefault((epoch, i), []).append(value.copy())
    assert len(seen) == 2 * len(values)
    for (epoch, i), found in seen.items():
        assert all(np.array_equal(found[0], other) for other in found[1:])
        exact = values[i]
        if not np.array_equal(np.asarray(reader[i]["sound"]), exact):
            exact = (np.rint(exact * 2**15) / 2**15).astype(np.float32)
        wanted = slow_sound.run(pipeline, exact[:, None], RATE, (5, epoch, i))
        wanted = wanted[:, 0] if found[0].ndim == 1 else wanted
        np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-3 if found[0].ndim == 2 else 1e-6)
    assert not np.array_equal(seen[0, 3][0], seen[1, 3][0])


def test_a_pickled_loader_goes_on(dataset):
    reader, _ = dataset
    if isinstance(reader.fields["sound"], fl.NDArrayField):
        return
    loader = fl.DataLoader(reader, 5, pipelines={"sound": PIPELINE})
    first = next(iter(loader))["sound"]
    assert np.array_equal(
        next(iter(pickle.loads(pickle.dumps(fl.DataLoader(reader, 5, pipelines={"sound": PIPELINE})))))["sound"], first
    )


@pytest.mark.parametrize("field", [fl.AudioWaveformField(RATE), fl.AudioCompressedField("flac", RATE, 1)], ids=repr)
def test_missing_and_short_sounds_follow_on_error(field, tmp_path):
    values = [sound_of(900)[:, 0], None, sound_of(100)[:, 0], sound_of(800)[:, 0]]
    reader = write(tmp_path / "x.fld", field, values)
    pipelines = {"sound": [ops.RandomSegment(0.05)]}
    with pytest.raises(
        ShapeError, match=r"sample 2, field 'sound': has 100 frames, and a segment of 400 is wanted; .*pad=True"
    ):
        list(fl.DataLoader(reader, 4, shuffle=False, pipelines=pipelines))
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, pipelines=pipelines, on_error="skip")
    assert batch["i"].tolist() == [0, 1, 3, 3]
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, pipelines=pipelines, on_error="replace")
    assert np.ma.getmaskarray(batch["sound"]).any(axis=1).tolist() == [False, True, True, False]
    (batch,) = fl.DataLoader(reader, 4, shuffle=False, pipelines={"sound": [ops.RandomSegment(0.05, pad=True)]})
    assert np.array_equal(batch["sound"][2, :100], np.asarray(reader[2]["sound"]))
    assert not batch["sound"][2, 100:].any()


def test_nothing_but_missing_sounds(tmp_path):
    reader = write(tmp_path / "x.fld", fl.AudioWaveformField(RATE), [None, None])
    (batch,) = fl.DataLoader(reader, 2, pipelines={"sound": [ops.PadOrTrim(1.0)]})
    assert batch["sound"].shape == (2, RATE)
    assert np.ma.getmaskarray(batch["sound"]).all()


def test_a_short_sound_for_a_spectrogram_is_told(tmp_path):
    reader = write(tmp_path / "x.fld", fl.AudioCompressedField("flac", RATE, 1), [sound_of(30)[:, 0]])
    pipeline = [ops.MelSpectrogram(center=False), ops.PadOrTrim(frames=10)]
    with pytest.raises(ShapeError, match="has 30 samples, and a spectrogram with n_fft=1024 takes at least 1024"):
        list(fl.DataLoader(reader, 1, pipelines={"sound": pipeline}))


def test_files_of_any_rate_and_channels_become_alike(tmp_path, sounds):
    names = ["speech.wav", "music.flac", "music.opus", "speech.mp3", "music.ogg"]
    reader = write(tmp_path / "x.fld", fl.AudioCompressedField(), [sounds[name] for name in names])
    pipeline = [ops.RandomSegment(0.05), ops.Mono(), ops.Resample(RATE), ops.PadOrTrim(0.05)]
    (batch,) = fl.DataLoader(reader, 5, shuffle=False, seed=2, pipelines={"sound": pipeline})
    assert batch["sound"].shape == (5, int(0.05 * RATE))
    for i, name in enumerate(names):
        samples, rate = soundfile.read(sounds[name], dtype="float32", always_2d=True)
        wanted = slow_sound.run(pipeline, samples, rate, (2, 0, i))[:, 0]
        np.testing.assert_allclose(batch["sound"][i], wanted, rtol=0, atol=1e-4 if name.endswith("opus") else 1e-5)


def test_only_what_lies_around_a_segment_is_decoded(tmp_path):
    """The rest of the file may be damaged."""
    data = bytearray(flac(sound_of(RATE * 20)[:, 0]))
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    reader = write(tmp_path / "x.fld", fl.AudioCompressedField(sample_rate=RATE, channels=1), [bytes(data)] * 30)
    made = 0
    loader = fl.DataLoader(reader, 30, shuffle=False, on_error="replace", pipelines={"sound": [ops.RandomSegment(0.5)]})
    for batch in loader:
        made += int((~np.ma.getmaskarray(batch["sound"]).any(axis=1)).sum())
    assert 5 < made < 25
    bad = loader.stats()["bad"]
    assert all("be decoded from frame" in one["error"] or "ends after" in one["error"] for one in bad)


def test_a_damaged_file_names_sample_and_field(tmp_path):
    cut = flac(sound_of(RATE)[:, 0])[:-500]
    reader = write(
        tmp_path / "x.fld", fl.AudioCompressedField(sample_rate=RATE, channels=1), [flac(sound_of(RATE)[:, 0]), cut]
    )
    with pytest.raises(DecodeError, match=r"x.fld: sample 1, field 'sound': .*ends after \d+ of 8000 frames"):
        list(fl.DataLoader(reader, 2, shuffle=False, pipelines={"sound": [ops.PadOrTrim(1.0)]}))


@pytest.mark.parametrize(
    ("field", "pipeline", "said"),
    [
        (fl.AudioWaveformField(), [ops.Gain(3)], "--> the samples of a batch must have one length: add RandomSegment"),
        (fl.AudioWaveformField(mono=False), [ops.PadOrTrim(1.0)], "--> the number of channels differs .* add Mono"),
        (
            fl.AudioWaveformField(),
            [ops.RandomSegment(2.0), ops.RandomSegment(3.0)],
            "takes 48000 frames, and gets 32000",
        ),
        (fl.AudioWaveformField(), [ops.PadOrTrim(1.0), ops.SpecAugment()], "takes a spectrogram, and gets a sound"),
        (
            fl.AudioWaveformField(),
            [ops.PadOrTrim(1.0), ops.MelSpectrogram(), ops.Gain(1)],
            "takes a sound, and gets spectrogram",
        ),
        (
            fl.AudioWaveformField(),
            [ops.PadOrTrim(frames=9), ops.MelSpectrogram(center=False)],
            "takes longer sounds than 9",
        ),
        (fl.AudioWaveformField(), [ops.PadOrTrim(1.0), ops.MelSpectrogram(fmax=9000)], "half of the 16000 Hz"),
        (fl.AudioWaveformField(mono=False, channels=2), [ops.PadOrTrim(1.0), ops.MelSpectrogram()], "gets 2: put Mono"),
        (fl.AudioCompressedField(), [ops.Mono(), ops.MelSpectrogram()], "of one known rate: put Resample"),
        (fl.AudioCompressedField(), [ops.RandomSegment(1.0), ops.Mono()], "must have one length"),
        (
            fl.AudioTokensField(2, 8),
            [ops.RandomSegment(1.0)],
            "nothing is known of the rate of tokens: give it frames=",
        ),
        (fl.AudioTokensField(2, 8), [ops.Gain(1)], "takes a sound, and gets tokens"),
        (fl.AudioTokensField(2, 8), [ops.PadOrTrim(frames=5, value=256)], "value=256 for tokens of uint8"),
        (fl.AudioTokensField(2, 8), [ops.PadOrTrim(frames=5, value=1), ops.PadOrTrim(frames=9)], "give both one value"),
        (fl.AudioWaveformField(), [ops.Resample(15999), ops.PadOrTrim(1.0)], "no ratio of small numbers"),
        (fl.NDArrayField("float32", (None,)), [ops.Resample(8000)], "whose rate is known"),
        (fl.NDArrayField("float32", (None,)), [ops.TimeShift(0.1)], "give it frames="),
        (fl.NDArrayField("float64", (None,)), [ops.Mono()], "has no sounds"),
        (fl.IntField(), [ops.Mono()], "has no sounds"),
        (fl.AudioWaveformField(), [ops.PadOrTrim(1.0), ops.HorizontalFlip()], "is no operation on sounds"),
        (fl.AudioWaveformField(), [ops.PadOrTrim(1e-6)], "less than one sample at 16000 Hz"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_drawn_with_the_place_marked(field, pipeline, said):
    with pytest.raises(PipelineError, match=said) as caught:
        compile_sound("sound", field, pipeline, 0)
    assert "-->" in str(caught.value) or "has no sounds" in said


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: ops.RandomSegment(), ValueError, "RandomSegment: a length"),
        (lambda: ops.RandomSegment(1.0, frames=5), ValueError, "RandomSegment: a length"),
        (lambda: ops.RandomSegment(0), ValueError, "seconds=0"),
        (lambda: ops.RandomSegment("1"), TypeError, "seconds='1'"),
        (lambda: ops.RandomSegment(frames=0), ValueError, "frames=0"),
        (lambda: ops.PadOrTrim(frames=1.5), TypeError, "frames=1.5"),
        (lambda: ops.PadOrTrim(1.0, align="left"), ValueError, "align='left'"),
        (lambda: ops.PadOrTrim(1.0, value="a"), TypeError, "value='a'"),
        (lambda: ops.Resample(0), ValueError, "rate=0"),
        (lambda: ops.Resample(16000.5), TypeError, "rate=16000.5"),
        (lambda: ops.Gain((3, 1)), ValueError, "lesser number first"),
        (lambda: ops.Gain("loud"), TypeError, "db='loud'"),
        (lambda: ops.Gain(1, p=2), ValueError, "p=2"),
        (lambda: ops.AddNoise((30, 10)), ValueError, "lesser number first"),
        (lambda: ops.AddNoise(p=-1), ValueError, "p=-1"),
        (lambda: ops.TimeShift(), ValueError, "TimeShift: a length"),
        (lambda: ops.TimeShift(1, p=3), ValueError, "p=3"),
        (lambda: ops.MelSpectrogram(n_mels=0), ValueError, "n_mels=0"),
        (lambda: ops.MelSpectrogram(dtype="int8"), ValueError, "dtype"),
        (lambda: ops.SpecAugment(time_masks=-1), ValueError, "time_masks=-1"),
        (lambda: ops.SpecAugment(time_share=2), ValueError, "time_share=2"),
        (lambda: ops.SpecAugment(fill="max"), TypeError, "fill='max'"),
    ],
)
def test_wrong_arguments_are_told(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_explain_tells_every_step(tmp_path):
    reader = write(tmp_path / "x.fld", fl.AudioCompressedField("flac", RATE, 1), [sound_of(5000)[:, 0]])
    pipeline = [ops.RandomSegment(0.5), ops.Gain(6), ops.MelSpectrogram(n_mels=20), ops.SpecAugment()]
    lines = fl.DataLoader(reader, 1, pipelines={"sound": pipeline}).explain().splitlines()
    assert lines[0] == "AudioCompressedField 'sound': (?,) float32 sound at 8000 Hz"
    assert lines[1].endswith("(4000,) float32 sound at 8000 Hz")
    assert lines[3].endswith(": (16, 20) float32 spectrogram")
    assert (
        "what lies around the part that is wanted is decoded by libsndfile, then 4 steps; 1,280 bytes a sample"
        in lines[5]
    )


def test_without_the_extra_a_loader_over_files_names_it(tmp_path, monkeypatch):
    reader = write(
        tmp_path / "x.fld", fl.AudioCompressedField(sample_rate=RATE, channels=1), [flac(sound_of(5000)[:, 0])]
    )
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "fastloader\[audio\]"'):
        fl.DataLoader(reader, 1, pipelines={"sound": [ops.PadOrTrim(1.0)]})


def test_rows_that_contradict_the_payload_are_refused():
    program = compile_sound("x", fl.AudioWaveformField(RATE), [ops.PadOrTrim(frames=4)], 0).program
    out = np.zeros(program.row_bytes, np.uint8)
    for frames in (3, 2**63, 2**62):
        with pytest.raises(kernels.Failure, match="do not fit a payload of 16 bytes"):
            program.run(bytes(16), np.array([frames], np.uint64), 0, 0, out)
    shaped = compile_sound(
        "x", fl.AudioWaveformField(RATE, mono=False), [ops.Mono(), ops.PadOrTrim(frames=4)], 0
    ).program
    for row in ([3, 2, 2, 1], [2, 4, 0], [2, 4, 70000], [2, 2**61, 4]):
        with pytest.raises(kernels.Failure, match=r"metadata row is no sound's|do not fit"):
            shaped.run(bytes(16), np.array([*row, *[0] * (9 - len(row))], np.uint64), 0, 0, out)
    tokens = compile_sound("x", fl.AudioTokensField(2, 8), [ops.PadOrTrim(frames=4)], 0).program
    with pytest.raises(kernels.Failure, match="no payload has 4611686018427387904 frames"):
        tokens.run(bytes(16), np.array([2**62], np.uint64), 0, 0, np.zeros(8, np.uint8))


def test_a_file_that_is_not_what_its_row_says_is_refused(tmp_path):
    field = fl.AudioCompressedField(sample_rate=RATE, channels=1)
    program = compile_sound("x", field, [ops.PadOrTrim(frames=4)], 0).program
    data = flac(sound_of(50)[:, 0])
    for row in ((51, RATE, 1, 1, 0), (50, RATE + 1, 1, 1, 0), (50, RATE, 2, 1, 0), (50, RATE, 0, 1, 0)):
        with pytest.raises(kernels.Failure, match=r"not those stored here|does not fit the field's options"):
            program.run(data, np.array([row], field.metadata_type).view(np.uint8), 0, 0, np.zeros(16, np.uint8))
    assert issubclass(DecodeError, FormatError)
