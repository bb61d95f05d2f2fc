"""Sounds on the command line: how long they are and what they are, and the file itself where there is one."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

import fastloader as fl

from .conftest import Run, write

FIELDS: dict[str, fl.Field] = {
    "wave": fl.AudioWaveformField(8000),
    "both": fl.AudioWaveformField(8000, mono=False, dtype="int16"),
    "file": fl.AudioCompressedField(),
    "mel": fl.SpectrogramField(n_mels=4),
    "codes": fl.AudioTokensField(2, 1024),
}


@pytest.fixture
def dataset(tmp_path: Path, sounds: dict[str, Path]) -> Path:
    sample = {
        "wave": np.full(2000, 0.25, np.float32),
        "both": np.zeros((4000, 2), np.int16),
        "file": sounds["music.flac"],
        "mel": np.ones((3, 4), np.float32),
        "codes": [[1, 2, 3], [4, 5, 1023]],
    }
    return write(tmp_path / "sounds.fld", [sample, dict.fromkeys(FIELDS)], FIELDS)


def test_ls_and_cat_say_how_long_sounds_are(run: Run, dataset: Path, sounds: dict[str, Path]) -> None:
    listed = run("ls", dataset).stdout.splitlines()
    assert listed[0] == (
        "0  wave=0.250 s float32 8000 Hz mono  both=0.500 s int16 8000 Hz stereo  file=2.000 s flac 44100 Hz stereo  "
        "mel=float32[3,4]  codes=uint16[2,3]"
    )
    assert listed[1].count("missing") == 5
    shown = run("cat", dataset, 0).stdout.splitlines()
    assert shown[1].startswith("  wave   0.250 s float32 8000 Hz mono  min 0.25, max 0.25, [0.25,")
    assert shown[3].startswith("  file   2.000 s flac 44100 Hz stereo, ")
    assert shown[5] == "  codes  uint16[2,3]  min 1, max 1023, [1, 2, 3, 4, 5, 1023]"
    facts = json.loads(run("cat", dataset, 0, "--json").stdout)["fields"]["file"]
    assert facts["codec"] == "flac"
    assert facts["seconds"] == 2.0


def test_a_file_comes_out_as_it_is_or_decoded(run: Run, dataset: Path, sounds: dict[str, Path]) -> None:
    assert run("cat", dataset, 0, "file").stdout_bytes == sounds["music.flac"].read_bytes()
    decoded = np.load(io.BytesIO(run("cat", dataset, 0, "file", "--npy").stdout_bytes))
    assert np.array_equal(decoded, soundfile.read(sounds["music.flac"], dtype="float32")[0])


def test_info_shows_the_options(run: Run, dataset: Path) -> None:
    told = json.loads(run("info", dataset, "--json").stdout)["fields"]
    assert [field["type"] for field in told] == [
        "AUDIO_WAVEFORM", "AUDIO_WAVEFORM", "AUDIO_COMPRESSED", "AUDIO_SPECTROGRAM", "AUDIO_TOKENS",
    ]  # fmt: skip
    assert "sample_rate=8000" in told[0]["options"]
