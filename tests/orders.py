"""Options of a loader for each order alike: only the quasi-random one takes a window."""

from __future__ import annotations

from typing import Any


def in_order(order: Any, window: int) -> dict[str, Any]:
    """The order, and the window where it has one."""
    return {"order": order, "window": window} if order == "quasi_random" else {"order": order}
