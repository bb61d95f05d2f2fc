"""What an operation on arrays is: on any array of a fixed shape, not on images alone."""

from __future__ import annotations

from abc import ABC, abstractmethod

from fastloader.ops.labels import Numbers


class ArrayOp(ABC):
    """An operation that takes arrays too."""

    @abstractmethod
    def array_output(self, given: Numbers) -> Numbers:
        """What comes out of it; raises ``ValueError`` where it can't take what is given."""
