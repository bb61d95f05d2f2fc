"""Sounds for the page: their outline, and files that browsers play."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import FormatError
from fastloader.fields import AudioWaveformField, EncodedAudio
from fastloader.viewer.items import Item

WHOLE = 16_000_000
"""Frames up to which all of a sound is looked at; of longer ones, a little at each place."""
PIECE = 1 << 20
GLANCE = 512
"""Frames that are decoded at each place of a long sound."""


def samples_of(item: Item) -> tuple[Any, int, int]:
    """A sound as something that gives frames from one number to another; its frames and its rate."""
    value = item.value
    if isinstance(value, EncodedAudio):
        return value.decode, value.frames, value.sample_rate
    field = item.field
    if not isinstance(field, AudioWaveformField):
        raise FormatError("is no sound whose rate is known")
    floats = _floats(np.asarray(value))
    return (lambda start, stop: floats[start:stop]), len(floats), field.sample_rate


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    scale = np.float32(2**15 if array.dtype == np.int16 else 1)
    return np.asarray(array.astype(np.float32) / scale, np.float32)


def peaks(item: Item, count: int) -> dict[str, Any]:
    """The least and the greatest of ``count`` pieces of a sound, as hundredths of full scale."""
    read, frames, rate = samples_of(item)
    count = max(1, min(count, frames))
    edges = np.linspace(0, frames, count + 1).astype(np.int64)
    sampled = frames > WHOLE
    low, high = np.zeros(count), np.zeros(count)
    if sampled:
        for i, (begin, end) in enumerate(pairwise(edges.tolist())):
            part = np.asarray(read(begin, min(end, begin + GLANCE)))
            low[i], high[i] = part.min(initial=0), part.max(initial=0)
    else:
        step = max(PIECE // max(1, frames // count), 1)
        for first in range(0, count, step):
            last = min(first + step, count)
            part = np.asarray(read(int(edges[first]), int(edges[last])))
            mono_low, mono_high = (part, part) if part.ndim == 1 else (part.min(axis=1), part.max(axis=1))
            starts = edges[first:last] - edges[first]
            low[first:last] = np.minimum.reduceat(mono_low, starts)
            high[first:last] = np.maximum.reduceat(mono_high, starts)
    scale = 100 / max(1.0, float(np.abs([low, high]).max()))
    return {
        "low": np.rint(low * scale).astype(int).tolist(), "high": np.rint(high * scale).astype(int).tolist(),
        "seconds": frames / rate, "sampled": sampled,
    }  # fmt: skip


def wav(item: Item) -> bytes:
    """A sound kept as numbers, as a WAV file of 16 bits."""
    read, frames, rate = samples_of(item)
    return wav_of(np.asarray(read(0, frames)), rate)


def wav_of(sound: NDArray[Any], rate: int) -> bytes:
    """(frames,) or (frames, channels) of floats from -1 to 1."""
    whole = np.clip(np.rint(np.nan_to_num(sound) * 32768), -32768, 32767).astype("<i2")
    channels = 1 if whole.ndim == 1 else whole.shape[1]
    data: bytes = whole.tobytes()
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    return (
        b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<I", 16) + form
        + b"data" + struct.pack("<I", len(data)) + data
    )  # fmt: skip
