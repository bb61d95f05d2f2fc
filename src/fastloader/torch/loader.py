"""``TorchLoader``: the engine's batches as tensors, on the CPU or copied to a GPU ahead of the step that needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Literal, Self

from fastloader.dataset import open_dataset
from fastloader.loader import DataLoader, WrappedLoader
from fastloader.samplers.checks import whole
from fastloader.torch.finishing import Finish, split
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
        if on_gpu and finish_on_gpu and options.get("pipelines"):
            options["pipelines"], self._finishes = split(options["pipelines"])
        self.loader = DataLoader(reader, batch_size, **options)
        if on_gpu:
            from fastloader.torch.cuda import pinning

            self.loader.pinning = pinning()

    @property
    def sampler(self) -> Self:
        """Itself: Lightning tells the number of an epoch to the ``sampler`` of a loader, by ``set_epoch``."""
        return self

    @property
    def batch_sampler(self) -> None:
        """There is none; whoever finds a sampler asks for this too."""

    def __iter__(self) -> Iterator[Any]:
        # A pass begins with its first batch: Lightning asks for an iterator once only to see that there is one.
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

        copies = Copies(self.device)
        try:
            for begun in self._with_ahead(self._ahead, lambda batch: copies.begin(to_tensors(batch), self._finished)):
                batch = copies.give(*begun)
                del begun
                yield batch
                del batch
        finally:
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
