"""What both benchmarks of torch share: a full epoch of each contestant, its CPU time, and what it copies of a batch."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil
import torch
from common import Result, interleave
from torch.utils._python_dispatch import TorchDispatchMode

from fastloader import kernels
from fastloader.torch import TorchLoader

WORKERS = 2
OURS = "TorchLoader"
ITERABLE = "torch's DataLoader, TorchIterableDataset"
"""Our own engine within torch's workers: there is no goal for that."""
OTHERS: dict[str, float] = {}
"""Which share of the machine other programs took, by contest."""


def torchs(dataset: Any, batch: int | None, workers: int = WORKERS) -> torch.utils.data.DataLoader[Any]:
    """Torch's own loader, as one would use it: shuffled, with workers that stay."""
    options: dict[str, Any] = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    if batch is not None:
        options |= {"shuffle": True, "drop_last": True}
    return torch.utils.data.DataLoader(dataset, batch, num_workers=workers, **options)


def cpu() -> float:
    """Seconds of CPU time of this process and of its workers, which stay."""
    times = [one.cpu_times() for one in (psutil.Process(), *psutil.Process().children(recursive=True))]
    return sum(one.user + one.system for one in times)


def busy() -> float:
    """Seconds that all CPUs of the machine worked, for whomever."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - times.guest - times.guest_nice


def contest(what: str, rounds: int, samples: int, contestants: dict[str, tuple[Iterable[Any], int]]) -> list[Result]:
    """Seconds of an epoch of ours in those of the others. Each comes with how many epochs are gone through at once."""
    used: dict[str, list[float]] = {name: [] for name in contestants}

    def run(name: str) -> float:
        loader, epochs = contestants[name]
        before, began = cpu(), time.perf_counter()
        seen = sum(len(batch["label"]) for _ in range(epochs) for batch in loader)
        took = time.perf_counter() - began
        used[name].append((cpu() - before) / epochs)
        assert seen == samples * epochs, f"{name}: {seen} samples"
        return took / epochs

    all_before, mine_before, began = busy(), cpu(), time.perf_counter()
    times = interleave(rounds, **{name: lambda name=name: run(name) for name in contestants})  # type: ignore[misc]
    seconds = (time.perf_counter() - began) * psutil.cpu_count()
    OTHERS[what] = (busy() - all_before - cpu() + mine_before) / seconds
    work = {name: statistics.median(spent[1:]) * 1000 / samples for name, spent in used.items()}
    return [
        Result(
            f"{what}, epoch of {OURS}", name, times[OURS] / times[name], "-" if name == ITERABLE else "<= 1",
            f"samples/s: {samples / times[name]:,.0f}, here {samples / times[OURS]:,.0f}; "
            f"CPU s per 1,000: {work[name]:.2g}, here {work[OURS]:.2g}",
        )
        for name in contestants if name != OURS
    ]  # fmt: skip


class Copied(TorchDispatchMode):
    """Counts the bytes that torch's operations write into new memory: stacking, converting, copying."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            alias = func._schema.returns[0].alias_info  # a view has one that is not written to
            if alias is None or alias.is_write:
                self.bytes += made.nbytes
        return made


def size_of(batch: dict[str, Any]) -> int:
    """Bytes of a batch's tensors."""
    return sum(value.nbytes for value in batch.values() if isinstance(value, torch.Tensor))


def copies(loader: Iterable[Any], by_hand: Callable[[], int] = lambda: 0) -> float:
    """How often the bytes of a batch are copied behind decoding, on their way into it: an epoch without workers.

    ``by_hand`` tells how many bytes a dataset copied with others than torch.
    """
    size, before = 0, by_hand()
    with Copied() as copied:
        for batch in loader:
            size += size_of(batch)
    return (copied.bytes + by_hand() - before) / size


class Slots:
    """Where the engine's slots lie, told by the functions that would pin them."""

    def __init__(self) -> None:
        self.areas: dict[int, int] = {}
        made = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
        gone = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self._functions = made(self._made), gone(self._gone)
        self.pinning = kernels.Pinning(*(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in self._functions))

    def _made(self, memory: int, size: int, flags: int) -> int:
        self.areas[memory] = size
        return 0

    def _gone(self, memory: int) -> int:
        self.areas.pop(memory, None)
        return 0

    def __contains__(self, tensor: torch.Tensor) -> bool:
        first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        return any(start <= first and last <= start + size for start, size in list(self.areas.items()))


def our_copies(loader: TorchLoader) -> tuple[float, float]:
    """The same of ours, and the share of the bytes of its tensors that lie in a slot the engine decoded into."""
    slots = Slots()
    loader.loader.pinning = slots.pinning
    inside = size = 0
    with Copied() as copied:
        for batch in loader:
            tensors = [value for value in batch.values() if isinstance(value, torch.Tensor)]
            size += sum(tensor.nbytes for tensor in tensors)
            inside += sum(tensor.nbytes for tensor in tensors if tensor in slots)
            del batch, tensors
    loader.close()
    return (copied.bytes + size - inside) / size, inside / size


def crowd() -> str:
    """How busy the machine was with others, for below the results."""
    shares = ", ".join(f"{share:.0%} ({what})" for what, share in OTHERS.items())
    return f"Meanwhile others took of the machine: {shares}. CPU times hardly depend on that, samples/s do."


def copying(what: str, ours: tuple[float, float], theirs: dict[str, float]) -> list[Result]:
    """Copies of ours against those of the others."""
    return [
        Result(
            f"{what}, copies of a batch by {OURS}", name, ours[0] / count, "0",
            f"copies of each byte behind decoding: {count:.2f}, here {ours[0]:.2f} ({ours[1]:.0%} in slots)",
        )
        for name, count in theirs.items()
    ]  # fmt: skip
