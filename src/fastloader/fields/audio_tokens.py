"""Tokens of a neural codec, as few bits each as their codebook needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import FormatError
from fastloader.fields.base import Decoder, Encoded, Field, PayloadBatch, ReadFunction
from fastloader.fields.convert import whole
from fastloader.types import Buffer, TypeId, stack

METADATA = np.dtype([("frames", "<u8")])
MAX_CODEBOOKS = 1 << 16


class AudioTokensDecoder(Decoder):
    """Unpacks tokens."""

    field: AudioTokensField

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """(codebooks, frames) of the smallest unsigned type."""
        return self.field.unpack(read(), int(metadata["frames"]))

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> Any:
        """One array where all have one length, else a list."""
        values, offsets = payloads.ragged()
        ends = offsets.tolist()
        there = (payloads.rows >= 0).tolist()
        found = [
            self.field.unpack(values[ends[i] : ends[i + 1]], frames) if there[i] else None
            for i, frames in enumerate(metadata["frames"].tolist())
        ]
        return stack(found) if all(there) else found


@dataclass(frozen=True, slots=True)
class AudioTokensField(Field):
    """Tokens (codebooks, frames) of whole numbers below ``codebook_size``, each of as few bits as that needs.

    A run of frames lies together, so ``segment`` and pipelines unpack just what is asked for. ``max_frames``: more are
    an error.
    """

    codebooks: int
    codebook_size: int
    max_frames: int | None = None

    type_id: ClassVar[int] = TypeId.AUDIO_TOKENS
    worth_a_thread: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, most in (("codebooks", MAX_CODEBOOKS), ("codebook_size", 2**32)):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name}={getattr(self, name)}: from 1 to {most}")
        if self.max_frames is not None:
            object.__setattr__(self, "max_frames", whole("max_frames", self.max_frames))
            if self.max_frames < 0:
                raise ValueError(f"max_frames={self.max_frames}: at least 0, or None")

    @property
    def bits(self) -> int:
        """Bits of a token."""
        return max((self.codebook_size - 1).bit_length(), 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type that holds a token."""
        return np.dtype(np.min_scalar_type(self.codebook_size - 1))

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The number of frames."""
        return METADATA

    def encode(self, value: Any) -> Encoded:
        """Takes whole numbers (codebooks, frames), as an array or as lists."""
        array = np.asarray(value)
        if array.ndim != 2 or array.shape[0] != self.codebooks:
            raise ValueError(f"expected tokens ({self.codebooks}, frames), got the shape {array.shape}")
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError(f"expected whole numbers, got {array.dtype}")
        if self.max_frames is not None and array.shape[1] > self.max_frames:
            raise ValueError(f"{array.shape[1]} frames, and max_frames is {self.max_frames}")
        if array.size:
            low, high = int(array.min()), int(array.max())
            if low < 0 or high >= self.codebook_size:
                bad = low if low < 0 else high
                raise ValueError(f"the token {bad} is none of a codebook of {self.codebook_size}")
        frames = array.shape[1]
        packed = np.empty((frames * self.codebooks * self.bits + 7) // 8, np.uint8)
        tokens = np.ascontiguousarray(array, np.uint32)
        kernels.pack_tokens(tokens, self.codebooks, self.bits, packed)
        return Encoded((frames,), packed)

    def unpack(self, payload: Buffer, frames: int) -> NDArray[Any]:
        """All tokens of a payload."""
        if (frames * self.codebooks * self.bits + 7) // 8 != len(payload):
            raise FormatError(
                f"{frames} frames of {self.codebooks} tokens of {self.bits} bits are no payload of {len(payload)} bytes"
            )
        return self.segment(payload, 0, frames)

    def segment(self, payload: Buffer, start: int, stop: int) -> NDArray[Any]:
        """Frames ``start`` to ``stop`` of a payload (``reader.read_payload``), unpacked without the others."""
        if not 0 <= start <= stop:
            raise ValueError(f"frames {start} to {stop}: from 0 up, the lesser first")
        dtype = self.dtype
        if stop * self.codebooks * self.bits > len(payload) * 8:
            raise ValueError(f"frames {start} to {stop}: the payload has fewer")
        out = np.empty((self.codebooks, stop - start), dtype)
        kernels.unpack_tokens(payload, self.codebooks, self.bits, start, stop - start, dtype.itemsize, out)
        return out

    def get_decoder_class(self) -> type[Decoder]:
        """Reads tokens."""
        return AudioTokensDecoder

    def collate(self, values: Sequence[Any]) -> Any:
        """An array where lengths agree, else a list."""
        return stack(values)
