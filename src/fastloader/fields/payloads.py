"""Where a batch decoder's payloads come from."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError

_MUCH = 16 << 20


@dataclass(frozen=True, slots=True)
class MappedPayloads:
    """A batch's payloads of one field, read from mapped files when asked for."""

    sources: list[kernels.Payloads]
    which: NDArray[np.int32] | None
    rows: NDArray[np.int64]

    def fixed(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """All payloads as one array (batch, *shape); each must have exactly that many bytes."""
        row_bytes = prod(shape) * dtype.itemsize
        if row_bytes * len(self.rows) > _MUCH:
            present = np.flatnonzero(self.rows >= 0)[:1]
            if not len(present):
                return np.broadcast_to(np.zeros((), dtype), (len(self.rows), *shape))
            self._check_size(int(present[0]), row_bytes)
        out = np.empty((len(self.rows), *shape), dtype)
        kernels.gather_fixed(self.sources, self.which, self.rows, row_bytes, out)
        return out

    def _check_size(self, position: int, row_bytes: int) -> None:
        """Options can claim any shape: before much memory is taken for it, a payload must have that size."""
        source = self.sources[0 if self.which is None else int(self.which[position])]
        try:
            size = source.extent(int(self.rows[position]))[2]
        except kernels.Failure as failure:
            raise FormatError(failure.args[1]) from failure
        if size != row_bytes:
            raise FormatError(f"the payload has {size} bytes, not {row_bytes}")

    def ragged(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All payloads one behind the other, and the ``batch + 1`` offsets between them."""
        return kernels.gather_ragged(self.sources, self.which, self.rows)

    def bytes(self) -> list[bytes]:
        """A bytes object for each payload."""
        return kernels.gather_bytes(self.sources, self.which, self.rows)

    def images(self, kind: int, shapes: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The pixels of all payloads one behind the other, and the offsets between them."""
        return kernels.image_decode_many(kind, self.sources, self.which, self.rows, shapes.view(np.uint32))
