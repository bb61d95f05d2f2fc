"""One element of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastloader.errors import OperationError
from fastloader.ops.base import whole
from fastloader.ops.random import Random


@dataclass(frozen=True, slots=True)
class Choose:
    """One element of each sample's list, of a ``ListField``: one of several captions, say.

    Without ``index`` it is drawn, each as likely, by seed, epoch and sample. With it, it is the one at that place; -1
    is the last. A list without such an element is an error of its sample. Functions of yours may follow.
    """

    index: int | None = None

    def __post_init__(self) -> None:
        if self.index is not None:
            object.__setattr__(self, "index", whole("index", self.index, -(2**31), 2**31))

    def element(self, elements: Sequence[Any], random: Random) -> Any:
        """The one that is taken."""
        count = len(elements)
        if count == 0 if self.index is None else not -count <= self.index < count:
            raise OperationError(f"the operation {self} finds {count} elements", hint="on_error='skip' leaves it out")
        return elements[int(random.below(count)) if self.index is None else self.index]
