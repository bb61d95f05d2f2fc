"""Fields of your own: polygons, as many points each as they like, and curves, whose decoder is compiled.

Run it: python examples/custom_field.py
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fastloader as fl


class PolygonDecoder(fl.Decoder):
    def __call__(self, metadata, read):
        points = np.frombuffer(read(), self.field.dtype).reshape(-1, 2)
        return points * (1 / self.field.scale)


@fl.register_type(1000)
@dataclass(frozen=True)
class PolygonField(fl.Field):
    """Points (count, 2), rounded to a grid of ``scale`` steps a unit."""

    scale: int = 100
    dtype: str = "<i4"

    @property
    def metadata_type(self):
        return np.dtype([("area", "<f4")])

    def encode(self, value):
        points = np.asarray(value, np.float64)
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError(f"expected points of shape (count, 2), got {points.shape}")
        x, y = points.T
        area = abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2
        return fl.Encoded((area,), np.rint(points * self.scale).astype(self.dtype))

    def get_decoder_class(self):
        return PolygonDecoder


def regular(corners):
    """A polygon on the unit circle."""
    angle = np.arange(corners) * 2 * np.pi / corners
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


class CurveDecoder(fl.RowDecoder):
    def row_function(self):
        length, step = self.field.length, self.field.step

        def decode(metadata, payload, out):  # compiled where numba is installed
            levels = payload.view(np.int16)
            for i in range(length):
                out[i] = metadata["least"] + levels[i] * step

        return fl.RowFunction(decode, "float32", (length,))


@fl.register_type(1001)
@dataclass(frozen=True)
class CurveField(fl.Field):
    """``length`` numbers, as levels of 16 bits above the least of them."""

    length: int
    step: float = 0.001

    @property
    def metadata_type(self):
        return np.dtype([("least", "<f4")])

    def encode(self, value):
        values = np.asarray(value, np.float64)
        if values.shape != (self.length,):
            raise ValueError(f"expected {self.length} numbers, got {values.shape}")
        return fl.Encoded((values.min(),), np.rint((values - values.min()) / self.step).astype("<i2"))

    def get_decoder_class(self):
        return CurveDecoder


def main(folder):
    path = Path(folder) / "polygons.fld"
    with fl.DatasetWriter(path, {"polygon": PolygonField(scale=1000), "corners": fl.IntField()}) as writer:
        for corners in range(3, 103):
            writer.write_sample({"polygon": regular(corners), "corners": corners})

    reader = fl.open(path)
    assert reader.fields["polygon"] == PolygonField(scale=1000)
    assert np.abs(reader[1]["polygon"] - regular(4)).max() <= 0.0005

    seen = 0
    for batch in fl.DataLoader(reader, batch_size=16, seed=1):
        for polygon, corners in zip(batch["polygon"], batch["corners"], strict=True):
            assert polygon.shape == (corners, 2)
            seen += 1
    print(f"{seen} polygons of 3 to 102 corners in {path.stat().st_size} bytes")

    path = Path(folder) / "curves.fld"
    waves = np.sin(np.arange(100)[:, None] / 7 + np.arange(50) / 3)
    with fl.DatasetWriter(path, {"curve": CurveField(50)}) as writer:
        for wave in waves:
            writer.write_sample({"curve": wave})
    loader = fl.DataLoader(fl.open(path), batch_size=20, shuffle=False)
    curves = np.concatenate([batch["curve"] for batch in loader])
    assert np.abs(curves - waves).max() <= 0.001
    print(loader.explain())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
