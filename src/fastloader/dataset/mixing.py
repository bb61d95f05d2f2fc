"""``mix``: each element from one of several datasets, drawn by weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fastloader.dataset.base import Cursor, IterNode, Node, Place, Run, parted
from fastloader.dataset.joining import Several
from fastloader.samplers.hashing import Stream, fold, hashes

Stop = Literal["first", "all", "restart"]
DRAWS = 64
"""Draws that are made at once."""


def weights_of(given: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """A weight for each dataset, checked."""
    weights = (1.0,) * count if given is None else tuple(float(weight) for weight in given)
    if len(weights) != count:
        raise ValueError(f"{len(weights)} weights for {count} datasets")
    if not all(0 <= weight < float("inf") for weight in weights) or not 0 < sum(weights) < float("inf"):
        raise ValueError(f"weights={list(weights)}: finite, not below 0, and not all 0")
    return weights


@dataclass(frozen=True, eq=False)
class Mix(IterNode):
    """Each element from one of several datasets, drawn by weight: a hash of seed, epoch and step chooses."""

    nodes: tuple[Node, ...]
    weights: tuple[float, ...]
    seed: int
    stop: Stop

    def parts(self) -> tuple[Node, ...]:
        """All of them."""
        return self.nodes

    def label(self) -> str:
        """Seed and end. Weights may change between two runs."""
        return f"mix(seed={self.seed}, stop={self.stop!r})"

    def where(self, run: Run) -> str:
        """The chances."""
        return "weights " + ", ".join(f"{weight:g}" for weight in self.weights)

    def cursor(self, run: Run, epoch: int, place: Place) -> Cursor:
        """The step, and for each dataset its pass and the place in it."""
        return Mixed(self, run, epoch, place)


class Mixed(Several):
    """A draw a step."""

    def __init__(self, node: Mix, run: Run, epoch: int, place: Place) -> None:
        start = (0, tuple((0, 0, None) for _ in node.nodes))
        self._step, places = parted(place, start)
        places = parted(places, start[1])
        self._node, self._run, self._epoch = node, run, epoch
        self._key = fold(node.seed, Stream.MIX, epoch)
        self._draws: list[int] = []
        self._passes: list[int] = []
        self._over: list[int] = []
        ups = []
        for part, one in zip(node.nodes, places, strict=True):
            number, over, up = parted(one, (0, 0, None))
            self._passes.append(number)
            self._over.append(over)
            ups.append(run.start(part, epoch + number, up))
        super().__init__(ups)
        self.place = place
        self._gave = [up is not None for _, _, up in places]

    def __next__(self) -> Any:
        chance = self._chance()
        while True:
            chosen = self._choose(chance)
            try:
                value = next(self.ups[chosen])
            except StopIteration:
                self._exhausted(chosen)
                continue
            self._gave[chosen] = True
            self._step += 1
            ups = zip(self._passes, self._over, self.ups, strict=True)
            self.place = (self._step, tuple((number, over, up.place) for number, over, up in ups))
            return value

    def _chance(self) -> int:
        """The draw of this step; many are made at once."""
        number = self._step % DRAWS
        if number == 0 or not self._draws:
            first = self._step - number
            self._draws = (hashes(self._key, np.arange(first, first + DRAWS)) >> np.uint64(11)).tolist()
        return int(self._draws[number])

    def _choose(self, chance: int) -> int:
        """The dataset in whose share of the weights the chance, 53 bits, falls."""
        left = [0.0 if over else weight for weight, over in zip(self._node.weights, self._over, strict=True)]
        total = sum(left)
        if not total:
            raise StopIteration
        mark, reached, last = chance * 2.0**-53 * total, 0.0, 0
        for number, weight in enumerate(left):
            if weight:
                last = number
                reached += weight
                if mark < reached:
                    break
        return last

    def _exhausted(self, chosen: int) -> None:
        if self._node.stop == "first":
            raise StopIteration
        if self._node.stop == "all":
            self._over[chosen] = 1
            return
        if not self._gave[chosen]:
            raise ValueError(f"mix(stop='restart'): dataset {chosen} has nothing to give")
        self.ups[chosen].close()
        self._passes[chosen] += 1
        self._gave[chosen] = False
        self.ups[chosen] = self._run.start(self._node.nodes[chosen], self._epoch + self._passes[chosen])
