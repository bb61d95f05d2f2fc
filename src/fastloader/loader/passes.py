"""One pass of a loader: its batches in order, where it is, and what it has delivered."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels
from fastloader.errors import PassError
from fastloader.samplers import EpochDigest
from fastloader.samplers.schedule import Plan

DIGESTED_AT_ONCE = 64

_OUTSIDE = {
    "process": ("this pass belongs to another process", "a forked child begins one of its own, with iter(loader)"),
    "index": ("the loader was closed while this pass was under way", "iter(loader) begins another"),
    "stopped": ("the loader was closed while this pass was under way", "iter(loader) begins another"),
}
"""What the engine says of a pass that was ended from outside, and what to do."""


class Progress:
    """Where a pass is, and what it has delivered. A loader tells of its newest pass; older ones have their own."""

    def __init__(self, epoch: int, done: int = 0) -> None:
        self.epoch = epoch
        self._done = done
        self._step: int | None = None
        self._digest = EpochDigest(epoch)
        self._undigested: list[NDArray[np.int64]] = []

    def moved(self, epoch: int, done: int = 0) -> Progress:
        """Another place; what was delivered is told until the next pass begins."""
        other = Progress(epoch, done)
        other._digest = self.digest()
        return other

    def given(self, step: int, samples: NDArray[np.int64]) -> None:
        """These samples went to the consumer."""
        self._step = step
        self._undigested.append(samples)
        if len(self._undigested) == DIGESTED_AT_ONCE:
            self.digest()

    def over(self) -> None:
        """Behind the last batch, the next epoch begins."""
        self.epoch, self._done, self._step = self.epoch + 1, 0, None

    def done(self, plan: Plan) -> int:
        """What all ranks together have consumed of the epoch."""
        return self._done if self._step is None else plan.done_after(self._step, self._done, self.epoch)

    def digest(self) -> EpochDigest:
        """What was delivered so far."""
        if self._undigested:
            given, self._undigested = self._undigested, []
            self._digest = self._digest.add(np.concatenate(given))
        return self._digest


class Pass(Iterator[Any]):
    """The batches of the rest of an epoch. Behind an error there are no others: asked again, it is raised again."""

    def __init__(
        self, steps: int, progress: Progress, batches: Generator[tuple[Any, NDArray[np.int64]], None, None]
    ) -> None:
        self._steps = steps
        self._given = 0
        self._progress = progress
        self._batches = batches
        self._failure: Exception | None = None
        self._closed = False

    def __next__(self) -> Any:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StopIteration
        if self._given == self._steps:
            self.close()
            self._progress.over()
            raise StopIteration
        try:
            batch, samples = next(self._batches)
        except StopIteration:
            self._failure = PassError("this pass was interrupted", hint="iter(loader) begins another")
        except kernels.Failure as failure:
            message, hint = _OUTSIDE.get(failure.args[0], (str(failure), None))
            self._failure = PassError(message, hint=hint)
            self._failure.__cause__ = failure
        except Exception as error:
            self._failure = error
        else:
            self._progress.given(self._given, samples)
            self._given += 1
            return batch
        raise self._failure

    def close(self) -> None:
        """End it: threads that no other pass needs end. Batches already given stay valid."""
        self._closed = True
        self._batches.close()
