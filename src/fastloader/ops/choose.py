"""One element of a list."""

from __future__ import annotations

from dataclasses import dataclass

from fastloader.ops.base import whole


@dataclass(frozen=True, slots=True)
class Choose:
    """One element of each sample's list, of a ``ListField``: one of several captions, say.

    Without ``index`` it is drawn, each as likely, by seed, epoch and sample. With it, it is the one at that place; -1
    is the last. A list without such an element is an error of its sample.
    """

    index: int | None = None

    def __post_init__(self) -> None:
        if self.index is not None:
            object.__setattr__(self, "index", whole("index", self.index, -(2**31), 2**31))
