"""Numbers in words, for reports."""

from __future__ import annotations

from fastloader.doctor.pace import Pace


def number(value: int, noun: str) -> str:
    """A number of things."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def per_second(value: float) -> str:
    """Samples a second."""
    return f"{value:,.0f} samples/s" if value >= 10 else f"{value:.2g} samples/s"


def time_of(seconds: float) -> str:
    """Seconds in a unit that fits.

    >>> time_of(0.0123), time_of(2.5e-05), time_of(3.0)
    ('12.3 ms', '25 us', '3.0 s')
    """
    if seconds >= 1:
        return f"{seconds:,.1f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def bytes_of(size: float) -> str:
    """Bytes in a unit that fits, of thousands, as disks and networks have them.

    >>> bytes_of(1500), bytes_of(2.5e9)
    ('1.5 kB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"


def rate_of(pace: Pace) -> str:
    """Bytes a second."""
    return f"{bytes_of(pace.bytes_per_second)}/s"
