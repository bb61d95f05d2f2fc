"""Makes the golden files of sound, motion, text and structure: ``python tests/vectors/make_modalities.py``.

As in ``make.py``, each vector is a function from a path to the samples it wrote there, here as they are read again. All
of it follows from formulas, and nothing in it was encoded by a library, but for ``dictionary.fld``: that one is read by
the tests and not compared, for Zstandard's versions differ.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fastloader as fl

HERE = Path(__file__).parent
PAGE = 4096

Samples = list[dict[str, Any]]


def write(path: Path, fields: dict[str, fl.Field], samples: Samples, **options: Any) -> None:
    """Write them, the same samples with a missing one behind."""
    samples.append(dict.fromkeys(fields))
    with fl.DatasetWriter(path, fields, PAGE, **options) as writer:
        writer.write_many(samples)


def wav(samples: np.ndarray, rate: int) -> bytes:
    """A WAV file of int16 (frames, channels)."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def sounds(path: Path) -> Samples:
    """Waveforms in all three layouts, a WAV file, a spectrogram, tokens of 10 bits and of one."""
    fields = {
        "mono": fl.AudioWaveformField(8000, max_duration=1.0),
        "stereo": fl.AudioWaveformField(8000, mono=False, channels=2, dtype="int16"),
        "any": fl.AudioWaveformField(44100, mono=False, dtype="int16", layout="first", max_duration=None),
        "file": fl.AudioCompressedField(),
        "mel": fl.SpectrogramField(n_mels=3, dtype="float16", db=True),
        "codes": fl.AudioTokensField(3, 600),
        "bits": fl.AudioTokensField(2, 2, max_frames=9),
    }
    samples: Samples = []
    for i in range(3):
        count = 5 + 4 * i
        ramp = np.arange(2 * count, dtype=np.int16).reshape(count, 2) * 1000 - 7000
        samples.append({
            "mono": (np.arange(count, dtype=np.float32) - 3) / 16,
            "stereo": ramp,
            "any": np.ascontiguousarray(ramp[:, : i % 2 + 1].T),
            "file": wav(ramp[:, : 1 + i % 2], 8000 + i),
            "mel": (np.arange(3 * (i + 1), dtype=np.float16).reshape(-1, 3) - 4) / 4,
            "codes": (np.arange(3 * (2 + i)).reshape(3, -1) * 61 % 600).astype(np.uint16),
            "bits": (np.arange(2 * i).reshape(2, i) % 3 % 2).astype(np.uint8),
        })  # fmt: skip
    write(path, fields, samples)
    for sample in samples[:-1]:  # channels come last in what is read
        sample["any"] = np.ascontiguousarray(sample["any"].T)
    return samples


def motion(path: Path) -> Samples:
    """Raw frames, frames that are PNG files, and flow of both types, alone and in pairs."""
    pictures = sorted((HERE / "images").glob("[02]-*.png"))
    fields = {
        "raw": fl.VideoFramesField("raw", fps=12.5),
        "gray": fl.VideoFramesField("raw"),
        "png": fl.VideoFramesField("png"),
        "half": fl.OpticalFlowField(),
        "steps": fl.OpticalFlowField("int16", step=0.25),
    }
    samples: Samples = []
    for i in range(2):
        flow = (np.arange(2 * 3 * 4 * 2).reshape(2, 3, 4, 2) % 13 - 6).astype(np.float32) / 4
        samples.append({
            "raw": (np.arange((i + 1) * 2 * 3 * 3).reshape(i + 1, 2, 3, 3) * 5 % 256).astype(np.uint8),
            "gray": (np.arange(3 * 2 * 2).reshape(3, 2, 2, 1) + i).astype(np.uint8),
            "png": [pictures[i].read_bytes()] * (2 - i),
            "half": flow if i else flow[0],
            "steps": flow[:1] if i else flow[1],
        })  # fmt: skip
    write(path, fields, samples, compression={"half": None, "steps": None})
    return samples


def texts(path: Path) -> Samples:
    """Text, tokens of one, two and four bytes, and packed sequences."""
    fields = {
        "text": fl.TextField(),
        "bytes": fl.TokenizedTextField(vocab_size=256),
        "words": fl.TokenizedTextField(vocab_size=50257),
        "many": fl.TokenizedTextField(vocab_size=100_000),
        "packed": fl.PackedTextField(8, 300, pad_id=299),
    }
    samples: Samples = []
    for i, text in enumerate(("", "Grüße, 世界", "one\ntwo\t𝄞")):
        samples.append({
            "text": text,
            "bytes": np.arange(i * 3, dtype=np.uint8) * 20,
            "words": np.arange(i + 1, dtype="<u2") * 9000,
            "many": np.arange(2, dtype="<u4") * (40_000 + i),
            "packed": {"tokens": np.arange(2 + i, dtype="<u2") * 97, "lengths": [1] * i + [2]},
        })  # fmt: skip
    write(path, fields, samples, compression={"text": None})
    return samples


def structures(path: Path) -> Samples:
    """Vectors of each type, boxes, keypoints, lists and dictionaries."""
    fields = {
        "single": fl.EmbeddingField(3),
        "half": fl.EmbeddingField(3, "float16"),
        "upper": fl.EmbeddingField(3, "bfloat16"),
        "byte": fl.EmbeddingField(4, "int8"),
        "boxes": fl.BoxesField("xywh"),
        "points": fl.KeypointsField(2, visibility=True, normalized=True),
        "captions": fl.ListField(fl.TextField()),
        "numbers": fl.ListField(fl.IntField()),
        "grids": fl.ListField(fl.NDArrayField("<i2", (2, 2))),
        "masks": fl.ListField(fl.MaskField()),
        "meta": fl.DictField({"caption": fl.TextField(), "score": fl.FloatField(), "codes": fl.AudioTokensField(2, 9)}),
        "plain": fl.DictField({"a": fl.IntField(), "b": fl.FloatField()}),
    }
    samples: Samples = []
    for i in range(3):
        samples.append({
            "single": np.array([i, -0.5, 3e10], np.float32),
            "half": np.array([i / 8, -1, 512], np.float16),
            "upper": np.array([i / 8, -1, 2.0**90], np.float32),
            "byte": np.array([127, -127, i, 64], np.float32) / 2,
            "boxes": np.arange(4 * i, dtype=np.float32).reshape(-1, 4) / 2,
            "points": np.array([[[0.25, 0.5, 2], [0.75, 0.125 * i, i]]] * (i % 2 + 1), np.float32),
            "captions": ["ein Hund", "", "a dog"][: i + 1],
            "numbers": np.arange(i, dtype=np.int64) - 2,
            "grids": np.arange(4 * i, dtype="<i2").reshape(i, 2, 2),
            "masks": [np.full((2, 3 + k), 7 * k, np.uint8) for k in range(i)],
            "meta": {"caption": "Grüße"[: i + 3], "score": i / 4, "codes": np.full((2, i), i, np.uint8)},
            "plain": {"a": -i, "b": i / 2},
        })  # fmt: skip
    write(path, fields, samples, compression={"captions": None, "meta": None})
    return samples


def dictionary(path: Path) -> Samples:
    """Short texts, compressed with a dictionary."""
    words = ("a picture of", "two dogs", "the old bridge", "in the rain", "seen from the harbour", "at night")
    samples: Samples = [{"text": f"{i}: " + ", ".join(words[(i * k + k) % 6] for k in range(1, 7))} for i in range(40)]
    with fl.DatasetWriter(path, {"text": fl.TextField(dictionary=256)}, PAGE) as writer:
        writer.write_many(samples)
    return samples


def stream_tokens() -> np.ndarray:
    """The tokens of ``stream.fld``, one behind each document."""
    return np.concatenate([np.append(np.arange(n) * 7, 50_256) for n in (5, 0, 40)]).astype("<u2")


def stream(path: Path) -> Samples:
    """A stream of tokens, which has no samples."""
    with fl.TokenStreamWriter(path, vocab_size=50_257, eos=50_256) as writer:
        writer.write_many([np.arange(n) * 7 for n in (5, 0, 40)])
    return []


REPRODUCED: tuple[Callable[[Path], Samples], ...] = (sounds, motion, texts, structures, stream)
VECTORS = (*REPRODUCED, dictionary)


def plain(value: Any) -> Any:
    """A value, as it was written or as it is read, in JSON."""
    if isinstance(value, fl.EncodedAudio):
        value = bytes(value.data)
    if isinstance(value, fl.Video):
        value = [bytes(value.encoded(i)) for i in range(len(value))] if value.codec == "png" else value.frames()
    if isinstance(value, dict) and "document_ids" in value:
        there = value["document_ids"] >= 0
        lengths = np.bincount(value["document_ids"][there]).tolist()
        value = {"tokens": value["tokens"][there], "lengths": lengths}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.ndarray):
        value = value.astype(np.float32) if value.dtype.name == "bfloat16" else value
        return {"array": value.tolist(), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value


def expected(samples: Samples) -> list[dict[str, Any]]:
    """The samples as JSON."""
    return [plain(sample) for sample in samples]


if __name__ == "__main__":
    content = {make.__name__: expected(make(HERE / f"{make.__name__}.fld")) for make in VECTORS}
    text = ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(s, ensure_ascii=False) for s in samples) + "\n]"
        for name, samples in content.items()
    )
    (HERE / "modalities.json").write_text("{\n" + text + "\n}\n", encoding="utf-8")
