"""Files that pages of the documentation begin with, for their ``<!-- setup -->`` comments."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import numpy as np

import fastloader as fl

VECTORS = Path(__file__).parent / "vectors" / "formats"
"""Files that other programs wrote."""


def pixels(number: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A picture, another one for each number."""
    y, x = np.mgrid[:height, :width]
    return np.stack([(x * 3 + number * 40) % 256, (y * 5) % 256, (x + y + number) % 256], -1).astype(np.uint8)


def jpeg(number: int) -> bytes:
    """The same as a file."""
    return bytes(fl.JPEGImageField(seekable=False).encode(pixels(number)).payload)


def photos(*paths: str) -> None:
    """JPEG files at these paths."""
    for number, path in enumerate(paths):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(jpeg(number))


def pictures(path: str, count: int = 64, **options: object) -> None:
    """A dataset of images with labels."""
    fields = {"image": fl.JPEGImageField(), "label": fl.IntField()}
    with fl.DatasetWriter(path, fields, **options) as writer:
        writer.write_many({"image": pixels(i), "label": i % 10} for i in range(count))


def remove(*paths: str) -> None:
    """Files and folders that a page made, and makes again."""
    for path in paths:
        with contextlib.suppress(NotADirectoryError):
            shutil.rmtree(path)
            continue
        Path(path).unlink()
