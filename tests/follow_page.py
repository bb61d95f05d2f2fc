"""Run the code of a page of the documentation: ``python follow_page.py PAGE``, in an empty folder.

All of it runs in one process, from top to bottom, as somebody would who follows the page:

- ``python``: run, and what ``print(...)  # this`` promises must have been printed by its block.
- ``python title="train.py"``: written to that file.
- ``sh``, ``console``: run by bash; of a console, the lines behind ``$``.
- ``<!-- setup ... -->``: Python that a page needs and its reader does not: files that the reader is said to have.
- ``<!-- not run: WHY -->`` in front of a block: it is left out.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

BLOCK = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|^(?:<!-- not run: (?P<why>[^\n]*) -->\n)?```(?P<info>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PROMISE = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
PLAIN = re.compile(r"fastloader [^|<>$&;~{}*?\[\\]*")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
SHELL = ("sh", "bash", "console")
INSTALLS = re.compile(r"^(?:pip|make|apt-get) ", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Some code of a page: in which language, from which line on, and why it is not run, if it is not."""

    language: str
    code: str
    line: int
    file: str | None = None
    why_not: str | None = None

    @property
    def commands(self) -> str:
        """What bash is given."""
        if self.language != "console":
            return self.code
        return "".join(f"{line[2:]}\n" for line in self.code.splitlines() if line.startswith("$ "))


def blocks(text: str) -> Iterator[Block]:
    """All code of a page."""
    for match in BLOCK.finditer(text):
        if match["setup"] is not None:
            yield Block("setup", match["setup"], text.count("\n", 0, match.start("setup")))
            continue
        language, _, rest = match["info"].strip().partition(" ")
        file = re.fullmatch(r'title="(.*)"', rest.strip())
        code = match["code"]
        why = match["why"]
        if why is None and language in SHELL and INSTALLS.search(code):
            why = "it installs"
        yield Block(language, code, text.count("\n", 0, match.start("code")), file and file[1], why)


def run(page: Path) -> None:
    """Run a page, or raise what it raises."""
    warnings.filterwarnings("error", module="page|fastloader")  # what others say of their own code is theirs
    module = ModuleType("page")  # classes of the page can be pickled
    module.__file__ = str(page)
    sys.modules["page"] = module
    for block in blocks(page.read_text()):
        if block.why_not is not None:
            continue
        if block.file is not None:
            Path(block.file).write_text(block.code)
        elif block.language in ("python", "setup"):
            print(f"{page}:{block.line}", flush=True)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * block.line + block.code, str(page), "exec"), module.__dict__)
            print(printed.getvalue(), end="", flush=True)
            for promise in PROMISE.findall(block.code):
                wanted = ".*".join(map(re.escape, promise.split("...")))
                if not re.search(wanted, printed.getvalue()):
                    raise AssertionError(f"line {block.line}: printed {printed.getvalue()!r}, not {promise!r}")
        elif block.language in SHELL:
            print(f"{page}:{block.line}", flush=True)
            run_commands(block.commands)


def run_commands(text: str) -> None:
    """Run them by bash, but plain calls of our program here: they need not begin with all imports then."""
    if "--import" not in text and all(PLAIN.fullmatch(QUOTED.sub("", line)) for line in text.splitlines()):
        from fastloader.cli import main

        for line in text.splitlines():
            status = main(shlex.split(line, comments=True)[1:], "fastloader", standalone_mode=False)
            if status:
                raise AssertionError(f"{line} ended with status {status}")
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
