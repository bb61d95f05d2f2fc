"""The snapshots of a dataset, as people see them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastloader.formats.fld import Dataset, Manifest, is_sharded
from fastloader.formats.fld.history import drop_snapshots
from fastloader.formats.fld.snapshots import history
from fastloader.stores import ObjectPath
from fastloader.stores.local import locked

DAY = 86_400


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state of a dataset that can be opened: ``fl.open(path, snapshot=number)``, or its ``id``.

    ``time`` is in seconds since 1970; it, ``operation`` and ``summary`` are not known of one that no change led to.
    """

    number: int
    id: str
    num_samples: int
    time: int | None
    operation: str | None
    summary: str | None

    @classmethod
    def of(cls, manifest: Manifest) -> Snapshot:
        """What a manifest tells."""
        change = manifest.change
        return cls(
            manifest.snapshot, manifest.id, manifest.num_left,
            None if change is None else change.time,
            None if change is None else change.operation,
            None if change is None else change.summary,
        )  # fmt: skip


def snapshots_of(dataset: Dataset) -> list[Snapshot]:
    """All snapshots of a dataset, the newest first; a single file is one."""
    if not is_sharded(dataset.path):
        return [as_it_is(dataset)]
    return [Snapshot.of(manifest) for manifest in history(dataset.path)]


def drop_snapshots_of(dataset: Dataset, keep: int, unnamed_days: float | None = None) -> tuple[list[int], int]:
    """Forget all snapshots of a dataset but the newest ``keep``; ``unnamed_days`` is for what killed writers left."""
    if keep < 1:
        raise ValueError(f"keep={keep}: the newest snapshot stays")
    if unnamed_days is not None and not unnamed_days >= 0:
        raise ValueError(f"unnamed_days={unnamed_days}: a number of days, longer than any writer takes")
    if not is_sharded(dataset.path):
        return [], 0
    if isinstance(dataset.path, ObjectPath):
        return drop_snapshots(dataset.path, keep, None if unnamed_days is None else unnamed_days * DAY)
    with locked(dataset.path):
        return drop_snapshots(dataset.path, keep)


def as_it_is(dataset: Dataset) -> Snapshot:
    """The snapshot that is there, where there was nothing to do."""
    return replace(Snapshot.of(dataset.manifest), id=dataset.snapshot)
