"""What appears whole or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Published:
    """The ``with`` block of what is written: ``close`` at its end, ``abort`` when it is left by an exception."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def close(self) -> None:
        """Finish and publish."""
        raise NotImplementedError

    def abort(self) -> None:
        """Give up: nothing is published."""
        raise NotImplementedError
