"""Mel spectrograms, stored ready or made on writing. Values are (frames, n_mels): librosa's, transposed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastloader.fields.base import Decoder, Encoded, Field
from fastloader.fields.convert import whole
from fastloader.fields.ndarray import ArrayDecoder, NDArrayField
from fastloader.fields.sound_files import resampled
from fastloader.fields.sound_values import as_sound, made_mono, own_sound, whole_rate
from fastloader.mel import MelOptions
from fastloader.types import TypeId

DTYPES = ("float32", "float16")


@dataclass(frozen=True, kw_only=True)
class SpectrogramField(MelOptions, Field):
    """Mel spectrograms (frames, n_mels), as ``librosa.feature.melspectrogram`` and ``power_to_db`` make them.

    Takes a ready spectrogram, an array of two dimensions, time first; or a sound as ``AudioWaveformField`` takes it,
    whose channels are averaged, which is resampled to ``sample_rate`` and of which the spectrogram is made on writing.

    - ``max_frames``: a longer one is an error, or is cut with ``truncate``; ``None`` sets no limit.
    - ``dtype``: "float32", or "float16" with about three digits.
    - The other options are those of ``MelOptions``.
    """

    sample_rate: int = 16000
    max_frames: int | None = 1000
    truncate: bool = False
    dtype: str = "float32"

    type_id: ClassVar[int] = TypeId.AUDIO_SPECTROGRAM

    def __post_init__(self) -> None:
        self.check()
        object.__setattr__(self, "sample_rate", whole_rate("sample_rate", self.sample_rate))
        self.check_rate(self.sample_rate)
        if self.max_frames is not None:
            object.__setattr__(self, "max_frames", whole("max_frames", self.max_frames))
            if self.max_frames < 1:
                raise ValueError(f"max_frames={self.max_frames}: at least 1, or None")
        object.__setattr__(self, "truncate", bool(self.truncate))
        if self.truncate and self.max_frames is None:
            raise ValueError("truncate=True: to what length? Give max_frames= too")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: one of {', '.join(DTYPES)}")

    @property
    def array(self) -> NDArrayField:
        """How values are stored."""
        return NDArrayField(self.dtype, (None, self.n_mels))

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The number of frames."""
        return self.array.metadata_type

    def prepare(self, value: Any) -> Any:
        """Copy arrays, read files."""
        return own_sound(value)

    def encode(self, value: Any) -> Encoded:
        """A spectrogram as it is, or that of a sound."""
        value = value if isinstance(value, bytes | np.ndarray) else own_sound(value)
        if isinstance(value, np.ndarray) and value.ndim == 2:
            made = self._ready(value)
        else:
            samples, rate = as_sound(value, self.sample_rate, "last")
            sound = resampled(made_mono(samples), rate, self.sample_rate)[:, 0]
            made = self.spectrogram(sound, self.sample_rate)
        if self.max_frames is not None and len(made) > self.max_frames:
            if not self.truncate:
                raise ValueError(
                    f"the spectrogram has {len(made)} frames, and max_frames is {self.max_frames}; "
                    "raise it, or give truncate=True to cut"
                )
            made = made[: self.max_frames]
        with np.errstate(over="ignore"):
            stored = made.astype(self.dtype)
        if not np.isfinite(stored).all():
            raise ValueError(f"the spectrogram has values that are NaN, infinite, or too large for {self.dtype}")
        return self.array.encode(stored)

    def _ready(self, array: Any) -> Any:
        if array.dtype.kind != "f":
            raise TypeError(f"expected a spectrogram of floats, got {array.dtype}")
        if array.shape[1] != self.n_mels or not len(array):
            hint = "; librosa's has bands first: give its .T" if array.shape[0] == self.n_mels else ""
            raise ValueError(f"expected a spectrogram (frames, {self.n_mels}), got {array.shape}{hint}")
        return array

    def get_decoder_class(self) -> type[Decoder]:
        """Reads arrays."""
        return ArrayDecoder
