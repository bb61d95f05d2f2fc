"""Sound as numbers. Time comes first: (frames,) for one channel, (frames, channels) for more."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields.base import Decoder, Encoded, Field, ReadFunction
from fastloader.fields.ndarray import ArrayDecoder, NDArrayField
from fastloader.fields.sound_files import resampled
from fastloader.fields.sound_values import LAYOUTS, MAX_CHANNELS, as_sound, made_mono, own_sound, whole_rate
from fastloader.types import TypeId

DTYPES = ("float32", "int16")


class AudioWaveformDecoder(ArrayDecoder):
    """Gives samples."""

    def __call__(self, metadata: Any, read: ReadFunction) -> NDArray[Any]:
        """(frames,), or (frames, channels)."""
        made = super().__call__(metadata, read)
        if made.ndim not in (1, 2):
            raise FormatError(f"the shape {made.shape} is no sound's")
        return made


@dataclass(frozen=True, slots=True)
class AudioWaveformField(Field):
    """Samples of a sound at one rate, ready to be read: the fastest, and the largest to keep.

    Takes arrays, ``(array, rate)``, and WAV, FLAC, Ogg Vorbis, Ogg Opus or MP3 as a path, an open file or bytes. What
    has another rate is resampled by soxr; an array without a rate has the field's. Integers count as parts of their
    range, so that sounds lie from -1 to 1; ``dtype`` "int16" stores them so, in steps of 1/32768.

    - ``mono``: channels are averaged, and values are (frames,). Else they are (frames, channels), of as many channels
      as the sound has, or of exactly ``channels``.
    - ``layout``: in arrays of two dimensions, channels come "last" or "first".
    - ``max_duration``: seconds. A longer sound is an error, or is cut with ``truncate``; ``None`` sets no limit.
    """

    sample_rate: int = 16000
    max_duration: float | None = 30.0
    mono: bool = True
    dtype: str = "float32"
    channels: int | None = None
    layout: str = "last"
    truncate: bool = False

    type_id: ClassVar[int] = TypeId.AUDIO_WAVEFORM

    def __post_init__(self) -> None:
        object.__setattr__(self, "sample_rate", whole_rate("sample_rate", self.sample_rate))
        object.__setattr__(self, "max_duration", seconds("max_duration", self.max_duration))
        object.__setattr__(self, "channels", channel_count(self.channels))
        for name in ("mono", "truncate"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: one of {', '.join(DTYPES)}")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout={self.layout!r}: one of {', '.join(LAYOUTS)}")
        if self.mono and self.channels not in (None, 1):
            raise ValueError(f"channels={self.channels} with mono=True; give mono=False")
        if self.truncate and self.max_duration is None:
            raise ValueError("truncate=True: to what length? Give max_duration= too")

    @property
    def array(self) -> NDArrayField:
        """How samples are stored."""
        if self.mono:
            return NDArrayField(self.dtype, (None,))
        return NDArrayField(self.dtype, None if self.channels is None else (None, self.channels))

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """The number of frames; the whole shape where the number of channels varies."""
        return self.array.metadata_type

    def prepare(self, value: Any) -> Any:
        """Copy arrays, read files."""
        return own_sound(value)

    def encode(self, value: Any) -> Encoded:
        """Samples of the field's rate, channels and type."""
        samples, rate = as_sound(value, self.sample_rate, self.layout)
        if self.dtype == "int16" and not isinstance(value, bytes) and np.abs(samples).max() > 1:
            raise ValueError(
                f"a sample of {np.abs(samples).max():g}: int16 takes floats from -1 to 1; scale them first"
            )
        if self.mono:
            samples = made_mono(samples)
        elif self.channels is not None and samples.shape[1] != self.channels:
            raise ValueError(f"expected {self.channels} channels, got {samples.shape[1]}")
        samples = limited(
            resampled(samples, rate, self.sample_rate), self.sample_rate, self.max_duration, self.truncate
        )
        if self.dtype == "int16":  # what resampling or a lossy codec made louder than full scale stays at it
            samples = np.clip(np.rint(samples * np.float32(2**15)), -(2**15), 2**15 - 1).astype(np.int16)
        return self.array.encode(samples[:, 0] if self.mono else samples)

    def get_decoder_class(self) -> type[Decoder]:
        """Reads samples."""
        return AudioWaveformDecoder


def limited(samples: NDArray[np.float32], rate: int, max_duration: float | None, truncate: bool) -> NDArray[np.float32]:
    """The sound, known to be no longer than it may be."""
    if not len(samples):
        raise ValueError("the sound is too short to have a sample at this rate")
    if max_duration is None or len(samples) <= (most := round(max_duration * rate)):
        return samples
    if truncate:
        return samples[:most]
    raise ValueError(
        f"the sound has {len(samples) / rate:.3f} seconds, and max_duration is {max_duration:g}; "
        "raise it, or give truncate=True to cut"
    )


def seconds(name: str, value: Any) -> float | None:
    """A time above 0, if there is one."""
    if value is None:
        return None
    if isinstance(value, bool | str):
        raise TypeError(f"{name}={value!r}: a number of seconds, or None")
    found = float(value)
    if not (math.isfinite(found) and found > 0):
        raise ValueError(f"{name}={value!r}: a number of seconds above 0, or None")
    return found


def channel_count(value: Any) -> int | None:
    """A number of channels, if there is one."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"channels={value!r}: a whole number, or None")
    if not 1 <= operator.index(value) <= MAX_CHANNELS:
        raise ValueError(f"channels={value!r}: from 1 to {MAX_CHANNELS}")
    return int(operator.index(value))
