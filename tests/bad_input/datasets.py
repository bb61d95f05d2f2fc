"""Small valid datasets that mutants are made of: every field type, missing values, keys, compression, pages, shards."""

from __future__ import annotations

import io
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import fastloader as fl
from fastloader.fields import BY_TYPE_ID, Decoder, Encoded, Field, register_type

from . import pipelines
from .anatomy import Anatomy

OWN_TYPE, UNKNOWN_TYPE = 640_001, 640_002
GOLDEN_VIDEO = Path(__file__).parents[1] / "vectors" / "video.fld"


class PointDecoder(Decoder):
    """As a user would write it, without a thought for bad bytes."""

    def __call__(self, metadata: Any, read: Callable[[], memoryview]) -> Any:
        x, y = np.frombuffer(read(), "<f8", int(metadata["count"]))
        return float(x), float(y)


@register_type(OWN_TYPE)
class PointField(Field):
    """A user's own type."""

    @property
    def metadata_type(self) -> np.dtype[Any]:
        return np.dtype([("count", "<i4")])

    def encode(self, value: Any) -> Encoded:
        return Encoded((2,), np.array(value, "<f8").tobytes())

    def get_decoder_class(self) -> type[Decoder]:
        return PointDecoder


@dataclass(frozen=True)
class Base:
    """A valid dataset: its files by name (``""`` where it is one file) and what reading it gives."""

    name: str
    files: dict[str, bytes]
    names: list[str]
    samples: list[dict[str, Any]]
    payloads: list[dict[str, bytes | None]]
    keys: list[str] | None
    unreadable: frozenset[str] = field(default=frozenset())
    piped: dict[tuple[str, int], list[Any]] = field(default_factory=dict)

    @property
    def is_folder(self) -> bool:
        return "" not in self.files

    @cached_property
    def anatomies(self) -> dict[str, Anatomy]:
        """The structure of each ``.fld`` file."""
        return {name: Anatomy(data) for name, data in self.files.items() if not name.endswith(".json")}

    def write(self, path: Path, files: dict[str, bytes] | None = None) -> None:
        """Put the files (or a mutant of them) at ``path``, which is not there yet."""
        files = self.files if files is None else files
        if self.is_folder:
            path.mkdir()
        for name, data in files.items():
            (path / name if name else path).write_bytes(data)


def _saved(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def _pictures() -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    smooth = np.add.outer(np.arange(20) * 6, np.arange(24) * 5).astype(np.uint8)
    colour = np.stack([smooth, smooth[::-1], smooth.T.repeat(2, 0)[:20, :20].repeat(2, 1)[:, :24]], 2)
    palette = Image.fromarray(smooth[:9, :7]).convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
    raw = rng.integers(0, 4, (5, 4, 4, 3), np.uint8)
    jpegs = [
        _saved(Image.fromarray(colour), "JPEG", quality=40, optimize=True),
        _saved(Image.fromarray(colour), "JPEG", quality=40, progressive=True),
        _saved(Image.fromarray(smooth), "JPEG", quality=30),
        None,
        _saved(Image.fromarray(colour), "JPEG", quality=50, subsampling=0, restart_marker_blocks=1),
    ]
    pngs = [
        smooth[:8, :9],
        rng.integers(0, 9, (5, 6, 4)).astype(np.uint8),
        rng.integers(0, 9000, (4, 5, 3)).astype(np.uint16),
        _saved(palette, "PNG", transparency=1),
        _saved(Image.fromarray(smooth[:13, :11] > 60), "PNG"),
    ]
    return [{"raw": None if i == 2 else raw[i], "jpeg": jpegs[i], "png": pngs[i]} for i in range(5)]


def _photos() -> list[dict[str, Any]]:
    """Large enough for a part to be found by an index, and lying on their sides."""
    smooth = np.add.outer(np.arange(60) * 3, np.arange(90) * 2).astype(np.uint8)
    grain = np.random.default_rng(6).integers(0, 12, (60, 90, 4)).astype(np.uint8)
    colour = np.stack([smooth, smooth[::-1], 200 - smooth, smooth], 2) + grain
    exif = Image.Exif()
    samples = []
    for i in range(4):
        exif[0x0112] = i + 5
        seekable = _saved(Image.fromarray(colour[:, :, :3]), "JPEG", quality=30, subsampling=i % 3)
        lying = Image.fromarray(colour[:20, :28, :3] if i else colour[:20, :28], None if i else "CMYK")
        webp = Image.fromarray(colour[:24, :33, : 3 + i % 2])
        samples.append({
            "seekable": seekable,
            "lying": _saved(lying, "JPEG", quality=30, exif=exif.tobytes(), progressive=i == 2),
            "webp": _saved(webp, "WEBP", quality=40, exif=exif, lossless=i > 1),
            "png": _saved(Image.fromarray(colour[:9, :11, :3]), "PNG", exif=exif),
        })  # fmt: skip
    samples[3]["webp"] = None
    samples.append({**samples[0], "webp": _saved(Image.fromarray(colour[:16, :16, :3]), "WEBP", quality=30)})
    return samples


def _masks() -> list[dict[str, Any]]:
    rng = np.random.default_rng(8)
    blocks = [np.kron(rng.integers(0, 3, (4, 5)) * 127, np.ones((3 + i, 4), int)).astype(np.uint8) for i in range(4)]
    palette = Image.fromarray(blocks[1] // 127, "P")
    palette.putpalette([0, 0, 0, 255, 0, 0, 0, 255, 0])
    return [
        {"runs": None if i == 2 else block, "png": _saved(palette, "PNG", bits=2) if i == 1 else block}
        for i, block in enumerate(blocks)
    ]


def _wav(samples: Any, rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(samples.shape[1])
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return file.getvalue()


def _sounds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(9)
    return [
        {"wave": rng.random(20 + 30 * i).astype(np.float32) if i != 1 else None,
         "both": rng.integers(-9000, 9000, (12 + i, 1 + i)).astype(np.int16) if i != 2 else None,
         "file": _wav(rng.integers(-9000, 9000, (40, 1 + i % 2)).astype(np.int16), 8000 + i) if i != 3 else None,
         "mel": rng.random((1 + i, 3)).astype(np.float32), "codes": rng.integers(0, 600, (3, 5 * i)),
         "flac": rng.integers(-7, 7, 9000 + 700 * i).astype(np.int16)}
        for i in range(4)
    ]  # fmt: skip


def _videos() -> list[dict[str, Any]]:
    """An H.264 file that was made once, and pictures and flow by formulas."""
    with fl.open(GOLDEN_VIDEO) as reader:
        video = reader[0]["video"].bytes
    y, x = np.mgrid[:18, :20]
    pictures = [np.stack([x * 9 + i, y * 7, x + y + 3 * i], 2).astype(np.uint8) for i in range(4)]
    flow = np.stack([x - 9, y / 2], 2)
    return [
        {"video": video if i != 1 else None, "jpeg": pictures[: i + 1], "png": pictures[i:] if i != 2 else None,
         "raw": [one[:5, : 4 + i] for one in pictures[:3]], "flow": flow[: 3 + i, :4],
         "half": np.stack([flow[:3, :4] * i] * 2) if i != 3 else None}
        for i in range(4)
    ]  # fmt: skip


def _make(
    folder: Path,
    name: str,
    fields: dict[str, Field],
    samples: list[dict[str, Any]],
    *,
    keys: list[str] | None = None,
    **options: Any,
) -> Base:
    path = folder / f"{name}.fld"
    with fl.DatasetWriter(path, fields, page_size=4096, num_workers=0, keys=keys is not None, **options) as writer:
        writer.write_many(samples, keys)
    files = {p.name: p.read_bytes() for p in sorted(path.iterdir())} if path.is_dir() else {"": path.read_bytes()}
    with fl.open(path) as reader:
        read = [reader.read_sample(i) for i in range(len(reader))]
        payloads = [{n: payload_of(reader, i, n) for n in fields} for i in range(len(reader))]
        piped = {
            (n, number): pipelines.run(reader, n, number, "replace", num_workers=0)
            for n, one in fields.items() if pipelines.able(one) for number in range(len(pipelines.PIPELINES))
        }  # fmt: skip
    return Base(name, files, list(fields), read, payloads, keys, piped=piped)


def payload_of(reader: fl.DatasetReader, index: int, name: str) -> bytes | None:
    """A payload as bytes; ``None`` where the value is missing or the field keeps no payloads."""
    descriptors = reader.dataset.file(reader.dataset.where(index)[0]).descriptors
    if not next(d for d in descriptors if d.name == name).has_payload:
        return None
    payload = reader.read_payload(index, name)
    return None if payload is None else bytes(payload)


def make_bases(folder: Path) -> dict[str, Base]:
    """All datasets, the same bytes every time."""
    rng = np.random.default_rng(3)
    record = np.dtype([("a", "<i2"), ("b", "<f4", (2,))])
    noise = rng.integers(0, 256, 5000, np.uint8).tobytes()
    made = [
        _make(folder, "scalars", {"n": fl.IntField(), "x": fl.FloatField()},
              [{"n": i * 7 - 3, "x": None if i == 2 else i / 3} for i in range(11)]),
        _make(folder, "blobs", {"data": fl.BytesField(), "tag": fl.JSONField(), "note": fl.BytesField()},
              [{"data": b"ab" * 60 * i, "tag": {"i": i, "t": ["x" * 40, None, 1.5]}, "note": b"n" * (i % 3)}
               if i != 3 else {"data": None, "tag": None, "note": b""} for i in range(6)],
              keys=[f"dir/{i:03d}.bin" for i in range(6)], compression={"data": "zstd", "tag": "lz4"}),
        _make(folder, "arrays",
              {"fixed": fl.NDArrayField("float32", (2, 3)), "any": fl.NDArrayField("int16"),
               "rows": fl.NDArrayField("uint8", (None, 2)), "record": fl.NDArrayField(record, (2,))},
              [{"fixed": np.full((2, 3), i, np.float32) if i != 1 else None,
                "any": np.arange(i * 2, dtype=np.int16).reshape([(0,), (2,), (2, 2), (1, 2, 3)][i]) if i < 4 else None,
                "rows": np.zeros((i * 9, 2), np.uint8) if i != 2 else None,
                "record": np.zeros(2, record)} for i in range(5)],
              compression={"rows": "lz4", "fixed": "zstd:1"}),
        _make(folder, "pictures",
              {"raw": fl.RawImageField(4, 4), "jpeg": fl.JPEGImageField(), "png": fl.PNGImageField(level=0)},
              _pictures(), compression={"raw": "lz4", "png": "zstd"}),
        _make(folder, "sounds",
              {"wave": fl.AudioWaveformField(8000), "both": fl.AudioWaveformField(8000, mono=False, dtype="int16"),
               "file": fl.AudioCompressedField(), "mel": fl.SpectrogramField(n_mels=3, dtype="float16"),
               "codes": fl.AudioTokensField(3, 600),
               "flac": fl.AudioCompressedField("flac", sample_rate=8000, channels=1)},
              _sounds(), compression={"both": "lz4", "codes": "zstd"}),
        _make(folder, "videos",
              {"video": fl.VideoCompressedField(), "jpeg": fl.VideoFramesField(quality=50),
               "png": fl.VideoFramesField("png", fps=10), "raw": fl.VideoFramesField("raw"),
               "flow": fl.OpticalFlowField("int16"), "half": fl.OpticalFlowField()},
              _videos(), compression={"raw": "lz4", "flow": "zstd"}),
        _make(folder, "photos",
              {"seekable": fl.JPEGImageField(), "lying": fl.JPEGImageField(orient=True, seekable=False, verbatim=True),
               "webp": fl.WebPImageField(orient=True), "png": fl.PNGImageField(orient=True)}, _photos()),
        _make(folder, "masks", {"runs": fl.MaskField(), "png": fl.MaskField("png")}, _masks(),
              compression={"png": "lz4"}),
        _make(folder, "pages", {"data": fl.BytesField(), "n": fl.IntField()},
              [{"data": noise[: size], "n": size} for size in (5000, 90, 1500, 0, 1700)]),
        _make(folder, "empty", {"n": fl.IntField(), "data": fl.BytesField(), "image": fl.PNGImageField()}, [],
              keys=[]),
        _make(folder, "own", {"point": PointField(), "n": fl.IntField()},
              [{"point": (i, -i) if i != 1 else None, "n": i} for i in range(3)], compression="lz4"),
        _make(folder, "shards", {"data": fl.BytesField(), "n": fl.IntField()},
              [{"data": b"shard" * i, "n": i if i != 4 else None} for i in range(7)],
              keys=[f"k{i}" for i in range(7)], shard_size=40),
        _make(folder, "texts",
              {"text": fl.TextField(dictionary=256), "tokens": fl.TokenizedTextField(vocab_size=1000),
               "packed": fl.PackedTextField(8, 300), "vector": fl.EmbeddingField(3, "int8"),
               "list": fl.ListField(fl.TextField()), "numbers": fl.ListField(fl.IntField()),
               "dict": fl.DictField({"a": fl.TextField(), "b": fl.IntField(), "c": fl.EmbeddingField(2)})},
              [_texts(i) if i != 4 else dict.fromkeys(_texts(i)) for i in range(24)]),
        _unknown(folder),
    ]  # fmt: skip
    return {base.name: base for base in made}


def _texts(i: int) -> dict[str, Any]:
    """Texts that are alike enough for a dictionary, and what else is made of words."""
    words = ["a picture of", "two dogs", "the old bridge", "in the rain", "seen from the harbour", "at night"]
    text = ", ".join(words[(i * k + k) % 6] for k in range(1, 9))
    return {
        "text": f"{i}: {text}", "tokens": list(range(i % 5)), "packed": [[i, 1], [2] * (1 + i % 4)],
        "vector": [i, -i / 2, 1], "list": [text[:20]] * (i % 4), "numbers": [i] * (i % 3),
        "dict": {"a": text[:15], "b": i, "c": [i, 0.5]},
    }  # fmt: skip


def _unknown(folder: Path) -> Base:
    """A dataset with a field whose class the reader does not know."""
    other = register_type(UNKNOWN_TYPE)(type("OtherField", (PointField,), {}))
    samples = [{"n": i, "other": (i, 1), "text": str(i)} for i in range(3)]
    base = _make(folder, "unknown", {"n": fl.IntField(), "other": other(), "text": fl.JSONField()}, samples)
    del BY_TYPE_ID[UNKNOWN_TYPE]
    return Base(base.name, base.files, base.names, base.samples, base.payloads, None, frozenset({"other"}))
