"""When a request is made again, and when it is given up."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Any

# A program's own random numbers are not ours to take, and these differ in forked processes.
_draw = random.SystemRandom().random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Seconds and counts. ``deadline`` is for a range with all its attempts, ``attempt_timeout`` for each of them.

    Between attempts it waits about ``first_wait``, then twice that, up to ``longest_wait``, each time a random part of
    it, so that many clients don't come back at once. A read that takes longer than ``hedge_after`` is asked for a
    second time, and the first answer counts; ``None`` means three times what reads of its size took lately.
    """

    attempts: int = 10
    deadline: float = 120.0
    attempt_timeout: float = 30.0
    first_wait: float = 0.1
    longest_wait: float = 10.0
    hedge_after: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ValueError(f"attempts={self.attempts!r}: a whole number, at least 1")
        for name in ("deadline", "attempt_timeout", "first_wait", "longest_wait"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name}={value!r}: seconds, more than 0")
        if self.hedge_after is not None and not self.hedge_after > 0:
            raise ValueError(f"hedge_after={self.hedge_after!r}: seconds, more than 0, or None")

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> RetryPolicy:
        """The policy that storage options ask for; what is its own is taken out of them."""
        mine = {field.name: options.pop(field.name) for field in fields(cls) if field.name in options}
        return cls(**mine)

    def wait(self, attempt: int, draw: float | None = None) -> float:
        """How long to wait after ``attempt`` (counted from 0) failed; ``draw`` is a random number below 1."""
        longest = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt, 60))
        return longest * (0.5 + 0.5 * (_draw() if draw is None else draw))


class Pace:
    """How long reads took lately, by powers of two of their size: what is a straggler among them.

    At most one read in twenty is asked for twice. Where all are slow, the server has enough to do, and more requests
    would not help.
    """

    LEAST = 0.5
    ENOUGH = 8
    SHARE = 0.05
    SAVED = 4.0

    def __init__(self) -> None:
        self._typical: dict[int, tuple[int, float]] = {}
        self._allowance = 1.0

    def took(self, size: int, seconds: float) -> None:
        """A read of so many bytes is done."""
        bucket = size.bit_length()
        count, mean = self._typical.get(bucket, (0, 0.0))
        weight = 1 / min(count + 1, 32)
        self._typical[bucket] = (count + 1, mean + (seconds - mean) * weight)
        self._allowance = min(self.SAVED, self._allowance + self.SHARE)

    def hedge_after(self, size: int) -> float | None:
        """After how long a read is a straggler; ``None`` as long as nobody can tell."""
        count, mean = self._typical.get(size.bit_length(), (0, 0.0))
        return max(self.LEAST, 3 * mean) if count >= self.ENOUGH else None

    def may_hedge(self) -> bool:
        """Whether one more read may be asked for twice; it is counted."""
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True
