"""Dictionaries made of the first samples, for payloads too small to be compressed each on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastloader import kernels
from fastloader.formats.fld import Dataset, FieldSpec
from fastloader.types import byte_view
from fastloader.writer.encoding import Dictionary

LEARNED = 100
"""Bytes that are looked at for each byte of a dictionary."""
MOST_SAMPLES = 1 << 17
HELD_BYTES = 16 << 20
"""Samples that wait for the dictionaries, so that they are compressed with them too."""

Dictionaries = dict[int, Dictionary]
"""By number of the field."""


class Training:
    """Looks at samples until dictionaries can be made of them.

    How many that are depends on the samples alone, so that the file does not depend on threads. ``held`` says whether
    those looked at so far can wait. Where they are too large for that, as images are, they are stored without.
    """

    def __init__(self, specs: Sequence[FieldSpec], known: Dictionaries) -> None:
        self._wanted = {
            i: spec.field.dictionary_bytes
            for i, spec in enumerate(specs)
            if spec.codec == kernels.ZSTD and spec.field.dictionary_bytes and i not in known
        }
        self._fields = [spec.field for spec in specs]
        self._known = known
        self._payloads: dict[int, list[bytes]] = {i: [] for i in self._wanted}
        self._sizes = dict.fromkeys(self._wanted, 0)
        self._samples = 0
        self._bytes = 0

    @property
    def wanted(self) -> bool:
        """Whether there is anything to learn."""
        return bool(self._wanted)

    @property
    def held(self) -> bool:
        """Whether all samples looked at wait for their dictionaries."""
        return self._bytes <= HELD_BYTES

    def look(self, values: Sequence[Any], size: int) -> bool:
        """One sample more, of about ``size`` bytes; whether there are enough now."""
        self._samples += 1
        self._bytes += size
        for i, payloads in self._payloads.items():
            if values[i] is None or self._sizes[i] >= LEARNED * self._wanted[i]:
                continue
            try:
                payload = bytes(byte_view(self._fields[i].encode(values[i]).payload))
            except Exception:  # told, with the sample's number, when it is encoded to be stored
                continue
            payloads.append(payload)
            self._sizes[i] += len(payload)
        enough = all(self._sizes[i] >= LEARNED * size for i, size in self._wanted.items())
        return enough or self._samples >= MOST_SAMPLES

    def finish(self) -> Dictionaries:
        """The dictionaries, with those known before; none for a field with too little to learn from."""
        made = {i: kernels.train_dictionary(self._payloads[i], size) for i, size in self._wanted.items()}
        return self._known | {i: Dictionary.of(data) for i, data in made.items() if data}


def known_dictionaries(existing: Dataset | None, specs: Sequence[FieldSpec]) -> Dictionaries:
    """Those of the newest shard of a dataset that is added to."""
    if existing is None:
        return {}
    newest = existing.file(len(existing.shards) - 1)
    found = {i: newest.dictionary(i) for i, spec in enumerate(specs) if spec.codec == kernels.ZSTD}
    return {i: Dictionary.of(data) for i, data in found.items() if data is not None}
