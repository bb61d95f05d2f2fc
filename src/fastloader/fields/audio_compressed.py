"""Sound as encoded files: stored as they are, decoded where they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastloader.errors import DecodeError, FormatError
from fastloader.fields.audio import channel_count, limited, seconds
from fastloader.fields.base import Decoder, Encoded, Field, Lazy, PayloadBatch, ReadFunction
from fastloader.fields.sound_files import CODECS, SoundFacts, decode, encode, facts_of, resampled
from fastloader.fields.sound_values import as_sound, own_sound, whole_rate
from fastloader.types import Buffer, TypeId, format_size

ENCODINGS = ("flac", "opus")
METADATA = np.dtype([
    ("frames", "<u8"), ("sample_rate", "<u4"), ("channels", "<u2"), ("codec", "u1"), ("reserved", "u1"),
])  # fmt: skip


@dataclass(frozen=True, repr=False)
class EncodedAudio(Lazy):
    """A sound file in memory, and what is known of it. ``decode`` gives its samples, or some of them."""

    data: Buffer
    codec: str
    sample_rate: int
    channels: int
    frames: int

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.frames / self.sample_rate

    def decode(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Frames ``start`` to ``stop``: (frames,) of one channel, or (frames, channels), of floats from -1 to 1.

        Of a long file only what lies around them is decoded. They are what decoding all of it would give, to the last
        bit for WAV and FLAC; docs/reference/audio.md says what holds for the others.
        """
        start, stop, _ = slice(start, stop).indices(self.frames)
        facts = SoundFacts(self.frames, self.sample_rate, self.channels, self.codec)
        with self.blamed():
            samples = decode(self.data, facts, start, max(start, stop))
        return samples[:, 0] if self.channels == 1 else samples

    def check(self) -> None:
        """The file must be the one that is told of, and decode to its end."""
        with self.blamed():
            try:
                facts = facts_of(self.data)
            except ValueError as error:
                raise DecodeError(str(error)) from None
            if facts != SoundFacts(self.frames, self.sample_rate, self.channels, self.codec):
                raise FormatError(f"the file is {facts}, not the {self} stored here")
            decode(self.data, facts, 0, facts.frames)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("samples are decoded, so an array of them is always new")
        samples = self.decode()
        return samples if dtype is None else samples.astype(dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        given = bytes(self.data), self.codec, self.sample_rate, self.channels, self.frames
        return EncodedAudio, given, None if self.place is None else {"place": self.place}

    def __repr__(self) -> str:
        channels = f"{self.channels} channel{'' if self.channels == 1 else 's'}"
        return (
            f"EncodedAudio({self.codec}, {self.sample_rate} Hz, {channels}, {self.duration:.3f} s, "
            f"{format_size(len(self.data))})"
        )


class AudioCompressedDecoder(Decoder):
    """Gives files without decoding them."""

    def __call__(self, metadata: Any, read: ReadFunction) -> EncodedAudio:
        """The file, and what the metadata row says of it."""
        return self._made(metadata.tolist(), read())

    def batch(self, metadata: NDArray[Any], payloads: PayloadBatch) -> list[EncodedAudio | None]:
        """A list of files; ``None`` for what is missing."""
        there = (payloads.rows >= 0).tolist()
        return [
            self._made(row, data) if good else None
            for row, data, good in zip(metadata.tolist(), payloads.bytes(), there, strict=True)
        ]

    def _made(self, row: tuple[int, ...], data: Buffer) -> EncodedAudio:
        frames, rate, channels, codec, _ = row
        if codec >= len(CODECS) or not rate or not channels:
            raise FormatError(f"a sound of codec {codec}, {channels} channels at {rate} Hz: none is known")
        return EncodedAudio(data, CODECS[codec], rate, channels, frames)


@dataclass(frozen=True, slots=True)
class AudioCompressedField(Field):
    """Sound files: WAV, FLAC, Ogg Vorbis, Ogg Opus or MP3. Values are ``EncodedAudio``; pipelines decode segments.

    Takes files as a path, an open file or bytes, ``(array, rate)``, and arrays where ``sample_rate`` is given; those of
    two dimensions are (frames, channels).

    - ``encoding``: ``None`` stores files as they are, and arrays as FLAC. "flac" and "opus" encode everything that is
      something else. ``bits`` is FLAC's precision, 16 or 24.
    - ``sample_rate``, ``channels``: what every sound must have; ``None`` takes any. With ``encoding``, and for arrays,
      another rate is resampled by soxr. Lengths in seconds in a pipeline need the rate.
    - ``max_duration``: seconds; a longer sound is an error.
    - ``check``: files are decoded once on writing, and what does not decode to its end is refused. Else only what a
      file says of itself is checked.
    """

    encoding: str | None = None
    sample_rate: int | None = None
    channels: int | None = None
    max_duration: float | None = None
    bits: int = 16
    check: bool = False

    type_id: ClassVar[int] = TypeId.AUDIO_COMPRESSED

    def __post_init__(self) -> None:
        if self.encoding is not None and self.encoding not in ENCODINGS:
            raise ValueError(f"encoding={self.encoding!r}: None, {' or '.join(map(repr, ENCODINGS))}")
        if self.sample_rate is not None:
            object.__setattr__(self, "sample_rate", whole_rate("sample_rate", self.sample_rate))
        object.__setattr__(self, "channels", channel_count(self.channels))
        object.__setattr__(self, "max_duration", seconds("max_duration", self.max_duration))
        if isinstance(self.bits, bool) or self.bits not in (16, 24):
            raise ValueError(f"bits={self.bits!r}: 16 or 24")
        object.__setattr__(self, "bits", int(self.bits))
        object.__setattr__(self, "check", bool(self.check))

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Frames, sample rate, channels, codec."""
        return METADATA

    def prepare(self, value: Any) -> Any:
        """Copy arrays, read files."""
        return own_sound(value)

    def encode(self, value: Any) -> Encoded:
        """Files pass through; arrays, and what is to be something else, are encoded."""
        value = value if isinstance(value, bytes | np.ndarray) else own_sound(value)
        if isinstance(value, bytes):
            facts = facts_of(value)
            rate = self.sample_rate or facts.sample_rate
            if self.encoding is None and rate != facts.sample_rate:
                raise ValueError(
                    f"the file has {facts.sample_rate} Hz, and sample_rate is {rate}; "
                    "encoding='flac' resamples, encoding=None stores files as they are"
                )
            if self.encoding in (None, facts.codec) and rate == facts.sample_rate:
                if self.check:
                    decode(value, facts, 0, facts.frames)
                return self._stored(value, facts)
        samples, rate = as_sound(value, self.sample_rate, "last")
        wanted = self.sample_rate or rate
        samples = limited(resampled(samples, rate, wanted), wanted, self.max_duration, truncate=False)
        data = encode(samples, wanted, self.encoding or "flac", self.bits)
        return self._stored(data, facts_of(data))

    def _stored(self, data: bytes, facts: SoundFacts) -> Encoded:
        if not facts.frames:
            raise ValueError("a sound without samples")
        if self.channels is not None and facts.channels != self.channels:
            raise ValueError(f"expected {self.channels} channels, got {facts.channels}")
        if facts.channels > 0xFFFF:
            raise ValueError(f"a sound of {facts.channels} channels")
        if self.max_duration is not None and facts.frames > self.max_duration * facts.sample_rate:
            length = facts.frames / facts.sample_rate
            raise ValueError(f"the sound has {length:.3f} seconds, and max_duration is {self.max_duration:g}")
        return Encoded((facts.frames, facts.sample_rate, facts.channels, CODECS.index(facts.codec), 0), data)

    def get_decoder_class(self) -> type[Decoder]:
        """Gives files."""
        return AudioCompressedDecoder

    def collate(self, values: Sequence[Any]) -> list[Any]:
        """Always a list."""
        return list(values)
