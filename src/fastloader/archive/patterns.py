"""Patterns for paths: ``*.jpg``, ``train/**/cat?.png``, ``[0-9]*``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastloader.types import key_text


def translate(pattern: str) -> str:
    """A pattern as a regular expression for a whole path.

    ``*``, ``?`` and ``[...]`` stand for characters of one name; ``**`` stands for any number of names, none too.

    >>> bool(re.fullmatch(translate("train/**/*.jpg"), "train/cats/1.jpg"))
    True
    """
    out, i = [], 0
    while i < len(pattern):
        char = pattern[i]
        if pattern.startswith("**", i):
            i += 2
            if pattern.startswith("/", i) and (i == 2 or pattern[i - 3] == "/"):
                out.append("(?:.*/)?")
                i += 1
            else:
                out.append(".*")
            continue
        i += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := pattern.find("]", i + 1 + (pattern[i : i + 1] == "!"))) > 0:
            inside = pattern[i:end].replace("\\", "\\\\")
            out.append(
                f"(?!/)[^{inside[1:]}]"
                if inside.startswith("!")
                else f"(?!/)[{inside.replace('^', chr(92) + '^', 1) if inside.startswith('^') else inside}]"
            )
            i = end + 1
        else:
            out.append(re.escape(char))
    return "(?s:" + "".join(out) + ")"


def compiled(pattern: str) -> re.Pattern[str]:
    """What fits a pattern as a whole."""
    try:
        return re.compile(translate(pattern))
    except re.error as error:
        raise ValueError(f"{pattern}: no pattern of paths: {error}") from error


def fixed_part(pattern: str) -> str:
    """The folders that a pattern names without any choice, with a slash behind: only what is in them can fit.

    >>> fixed_part("train/cats/*.jpg"), fixed_part("*.jpg")
    ('train/cats/', '')
    """
    names = pattern.split("/")[:-1]
    fixed = []
    for name in names:
        if any(mark in name for mark in "*?["):
            break
        fixed.append(name + "/")
    return "".join(fixed)


def matcher(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """What fits one of the patterns, as on a command line: one without a slash is for names at any depth.

    What is called just as a pattern is written fits too: names have brackets, and are given as they are.
    """
    if not patterns:
        return None
    return re.compile("|".join(_anywhere(one.strip("/")) for one in patterns))


def _anywhere(pattern: str) -> str:
    fits = translate(pattern)
    if "[" in pattern:
        fits = f"(?:{fits}|{re.escape(pattern)})"
    return fits if "/" in pattern else f"(?s:(?:.*/)?{fits})"


@dataclass(frozen=True)
class Choice:
    """Which paths are meant: those that fit a pattern of ``include``, if there are any, and none of ``exclude``.

    What lies in a folder that fits is meant with it.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    _wanted: re.Pattern[str] | None = field(init=False, repr=False, compare=False)
    _unwanted: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, patterns in (("_wanted", self.include), ("_unwanted", self.exclude)):
            try:
                object.__setattr__(self, name, matcher(patterns))
            except re.error as error:
                raise ValueError(f"{' '.join(patterns)}: no pattern of paths: {error}") from error

    @property
    def is_all(self) -> bool:
        """Whether everything is meant."""
        return self._wanted is None and self._unwanted is None

    def excludes(self, path: bytes) -> bool:
        """Whether a path, or a folder it lies in, is excluded."""
        return self._unwanted is not None and _fits(self._unwanted, path)

    def includes(self, path: bytes) -> bool:
        """Whether a path, or a folder it lies in, is included."""
        return self._wanted is None or _fits(self._wanted, path)

    def __contains__(self, path: bytes) -> bool:
        return self.includes(path) and not self.excludes(path)


ALL = Choice()
"""Everything."""


def _fits(pattern: re.Pattern[str], path: bytes) -> bool:
    text = key_text(path)
    if pattern.fullmatch(text):
        return True
    at = text.rfind("/")
    while at > 0:
        if pattern.fullmatch(text, 0, at):
            return True
        at = text.rfind("/", 0, at)
    return False
