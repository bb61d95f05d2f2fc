"""Operations on sounds, spectrograms and tokens. Time comes first: (frames,), (frames, channels), (frames, bands)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fastloader import kernels
from fastloader.mel import MelOptions
from fastloader.ops.base import likelihood, number, spread, whole

MAX_FRAMES = 1 << 40
MAX_RATE = 2**31 - 1
ALIGNMENTS = ("start", "center", "end")


@dataclass(frozen=True, slots=True)
class Sound:
    """What lies between two operations; what differs from sample to sample is ``None``.

    ``width`` is the number of channels, of bands where ``kind`` is "spectrogram", or of codebooks where it is "tokens".
    ``rate`` is in samples a second, 0 where nothing is known of it.
    """

    frames: int | None
    width: int | None = 1
    rate: int | None = 0
    kind: str = "sound"
    dtype: str = "float32"
    bands_first: bool = False
    flat: bool = False
    """Of tokens: those of a text, which has no codebooks."""

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of a value: tokens have codebooks first, and one channel is no dimension."""
        if self.flat or (self.kind == "sound" and self.width == 1):
            return (self.frames,)
        first = self.kind == "tokens" or self.bands_first
        return (self.width, self.frames) if first else (self.frames, self.width)

    def __str__(self) -> str:
        sides = ", ".join("?" if side is None else str(side) for side in self.shape)
        rate = "" if self.rate == 0 else f" at {'any rate' if self.rate is None else f'{self.rate} Hz'}"
        return f"({sides}{',' if len(self.shape) == 1 else ''}) {self.dtype} {self.kind}{rate}"


class SoundStep(NamedTuple):
    """A native step: one of ``kernels.SOUND_STEPS``, as many numbers as it takes, what makes a spectrogram."""

    kind: str
    numbers: tuple[float, ...] = ()
    mel: kernels.Mel | None = None


class SoundOp(ABC):
    """One operation on sounds. Subclasses are frozen dataclasses whose attributes are their options."""

    @abstractmethod
    def output(self, given: Sound) -> Sound:
        """What comes out of it; raises ``ValueError`` where it can't take what is given."""

    @abstractmethod
    def step(self, given: Sound) -> SoundStep:
        """The native step, over what is given."""


class SampleOp(SoundOp):
    """An operation on samples, which changes neither how many there are nor what they are."""

    def output(self, given: Sound) -> Sound:
        """Unchanged in shape and type."""
        check_sound(given)
        return given


def check_sound(given: Sound) -> None:
    """Samples, no spectrogram of them."""
    if given.kind != "sound":
        raise ValueError(f"takes a sound, and gets {given.kind}: put it before MelSpectrogram")


def _length(op: Any, seconds_name: str) -> None:
    """Exactly one of seconds and frames, checked."""
    seconds = getattr(op, seconds_name)
    if (seconds is None) == (op.frames is None):
        raise ValueError(f"{type(op).__name__}: a length, in {seconds_name} or by frames=")
    if seconds is not None:
        found = number(seconds_name, seconds, 0, 1e9)
        if found == 0:
            raise ValueError(f"{seconds_name}={seconds!r}: above 0")
        object.__setattr__(op, seconds_name, found)
    else:
        object.__setattr__(op, "frames", whole("frames", op.frames, 1, MAX_FRAMES))


def _frames(seconds: float | None, frames: int | None, given: Sound) -> int | None:
    """How many frames that is, where it is known before a file is."""
    if frames is not None:
        return frames
    assert seconds is not None
    if given.rate == 0:
        raise ValueError(f"has a length in seconds, and nothing is known of the rate of {given.kind}: give it frames=")
    if given.rate is None:
        return None
    made = math.floor(seconds * given.rate + 0.5)
    if made < 1:
        raise ValueError(f"has a length of {seconds:g} seconds, less than one sample at {given.rate} Hz")
    return made


def _numbers(seconds: float | None, frames: int | None) -> tuple[float, float]:
    return (float(frames), 0.0) if frames is not None else (float(seconds or 0), 1.0)


@dataclass(frozen=True)
class RandomSegment(SoundOp):
    """A part of this length from anywhere in the sound, in seconds or by ``frames=``.

    As the first operation it decides what is read: of a stored waveform only the part is copied, of a file only what
    lies around it is decoded, of tokens only the part is unpacked. A shorter sound is an error of its sample; with
    ``pad`` it gets zeros at its end.
    """

    seconds: float | None = None
    frames: int | None = None
    pad: bool = False

    def __post_init__(self) -> None:
        _length(self, "seconds")
        object.__setattr__(self, "pad", bool(self.pad))

    def output(self, given: Sound) -> Sound:
        """Of that length."""
        frames = _frames(self.seconds, self.frames, given)
        if not self.pad and frames is not None and given.frames is not None and given.frames < frames:
            raise ValueError(f"takes {frames} frames, and gets {given.frames}")
        return replace(given, frames=frames)

    def step(self, given: Sound) -> SoundStep:
        """Narrows what is read."""
        return SoundStep("segment", (*_numbers(self.seconds, self.frames), float(self.pad)))


@dataclass(frozen=True)
class PadOrTrim(SoundOp):
    """Exactly this length, in seconds or by ``frames=``: the rest is cut, or ``value`` is added.

    ``align``: the sound stays at the "start", in the "center" or at the "end" of what comes out.
    """

    seconds: float | None = None
    frames: int | None = None
    align: str = "start"
    value: float = 0.0

    def __post_init__(self) -> None:
        _length(self, "seconds")
        if self.align not in ALIGNMENTS:
            raise ValueError(f"align={self.align!r}: one of {', '.join(ALIGNMENTS)}")
        object.__setattr__(self, "value", number("value", self.value, -3e38, 3e38))

    def output(self, given: Sound) -> Sound:
        """Of that length."""
        if given.kind == "tokens":
            most = np.iinfo(given.dtype).max
            if not (self.value.is_integer() and 0 <= self.value <= most):
                raise ValueError(f"has value={self.value:g} for tokens of {given.dtype}: a whole number up to {most}")
        return replace(given, frames=_frames(self.seconds, self.frames, given))

    def step(self, given: Sound) -> SoundStep:
        """Narrows what is read, or adds to it."""
        align = float(ALIGNMENTS.index(self.align))
        return SoundStep("fit", (*_numbers(self.seconds, self.frames), align, self.value))


@dataclass(frozen=True)
class Resample(SoundOp):
    """Another sample rate, by a sinc of 64 zero crossings under a Kaiser window. Put it behind ``RandomSegment``."""

    rate: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", whole("rate", self.rate, 1, MAX_RATE))

    def output(self, given: Sound) -> Sound:
        """``ceil(frames * rate / given rate)`` frames."""
        check_sound(given)
        if given.rate == 0:
            raise ValueError("takes a sound whose rate is known, as AudioWaveformField's is")
        frames = None
        if given.rate is not None:
            try:
                kernels.resample_sound(np.zeros(0, np.float32), 1, given.rate, self.rate)
            except kernels.Failure as failure:
                raise ValueError(f"can't: {failure.args[1]}; give the field this sample_rate on writing") from None
            frames = None if given.frames is None else -(-given.frames * self.rate // given.rate)
        return replace(given, rate=self.rate, frames=frames)

    def step(self, given: Sound) -> SoundStep:
        """From the rate there is."""
        return SoundStep("resample", (float(self.rate),))


@dataclass(frozen=True)
class Mono(SoundOp):
    """The mean of all channels."""

    def output(self, given: Sound) -> Sound:
        """Of one channel."""
        check_sound(given)
        return replace(given, width=1)

    def step(self, given: Sound) -> SoundStep:
        """An average."""
        return SoundStep("mono")


@dataclass(frozen=True)
class Gain(SampleOp):
    """Louder or softer by a number of decibels from a range, or from ``-db`` to ``db``, with likelihood ``p``."""

    db: float | tuple[float, float]
    p: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "db", spread("db", self.db, -300, 300))
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self, given: Sound) -> SoundStep:
        """A factor."""
        return SoundStep("gain", (self.p, *spread("db", self.db, -300, 300)))


@dataclass(frozen=True)
class AddNoise(SampleOp):
    """White normal noise; the sound lies ``snr`` decibels above it, one number or a range. Silence stays silent."""

    snr: float | tuple[float, float] = (10.0, 40.0)
    p: float = 1.0

    def __post_init__(self) -> None:
        given = self.snr if isinstance(self.snr, tuple | list) else (self.snr, self.snr)
        object.__setattr__(self, "snr", spread("snr", tuple(given), -300, 300))
        object.__setattr__(self, "p", likelihood(self.p))

    def step(self, given: Sound) -> SoundStep:
        """Noise of a level."""
        return SoundStep("noise", (self.p, *spread("snr", self.snr, -300, 300)))


@dataclass(frozen=True)
class TimeShift(SampleOp):
    """Moved earlier or later by up to so many seconds, or ``frames=``.

    What leaves at one end comes in at the other with ``wrap``; else there is silence.
    """

    seconds: float | None = None
    frames: int | None = None
    wrap: bool = False
    p: float = 1.0

    def __post_init__(self) -> None:
        _length(self, "seconds")
        object.__setattr__(self, "wrap", bool(self.wrap))
        object.__setattr__(self, "p", likelihood(self.p))

    def output(self, given: Sound) -> Sound:
        """Unchanged in shape and type."""
        check_sound(given)
        _frames(self.seconds, self.frames, given)
        return given

    def step(self, given: Sound) -> SoundStep:
        """A move."""
        return SoundStep("shift", (self.p, *_numbers(self.seconds, self.frames), float(self.wrap)))


@dataclass(frozen=True, kw_only=True)
class MelSpectrogram(MelOptions, SoundOp):
    """The mel spectrogram as librosa makes it, (frames, n_mels); the options are those of ``MelOptions``.

    ``bands_first`` makes it (n_mels, frames), as librosa has it; ``dtype`` is "float32" or "float16".
    """

    bands_first: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        self.check()
        object.__setattr__(self, "bands_first", bool(self.bands_first))
        if self.dtype not in ("float32", "float16"):
            raise ValueError(f"dtype={self.dtype!r}: float32 or float16")

    def output(self, given: Sound) -> Sound:
        """As many frames as fit."""
        check_sound(given)
        if given.width != 1:
            raise ValueError(f"takes one channel, and gets {given.width or 'any number'}: put Mono() before it")
        if not given.rate:
            raise ValueError("takes a sound of one known rate: put Resample(rate) before it")
        maker = self.maker(given.rate)
        frames = None if given.frames is None else maker.frames(given.frames)
        if frames == 0:
            raise ValueError(f"with n_fft={self.n_fft} takes longer sounds than {given.frames} samples")
        return Sound(frames, self.n_mels, 0, "spectrogram", self.dtype, self.bands_first)

    def step(self, given: Sound) -> SoundStep:
        """A spectrogram."""
        return SoundStep("mel", (), self.maker(given.rate or 0))


@dataclass(frozen=True)
class SpecAugment(SoundOp):
    """Masks over a spectrogram, as in the paper: runs of frames and runs of bands get one value.

    ``time_masks`` masks of up to ``time_width`` frames, but of at most the share ``time_share`` of all; ``band_masks``
    masks of up to ``band_width`` bands. ``fill`` is a number, or "mean" for the spectrogram's own.
    """

    time_masks: int = 2
    time_width: int = 100
    band_masks: int = 2
    band_width: int = 27
    time_share: float = 1.0
    fill: float | str = 0.0

    def __post_init__(self) -> None:
        for name in ("time_masks", "time_width", "band_masks", "band_width"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 0, 1_000_000))
        object.__setattr__(self, "time_share", number("time_share", self.time_share, 0, 1))
        if self.fill != "mean":
            object.__setattr__(self, "fill", number("fill", self.fill, -3e38, 3e38))

    def output(self, given: Sound) -> Sound:
        """Unchanged in shape and type."""
        if given.kind != "spectrogram":
            raise ValueError(f"takes a spectrogram, and gets a {given.kind}: put it behind MelSpectrogram")
        return given

    def step(self, given: Sound) -> SoundStep:
        """Masks."""
        mean = self.fill == "mean"
        return SoundStep(
            "mask",
            (
                self.time_masks, self.time_width, self.band_masks, self.band_width, self.time_share,
                0.0 if mean else float(self.fill), float(mean),
            ),
        )  # fmt: skip
