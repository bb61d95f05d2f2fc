"""Makes the ``.beton`` files under ``formats`` with FFCV itself, in an environment of its own.

    apt-get install libopencv-dev libturbojpeg0-dev pkg-config
    pip install ffcv==1.0.2 opencv-python torch && python tests/vectors/make_beton.py

Its pages have 2 MiB at least, most of them zeros here, so the files are stored gzipped. The samples are formulas, which
the tests import from here; JPEGs, as FFCV's encoder gave them, are in ``beton.json``.
"""

from __future__ import annotations

import base64
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FORMATS = Path(__file__).parent / "formats"
JPEGS = FORMATS / "beton.json"
PAGE = 2 << 20
SAMPLES = {"every": 7, "pages": 9, "custom": 6, "numbers": 5, "train": 12}
"""How many each file has."""


def picture(i: int, height: int, width: int) -> Any:
    """An image with a bit of everything."""
    y, x = np.indices((height, width))
    return np.stack([9 * x + i, 7 * y + 40 * i, (x * y + i * i) % 251], 2).astype(np.uint8)


def sizes(i: int) -> tuple[int, int]:
    """Height and width, odd ones."""
    return 13 + 2 * i, 31 - 3 * i


def every(i: int) -> dict[str, Any]:
    """A sample with each type of field, and a name that fills its place."""
    return {
        "jpeg": picture(i, *sizes(i)),
        "score": -(1.1**i),
        "pixels": picture(i, 5, 8),
        "label": (-7) ** i,
        "odd": picture(i, *sizes(i)[::-1]),
        "blob": np.arange((i % 3) * 51, dtype=np.uint8),
        "array": np.arange(6, dtype=np.float32).reshape(2, 3) / (1 + i),
        "flags": np.array([(i >> bit) & 1 for bit in range(5)], np.bool_),
        "a_name_so_long__": np.full((1, 2, 1), -i, ">i2"),
        "meta": {"i": i, "text": "größe" * i, "list": [None, True, 1.5]},
        "tensor": np.full((3, 2), i / 8, np.float16),
    }


def pages(i: int) -> dict[str, Any]:
    """A sample that fills a good part of a page; some images are JPEGs, others are not."""
    return {
        "blob": np.full(300_001 + 90_000 * i, i, np.uint8),
        "image": picture(i, 24 + i, 40),
        "empty": np.zeros(0, np.uint8),
    }


def custom(i: int) -> dict[str, Any]:
    """A sample with a field that FFCV does not have, between others."""
    return {"pixels": picture(i, 3, 4), "text": f"number {i}" * i, "label": 100 - i, "jpeg": picture(i, 9, 8 + i)}


def numbers(i: int) -> dict[str, Any]:
    """A sample without data in pages."""
    return {"label": i - 2, "score": i / 7}


def train(i: int) -> dict[str, Any]:
    """A sample of the file that most people have."""
    return {"image": picture(i, 24 + i % 3, 40), "label": i % 4}


def is_jpeg(i: int) -> bool:
    """Which images of ``pages`` are: those above the threshold."""
    return picture(i, 24 + i, 40).nbytes > THRESHOLD


THRESHOLD = 27 * 40 * 3
JPEG_FIELDS = {"every": "jpeg", "pages": "image", "custom": "jpeg", "train": "image"}


def beton(name: str) -> bytes:
    """A file, as it was written."""
    return gzip.decompress((FORMATS / f"{name}.beton.gz").read_bytes())


def expected(name: str) -> list[dict[str, Any]]:
    """What there is to be read in it."""
    jpegs = json.loads(JPEGS.read_text())
    found = []
    for i in range(SAMPLES[name]):
        sample = SOURCES[name](i)
        sample |= {key: value.tobytes() for key, value in sample.items() if key in ("blob", "empty")}
        if name in JPEG_FIELDS and (name != "pages" or is_jpeg(i)):
            sample[JPEG_FIELDS[name]] = base64.b64decode(jpegs[name][i])
        if name == "custom":
            sample["text"] = sample["text"].encode()
        found.append(sample)
    return found


SOURCES = {"every": every, "pages": pages, "custom": custom, "numbers": numbers, "train": train}


def main() -> None:
    """Write them all."""
    import torch
    from ffcv.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField, TorchTensorField
    from ffcv.fields.rgb_image import encode_jpeg
    from ffcv.writer import DatasetWriter

    class TextField(BytesField):
        """Text, as somebody who uses FFCV might store it."""

        def encode(self, destination: Any, field: str, malloc: Any) -> None:
            super().encode(destination, np.frombuffer(field.encode(), np.uint8), malloc)

    class Indexed:
        """Samples as FFCV wants them."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __len__(self) -> int:
            return SAMPLES[self.name]

        def __getitem__(self, i: int) -> tuple[Any, ...]:
            sample = SOURCES[self.name](int(i))
            if "tensor" in sample:
                sample["tensor"] = torch.from_numpy(sample["tensor"])
            return tuple(sample.values())

    raw, jpeg = RGBImageField("raw"), RGBImageField("jpg", jpeg_quality=90)
    fields = {
        "every": {
            "jpeg": jpeg, "score": FloatField(), "pixels": raw, "label": IntField(), "odd": raw, "blob": BytesField(),
            "array": NDArrayField(np.dtype("<f4"), (2, 3)), "flags": NDArrayField(np.dtype("?"), (5,)),
            "a_name_so_long__cut": NDArrayField(np.dtype(">i2"), (1, 2, 1)), "meta": JSONField(),
            "tensor": TorchTensorField(torch.float16, (3, 2)),
        },
        "pages": {"blob": BytesField(), "image": RGBImageField("smart", smart_threshold=THRESHOLD),
                  "empty": BytesField()},
        "custom": {"pixels": raw, "text": TextField(), "label": IntField(), "jpeg": jpeg},
        "numbers": {"label": IntField(), "score": FloatField()},
        "train": {"image": jpeg, "label": IntField()},
    }  # fmt: skip
    for name, columns in fields.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.beton"
            workers, chunk = (2, 1) if name == "pages" else (1, 100)
            writer = DatasetWriter(str(path), columns, page_size=PAGE, num_workers=workers)
            writer.from_indexed_dataset(Indexed(name), chunksize=chunk)
            (FORMATS / f"{name}.beton.gz").write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
    told = {
        name: [
            base64.b64encode(encode_jpeg(SOURCES[name](i)[field], 90).tobytes()).decode() for i in range(SAMPLES[name])
        ]
        for name, field in JPEG_FIELDS.items()
    }
    JPEGS.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
