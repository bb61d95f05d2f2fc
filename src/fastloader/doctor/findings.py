"""All that was measured, each part by itself, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader.doctor.disk import Disk
from fastloader.doctor.loading import Run
from fastloader.doctor.memory import Copying
from fastloader.doctor.network import Network


@dataclass(frozen=True, slots=True)
class FieldWork:
    """What a field takes for a sample. Seconds are those of one CPU.

    - ``cpu``: as it is loaded, with its operations; ``alone``: only brought to memory and decoded.
    - ``stored_bytes``, ``unpacked_bytes``: before and after decoding; ``decoded_bytes``: in the batch.
    - ``resize``: its images, whole, resized to ``resize_to``, which is what its operations make of them or, where there
      are none (``resize_is_used`` is False), 224 x 224; ``None`` for what is no image.
    """

    name: str
    type: str
    cpu: float
    alone: float
    stored_bytes: float
    unpacked_bytes: float
    decoded_bytes: float
    has_operations: bool = False
    resize: float | None = None
    resize_to: tuple[int, int] | None = None
    resize_is_used: bool = False


@dataclass(frozen=True, slots=True)
class Consumption:
    """What is done with batches: ``seconds`` for each. ``said`` tells from where that is known."""

    seconds: float
    said: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that a diagnosis rests on. Of ``disk`` and ``network`` one is there.

    ``cold`` is the loader on files that were not in memory, ``hot`` on some samples that were; of objects in a store
    there is only ``cold``. ``with_consumer`` is the loader with what consumes its batches.
    """

    path: str
    order: str
    batch_size: int
    num_samples: int
    num_bytes: int
    cpus: int
    threads: int
    memory_available: int
    memory_total: int
    cold: Run
    hot: Run | None
    with_consumer: Run | None
    fields: tuple[FieldWork, ...]
    copying: Copying
    disk: Disk | None = None
    network: Network | None = None
    consumption: Consumption | None = None
    seconds: float = 0.0

    @property
    def runs(self) -> list[tuple[str, Run]]:
        """The loader as it was run, by what sets the runs apart."""
        cold = "loader" if self.hot is None else "loader, cold"
        named = ((cold, self.cold), ("loader, hot", self.hot), ("with consumer", self.with_consumer))
        return [(name, run) for name, run in named if run is not None]

    @property
    def fits(self) -> bool:
        """Whether a loader leaves the dataset to the page cache, so that it is read from disk once."""
        return self.disk is not None and self.num_bytes <= self.memory_available // 2

    @property
    def stored_bytes(self) -> float:
        """Bytes of a sample as they are stored."""
        return sum(field.stored_bytes for field in self.fields)

    @property
    def decoded_bytes(self) -> float:
        """Bytes of a sample in a batch."""
        return sum(field.decoded_bytes for field in self.fields)
