"""JPEGs decoded on a GPU: the engine cuts out what is needed, nvJPEG decodes it, and it is resized there.

Which samples are left to the GPU is drawn by their place, so a share of them is the same ones every time. What nvJPEG
makes of a JPEG differs a little from what libjpeg does; so the way is a part of a loader's state.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, MissingExtraError
from fastloader.fields import Field, JPEGImageField
from fastloader.loader import DataLoader
from fastloader.ops import CenterCrop, HorizontalFlip, Named, RandomCrop, RandomResizedCrop, Resize
from fastloader.samplers import StateError
from fastloader.torch.library import torch
from fastloader.torch.resampling import headers, resample

Decode = Literal["cpu", "gpu", "hybrid"]
STEPS_OF_SHARE = 32
"""A share that was measured is a multiple of this part."""

TRIED = 4
"""Batches that are decoded to measure the GPU."""

Decoder = Callable[[Sequence[Any], Any], list[Any]]
"""JPEGs as tensors of bytes in memory, to images (3 x H x W) on a device."""


def check_mode(decode: str, share: float | None, on_gpu: bool) -> Decode:
    """The mode, where there is such a one and what is given fits it."""
    if decode not in get_args(Decode):
        raise ValueError(f"decode={decode!r}: 'cpu', 'gpu' or 'hybrid'")
    if decode != "cpu" and not on_gpu:
        raise ValueError(f"decode={decode!r} without device='cuda'")
    if share is not None and decode != "hybrid":
        raise ValueError(f"gpu_share={share!r} is for decode='hybrid', and decode is {decode!r}")
    if share is not None and not 0 <= share <= 1:
        raise ValueError(f"gpu_share={share!r}: a share from 0 to 1, or None to measure it")
    return decode  # type: ignore[return-value]


def state_share(state: Mapping[str, Any], decode: Decode, share: float | None) -> float | None:
    """The share that a state was saved with; raises where it was saved in another mode, or with another share."""
    was = state.get("decode", "cpu")
    if was != decode:
        raise StateError(
            f"the state is of decode={was!r}, and this loader has decode={decode!r}: pixels would differ from here on",
            hint=f"make the loader with decode={was!r}",
        )
    found = state.get("gpu_share") if decode == "hybrid" else None
    if found is not None and not (isinstance(found, int | float) and 0 <= found <= 1):
        raise StateError(f"in the state, gpu_share is {found!r}: no share")
    if share is not None and found is not None and found != share:
        raise StateError(
            f"the state is of gpu_share={found!r}, and this loader has {share!r}: pixels would differ from here on",
            hint=f"make the loader with gpu_share={found!r}, or without",
        )
    return found


def nvjpeg() -> Decoder:
    """Torchvision's way to nvJPEG."""
    try:
        library: Any = importlib.import_module("torchvision.io")
    except ImportError as error:
        raise MissingExtraError(
            "decoding on a GPU takes torchvision, built for CUDA", extra="torch",
            hint="pip install torchvision as PyTorch's own page says for your GPU, or decode='cpu'",
        ) from error  # fmt: skip

    def decode(files: Sequence[Any], device: Any) -> list[Any]:
        made: list[Any] = library.decode_jpeg(list(files), library.ImageReadMode.RGB, device=device)
        return made

    return decode


def gpu_images(loader: DataLoader) -> list[GpuImages]:
    """What is left to do on the GPU, for each field that it decodes. Its batches' rows are to be ``kernels.PART``."""
    options, reader = loader.options, loader.reader
    kinds = {name: reader.dataset.field(reader.field_names.index(name)) for name in options.pipelines}
    names = fields_for(options.pipelines, kinds)
    if options.batch_ops:
        raise ValueError(f"decode='gpu' with {options.batch_ops[0]}, which takes pixels on the CPU")
    behind = next((name for name in names if name in options.transforms), None)
    if behind is not None or options.collate_fn is not None:
        what = "collate_fn" if behind is None else f"a transform of {behind!r}"
        raise ValueError(f"decode='gpu' with {what}, which takes pixels on the CPU")
    decoder = nvjpeg()
    return [GpuImages(name, loader.image_size(name), decoder) for name in names]


def fields_for(pipelines: Mapping[str, Any], kinds: Mapping[str, Field]) -> list[str]:
    """The fields that a GPU can decode: JPEGs whose operations are crops, one resize and mirrors."""
    chosen, reasons = [], []
    for name, ops in pipelines.items():
        if not isinstance(kinds.get(name), JPEGImageField):
            continue
        why = _why_not(ops)
        if why is None:
            chosen.append(name)
        else:
            reasons.append(f"{name!r} {why}")
    if not chosen:
        told = f": {'; '.join(reasons)}" if reasons else ": none of the fields with pipelines is a JPEGImageField"
        raise ValueError(
            f"decode='gpu' has nothing to decode{told}. It takes RandomResizedCrop, Resize, CenterCrop, RandomCrop "
            "without padding and HorizontalFlip, with Normalize, Cast and Layout behind them"
        )
    return chosen


def _why_not(ops: Any) -> str | None:
    if not isinstance(ops, Sequence):
        return "has several views"
    plain = [op.op if isinstance(op, Named) else op for op in ops]
    for op in plain:
        if not isinstance(op, RandomResizedCrop | Resize | CenterCrop | RandomCrop | HorizontalFlip):
            return f"has {op}"
        if isinstance(op, RandomCrop) and op.padding:
            return f"has {op}"
    resizes = [i for i, op in enumerate(plain) if isinstance(op, RandomResizedCrop | Resize)]
    mirrors = [i for i, op in enumerate(plain) if isinstance(op, HorizontalFlip)]
    if len(resizes) > 1:
        return "is resized twice"
    return "is mirrored before it is resized" if resizes and mirrors and mirrors[0] < resizes[0] else None


def measured_share(loader: DataLoader, images: Sequence[GpuImages], device: Any) -> float:
    """The share for the GPU, from a few batches made each way with the loader's own threads."""
    cpu, _ = _pace(loader, images, 0.0)
    cutting, batches = _pace(loader, images, 1.0)
    decoding = []
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    for batch in batches:
        torch.cuda.synchronize(device)
        began = time.perf_counter()
        held = [one(batch[one.field], device, stream) for one in images]
        torch.cuda.synchronize(device)
        del held
        decoding.append((time.perf_counter() - began) / len(batch[images[0].field]))
    return balanced(cpu, cutting, min(decoding))


def _pace(loader: DataLoader, images: Sequence[GpuImages], share: float) -> tuple[float, list[Any]]:
    """Seconds a sample where this share is cut out for the GPU, and some batches of that."""
    own = {one.name: getattr(loader.options, one.name) for one in fields(loader.options)}
    trial = DataLoader(loader.reader, **own | {"sampler": None, "indices": None})  # a sampler of the user's runs once
    trial.pinning, trial.parts = loader.pinning, {one.field: share for one in images}
    threads = loader.options.native_threads
    kept: list[Any] = []
    samples, began = 0, time.perf_counter()
    with trial:
        for number, batch in enumerate(trial):
            if number == threads:  # what was made while there was nothing to wait for does not count
                samples, began = 0, time.perf_counter()
            samples += len(batch[images[0].field])
            if len(kept) < TRIED:
                kept.append({one.field: batch[one.field].copy() for one in images})
            if number == 3 * threads + TRIED:
                break
        return (time.perf_counter() - began) / max(samples, 1), kept


@dataclass(frozen=True)
class GpuImages:
    """Finishes a field whose rows are ``kernels.PART``: images (N x H x W x 3 bytes) on a device."""

    field: str
    size: tuple[int, int]
    decoder: Decoder

    def __call__(self, rows: NDArray[np.uint8], device: Any, stream: Any = None) -> tuple[Any, list[Any]]:
        """On the current stream, behind decoding on ``stream``; and what must stay, as ``rows``, until that is reached.

        nvJPEG writes on a stream of torchvision's without regard to the one that memory was last used on. So what it
        writes to comes from a stream on which nothing else is, and goes back there when nobody needs it.
        """
        parts = headers(rows)
        here = torch.from_numpy(rows)
        out = torch.empty((len(rows), *self.size, 3), dtype=torch.uint8, device=device)
        there = here.to(device, non_blocking=True)
        decoded: list[Any] = []
        if (chosen := np.flatnonzero(parts["bytes"])).size:
            begins, ends = parts["at"].tolist(), (parts["at"] + parts["bytes"]).tolist()
            with torch.cuda.stream(stream):
                decoded = self._decoded([here[i, begins[i] : ends[i]] for i in chosen.tolist()], parts[chosen], device)
            if stream is not None:
                torch.cuda.current_stream(device).wait_stream(stream)
        resample(there, parts, decoded, out)
        return out, decoded

    def _decoded(self, files: Sequence[Any], parts: NDArray[Any], device: Any) -> list[Any]:
        try:
            images = self.decoder(files, device)
        except RuntimeError:
            images = [self._one(file, i, device) for i, file in enumerate(files)]
        for i, image in enumerate(images):
            if tuple(image.shape) != (3, parts["height"][i], parts["width"][i]):
                raise DecodeError(
                    f"image {i} of the batch decodes to {tuple(image.shape)} on the GPU", field=self.field
                )
        return images

    def _one(self, file: Any, place: int, device: Any) -> Any:
        try:
            return self.decoder([file], device)[0]
        except RuntimeError as error:
            raise DecodeError(
                f"image {place} of those that the GPU decodes of this batch: {error}", field=self.field,
                hint="decode='cpu' names the sample",
            ) from error  # fmt: skip


def balanced(cpu: float, cutting: float, gpu: float) -> float:
    """The share for the GPU at which both are done at the same time, from the seconds that an image takes each.

    ``cutting`` is what the CPU does for an image that the GPU decodes.

    >>> balanced(cpu=2.0, cutting=0.5, gpu=0.5)
    1.0
    >>> balanced(cpu=1.0, cutting=0.0, gpu=1.0)
    0.5
    """
    lasting = cpu - cutting + gpu
    share = min(1.0, max(0.0, cpu / lasting)) if lasting > 0 else 1.0
    return round(share * STEPS_OF_SHARE) / STEPS_OF_SHARE
