"""What a mel spectrogram is made with, in librosa's words; fields store what it makes, operations make it."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels

PAD_MODES = ("constant", "reflect", "edge")
"""What lies before and behind a sound, at the index that is its number in C++."""


@dataclass(frozen=True, kw_only=True)
class MelOptions:
    """Options of ``librosa.feature.melspectrogram``, with its defaults where it has them, and of ``power_to_db``.

    ``power`` is 2 for power, 1 for magnitude. With ``db``, values are decibels against ``ref`` (a number, or "max" for
    the greatest), those below ``amin`` count as ``amin``, and those more than ``top_db`` below the greatest are raised
    to that. ``fmax=None`` is half the sample rate, ``win_length=None`` is ``n_fft``. The window is Hann's.
    """

    n_mels: int = 80
    n_fft: int = 1024
    hop_length: int = 256
    win_length: int | None = None
    fmin: float = 0.0
    fmax: float | None = None
    power: float = 2.0
    center: bool = True
    pad_mode: str = "constant"
    norm: str | None = "slaney"
    htk: bool = False
    db: bool = True
    ref: float | str = 1.0
    amin: float = 1e-10
    top_db: float | None = 80.0

    def check(self) -> None:
        """Options as plain numbers; what can't be is told."""
        for name in ("n_mels", "n_fft", "hop_length", *(("win_length",) if self.win_length is not None else ())):
            object.__setattr__(self, name, _whole(name, getattr(self, name), 1 << 20))
        if self.win_length is not None and self.win_length > self.n_fft:
            raise ValueError(f"win_length={self.win_length}: at most n_fft={self.n_fft}")
        for name in ("fmin", "fmax", "amin", "top_db", "ref"):
            value = getattr(self, name)
            if value is None and name in ("fmax", "top_db"):
                continue
            if name == "ref" and value == "max":
                continue
            object.__setattr__(self, name, _number(name, value))
        if self.fmin < 0 or (self.fmax is not None and self.fmax <= self.fmin):
            raise ValueError(f"fmin={self.fmin}, fmax={self.fmax}: from 0 up, the lesser first")
        if self.amin <= 0 or (self.top_db is not None and self.top_db < 0) or (self.ref != "max" and self.ref <= 0):  # type: ignore[operator]
            raise ValueError(f"amin={self.amin}, top_db={self.top_db}, ref={self.ref!r}: above 0, or top_db 0")
        if self.power not in (1, 2):
            raise ValueError(f"power={self.power!r}: 2 for power, 1 for magnitude")
        object.__setattr__(self, "power", float(self.power))
        if self.pad_mode not in PAD_MODES:
            raise ValueError(f"pad_mode={self.pad_mode!r}: one of {', '.join(PAD_MODES)}")
        if self.norm not in (None, "slaney"):
            raise ValueError(f"norm={self.norm!r}: 'slaney' or None")
        for name in ("center", "htk", "db"):
            object.__setattr__(self, name, bool(getattr(self, name)))

    def check_rate(self, sample_rate: int) -> None:
        """Bands lie below half the sample rate."""
        if max(self.fmin, self.fmax or 0) > sample_rate / 2:
            raise ValueError(f"fmin={self.fmin}, fmax={self.fmax}: at most half of the {sample_rate} Hz there are")
        if self.fmax is None and self.fmin >= sample_rate / 2:
            raise ValueError(f"fmin={self.fmin}: below half of the {sample_rate} Hz there are")

    def maker(self, sample_rate: int) -> kernels.Mel:
        """What makes such spectrograms of sounds with this rate."""
        self.check_rate(sample_rate)
        return kernels.Mel(
            sample_rate, (self.n_fft, self.hop_length, self.win_length or self.n_fft), self.n_mels,
            (self.fmin, sample_rate / 2 if self.fmax is None else self.fmax), self.power == 1, self.center,
            PAD_MODES.index(self.pad_mode), self.norm is not None, self.htk, self.db,
            (0.0 if self.ref == "max" else float(self.ref), self.amin, -1.0 if self.top_db is None else self.top_db),
        )  # fmt: skip

    def spectrogram(self, sound: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
        """(frames, n_mels) of a sound (samples,)."""
        maker = self.maker(sample_rate)
        out: NDArray[np.float32] = np.empty((maker.frames(len(sound)), self.n_mels), np.float32)
        try:
            maker.run(np.ascontiguousarray(sound), out)
        except kernels.Failure as failure:
            raise ValueError(failure.args[1]) from None
        return out


def _whole(name: str, value: Any, most: int) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: a whole number") from None
    if isinstance(value, bool) or not 1 <= found <= most:
        raise ValueError(f"{name}={value!r}: from 1 to {most}")
    return int(found)


def _number(name: str, value: Any) -> float:
    if isinstance(value, str | bool):
        raise TypeError(f"{name}={value!r}: a number")
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}={value!r}: a number") from None
    if not math.isfinite(found):
        raise ValueError(f"{name}={value!r}: a finite number")
    return found
