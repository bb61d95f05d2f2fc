"""Datasets to look at: every kind of value, hostile ones, and ten million."""

from __future__ import annotations

import json
import threading
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import numpy as np
from tokenizing import byte_pair
from videos import video

import fastloader as fl
from fastloader.formats.fld import Chunk, Column, FieldSpec, FldBuilder
from fastloader.viewer import open_samples
from fastloader.viewer.running import address, listen, server_of
from fastloader.viewer.showing import Viewer

SIDE = 64
RATE = 8000
EVIL = (
    "<img src=x onerror=\"document.title='owned'\">",
    "<script>document.title='owned'</script>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "</title><iframe src='https://example.com'>",
    "\u202eevil\u0000\x1b[2J",
)


def fields() -> dict[str, fl.Field]:
    """A field of every kind."""
    return {
        "image": fl.JPEGImageField(),
        "alpha": fl.PNGImageField(),
        "raw": fl.RawImageField(24, 32),
        "mask": fl.MaskField(),
        "sound": fl.AudioCompressedField(encoding="flac", sample_rate=RATE),
        "wave": fl.AudioWaveformField(sample_rate=RATE),
        "mel": fl.SpectrogramField(sample_rate=RATE, n_mels=40, n_fft=400, hop_length=160),
        "codes": fl.AudioTokensField(4, 1024),
        "video": fl.VideoCompressedField(),
        "clip": fl.VideoFramesField(),
        "flow": fl.OpticalFlowField(),
        "text": fl.TextField(),
        "tokens": fl.TokenizedTextField(byte_pair(), embed=True),
        "packed": fl.PackedTextField(32, 400),
        "tree": fl.JSONField(),
        "names": fl.ListField(fl.TextField()),
        "both": fl.DictField({"a": fl.IntField(), "b": fl.TextField()}),
        "embedding": fl.EmbeddingField(96),
        "array": fl.NDArrayField("float32", (None, 20)),
        "boxes": fl.BoxesField(),
        "points": fl.KeypointsField(3, visibility=True),
        "blob": fl.BytesField(),
        "label": fl.IntField(),
        "score": fl.FloatField(),
    }


def sample(number: int) -> dict[str, Any]:
    """A sample with a value of every field."""
    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:SIDE, : SIDE * 3 // 2]
    image = np.stack([rows * 3, columns * 2, (rows + columns + number * 20) % 256], axis=2).astype(np.uint8)
    centre = rng.uniform(20, 44, 2)
    round_ = np.hypot(rows - centre[0], columns - centre[1]) < 14
    image[round_] = (230, 90 + number * 10, 60)
    alpha = np.concatenate([image, np.where(round_, 255, 60)[:, :, None].astype(np.uint8)], axis=2)
    seconds = np.arange(RATE // 2) / RATE
    sound = (np.sin(2 * np.pi * 220 * (1 + number % 4) * seconds) * np.exp(-4 * seconds)).astype(np.float32)
    text = f"Sample {number}: a disc at {centre[0]:.0f}, {centre[1]:.0f}."
    frames = [np.roll(image, 6 * step, axis=1) for step in range(10)]
    return {
        "image": image,
        "alpha": alpha,
        "raw": np.ascontiguousarray(image[:48:2, :64:2]),
        "mask": round_.astype(np.uint8) * (1 + number % 5),
        "sound": (sound, RATE),
        "wave": (sound, RATE),
        "mel": (sound, RATE),
        "codes": rng.integers(0, 1024, (4, 30)),
        "video": video("h264.mp4"),
        "clip": frames,
        "flow": np.stack([columns - centre[1], rows - centre[0]], axis=2).astype(np.float32),
        "text": text,
        "tokens": "a man riding a bicycle, two dogs in the park",
        "packed": [[5, 6, 7], [8, 9]],
        "tree": {"id": number, "where": {"x": centre[1], "y": centre[0]}, "tags": ["disc", None, True, 1.5]},
        "names": ["disc"] * (number % 3),
        "both": {"a": number, "b": text},
        "embedding": rng.normal(size=96).astype(np.float32),
        "array": rng.normal(size=(12 + number, 20)).cumsum(axis=0).astype(np.float32),
        "boxes": np.array([[centre[1] - 14, centre[0] - 14, centre[1] + 14, centre[0] + 14]], np.float32),
        "points": np.array([[[10, 10, 2], [30, 12, 1], [0, 0, 0]]], np.float32),
        "blob": rng.bytes(40),
        "label": number % 4,
        "score": number / 3,
    }


def write_every(path: Path, count: int = 12) -> Path:
    """All kinds, with keys; the last sample has nothing but its label."""
    kinds = fields()
    with fl.DatasetWriter(path, kinds, keys=True) as writer:
        for number in range(count):
            writer.write_sample(sample(number), key=f"things/disc_{number:03d}")
        writer.write_sample(dict.fromkeys(kinds) | {"label": 3}, key="things/nothing")
    return path


def write_hostile(path: Path) -> Path:
    """Text, keys, JSON and field names that would do something if they were taken for a page; files that are pages."""
    name = "<b onmouseover=alert(1)>x</b>"
    kinds = {
        "text": fl.TextField(), "tree": fl.JSONField(), name: fl.TextField(), "blob": fl.BytesField(),
        "label": fl.IntField(), "image": fl.BytesField(),
    }  # fmt: skip
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='owned'</script></svg>"
    html = b"<!doctype html><script>document.title='owned'</script>"
    with fl.DatasetWriter(path, kinds, keys=True) as writer:
        for number, evil in enumerate(EVIL):
            writer.write_sample(
                {
                    "text": evil, "tree": {evil: [evil, {"__proto__": {evil: evil}}]}, name: evil,
                    "blob": svg if number % 2 else html, "label": number,
                    "image": b"\xff\xd8\xff" + html,
                },
                key=evil,
            )  # fmt: skip
    return path


def write_numbers(path: Path, samples: int, keys: bool = False) -> Path:
    """A number and its remainder a sample, through the builder itself to save time."""
    specs = [FieldSpec("number", fl.IntField()), FieldSpec("label", fl.IntField())]
    builder = FldBuilder(path, specs, 2 << 20, keys=keys)
    step = min(samples, 500_000)

    def column(values: Any) -> Column:
        rows = np.zeros(step, fl.IntField().metadata_type)
        rows["value"] = values
        return Column(rows, np.ones(step, np.bool_), [], np.zeros(step, np.uint64), np.zeros(step, np.uint8))

    for first in range(0, samples, step):
        numbers = np.arange(first, first + step)
        builder.append(Chunk(step, [column(numbers), column(numbers % 10)], None))
    builder.finish()
    return path


class Served:
    """A viewer that is being served, in a thread of its own."""

    def __init__(self, path: Path | str, *, host: str = "127.0.0.1", token: str | None = None, **options: Any) -> None:
        self.samples = open_samples(str(path), tokenizer=options.pop("tokenizer", None))
        self.viewer = Viewer(self.samples, Path(path).name, **options)
        self._listening = listen(host, 0)
        self.port = self._listening.getsockname()[1]
        self.url = address(self._listening, host, token)
        self._server = server_of(self.viewer, host, token)
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self.viewer.close()
        self._listening.close()

    def get(self, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> HTTPResponse:
        """The answer to a request, whatever it is."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        answer.body = answer.read()  # type: ignore[attr-defined]
        connection.close()
        return answer

    def ask(self, path: str, **params: Any) -> Any:
        """What the server says in JSON; a list of values is a parameter that is given several times."""
        answer = self.get(f"/api/{path}?{urlencode(params, doseq=True)}")
        told = json.loads(answer.body)  # type: ignore[attr-defined]
        assert answer.status == 200, told
        return told

    def found(self, **params: Any) -> list[int]:
        """The numbers of the samples that are found."""
        while not self.ask("search", **params)["finished"]:
            pass
        return [card["index"] for card in self.ask("cards", start=0, count=256, **params)["cards"]]


def where(column: str, operation: str, value: Any) -> str:
    """A condition as the page writes it."""
    return json.dumps([column, operation, value])
