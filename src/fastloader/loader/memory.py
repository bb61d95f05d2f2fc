"""The memory that batches take, in words."""

from __future__ import annotations

from collections.abc import Sequence

from fastloader.loader.columns import Column


def memory_lines(
    columns: Sequence[Column], samples: int, slots: int, largest: tuple[int, dict[str, int]] | None
) -> list[str]:
    """What the slot of a batch of so many samples takes, by field and in all.

    ``largest`` is what the engine counted: bytes of its largest slot, and by field. Fields whose samples differ in
    size are known from that alone.
    """
    total, counted = largest or (0, {})
    planned = {column.name: column.slot_bytes(samples) for column in columns}
    told = [f"memory of a batch of {samples} samples, for up to {slots} batches at a time:"]
    for name, size in planned.items():
        if size is not None:
            told.append(f"    {name!r}: {size:,} bytes")
        elif total:
            told.append(f"    {name!r}: {counted[name]:,} bytes in the largest so far")
        else:
            told.append(f"    {name!r}: as its samples need")
    known = [size for size in planned.values() if size is not None]
    if len(known) == len(planned):
        told.append(f"    in all: {sum(known):,} bytes")
    elif total:
        told.append(f"    in all: {total:,} bytes in the largest so far")
    else:
        told.append(f"    in all: {sum(known):,} bytes, and what samples need")
    return told
