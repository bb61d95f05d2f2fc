"""Batches copied to a GPU beside its work: from pinned slots, on a stream of its own, without waiting."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import Any

from fastloader import kernels
from fastloader.torch.decoding import GpuImages
from fastloader.torch.library import torch

_RUNTIMES = ("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so")


def pinning() -> kernels.Pinning | None:
    """Has slots pinned by CUDA's runtime, the one that torch loaded; nothing where it can't be found."""
    for name in (*_loaded(), *_RUNTIMES):
        try:
            runtime = ctypes.CDLL(name)
            functions = [getattr(runtime, f"cudaHost{what}") for what in ("Register", "Unregister")]
        except (OSError, AttributeError):
            continue
        return kernels.Pinning(*(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions))
    return None


def _loaded() -> list[str]:
    """The runtime that is in this process already, by path."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "libcudart" in line})


class Copies:
    """Copies to one device. A batch that is on its way keeps its slot; when it is there, the slot goes back.

    ``images`` are fields that are decoded there.
    """

    def __init__(self, device: Any, images: Sequence[GpuImages] = ()) -> None:
        self._device = device
        self._images = images
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._decoding = torch.cuda.Stream(device) if images else None  # type: ignore[no-untyped-call]
        self._under_way: deque[tuple[Any, Any]] = deque()

    def begin(self, batch: Any, finish: Any) -> tuple[Any, Any]:
        """The batch on the device, and the event behind which it is there."""
        self._let_go()
        with torch.cuda.stream(self._stream):
            made = {one.field: one(batch[one.field].numpy(), self._device, self._decoding) for one in self._images}
            copied = _copied({name: batch[name] for name in batch if name not in made} if made else batch, self._device)
            if made:
                copied = {name: made[name][0] if name in made else copied[name] for name in batch}
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
            self._under_way.append((event, (batch, made)))
            finished = finish(copied)
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(self._stream)
        return finished, ready

    def give(self, batch: Any, ready: Any) -> Any:
        """The batch for whoever works on the current stream: its work there waits for the copy, the caller does not."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(ready)
        _used_by(batch, stream)
        return batch

    def end(self) -> None:
        """Wait for what is under way, so that no slot goes back while it is read from."""
        for event, _ in self._under_way:
            event.synchronize()
        self._under_way.clear()

    def _let_go(self) -> None:
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()


def _copied(value: Any, device: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {name: _copied(one, device) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(one, device) for one in value)
    return value


def _used_by(value: Any, stream: Any) -> None:
    if isinstance(value, torch.Tensor):
        value.record_stream(stream)
    elif isinstance(value, dict):
        for one in value.values():
            _used_by(one, stream)
    elif type(value) in (list, tuple):
        for one in value:
            _used_by(one, stream)
