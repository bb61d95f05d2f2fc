"""Mixup and CutMix of whole batches against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fastloader import kernels

SHARES = np.array([0.0, 0.25, 0.5, 0.7, 0.999, 1.0], np.float32)
PARTNERS = np.array([5, 0, 1, 2, 3, 3], np.int64)


def mixup(batch: np.ndarray, element: str, partners=PARTNERS, shares=SHARES) -> np.ndarray:
    out = np.empty_like(batch)
    kernels.mixup(batch, kernels.ELEMENTS.index(element), partners, shares, out)
    return out


def test_mixup_of_bytes_is_rounded_to_the_nearest():
    batch = np.random.default_rng(0).integers(0, 256, (6, 20, 30, 3), np.uint8)
    weight = np.floor(SHARES * 65536 + 0.5).astype(np.int64).reshape(-1, 1, 1, 1)
    wanted = (batch * weight + batch[PARTNERS] * (65536 - weight) + 32768) >> 16
    found = mixup(batch, "uint8")
    np.testing.assert_array_equal(found, wanted)
    share = SHARES.astype(float).reshape(-1, 1, 1, 1)
    assert np.abs(found - (batch * share + batch[PARTNERS] * (1 - share))).max() <= 0.51
    np.testing.assert_array_equal(found[5], batch[5])
    np.testing.assert_array_equal(found[0], batch[5])


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_mixup_of_floats_has_the_bits_of_numpy(element):
    batch = np.random.default_rng(0).normal(0, 2, (6, 3, 17, 20)).astype(element)
    batch[0, 0, 0, :4] = [0, -0.0, 6e-8, 65504]
    share = SHARES.reshape(-1, 1, 1, 1)
    wanted = batch.astype(np.float32) * share + batch[PARTNERS].astype(np.float32) * (1 - share)
    found = mixup(batch, element)
    np.testing.assert_array_equal(found.view(f"u{batch.itemsize}"), wanted.astype(element).view(f"u{batch.itemsize}"))


def test_mixup_of_bfloat16_has_the_bits_of_torch():
    batch = torch.from_numpy(np.random.default_rng(0).normal(0, 2, (6, 3, 17, 20)).astype(np.float32)).bfloat16()
    share = torch.from_numpy(SHARES).reshape(-1, 1, 1, 1)
    wanted = (batch.float() * share + batch[torch.from_numpy(PARTNERS)].float() * (1 - share)).bfloat16()
    found = mixup(batch.view(torch.uint16).numpy(), "bfloat16")
    np.testing.assert_array_equal(found, wanted.view(torch.uint16).numpy())


@pytest.mark.parametrize("layout", kernels.LAYOUTS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32])
def test_cutmix_pastes_the_box_of_the_partner(layout, dtype):
    height, width, channels = 20, 31, 3
    shape = (6, height, width, channels) if layout == "hwc" else (6, channels, height, width)
    batch = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    boxes = np.array(
        [(0, 0, 20, 31), (0, 0, 0, 31), (3, 4, 5, 31), (19, 30, 20, 31), (7, 9, 12, 9), (1, 2, 3, 4)], np.uint32
    )
    out = np.empty_like(batch)
    number = kernels.LAYOUTS.index(layout)
    kernels.cutmix(batch, (height, width, channels), batch.itemsize, number, PARTNERS, boxes, out)
    wanted = batch.copy()
    for i, (top, left, bottom, right) in enumerate(boxes):
        part = np.s_[top:bottom, left:right] if layout == "hwc" else np.s_[:, top:bottom, left:right]
        wanted[i][part] = batch[PARTNERS[i]][part]
    np.testing.assert_array_equal(out, wanted)


def test_a_batch_without_samples():
    nothing = np.empty((0, 4, 4, 3), np.uint8)
    mixup(nothing, "uint8", np.empty(0, np.int64), np.empty(0, np.float32))
    kernels.cutmix(nothing, (4, 4, 3), 1, 0, np.empty(0, np.int64), np.empty((0, 4), np.uint32), nothing.copy())


def test_what_can_not_be_done_is_refused():
    batch, out = np.zeros((6, 4, 4, 3), np.float32), np.zeros((6, 4, 4, 3), np.float32)
    boxes = np.zeros((6, 4), np.uint32)

    def mix(element=3, partners=PARTNERS, shares=SHARES, out=out):
        kernels.mixup(batch, element, partners, shares, out)

    def cut(shape=(4, 4, 3), size=4, partners=PARTNERS, boxes=boxes, out=out):
        kernels.cutmix(batch, shape, size, 0, partners, boxes, out)

    mix()
    cut()
    for call, arguments, message in [
        (mix, {"partners": PARTNERS + 1}, "partner 6 is no sample"), (mix, {"partners": PARTNERS - 1}, "partner -1"),
        (mix, {"shares": SHARES[1:]}, "as many partners"), (mix, {"shares": SHARES + 0.1}, "between 0 and 1"),
        (mix, {"shares": SHARES * np.float32("nan")}, "between 0 and 1"), (mix, {"out": out[1:]}, "another size"),
        (mix, {"partners": PARTNERS[:5] % 5, "shares": SHARES[:5]}, "no whole number of samples"),
        (cut, {"partners": PARTNERS + 1}, "partner 6"), (cut, {"shape": (4, 5, 3)}, "another size than its shape"),
        (cut, {"boxes": boxes[1:]}, "as many partners"),
        (cut, {"boxes": boxes + np.uint32([0, 0, 5, 0])}, "a box does"),
        (cut, {"boxes": boxes + np.uint32([1, 0, 0, 0])}, "a box does"), (cut, {"size": 0}, "another size"),
        (cut, {"shape": (2**20, 2**20, 4), "size": 8}, "another size"), (cut, {"shape": (4, 0, 3)}, "0 pixels"),
    ]:  # fmt: skip
        with pytest.raises(kernels.Failure, match=message):
            call(**arguments)
    for call, arguments, message in [
        (mix, {"out": batch}, "overlaps"), (cut, {"out": batch}, "overlaps"), (mix, {"element": 4}, "no such element"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call(**arguments)
