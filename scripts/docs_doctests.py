"""Docstrings as Markdown: the lines of a doctest become a block of code rather than a quotation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


def fenced(match: re.Match[str]) -> str:
    """The doctest as a block."""
    indent, lines = match[1], match[0]
    return f"{indent}```pycon\n{lines}\n{indent}```"


class Doctests(Extension):
    """What mkdocstrings loads."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(fenced, obj.docstring.value)
