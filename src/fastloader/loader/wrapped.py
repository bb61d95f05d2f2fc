"""What loaders for frameworks share: a ``DataLoader`` whose batches become something else, some of them ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from fastloader.loader.loader import DataLoader


class WrappedLoader:
    """A loader around another, which it answers for. ``_state`` is that of the batch given last, if some are ahead."""

    loader: DataLoader
    _state: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """The number of the next pass."""
        self.loader.set_epoch(epoch)
        self._state = None

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is: behind the batch it was given last."""
        return self.loader.state_dict() if self._state is None else dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state with the next pass."""
        self.loader.load_state_dict(state)
        self._state = None

    def _with_ahead(self, ahead: int, begin: Callable[[Any], Any]) -> Iterator[Any]:
        """What ``begin`` makes of each batch of the next pass, ``ahead`` of them before they are asked for."""
        waiting: deque[tuple[Any, dict[str, Any]]] = deque()

        def taken() -> Any:
            begun, self._state = waiting.popleft()
            return begun

        self._state = None
        for batch in self.loader:
            waiting.append((begin(batch), self.loader.state_dict()))
            del batch
            if len(waiting) > ahead:
                yield taken()
        while waiting:
            yield taken()
        self._state = None  # behind the last batch the next epoch begins, for this one too

    def close(self) -> None:
        """End the threads. Batches already given stay valid."""
        self.loader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
