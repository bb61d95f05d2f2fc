"""What people have in hand, taken as a sound: arrays, arrays with a rate, files and their bytes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.fields.files import file_bytes
from fastloader.fields.sound_files import decode, facts_of

MAX_CHANNELS = 64
LAYOUTS = ("last", "first")

_SCALES = {np.dtype(np.int16): 2.0**15, np.dtype(np.int32): 2.0**31}


def own_sound(value: Any) -> Any:
    """A value in our own memory: bytes of a file, an array, or (array, rate)."""
    data = getattr(value, "data", None)
    if hasattr(value, "codec") and isinstance(data, bytes | memoryview):  # an EncodedAudio that was read
        return bytes(data)
    value = file_bytes(value)
    if isinstance(value, bytes):
        return value
    if isinstance(value, tuple):
        if len(value) != 2:
            raise TypeError(f"a tuple of {len(value)}; a sound with its rate is (array, rate)")
        return np.array(value[0]), whole_rate("rate", value[1])
    return np.array(value)


def whole_rate(name: str, value: Any) -> int:
    """Samples a second."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        rate = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: a whole number of samples a second") from None
    if isinstance(value, bool) or not 1 <= rate <= 2**31 - 1:
        raise ValueError(f"{name}={value!r}: a number of samples a second, such as 16000")
    return int(rate)


def as_sound(value: Any, default_rate: int | None, layout: str) -> tuple[NDArray[np.float32], int]:
    """(frames, channels) of floats from -1 to 1, and their rate. A bare array has the ``default_rate``."""
    value = value if isinstance(value, bytes | np.ndarray) else own_sound(value)
    if isinstance(value, bytes):
        facts = facts_of(value)
        samples = decode(value, facts, 0, facts.frames)
        rate = facts.sample_rate
    elif isinstance(value, tuple):
        samples, rate = _frames(value[0], layout), value[1]
    else:
        if default_rate is None:
            raise ValueError("an array without its rate; give (array, rate), or the field a sample_rate")
        samples, rate = _frames(value, layout), default_rate
    if not len(samples):
        raise ValueError("a sound without samples")
    if not np.isfinite(samples).all():
        raise ValueError("the sound has samples that are NaN or infinite")
    return samples, rate


def _frames(array: NDArray[Any], layout: str) -> NDArray[np.float32]:
    """An array as (frames, channels) of floats."""
    if array.ndim not in (1, 2):
        raise ValueError(f"expected (frames,) or two dimensions, one of them channels, got the shape {array.shape}")
    samples = _floats(array)
    if samples.ndim == 1:
        return samples[:, None]
    if layout == "first":
        samples = samples.T
    frames, channels = samples.shape
    if channels == 0 or channels > MAX_CHANNELS or channels > max(frames, 1):
        other = "first" if layout == "last" else "last"
        raise ValueError(
            f"the shape {array.shape} would be {channels} channels of {frames} samples with channels {layout}; "
            f"where they come {other}, say so by layout={other!r}, or transpose it"
        )
    return np.ascontiguousarray(samples)


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    dtype = array.dtype.newbyteorder("=")
    if dtype.kind == "f" and dtype.itemsize <= 8:
        with np.errstate(over="ignore"):
            return array.astype(np.float32)
    if dtype in _SCALES:
        return (array / _SCALES[dtype]).astype(np.float32)
    if dtype == np.uint8:
        return ((array.astype(np.float32) - 128) / 128).astype(np.float32)
    raise TypeError(
        f"expected samples of float16, float32, float64, int16, int32 or uint8, got {array.dtype}; convert it first"
    )


def made_mono(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean of the channels, (frames, 1)."""
    if samples.shape[1] == 1:
        return samples
    total = samples[:, :1].copy()
    for channel in range(1, samples.shape[1]):
        total += samples[:, channel : channel + 1]
    return total / np.float32(samples.shape[1])
