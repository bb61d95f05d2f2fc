"""``TorchLoader``: the engine's batches as tensors, on the CPU or copied to a GPU ahead of the step that needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, Self

from fastloader.dataset import open_dataset
from fastloader.loader import DataLoader, WrappedLoader
from fastloader.samplers.checks import whole
from fastloader.torch.decoding import Decode, check_mode, gpu_images, measured_share, state_share
from fastloader.torch.finishing import Finish, has_images, split
from fastloader.torch.library import torch
from fastloader.torch.tensors import to_tensors

AHEAD = 2


class TorchLoader(WrappedLoader):
    """Batches as dictionaries of tensors, by ``fastloader.DataLoader``, whose options it takes.

    On the CPU tensors share the memory of the engine's batches: nothing is copied. With ``device="cuda"`` the engine's
    memory is pinned when it is made, and ``ahead`` batches are copied to the GPU on a stream of its own. What
    ``next()`` gives is there when the work behind it on the current stream is reached; nothing waits for the GPU.

    - ``channels_last``: images come N x C x H x W in that memory format, which costs nothing for pipelines that leave
      them H x W x C.
    - ``finish_on_gpu``: ``ops.Normalize``, ``ops.Cast`` and ``ops.Layout`` at the end of a pipeline are done on the
      GPU, behind the copy of a byte a value. True by default with a GPU; on the CPU there is no such thing.
    - ``decode``: where JPEGs are decoded. "cpu" is the engine. "gpu": the engine cuts out what a sample needs, nvJPEG
      (torchvision's) decodes it, and it is resized on the GPU; for pipelines of crops, one resize and mirrors. "hybrid"
      leaves ``gpu_share`` of the samples to the GPU, always the same ones. A share that is not given is measured before
      the first pass: both are then done at the same time. What nvJPEG can't do is done by the engine in any mode.
      Batches are the same every time within one mode and share, which are parts of the state.

    ``state_dict`` is behind the batch that was given last, whatever is under way, as torchdata's StatefulDataLoader has
    it. ``loader`` is the ``DataLoader`` beneath: its ``stats()``, ``explain()`` and ``digest()``.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int = 32,
        *,
        device: str | int | torch.device | None = None,
        channels_last: bool = False,
        finish_on_gpu: bool | Literal["auto"] = "auto",
        ahead: int = AHEAD,
        decode: Decode = "cpu",
        gpu_share: float | None = None,
        **options: Any,
    ) -> None:
        self.device = torch.device("cpu" if device is None else device)
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f"device={device!r}: 'cpu' or 'cuda'")
        on_gpu = self.device.type == "cuda"
        if on_gpu and not torch.cuda.is_available():
            raise ValueError(f"device={device!r}: this torch finds no GPU; torch.cuda.is_available() is False")
        if finish_on_gpu not in (True, False, "auto"):
            raise ValueError(f"finish_on_gpu={finish_on_gpu!r}: True, False or 'auto'")
        if finish_on_gpu is True and not on_gpu:
            raise ValueError("finish_on_gpu=True without device='cuda'")
        self._channels_last = channels_last
        self._ahead = whole("ahead", ahead, 1)
        reader = open_dataset(source) if isinstance(source, str | os.PathLike) else source
        self._finishes: dict[str, Finish] = {}
        self.decode = check_mode(decode, gpu_share, on_gpu)
        self.gpu_share = 1.0 if decode == "gpu" else gpu_share
        if on_gpu and (finish_on_gpu or decode != "cpu") and options.get("pipelines"):
            known = reader.chosen_samples().reader if hasattr(reader, "chosen_samples") else reader
            dataset, names = known.dataset, known.field_names
            images = [
                name for name in options["pipelines"] if name in names and has_images(dataset.field(names.index(name)))
            ]
            options["pipelines"], self._finishes = split(options["pipelines"], images)
        self.loader = DataLoader(reader, batch_size, **options)
        self._images = [] if decode == "cpu" else gpu_images(self.loader)
        if on_gpu:
            from fastloader.torch.cuda import pinning

            self.loader.pinning = pinning()

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is: behind the batch it was given last; and how images are decoded, if not by the CPU."""
        state = super().state_dict()
        return state if self.decode == "cpu" else {**state, "decode": self.decode, "gpu_share": self.gpu_share}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state with the next pass, with the share that was measured then."""
        share = state_share(state, self.decode, self.gpu_share)
        super().load_state_dict(state)
        if self.decode == "hybrid" and share is not None:
            self._leave(share)

    def _leave(self, share: float) -> None:
        """Leave a share of the samples to the GPU."""
        self.gpu_share = share
        self.loader.close()
        self.loader.parts = {images.field: share for images in self._images}

    @property
    def sampler(self) -> Self:
        """Itself: Lightning tells the number of an epoch to the ``sampler`` of a loader, by ``set_epoch``."""
        return self

    @property
    def batch_sampler(self) -> None:
        """There is none; whoever finds a sampler asks for this too."""

    def __iter__(self) -> Iterator[Any]:
        # A pass begins with its first batch: Lightning asks for an iterator once only to see that there is one.
        if self._images and not self.loader.parts:
            self._leave(
                measured_share(self.loader, self._images, self.device) if self.gpu_share is None else self.gpu_share
            )
        yield from self._on_gpu() if self.device.type == "cuda" else self._on_cpu()

    def _on_cpu(self) -> Iterator[Any]:
        self._state = None
        for batch in self.loader:
            made = self._finished(to_tensors(batch))
            del batch
            yield made
            del made

    def _on_gpu(self) -> Iterator[Any]:
        from fastloader.torch.cuda import Copies

        copies = Copies(self.device, self._images)
        # nvJPEG works on the CPU too, and waits for the GPU: in a thread of its own, so that nobody waits for it.
        thread = ThreadPoolExecutor(1, "fastloader-nvjpeg") if self._images else None

        def begin(batch: Any) -> Any:
            host = to_tensors(batch)
            if thread is None:
                return copies.begin(host, self._finished)
            return thread.submit(copies.begin, host, self._finished)

        try:
            for begun in self._with_ahead(self._ahead, begin):
                batch = copies.give(*(begun.result() if isinstance(begun, Future) else begun))
                del begun
                yield batch
                del batch
        finally:
            if thread is not None:
                thread.shutdown(cancel_futures=True)
            copies.end()

    def _finished(self, batch: Any) -> Any:
        """What is done behind the engine, on the device."""
        if not isinstance(batch, dict):
            return batch
        for name, finish in self._finishes.items():
            batch[name] = finish(batch[name], self._channels_last)
        if self._channels_last:
            for name in self.loader.options.pipelines:
                if name not in self._finishes and name in batch:
                    batch[name] = _channels_last(batch[name])
        return batch


def _channels_last(images: Any) -> Any:
    """N x H x W x C, or N x C x H x W, as N x C x H x W with the channels last in memory."""
    if not isinstance(images, torch.Tensor) or images.ndim != 4:
        return images
    if images.shape[-1] in (1, 3, 4):
        return images.permute(0, 3, 1, 2)
    return images.contiguous(memory_format=torch.channels_last)
