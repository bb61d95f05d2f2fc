"""The one door to soundfile and soxr, which ``fastloader[audio]`` brings: sound files read, written and resampled.

Decoding is native: soundfile loads libsndfile, and the native part is told where its functions are.
"""

from __future__ import annotations

import importlib
import io
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import DecodeError, MissingLibraryError
from fastloader.types import Buffer

CODECS = ("wav", "flac", "vorbis", "opus", "mp3")
"""Names of the codecs, at the index that is their number on disk."""
OPUS_RATES = (8000, 12000, 16000, 24000, 48000)

_WAV, _WAVEX, _RF64, _FLAC, _OGG, _MPEG = 0x01, 0x13, 0x22, 0x17, 0x20, 0x23
_CONTAINERS = {_WAV: "wav", _WAVEX: "wav", _RF64: "wav", _FLAC: "flac", _MPEG: "mp3"}
_IN_OGG = {0x60: "vorbis", 0x64: "opus"}
_FUNCTIONS = ("sf_open_virtual", "sf_close", "sf_seek", "sf_readf_float", "sf_strerror")


class SoundFacts(NamedTuple):
    """What a sound file says of itself."""

    frames: int
    sample_rate: int
    channels: int
    codec: str


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # soundfile may be there without its library
        raise MissingLibraryError(
            f"{name} is not installed ({error})", hint='pip install "fastloader[audio]" brings it'
        ) from error


def load_library() -> None:
    """Let the native part decode sound files."""
    soundfile = _module("soundfile")
    ffi, library = soundfile._ffi, soundfile._snd
    kernels.sound_library(*(int(ffi.cast("uintptr_t", getattr(library, name))) for name in _FUNCTIONS))


def facts_of(data: Buffer) -> SoundFacts:
    """What the bytes of a file say; ``ValueError`` for what is no sound, or one in another format."""
    load_library()
    if not len(data):
        raise ValueError("the file is empty")
    try:
        frames, rate, channels, form = kernels.sound_info(data)
    except kernels.Failure as failure:
        raise ValueError(f"the file {failure.args[1]}") from None
    container = form >> 16 & 0xFFF
    codec = _IN_OGG.get(form & 0xFFFF) if container == _OGG else _CONTAINERS.get(container)
    if codec is None:
        raise ValueError("the sound is none of WAV, FLAC, Ogg Vorbis, Ogg Opus and MP3; convert it, or decode it first")
    return SoundFacts(frames, rate, channels, codec)


def decode(data: Buffer, facts: SoundFacts, start: int, stop: int) -> NDArray[np.float32]:
    """Frames ``start`` to ``stop`` as (frames, channels); of the file only what is around them is decoded."""
    load_library()
    try:
        values = kernels.sound_decode(data, (facts.frames, facts.sample_rate, facts.channels), start, stop)
    except kernels.Failure as failure:
        raise DecodeError(f"the {facts.codec} file {failure.args[1]}") from None
    return values.reshape(-1, facts.channels)


def encode(samples: NDArray[np.float32], sample_rate: int, codec: str, bits: int) -> bytes:
    """A FLAC or Ogg Opus file of (frames, channels)."""
    soundfile = _module("soundfile")
    if codec == "opus" and sample_rate not in OPUS_RATES:
        raise ValueError(f"Opus has no {sample_rate} Hz; it takes {', '.join(map(str, OPUS_RATES))}: give sample_rate=")
    file = io.BytesIO()
    container, subtype = ("OGG", "OPUS") if codec == "opus" else ("FLAC", f"PCM_{bits}")
    data: NDArray[Any] = samples
    if codec == "flac":  # rounded here, for libsndfile's own scaling is another
        scale = 2.0 ** (bits - 1)
        data = np.clip(np.rint(samples.astype(np.float64) * scale), -scale, scale - 1).astype(np.int32)
        data <<= 32 - bits
    try:
        soundfile.write(file, data, sample_rate, format=container, subtype=subtype)
    except Exception as error:
        channels = samples.shape[1]
        raise ValueError(f"{codec} can't hold {channels} channels at {sample_rate} Hz: {error}") from None
    return _without_chance(file.getvalue()) if codec == "opus" else file.getvalue()


def _without_chance(ogg: bytes) -> bytes:
    """The file with 0 for the random number that marks its pages: the same sound is the same bytes."""
    made = bytearray(ogg)
    at = 0
    while at < len(made):
        segments = made[at + 26]
        end = at + 27 + segments + sum(made[at + 27 : at + 27 + segments])
        made[at + 14 : at + 18] = made[at + 22 : at + 26] = bytes(4)  # the number, and the checksum that covers it
        crc = 0
        for byte in made[at:end]:
            crc = (crc << 8) & 0xFFFFFFFF ^ _OGG_CRC[crc >> 24 ^ byte]
        made[at + 22 : at + 26] = crc.to_bytes(4, "little")
        at = end
    return bytes(made)


def _shifted(crc: int) -> int:
    for _ in range(8):
        crc = (crc << 1) & 0xFFFFFFFF ^ (0x04C11DB7 if crc >> 31 else 0)
    return crc


_OGG_CRC = [_shifted(byte << 24) for byte in range(256)]


def resampled(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """(frames, channels) at another rate, by soxr at its high quality."""
    if rate == wanted:
        return samples
    made: NDArray[np.float32] = _module("soxr").resample(samples, rate, wanted, quality="HQ")
    return made
