"""How many threads and how many batches ahead: found while running, from what was observed alone.

The controller starts small and grows one thing at a time while the consumer waits. A growth is a trial: if the batches
did not come faster it is undone, and tried again only after a long time. Memory that runs short comes before all else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fastloader.loader.resources import Memory, memory

Knob = Literal["threads", "ahead"]

SATISFIED = 0.05
"""The share of its time that the consumer may wait before more is done for it."""
GAIN = 0.04
"""How much faster batches must come for a growth to stay."""
IDLE = 0.2
"""The share of their time that threads must lack work for more batches ahead to be worth a try."""
CHANCES = 2
"""Observations that a growth gets to show what it brings: a machine that others use is slow now and then."""
PATIENCE = 50
"""Observations until what brought nothing is tried again; doubled each time."""
LOW, ENOUGH = 0.05, 0.10
"""Shares of the memory: with less than the first available, batches ahead go; growing needs more than the second."""

OBSERVED_BATCHES = 8
OBSERVED_SECONDS = 0.25
LISTED = 32


@dataclass(frozen=True, slots=True)
class Setting:
    """What is tuned: the engine's threads, and the batches made ahead of the consumer."""

    threads: int
    ahead: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What a setting may be. ``memory`` is the most bytes that batches may take, if there is a limit."""

    threads: int
    ahead: int
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What happened since the last one: seconds, batches given, the threads' idle share, and memory as it is now."""

    batches: int
    elapsed: float
    waiting: float
    idle: float
    batch_bytes: int
    memory: Memory

    @property
    def rate(self) -> float:
        """Batches a second."""
        return self.batches / self.elapsed if self.elapsed else 0.0

    @property
    def share(self) -> float:
        """The part of its time that the consumer waited."""
        return self.waiting / self.elapsed if self.elapsed else 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The setting from now on, and why."""

    setting: Setting
    because: str


@dataclass(slots=True)
class _Trial:
    knob: Knob
    before: Setting
    rate: float
    chances: int = CHANCES


@dataclass(slots=True)
class _Hope:
    """What is still expected of a knob: the next step, and when it may be tried again after it failed."""

    step: int = 0  # 0: as much again as there is
    failed: bool = False
    resting_until: int = 0
    patience: int = PATIENCE


@dataclass(slots=True)
class Controller:
    """Observations in, decisions out. Knows no clock and no machine: what it decides follows from what it is told."""

    setting: Setting
    limits: Limits
    _seen: int = 0
    _trial: _Trial | None = None
    _hopes: dict[Knob, _Hope] = field(default_factory=lambda: {"threads": _Hope(), "ahead": _Hope()})

    def observe(self, seen: Observation) -> Decision:
        """What to do now. The setting stays as it is where nothing speaks for another."""
        self._seen += 1
        decision = self._shrink(seen) or self._judge(seen) or self._grow(seen)
        self.setting = decision.setting
        return decision

    def _shrink(self, seen: Observation) -> Decision | None:
        """Fewer batches ahead, then fewer threads, while memory is short; at once, and for long."""
        limit = self.limits.memory
        if limit is not None and seen.batch_bytes * self.setting.ahead > limit:
            why = f"{self.setting.ahead} batches ahead take more than memory_limit={limit}"
        elif seen.memory.available < LOW * seen.memory.total:
            why = f"only {seen.memory.available >> 20} MiB of memory are left"
        else:
            return None
        self._trial = None
        for knob in self._hopes:
            self._give_up(knob)
        threads, ahead = self.setting.threads, self.setting.ahead
        if ahead > 1:
            return Decision(Setting(threads, ahead // 2), why)
        return Decision(Setting(max(1, threads // 2), 1), why)

    def _judge(self, seen: Observation) -> Decision | None:
        """Whether the last growth was worth it."""
        trial, self._trial = self._trial, None
        if trial is None:
            return None
        hope = self._hopes[trial.knob]
        good = seen.rate >= trial.rate * (1 + GAIN) or seen.share <= SATISFIED
        trial.chances -= 1
        if not good and trial.chances:
            self._trial = trial
            return Decision(self.setting, f"more {_words(trial.knob)} brought nothing so far")
        if good and not hope.failed:
            hope.step = 0
            return None
        # The best lies between what helped and what did not: half the step from now on.
        hope.failed = True
        hope.step //= 2
        if hope.step == 0:
            self._give_up(trial.knob)
        return None if good else Decision(trial.before, f"more {_words(trial.knob)} brought nothing")

    def _grow(self, seen: Observation) -> Decision:
        told = f"the consumer waits {seen.share:.0%} of its time"
        if seen.share <= SATISFIED:
            return Decision(self.setting, told)
        # Threads that are busy make no more batches by having more of them to do.
        knobs: tuple[Knob, ...] = ("ahead", "threads") if seen.idle > IDLE else ("threads",)
        for knob in knobs:
            grown = self._larger(knob, seen)
            if grown is not None:
                self._trial = _Trial(knob, self.setting, seen.rate)
                return Decision(grown, f"{told}: more {_words(knob)}")
        return Decision(self.setting, f"{told}, and nothing more helps")

    def _larger(self, knob: Knob, seen: Observation) -> Setting | None:
        """The setting with one knob turned up, if it may be and there is memory for it."""
        hope = self._hopes[knob]
        now: int = getattr(self.setting, knob)
        if self._seen < hope.resting_until:
            return None
        step = min(hope.step or now, getattr(self.limits, knob) - now)
        if step <= 0:
            return None
        hope.step = step
        threads = now + step if knob == "threads" else self.setting.threads
        ahead = now + step if knob == "ahead" else max(self.setting.ahead, min(threads + 1, self.limits.ahead))
        more = (ahead - self.setting.ahead) * seen.batch_bytes
        within = self.limits.memory is None or ahead * seen.batch_bytes <= self.limits.memory
        if more and not (within and seen.memory.available - more > ENOUGH * seen.memory.total):
            return None
        return Setting(threads, ahead)

    def _give_up(self, knob: Knob) -> None:
        hope = self._hopes[knob]
        hope.step, hope.failed = 0, False
        hope.resting_until = self._seen + hope.patience
        hope.patience *= 2


def _words(knob: Knob) -> str:
    return "threads" if knob == "threads" else "batches ahead"


class Tuner:
    """A controller at work: gathers observations batch by batch, in the consumer's thread."""

    def __init__(self, limits: Limits) -> None:
        self.controller = Controller(Setting(1, min(2, limits.ahead)), limits)
        self._batches_seen = 0
        self._changes: deque[dict[str, Any]] = deque(maxlen=LISTED)
        self._because = "nothing was observed yet"
        self._last: float | None = None
        self._open_window({}, settling=0)

    @property
    def setting(self) -> Setting:
        """The present choice."""
        return self.controller.setting

    def begin_epoch(self) -> None:
        """The time until the first batch is no sign of anything: nothing could be made ahead."""
        self._last = None

    def given(self, waited: float, usage: Callable[[], dict[str, Any]]) -> Setting | None:
        """A batch was given after the consumer waited so long. A new setting, if it is time for one."""
        now = time.perf_counter()
        last, self._last = self._last, now
        self._batches_seen += 1
        if last is None:
            return None
        if self._settling > 0:  # made under the setting before
            self._settling -= 1
            if self._settling == 0:
                self._open_window(usage(), settling=0)
            return None
        self._batches += 1
        self._elapsed += now - last
        self._waiting += waited
        if self._batches < OBSERVED_BATCHES or self._elapsed < OBSERVED_SECONDS:
            return None
        return self._decide(usage())

    def _decide(self, used: dict[str, Any]) -> Setting | None:
        hired = used["hired"] - self._used.get("hired", 0.0)
        idle = (used["idle"] - self._used.get("idle", 0.0)) / hired if hired else 0.0
        before = self.setting
        decision = self.controller.observe(
            Observation(self._batches, self._elapsed, self._waiting, idle, used["largest_batch"], memory())
        )
        self._because = decision.because
        changed = decision.setting != before
        self._open_window(used, settling=before.ahead if changed else 0)
        if not changed:
            return None
        self._changes.append({"batch": self._batches_seen, **asdict(decision.setting), "because": decision.because})
        return decision.setting

    def _open_window(self, used: dict[str, Any], settling: int) -> None:
        self._used = used
        self._settling = settling
        self._batches, self._elapsed, self._waiting = 0, 0.0, 0.0

    def to_dict(self) -> dict[str, Any]:
        """What was chosen, and the last changes with their reasons."""
        limits = self.controller.limits
        return {
            **asdict(self.setting),
            "most_threads": limits.threads,
            "most_ahead": limits.ahead,
            "because": self._because,
            "changes": list(self._changes),
        }
