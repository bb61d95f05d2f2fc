"""The end of a pipeline that a GPU does better: numbers of one byte are copied there, and become floats behind it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastloader.fields import Field, ImageFileField, MaskField, RawImageField
from fastloader.ops import Cast, Layout, Normalize
from fastloader.torch.library import torch

_LAST = (Normalize, Cast, Layout)


@dataclass(frozen=True)
class Finish:
    """What is left to do for a field of images on its device: ``(pixels - mean) / std``, cast, in another layout."""

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    dtype: str | None = None
    order: str = "HWC"

    def __call__(self, images: Any, channels_last: bool) -> Any:
        """A batch of bytes, N x H x W x C as it was copied, as floats."""
        pixels = images.permute(0, 3, 1, 2) if images.ndim == 4 else images
        dtype = getattr(torch, self.dtype) if self.dtype else torch.float32
        if self.mean is not None and self.std is not None:
            mean, std = (_numbers(values, pixels) for values in (self.mean, self.std))
            pixels = pixels.to(torch.float32).sub_(mean).div_(std).to(dtype)
        elif self.dtype:
            pixels = pixels.to(dtype)
        if self.order == "CHW" or channels_last:
            return pixels if channels_last else pixels.contiguous()
        return pixels.permute(0, 2, 3, 1)


def _numbers(values: Sequence[float], like: Any) -> Any:
    key = (tuple(values), like.device)
    if key not in _KEPT:
        _KEPT[key] = torch.tensor(values, dtype=torch.float32, device=like.device).view(1, -1, 1, 1)
    return _KEPT[key]


_KEPT: dict[Any, Any] = {}
"""The few numbers of each pipeline, by device: copying them again for every batch would wait for the GPU."""


def has_images(field: Field) -> bool:
    """Whether a batch of the field is N x H x W x C; what else ends with such operations is left to the loader."""
    return isinstance(field, ImageFileField | MaskField | RawImageField)


def split(pipelines: Mapping[str, Any], images: Collection[str]) -> tuple[dict[str, Any], dict[str, Finish]]:
    """Pipelines without what a GPU does at their end, and that, by field. Only where bytes become floats there.

    ``images`` are the fields that have such.
    """
    kept, finishes = {}, {}
    for name, ops in pipelines.items():
        kept[name] = ops
        if not isinstance(ops, Sequence) or name not in images:
            continue
        end = len(ops)
        while end and type(ops[end - 1]) in _LAST:
            end -= 1
        tail = list(ops[end:])
        norms = [op for op in tail if isinstance(op, Normalize)]
        casts = [op for op in tail if isinstance(op, Cast)]
        if len(norms) > 1 or not (norms or casts) or not end:
            continue
        if norms and casts and tail.index(casts[0]) < tail.index(norms[0]):
            continue  # rounded before it is normalised: another result
        orders = [op.order for op in tail if isinstance(op, Layout)]
        finishes[name] = Finish(
            _tuple(norms[0].mean) if norms else None, _tuple(norms[0].std) if norms else None,
            casts[-1].dtype if casts else None, orders[-1] if orders else "HWC",
        )  # fmt: skip
        kept[name] = list(ops[:end])
    return kept, finishes


def _tuple(value: Any) -> tuple[float, ...]:
    return tuple(value) if isinstance(value, Sequence) else (float(value),)
