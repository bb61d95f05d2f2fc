"""What ``options`` can set for the steps before it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, get_args

from fastloader.loader import LoaderOptions, ThreadingOptions
from fastloader.loader.reading import Io
from fastloader.samplers.checks import whole

OnError = Literal["raise", "skip"]
NATIVE = ("io", "memory_limit", "auto_tune", "threading")
"""Settings that only the native engine knows."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for a step; ``None`` where nothing was said."""

    on_error: OnError | None = None
    threads: int | None = None
    io: Io | None = None
    memory_limit: int | str | None = None
    auto_tune: bool | None = None
    threading: ThreadingOptions | None = None
    ahead: int | None = None
    """What ``prefetch`` tells the native engine."""

    def given(self) -> dict[str, Any]:
        """Those that were set, by name."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}

    def native(self) -> dict[str, Any]:
        """Those of them that only the native engine knows."""
        return {name: value for name, value in self.given().items() if name in NATIVE}

    @lru_cache(64)  # noqa: B019  settings are few and small
    def over(self, inner: Settings) -> Settings:
        """These, where ``inner``, which is closer to the source, says nothing."""
        return replace(self, **inner.given())

    def label(self) -> str:
        """As it was written."""
        return f"options({', '.join(f'{name}={value!r}' for name, value in self.given().items())})"


def checked(settings: Settings) -> Settings:
    """The settings, if they make sense; those of the engine are checked as the loader does."""
    if settings.on_error is not None:
        one_of("on_error", settings.on_error, OnError)
    if settings.threads is not None:
        settings = replace(settings, threads=whole("threads", settings.threads, 1, 2**10))
    if settings.auto_tune not in (None, True, False):
        raise TypeError(f"auto_tune={settings.auto_tune!r}: True or False")
    if settings.threading is not None and not isinstance(settings.threading, ThreadingOptions):
        raise TypeError(f"threading={settings.threading!r}: a fastloader.ThreadingOptions")
    LoaderOptions(**settings.native())
    return settings


def one_of(name: str, value: Any, allowed: Any) -> Any:
    """A word, checked against a ``Literal``."""
    if value not in get_args(allowed):
        raise ValueError(f"{name}={value!r}: one of {', '.join(map(repr, get_args(allowed)))}")
    return value
