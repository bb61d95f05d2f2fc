"""Random crops are distributed as torchvision's are: the same boxes as often, whatever the generator."""

import math

import numpy as np
import pytest
import torch

import fastloader as fl

SAMPLES, EPOCHS = 2000, 5
APART = 1.95 * math.sqrt(2 / (SAMPLES * EPOCHS))
"""How far two samples of one distribution are apart at most, but for one time in a thousand (Kolmogorov, Smirnov)."""


def torchvisions(height, width, scale, ratio, generator):
    """What torchvision's RandomResizedCrop draws with torch's generator: x, y, width, height."""

    def uniform(low, high):
        return torch.empty(1).uniform_(low, high, generator=generator).item()

    def whole(below):
        return torch.randint(0, below, (1,), generator=generator).item()

    for _ in range(10):
        area = height * width * uniform(*scale)
        aspect = math.exp(uniform(*map(math.log, ratio)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            y = whole(height - h + 1)
            return whole(width - w + 1), y, w, h
    w, h = width, height
    if width / height < min(ratio):
        h = round(w / min(ratio))
    elif width / height > max(ratio):
        w = round(h * max(ratio))
    return (width - w) // 2, (height - h) // 2, w, h


def apart(one, other):
    """The largest distance between two empirical distribution functions."""
    values = np.union1d(one, other)
    first, second = (np.searchsorted(np.sort(some), values, "right") / len(some) for some in (one, other))
    return np.abs(first - second).max()


def features(boxes):
    """Area, aspect, place, and how much room there was for it."""
    x, y, w, h = np.asarray(boxes, np.float64).T
    return {"area": w * h, "aspect": w / h, "x": x, "y": y, "right": x + w, "bottom": y + h}


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((60, 80), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((90, 20), (0.3, 1.0), (3 / 4, 4 / 3)),
        ((50, 50), (0.5, 0.7), (0.2, 3.0)),
    ],
)
def test_boxes_are_distributed_as_torchvisions(size, scale, ratio, tmp_path):
    with fl.DatasetWriter(tmp_path / "x.fld", {"image": fl.RawImageField(*size, 1)}) as writer:
        for _ in range(SAMPLES):
            writer.write_sample({"image": np.zeros((*size, 1), np.uint8)})
    crop = fl.ops.RandomResizedCrop(4, scale=scale, ratio=ratio).returning("box")
    with fl.open(tmp_path / "x.fld") as reader:
        loader = fl.DataLoader(reader, 500, pipelines={"image": [crop]}, seed=11)
        ours = np.concatenate([batch["box"] for _ in range(EPOCHS) for batch in loader])
    generator = torch.Generator().manual_seed(5)
    theirs = [torchvisions(*size, scale, ratio, generator) for _ in range(len(ours))]
    expected = features(theirs)
    for name, values in features(ours).items():
        assert apart(values, expected[name]) < APART, name
    # The measure tells another law from this one: always the smallest scale.
    skewed = [torchvisions(*size, (scale[0], scale[0] + 1e-9), ratio, generator) for _ in range(len(ours))]
    assert apart(features(skewed)["area"], expected["area"]) > APART
