"""Decoding on a GPU, as far as it can be shown without one: parts of JPEGs, and resizing on any device of torch's."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import fastloader as fl
from fastloader import kernels, ops
from fastloader.samplers import StateError
from fastloader.torch import TorchLoader
from fastloader.torch.decoding import GpuImages, balanced, check_mode, fields_for, measured_share, state_share

PIPELINES = {
    "crop": [ops.RandomResizedCrop(40), ops.HorizontalFlip()],
    "centre": [ops.Resize(72), ops.CenterCrop((56, 48))],
    "whole": [ops.Resize((66, 57), filter="bicubic"), ops.HorizontalFlip(1.0)],
    "plain": [ops.RandomCrop(32), ops.HorizontalFlip()],
    "lanczos": [ops.CenterCrop(60), ops.Resize((90, 31), filter="lanczos")],
    "box": [ops.RandomCrop((60, 40)), ops.Resize((20, 20), filter="box")],
    "nearest": [ops.RandomResizedCrop(24, filter="nearest")],
    "hamming": [ops.Resize((50, 40), filter="hamming")],
}


def smooth(rng: np.random.Generator, height: int, width: int) -> np.ndarray[Any, Any]:
    """A picture without noise, as photos are."""
    small = rng.integers(0, 256, (height // 12 + 2, width // 12 + 2, 3), np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def jpeg(pixels: np.ndarray[Any, Any], mode: str = "RGB", **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, "JPEG", **{"quality": 90} | options)
    return out.getvalue()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    """JPEGs of every kind: subsamplings, gray ones, progressive ones, ones of ink, and some that are turned."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("gpu") / "pictures.fld"
    with fl.DatasetWriter(path, {"image": fl.JPEGImageField(), "n": fl.IntField()}) as writer:
        for i in range(60):
            pixels = smooth(rng, int(rng.integers(80, 200)), int(rng.integers(80, 200)))
            kinds: list[dict[str, Any]] = [{"subsampling": 0}, {"subsampling": 1}, {"subsampling": 2}, {"mode": "L"},
                                           {"mode": "CMYK"}, {"progressive": True}]  # fmt: skip
            writer.write_sample({"image": jpeg(pixels, **kinds[i % len(kinds)]), "n": i})
    return str(path)


def pillow(files: Any, device: Any) -> list[Any]:
    """As nvJPEG does it, but by libjpeg; so what comes out is what the engine decodes."""
    images = [np.asarray(Image.open(io.BytesIO(bytes(file.numpy()))).convert("RGB")) for file in files]
    return [torch.from_numpy(image.transpose(2, 0, 1).copy()).to(device) for image in images]


def rows_of(path: str, name: str, share: float, **options: Any) -> list[dict[str, Any]]:
    with fl.open(path) as reader, fl.DataLoader(reader, 20, pipelines={"image": PIPELINES[name]}, **options) as loader:
        loader.parts = {"image": share}
        return [{key: value.copy() for key, value in batch.items()} for batch in loader]


def parts_in(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(rows[:, :64]).view(kernels.PART)[:, 0]


@pytest.mark.parametrize("name", PIPELINES)
def test_parts_decoded_and_resized_elsewhere_are_the_images_of_the_engine(pictures: str, name: str) -> None:
    with fl.open(pictures) as reader, fl.DataLoader(reader, 20, pipelines={"image": PIPELINES[name]}) as loader:
        size = loader.image_size("image")
        expected = [batch["image"].copy() for batch in loader]
    images = GpuImages("image", size, pillow)
    left = 0
    for batch, wanted in zip(rows_of(pictures, name, 1.0), expected, strict=True):
        left += int((parts_in(batch["image"])["bytes"] > 0).sum())
        made = images(batch["image"], torch.device("cpu"))[0].numpy()
        assert made.shape == wanted.shape
        np.testing.assert_array_equal(made, wanted)
    assert left == 40  # neither gray ones nor those of ink; the writer makes progressive ones plain


def test_what_can_not_be_left_to_a_gpu_comes_as_the_pixels_of_the_engine(pictures: str) -> None:
    with fl.open(pictures) as reader, fl.DataLoader(reader, 20, pipelines={"image": PIPELINES["crop"]}) as loader:
        expected = [batch["image"].copy() for batch in loader]
    for batch, wanted in zip(rows_of(pictures, "crop", 1.0), expected, strict=True):
        parts = parts_in(batch["image"])
        here = np.flatnonzero(parts["bytes"] == 0)
        assert set(here.tolist()) == {i for i, n in enumerate(batch["n"].tolist()) if n % 6 in (3, 4)}
        np.testing.assert_array_equal(batch["image"][here, 64 : 64 + 4800].reshape(-1, 40, 40, 3), wanted[here])


def test_a_share_is_of_the_same_samples_every_time(pictures: str) -> None:
    def chosen(**options: Any) -> dict[int, bool]:
        found = {}
        for batch in rows_of(pictures, "crop", 0.5, **options):
            for n, part in zip(batch["n"].tolist(), parts_in(batch["image"]), strict=True):
                found[n] = bool(part["bytes"])
        return found

    first = chosen(num_workers=1)
    assert first == chosen(num_workers=3, order="sequential")
    assert 0 < sum(first.values()) < 40
    assert first != chosen(seed=5)


def test_parts_are_small_where_the_jpeg_is_seekable(tmp_path: Any) -> None:
    rng = np.random.default_rng(1)
    file = jpeg(rng.integers(0, 256, (400, 400, 3), np.uint8))
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.JPEGImageField()}) as writer:
        writer.write_sample({"image": file})
    ways = [ops.CenterCrop(64), ops.Resize((300, 300))]
    with fl.open(tmp_path / "x.fld") as reader, fl.DataLoader(reader, 1, pipelines={"image": ways}) as loader:
        loader.parts = {"image": 1.0}
        part = parts_in(next(iter(loader))["image"])[0]
    assert 0 < part["bytes"] < len(file) / 4
    assert part["width"] <= 160
    assert part["height"] <= 160


def test_what_else_is_in_a_batch_changes_nothing(pictures: str) -> None:
    images = GpuImages("image", (40, 40), pillow)
    for batch in rows_of(pictures, "crop", 1.0):
        together, _ = images(batch["image"], torch.device("cpu"))
        alone = [images(batch["image"][i : i + 1], torch.device("cpu"))[0] for i in range(20)]
        assert torch.equal(together, torch.cat(alone))


def test_only_crops_a_resize_and_mirrors_are_left_to_a_gpu() -> None:
    field = {"image": fl.JPEGImageField(), "other": fl.PNGImageField()}
    assert fields_for({"image": PIPELINES["centre"]}, field) == ["image"]
    for bad, why in (
        ([ops.ColorJitter(0.1), ops.Resize((8, 8))], "ColorJitter"),
        ([ops.RandomCrop(8, padding=2)], "padding=2"),
        ([ops.Resize((8, 8)), ops.Resize((9, 9))], "resized twice"),
        ([ops.HorizontalFlip(), ops.Resize((9, 9))], "mirrored before"),
    ):
        with pytest.raises(ValueError, match=why):
            fields_for({"image": bad}, field)
    with pytest.raises(ValueError, match="none of the fields"):
        fields_for({"other": [ops.Resize((8, 8))]}, field)


def test_modes_are_checked(pictures: str) -> None:
    assert check_mode("hybrid", 0.5, True) == "hybrid"
    for decode, share, on_gpu, why in (
        ("nvjpeg", None, True, "'cpu', 'gpu' or 'hybrid'"), ("gpu", None, False, "without device='cuda'"),
        ("gpu", 0.5, True, "is for decode='hybrid'"), ("hybrid", 2, True, "from 0 to 1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            check_mode(decode, share, on_gpu)
    with pytest.raises(ValueError, match="without device='cuda'"):
        TorchLoader(pictures, decode="gpu", pipelines={"image": PIPELINES["crop"]})


def test_the_mode_is_a_part_of_the_state() -> None:
    assert state_share({}, "cpu", None) is None
    assert state_share({"decode": "hybrid", "gpu_share": 0.25}, "hybrid", None) == 0.25
    assert state_share({"decode": "gpu", "gpu_share": 1.0}, "gpu", 1.0) is None
    for state, decode, share, why in (
        ({}, "gpu", None, "decode='cpu'"), ({"decode": "gpu"}, "cpu", None, "decode='gpu'"),
        ({"decode": "hybrid", "gpu_share": 0.25}, "hybrid", 0.5, "gpu_share=0.25"),
        ({"decode": "hybrid", "gpu_share": "half"}, "hybrid", None, "no share"),
    ):  # fmt: skip
        with pytest.raises(StateError, match=why):
            state_share(state, decode, share)  # type: ignore[arg-type]


@given(st.floats(1e-6, 1), st.floats(0, 1), st.floats(1e-6, 1))
def test_a_balanced_share_lets_both_end_together(cpu: float, cutting: float, gpu: float) -> None:
    share = balanced(cpu, min(cutting, cpu), gpu)
    assert 0 <= share <= 1
    here, there = (1 - share) * cpu + share * min(cutting, cpu), share * gpu
    if share < 1:
        assert abs(here - there) <= (cpu + gpu) / 32
    else:
        assert here >= there - (cpu + gpu) / 32


def test_a_share_is_measured(pictures: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    images = [GpuImages("image", (40, 40), pillow)]
    with fl.open(pictures) as reader, fl.DataLoader(reader, 4, pipelines={"image": PIPELINES["crop"]}) as loader:
        before = loader.state_dict()
        assert 0 <= measured_share(loader, images, torch.device("cpu")) <= 1
        assert loader.state_dict() == before
