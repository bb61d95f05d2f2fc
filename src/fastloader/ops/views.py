"""Several differently augmented views of one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastloader.ops.base import Op, whole

MAX_VIEWS = 1000


@dataclass(frozen=True, init=False)
class Views:
    """In place of a field's list of operations: several lists, each of which makes a view of the image.

    ``Views(2, [...])`` is one list twice, ``Views([...], [...])`` are two lists; each view draws for itself. Views of
    one shape and type come as one array (batch, views, ...); others as fields of their own, ``image_0``, ``image_1``.
    ``Views(large=..., small=...)`` names them: ``image_large`` and ``image_small``, each a list of operations, or
    ``Views`` without names of their own. The stored bytes are read once.
    """

    views: tuple[tuple[Op, ...], ...]
    named: Mapping[str, tuple[Op, ...] | Views]

    def __init__(self, *views: int | Sequence[Op], **named: Sequence[Op] | Views) -> None:
        if bool(views) == bool(named):
            raise ValueError("Views: lists of operations, a number and a list, or names for each")
        if views and isinstance(views[0], int):
            times = whole("views", views[0], 1, MAX_VIEWS)
            if len(views) != 2:
                raise ValueError(f"Views({times}, ...): a number of views, and the list of operations of all of them")
            views = (views[1],) * times
        object.__setattr__(self, "views", tuple(_pipeline(one) for one in views))
        for name, one in named.items():
            if isinstance(one, Views) and one.named:
                raise ValueError(f"Views({name}=...): views with names can't be views of others")
        chosen = {name: one if isinstance(one, Views) else _pipeline(one) for name, one in named.items()}
        object.__setattr__(self, "named", chosen)
        if not 1 <= len(self) <= MAX_VIEWS:
            raise ValueError(f"Views: from 1 to {MAX_VIEWS} views, not {len(self)}")

    def __len__(self) -> int:
        return len(self.views) + sum(len(one) if isinstance(one, Views) else 1 for one in self.named.values())


def _pipeline(ops: Any) -> tuple[Op, ...]:
    if isinstance(ops, str | Op) or not isinstance(ops, Sequence):
        raise TypeError(f"Views: {ops!r} is no list of operations")
    return tuple(ops)
