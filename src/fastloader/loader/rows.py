"""Rows that a decoder of the user's fills: by the engine, by one native call for a batch, or by Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import OperationError
from fastloader.fields import RowDecoder
from fastloader.pipeline import RowPipeline

Wrong = list[tuple[int, Exception]]
"""Rows that could not be made, and why."""


def why(message: str, again: Callable[[], None]) -> Exception:
    """Why a compiled function failed: Python, which does the same, can say it."""
    try:
        again()
    except Exception as error:
        return error
    return OperationError(
        f"{message} when compiled, and not in Python", hint="jit=False, supports_jit = False keep it there"
    )


class Rows:
    """The rows of one field of the loader's batches."""

    def __init__(self, decoder: RowDecoder, pipeline: RowPipeline) -> None:
        self._decoder = decoder
        self._row = pipeline.row
        self.program = pipeline.program

    @property
    def needs_python(self) -> bool:
        """Whether Python runs once a sample."""
        return self.program is None

    @property
    def by_engine(self) -> bool:
        """Whether the engine makes them; it does so from payloads."""
        return self.program is not None and self._decoder.field.has_payload

    def programs(self) -> list[tuple[kernels.Program, bool]]:
        """As the engine takes them."""
        return [] if self.program is None else [(self.program, False)]

    def made(self, data: NDArray[np.uint8], samples: int) -> NDArray[Any]:
        """The engine's bytes as rows."""
        if not len(data):  # nothing was there, so nothing was allocated
            return np.broadcast_to(np.zeros((), self._row.dtype), (samples, *self._row.shape))
        return data.view(self._row.dtype).reshape(samples, *self._row.shape)

    def make(
        self, metadata: NDArray[Any], there: NDArray[np.bool_], payload: Callable[[int], memoryview]
    ) -> tuple[NDArray[Any], Wrong]:
        """Rows of a batch, and which of them could not be made; what is not ``there`` is zeros."""
        out = self._row.zeros(len(metadata))
        wrong: Wrong = []
        if self.program is not None:
            numbers = np.zeros(len(metadata), np.int64)  # a decoder draws nothing
            rows = metadata.view(np.uint8) if metadata.itemsize else b""
            for i, message in self.program.run_rows(rows, there, 0, numbers, out.reshape(-1).view(np.uint8)):
                wrong.append((i, why(message, partial(self.again, metadata[i], payload(i)))))
            return out, wrong
        for i in np.flatnonzero(there).tolist():
            try:
                self._decoder.fill(metadata[i], payload(i), out[i, ...])
            except Exception as error:
                out[i] = 0
                wrong.append((i, error))
        return out, wrong

    def again(self, metadata: Any, payload: memoryview) -> None:
        """One row by Python, which tells more when it fails."""
        self._decoder.fill(metadata, payload, self._row.zeros())
