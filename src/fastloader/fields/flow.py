"""Optical flow: for each pixel of a frame, how far it has moved in the next."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields.base import Decoder, Encoded, Field, PayloadBatch, ReadFunction
from fastloader.fields.files import file_bytes
from fastloader.types import TypeId

ROW = np.dtype([("pairs", "<u4"), ("height", "<u4"), ("width", "<u4"), ("ndim", "<u4")])
STEP = 1 / 64
"""A step of KITTI's files, so that these are kept exactly."""
UNKNOWN = -(1 << 15)
"""What stands for a flow that is not known, among quantised ones."""
_FLO = b"PIEH"
_FLO_UNKNOWN = 1e9
_PNG = b"\x89PNG\r\n\x1a\n"


def read_flo(data: bytes) -> NDArray[np.float32]:
    """The flow (height, width, 2) of a Middlebury .flo file; what it calls unknown is NaN."""
    if len(data) < 12:
        raise ValueError("a .flo file of fewer than 12 bytes")
    width, height = struct.unpack_from("<ii", data, 4)
    if width < 1 or height < 1 or len(data) != 12 + 8 * width * height:
        raise ValueError(f"a .flo file of {len(data)} bytes that says it is {height}x{width}")
    flow = np.frombuffer(data, "<f4", offset=12).reshape(height, width, 2).astype(np.float32)
    flow[(np.abs(flow) > _FLO_UNKNOWN).any(axis=2)] = np.nan
    return flow


def read_kitti(data: bytes) -> NDArray[np.float32]:
    """The flow (height, width, 2) of a KITTI PNG file; where it has none, NaN."""
    try:
        shape = kernels.image_info(kernels.PNG, data)
        if shape[2:] != (3, 16):
            raise ValueError(f"a PNG of {shape[2]} channels of {shape[3]} bits; KITTI's flow has 3 of 16")
        pixels = kernels.decode_image(kernels.PNG, data, shape)
    except kernels.Failure as failure:
        raise ValueError(f"the PNG does not decode: {failure.args[1]}") from None
    flow: NDArray[np.float32] = (pixels[..., :2].astype(np.float32) - np.float32(32768)) / np.float32(64)
    flow[pixels[..., 2] == 0] = np.nan
    return flow


_READERS: dict[bytes, Callable[[bytes], NDArray[np.float32]]] = {_FLO: read_flo, _PNG: read_kitti}


def _flow(value: Any) -> NDArray[np.float32]:
    """A flow out of an array, a file, or its bytes."""
    value = file_bytes(value)
    if isinstance(value, bytes):
        for magic, read in _READERS.items():
            if value.startswith(magic):
                return read(value)
        raise ValueError(f"these bytes are neither a .flo file nor a PNG (they begin with {value[:8]!r})")
    if isinstance(value, list | tuple):
        flows = [_flow(one) for one in value]
        if not flows or any(one.shape != flows[0].shape or one.ndim != 3 for one in flows):
            raise ValueError(f"a list of flows has some, all of one size: {[one.shape for one in flows]}")
        return np.stack(flows)
    array = np.asarray(value)
    if array.dtype.kind != "f":
        raise TypeError(f"expected flow as floats, got {array.dtype}")
    if array.ndim not in (3, 4) or array.shape[-1] != 2 or 0 in array.shape:
        raise ValueError(f"expected (height, width, 2) or (pairs, height, width, 2), got {array.shape}")
    if np.isinf(array).any():
        raise ValueError("flow that is infinite; NaN says that it is not known")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


class FlowDecoder(Decoder):
    """Gives float32."""

    field: OpticalFlowField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[np.float32]:
        """(height, width, 2), or (pairs, height, width, 2) where that was written; NaN where it is not known."""
        shape = _shape(metadata)
        payload = read()
        if len(payload) != 2 * prod(shape):
            raise FormatError(f"{len(payload)} bytes are no flow of {shape}")
        return self.field.restored(np.frombuffer(payload, "<i2"), shape)

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """(batch, ...) where all agree in shape, else a list."""
        values, offsets = payloads.ragged()
        ends = offsets.tolist()
        made: list[Any] = []
        for i, row in enumerate(metadata):
            if payloads.rows[i] < 0:
                made.append(None)
                continue
            payload = values[ends[i] : ends[i + 1]].data
            made.append(self(row, lambda payload=payload: payload))  # type: ignore[misc]
        blank = next((one for one in made if one is not None), None)
        if blank is None:
            return made
        return self.field.collate([np.zeros_like(blank) if one is None else one for one in made])


def _shape(metadata: Any) -> tuple[int, ...]:
    pairs, height, width, ndim = (int(metadata[name]) for name in ROW.names or ())
    if ndim not in (3, 4) or (ndim == 3 and pairs != 1):
        raise FormatError(f"no flow has {pairs} pairs in {ndim} dimensions")
    return (pairs, height, width, 2)[4 - ndim :]


@dataclass(frozen=True, slots=True)
class OpticalFlowField(Field):
    """Flow in pixels, across and down: (height, width, 2), or (pairs, height, width, 2) for a video's frame pairs.

    Takes arrays of floats, Middlebury .flo and KITTI PNG files or their bytes, and lists of those. NaN stands for flow
    that is not known. Reading gives float32.

    - ``dtype="float16"``: a value is off by at most 1 / 2048 of itself, or by 2**-25 where that is more.
    - ``dtype="int16"``: whole multiples of ``step`` (1 / 64 pixel unless told, which is KITTI's), so a value is off by
      at most half a step; the largest is 32,767 steps. Differences along a row are stored, which compress well.

    Values beyond the largest are refused. Payloads are compressed by zstd, unless the writer is told otherwise.
    """

    dtype: str = "float16"
    step: float | None = None

    type_id: ClassVar[int] = TypeId.VIDEO_OPTICAL_FLOW
    usual_compression: ClassVar[str | None] = "zstd"

    def __post_init__(self) -> None:
        if self.dtype not in ("float16", "int16"):
            raise ValueError(f"dtype={self.dtype!r}: 'float16' or 'int16'")
        if self.dtype == "float16":
            if self.step is not None:
                raise ValueError(f"step={self.step!r} is for dtype='int16'")
            return
        step = STEP if self.step is None else self.step
        if isinstance(step, bool) or not isinstance(step, int | float | np.integer | np.floating):
            raise TypeError(f"step={self.step!r}: a number of pixels")
        if not (isfinite(step) and 1e-6 <= step <= 1e6):
            raise ValueError(f"step={self.step!r}: from 1e-6 to 1e6 pixels")
        object.__setattr__(self, "step", float(step))

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Pairs, height, width, and the number of dimensions."""
        return ROW

    def prepare(self, value: Any) -> Any:
        """Flow as an array of our own, read now if files are named."""
        return _flow(value)

    def encode(self, value: Any) -> Encoded:
        """Numbers of 16 bits."""
        flow = _flow(value)
        pairs, height, width = flow.shape[-4:-1] if flow.ndim == 4 else (1, *flow.shape[:2])
        largest = float(np.nanmax(np.abs(flow), initial=0.0))
        if largest > self.largest:
            raise ValueError(f"a flow of {largest:g} pixels; {self!r} holds up to {self.largest:g}")
        return Encoded((pairs, height, width, flow.ndim), self._stored(flow).tobytes())

    @property
    def largest(self) -> float:
        """The most pixels that a flow may have."""
        return 65504.0 if self.step is None else 32767 * self.step

    def _stored(self, flow: NDArray[np.float32]) -> NDArray[Any]:
        if self.step is None:
            return flow.astype("<f2")
        with np.errstate(invalid="ignore"):
            steps = np.rint(flow.astype(np.float64) / self.step)
        numbers = np.where(np.isnan(steps), UNKNOWN, steps).astype("<i2")
        differences = numbers.copy()  # which wrap round, and back
        differences[..., 1:, :] -= numbers[..., :-1, :]
        return differences

    def restored(self, stored: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Flow from the numbers of a payload."""
        if self.step is None:
            return stored.view("<f2").reshape(shape).astype(np.float32)
        numbers = np.cumsum(stored.reshape(shape), axis=-2, dtype=np.int16)
        flow = (numbers * self.step).astype(np.float32)
        flow[numbers == UNKNOWN] = np.nan
        return flow

    def get_decoder_class(self) -> type[Decoder]:
        """Reads flow."""
        return FlowDecoder
