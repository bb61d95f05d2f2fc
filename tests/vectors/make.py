"""Makes the golden files in this folder: ``python tests/vectors/make.py``.

Each vector is a function from a path to the samples it wrote there. Everything is computed from plain formulas. The
JPEG, PNG and WebP files under ``images`` were drawn once and are stored as they are, because encoders differ between
library versions; the same goes for compressed payloads, so ``compressed.fld`` is read by the tests but not compared.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import fastloader as fl
from fastloader.formats.entries import Entry, EntryKind

HERE = Path(__file__).parent
IMAGES = HERE / "images"
PAGE = 4096

Samples = list[dict[str, Any]]


def tiny(path: Path) -> Samples:
    """The worked example of the format document."""
    samples = [{"label": 7, "text": b"hello"}, {"label": -1, "text": None}]
    with fl.DatasetWriter(path, {"label": fl.IntField(), "text": fl.BytesField()}, PAGE) as writer:
        writer.write_many(samples)
    return samples


def basic(path: Path) -> Samples:
    """Every field type that needs no encoder, with keys, missing values and empty payloads."""
    fields = {
        "id": fl.IntField(),
        "score": fl.FloatField(),
        "blob": fl.BytesField(),
        "note": fl.JSONField(),
        "pixels": fl.RawImageField(2, 3, 3, "uint8"),
        "grid": fl.NDArrayField("<u2", (2, 3)),
        "track": fl.NDArrayField("<i2", (None, 2)),
        "cloud": fl.NDArrayField("<f4"),
        "größe": fl.NDArrayField([("x", "<i4"), ("y", ">f8", (2,))], (1,)),
    }
    samples: Samples = []
    for i in range(9):
        record = np.zeros(1, fields["größe"].dtype)
        record["x"], record["y"] = i - 4, [i / 4, -i]
        samples.append(
            {
                "id": (-1) ** i * 3**i,
                "score": i / 8 - 0.5,
                "blob": bytes(range(i * 20, i * 20 + 5 * i)),
                "note": {"number": i, "text": "ä€𝄞"[: i % 4], "list": [None, True, 1.5]},
                "pixels": np.arange(18, dtype=np.uint8).reshape(2, 3, 3) + np.uint8(i),
                "grid": (np.arange(6, dtype="<u2") * 1000 + i).reshape(2, 3),
                "track": np.arange(2 * (i % 3), dtype="<i2").reshape(-1, 2) - 1,
                "cloud": (np.arange(i, dtype="<f4") / 2).reshape([(i,), (1, i), (i, 1, 1)][i % 3]),
                "größe": record,
            }
        )
    samples[2] = {**samples[2], "id": None, "blob": None, "cloud": None}
    samples[8] = {**samples[8], "blob": None, "track": None, "pixels": None}
    with fl.DatasetWriter(path, fields, PAGE, keys=True) as writer:
        writer.write_many(samples, key_list(len(samples)))
    return samples


def key_list(count: int) -> list[str]:
    """Keys of the samples of ``basic``: short, empty, long and beyond ASCII."""
    return ["", "a/b.jpg", "größe/ß", "x" * 300, *(f"folder/{i:04d}.png" for i in range(4, count))]


PAYLOAD_SIZES = [
    (100, 0), (3000, 700), (120, 8), (64, 64), (0, 0), (4096, 0), (1, 127), (128, 0), (9000, 100), (0, 3), (2000, 2000),
    (3900, 0), (129, 0), (2500, 0), (1000, 0), (1, 1), (0, 0),
]  # fmt: skip
"""Sizes of two fields on pages of 4 KiB: small, medium, whole-page and spanning records, and none at all."""


def pages(path: Path) -> Samples:
    """Records that fit, skip, straddle and span pages, and samples without any bytes."""
    samples = [
        {"a": bytes((i + j) % 256 for j in range(a)), "b": bytes((i * 7 + j) % 256 for j in range(b))}
        for i, (a, b) in enumerate(PAYLOAD_SIZES)
    ]
    samples[4]["b"] = None
    with fl.DatasetWriter(path, {"a": fl.BytesField(), "b": fl.BytesField()}, PAGE) as writer:
        writer.write_many(samples)
    return samples


def images(path: Path) -> Samples:
    """Ready-made JPEG and PNG files."""
    jpegs, pngs = sorted(IMAGES.glob("*.jpg")), sorted(IMAGES.glob("*.png"))
    samples: Samples = []
    for i in range(max(len(jpegs), len(pngs))):
        jpeg = jpegs[i].read_bytes() if i < len(jpegs) else None
        samples.append({"jpeg": jpeg, "png": pngs[i].read_bytes() if i < len(pngs) else None})
    fields = {
        "jpeg": fl.JPEGImageField(quality=77, max_width=64, seekable=False, verbatim=True),
        "png": fl.PNGImageField(level=9, max_height=64),
    }
    with fl.DatasetWriter(path, fields, PAGE) as writer:
        writer.write_many(samples)
    return samples


def upright(path: Path) -> Samples:
    """Files that say how they lie, in fields that turn them and in one that does not."""
    kinds = {"jpeg": fl.JPEGImageField, "png": fl.PNGImageField, "webp": fl.WebPImageField}
    files = {name: (IMAGES / "upright" / f"turn-right.{name}").read_bytes() for name in kinds}
    files |= {"lying": files["webp"], "alpha": (IMAGES / "upright" / "alpha.webp").read_bytes()}
    fields: dict[str, Any] = {name: kind(orient=True) for name, kind in kinds.items()}
    fields |= {"lying": fl.WebPImageField(quality=50), "alpha": fl.WebPImageField(lossless=True, max_width=64)}
    samples: Samples = [files, {name: None if name == "png" else file for name, file in files.items()}]
    with fl.DatasetWriter(path, fields, PAGE) as writer:
        writer.write_many(samples)
    return samples


def masks(path: Path) -> Samples:
    """Labels as runs, of one to three bytes of length and too long for one, and a PNG with a palette."""
    y, x = np.mgrid[:5, :9]
    large = np.full((300, 400), 255, np.uint8)
    large[200, 150:] = 7
    labels = [(x // 3 + y // 2 * 100).astype(np.uint8), large, None]
    files = [(IMAGES / name).read_bytes() for name in ("5-palette.png", "0-gray.png")]
    samples: Samples = [{"runs": labels[i], "png": [*files, None][i]} for i in range(3)]
    with fl.DatasetWriter(path, {"runs": fl.MaskField(), "png": fl.MaskField("png")}, PAGE) as writer:
        writer.write_many(samples)
    return samples


def seekable(path: Path) -> Samples:
    """JPEG files with an index behind them, and a progressive one, which gets none."""
    samples: Samples = [{"jpeg": (IMAGES / name).read_bytes()} for name in SEEKABLE]
    with fl.DatasetWriter(path, {"jpeg": fl.JPEGImageField(verbatim=True)}, PAGE) as writer:
        writer.write_many(samples)
    return samples


SEEKABLE = ("0-gray.jpg", "1-rgb-444.jpg", "2-rgb-420-progressive.jpg", "seekable/rgb-420.jpg")


def compressed(path: Path) -> Samples:
    """Payloads that compress and some that do not."""
    samples = []
    for i in range(6):
        noise = bytes((j * j * (2 * i + 1) + (j >> 3)) % 251 for j in range(40))
        text = b"abc" * (i * 20) if i % 2 else noise
        samples.append({"lz4": text, "zstd": text, "none": text})
    fields = dict.fromkeys(("lz4", "zstd", "none"), fl.BytesField())
    with fl.DatasetWriter(path, fields, PAGE, compression={"lz4": "lz4", "zstd": "zstd:9"}) as writer:
        writer.write_many(samples)
    return samples


def shards(path: Path) -> Samples:
    """A folder of shards, written in two goes."""
    samples = [{"n": i, "text": str(i) * 10} for i in range(7)]
    fields = {"n": fl.IntField(), "text": fl.JSONField()}
    keys = [f"k{i}" for i in range(7)]
    with fl.DatasetWriter(path, fields, PAGE, keys=True, shard_size=40) as writer:
        writer.write_many(samples[:5], keys[:5])
    with fl.DatasetWriter(path, None, PAGE, mode="a") as writer:
        writer.write_many(samples[5:], keys[5:])
    return samples


def living(path: Path) -> Samples:
    """A folder of shards that was changed: rows removed and replaced, columns added, renamed and dropped."""
    fields = {"n": fl.IntField(), "text": fl.BytesField(), "gone": fl.FloatField()}
    with fl.DatasetWriter(path, fields, PAGE, keys=True, shard_size=25) as writer:
        for i in range(7):
            writer.write_sample({"n": i, "text": str(i).encode() * 10, "gone": i / 2}, f"k{i}")
    editor = fl.edit(path)
    editor.delete(keys=["k1", "k2", "k6"])
    editor.add_column("square", fl.IntField(), lambda sample: sample["n"] ** 2 if sample["n"] != 4 else None)
    editor.update({"k3": {"text": b"three", "square": -9}, "k5": {"text": None}})
    editor.rename_column("n", "number")
    editor.drop_column("gone")
    with fl.DatasetWriter(path, None, PAGE, mode="a") as writer:
        writer.write_sample({"number": 9, "text": b"nine", "square": 81}, "k1")
    return [
        {"number": 0, "text": b"0" * 10, "square": 0},
        {"number": 3, "text": b"three", "square": -9},
        {"number": 4, "text": b"4" * 10, "square": None},
        {"number": 5, "text": None, "square": 25},
        {"number": 9, "text": b"nine", "square": 81},
    ]


def archive(path: Path) -> Samples:
    """Files, directories and links, which come in another order than that of their paths."""
    jpeg = (IMAGES / "seekable" / "rgb-420.jpg").read_bytes()
    files = {b"b/photo.jpg": jpeg, b"b/\xff": b"odd", b"a": b"", b"b-": b"before what is in b"}
    nodes = [
        Entry(b"b", EntryKind.DIRECTORY, 0o750, 10**18 + 1),
        Entry(b"link", EntryKind.SYMLINK, 0o777, -1, target=b"b/photo.jpg"),
        Entry(b"empty", EntryKind.DIRECTORY, 0o700, 0),
        Entry(b"c", EntryKind.HARDLINK, 0o644, 7, target=b"b-"),
    ]
    samples: Samples = []
    with fl.ArchiveWriter(path, workers=0) as writer:
        for number, (name, content) in enumerate(files.items()):
            is_image = content.startswith(b"\xff\xd8")
            samples.append(
                {
                    "image": content if is_image else None, "data": None if is_image else content,
                    "mode": 0o600 + number, "mtime": number - 1, "size": len(content),
                }
            )  # fmt: skip
            writer.add(Entry.of(name, content, 0o600 + number, number - 1))
            writer.add(nodes[number])
    return samples


REPRODUCED: tuple[Callable[[Path], Samples], ...] = (
    archive,
    living,
    tiny,
    basic,
    pages,
    images,
    upright,
    masks,
    seekable,
)
"""Those that today's writer must give again byte for byte."""
VECTORS = (*REPRODUCED, compressed, shards)


def plain(value: Any) -> Any:
    """A value as JSON says it."""
    if isinstance(value, bytes):
        long = len(value) > 700
        return {"size": len(value), "sha256": sha256(value).hexdigest()} if long else {"bytes": value.hex()}
    if isinstance(value, np.ndarray):
        if value.size > 700:
            return {"shape": list(value.shape), "dtype": value.dtype.str, "sha256": sha256(value.tobytes()).hexdigest()}
        descr = np.lib.format.dtype_to_descr(value.dtype)
        return {"array": to_json(value.tolist()), "dtype": to_json(descr), "shape": list(value.shape)}
    return value


def to_json(value: Any) -> Any:
    """Lists and numbers of nested tuples and arrays."""
    return json.loads(json.dumps(value, default=lambda array: array.tolist()))


def draw() -> None:
    """The images, with Pillow; run by hand, once."""
    from PIL import Image

    IMAGES.mkdir(exist_ok=True)
    y, x = np.mgrid[:7, :9]
    rgb = np.stack([x * 28, y * 40, (x + y) * 16], -1).astype(np.uint8)
    gray = (x * 20 + y * 9).astype(np.uint8)
    alpha = (255 - x * 20).astype(np.uint8)[..., None]
    Image.fromarray(gray).save(IMAGES / "0-gray.jpg", quality=90)
    Image.fromarray(rgb).save(IMAGES / "1-rgb-444.jpg", quality=90, subsampling="4:4:4")
    Image.fromarray(rgb).save(IMAGES / "2-rgb-420-progressive.jpg", quality=90, subsampling="4:2:0", progressive=True)
    (IMAGES / "seekable").mkdir(exist_ok=True)
    y, x = np.mgrid[:61, :150]
    wide = np.stack([x * 5 + y, y * 4 + (x * y) % 23, (x + 2 * y) * 3], -1).astype(np.uint8)
    Image.fromarray(wide).save(IMAGES / "seekable" / "rgb-420.jpg", quality=80, subsampling="4:2:0")
    y, x = np.mgrid[:7, :9]
    Image.fromarray(gray).save(IMAGES / "0-gray.png")
    Image.fromarray(np.concatenate([gray[..., None], alpha], -1)).save(IMAGES / "1-gray-alpha.png")
    Image.fromarray(rgb).save(IMAGES / "2-rgb.png")
    Image.fromarray(np.concatenate([rgb, alpha], -1)).save(IMAGES / "3-rgba.png")
    Image.fromarray(gray.astype(np.uint16) * 257).save(IMAGES / "4-gray-16.png")
    Image.fromarray(rgb).quantize(8).save(IMAGES / "5-palette.png")
    (IMAGES / "upright").mkdir(exist_ok=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, options in {"jpeg": {"quality": 90}, "png": {}, "webp": {"quality": 90}}.items():
        Image.fromarray(rgb).save(IMAGES / "upright" / f"turn-right.{name}", exif=exif, **options)
    Image.fromarray(np.concatenate([rgb, alpha], -1)).save(IMAGES / "upright" / "alpha.webp", lossless=True)


def expected(samples: Samples) -> list[dict[str, Any]]:
    """The samples as JSON."""
    return [{name: plain(value) for name, value in sample.items()} for sample in samples]


if __name__ == "__main__":
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    if sys.argv[1:] == ["--draw"]:
        draw()
    content = {make.__name__: expected(make(HERE / f"{make.__name__}.fld")) for make in VECTORS}
    text = ",\n".join(
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(s, ensure_ascii=False) for s in samples) + "\n]"
        for name, samples in content.items()
    )
    (HERE / "expected.json").write_text("{\n" + text + "\n}\n", encoding="utf-8")
