"""Rows that a decoder of the user's fills: by the engine, by one native call for a batch, or by Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError
from fastloader.fields import RowDecoder
from fastloader.formats.fld import Dataset
from fastloader.pipeline import RowPipeline

Wrong = list[tuple[int, Exception]]
"""Rows that could not be made, and why."""


class Rows:
    """The rows of one field of the loader's batches."""

    def __init__(self, number: int, decoder: RowDecoder, pipeline: RowPipeline) -> None:
        self._number = number
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
            for i, _ in self.program.run_rows(rows, there, 0, numbers, out.reshape(-1).view(np.uint8)):
                wrong.append((i, self._why(metadata[i], payload(i))))
            return out, wrong
        for i in np.flatnonzero(there).tolist():
            try:
                self._decoder.fill(metadata[i], payload(i), out[i, ...])
            except Exception as error:
                out[i] = 0
                wrong.append((i, error))
        return out, wrong

    def why(self, dataset: Dataset, sample: int) -> Exception:
        """Why the compiled decoder failed on a sample: Python can say it."""
        shard, row = dataset.where(sample)
        file = dataset.file(shard)
        metadata = file.metadata_row(self._number, row, self._decoder.field.metadata_type)
        return self._why(metadata, file.payload(self._number, row))

    def _why(self, metadata: Any, payload: memoryview) -> Exception:
        try:
            self._decoder.fill(metadata, payload, self._row.zeros())
        except Exception as error:
            return error
        return DecodeError(
            f"the decoder {type(self._decoder).__name__} failed when compiled, and not in Python",
            hint="supports_jit = False keeps it in Python",
        )
