"""Where a run is: a few numbers that can be saved and taken up again, on any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastloader.errors import FastLoaderError
from fastloader.samplers.checks import whole
from fastloader.samplers.order import Description
from fastloader.samplers.schedule import Plan

VERSION = 1


class StateError(FastLoaderError, ValueError):
    """A saved state does not fit what it is loaded into."""


@dataclass(frozen=True, slots=True)
class Position:
    """An epoch, what all ranks together have consumed of it, and the description of the order this refers to.

    ``done`` counts samples (batches, for orders of batches) at the end of a step, so it is the same on every rank.
    """

    epoch: int
    done: int
    order: Description

    @classmethod
    def of(cls, plan: Plan, epoch: int, done: int) -> Position:
        """A position in a plan's order."""
        # Nothing of an epoch's own order matters at its start, and asking might run a sampler ahead of time.
        return cls(whole("epoch", epoch), whole("done", done), plan.describe(epoch if done else None))

    def check(self, plan: Plan) -> None:
        """Raise ``StateError`` unless the position means the same in this plan as where it was saved."""
        here = plan.describe(self.epoch if self.done else None)
        nothing = "nothing"
        differences = [
            f"{name} is {self.order.get(name, nothing)} in the state and {here.get(name, nothing)} here"
            for name in here | self.order
            if self.order.get(name) != here.get(name)
        ]
        if differences:
            raise StateError(
                f"the state is of another order: {'; '.join(differences)}",
                hint="build the loader as it was when the state was saved, or start without the state",
            )
        try:
            if self.done:
                plan.steps(self.done, self.epoch)
        except ValueError as error:
            raise StateError(f"in the state, {error}", hint="it is damaged; start without it") from error

    def to_dict(self) -> dict[str, Any]:
        """A few numbers and short strings, ready for JSON."""
        return {"version": VERSION, "epoch": self.epoch, "done": self.done, "order": dict(self.order)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Position:
        """What ``to_dict`` gave."""
        check_state(state, {"epoch", "done", "order"}, VERSION)
        order = state["order"]
        if not isinstance(order, Mapping) or not all(isinstance(value, int | str) for value in order.values()):
            raise StateError("the state's order is no dictionary of numbers and strings")
        try:
            return cls(whole("epoch", state["epoch"]), whole("done", state["done"]), dict(order))
        except (TypeError, ValueError) as error:
            raise StateError(f"in the state, {error}") from error


def check_state(state: Any, names: set[str], version: int) -> None:
    """Raises ``StateError`` unless it is a dictionary with these names, of this version."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a dictionary, not a {type(state).__name__}")
    missing = {"version", *names} - set(state)
    if missing:
        raise StateError(f"the state has no {', '.join(sorted(missing))}", hint="give what state_dict() returned")
    if state["version"] != version:
        raise StateError(
            f"the state has version {state['version']!r}; this fastloader reads {version}",
            hint="load it with the version that saved it, or pip install -U fastloader",
        )
