"""Runs the code of one kind on a page, and keeps what it hands to ``train`` and ``evaluate``.

    python run_page.py PAGE py OUT

It is also run by the interpreters of other loaders' environments, so it imports nothing of ours.
"""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np


def blocks(page: Path, kind: str) -> list[tuple[int, str]]:
    """The blocks of a page that are marked so, each with the number of its first line."""
    text = page.read_text()
    found = re.finditer(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


def plain(value: Any) -> Any:
    """A value that any interpreter can load."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "numpy"):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [plain(one) for one in value.tolist()]
    return np.array(value) if isinstance(value, np.ndarray) else value


def run(page: Path, kind: str) -> dict[str, list[Any]]:
    """What was handed over, call by call."""
    given: dict[str, list[Any]] = {"train": [], "evaluate": []}
    keepers = {name: lambda *parts, to=to: to.append(plain(parts)) for name, to in given.items()}
    names: dict[str, Any] = {"__name__": "page", **keepers}
    for line, code in blocks(page, kind):
        exec(compile("\n" * line + code, str(page), "exec"), names)
    return given


def declare_operators() -> None:
    """Let torchvision be imported beside a torch for CPUs.

    Its wheels are built for CUDA: there, its own operators (NMS and the like) can't be loaded, and it stops at their
    names. Nothing that reads or transforms images calls them.
    """
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    names = ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
    for name in ("nms", "qnms", *names, *(f"_{name}_backward" for name in names)):
        library.define(f"{name}(Tensor x) -> Tensor")
    globals()["_declared"] = library  # gone with the object


if __name__ == "__main__":
    if "--without-operators" in sys.argv:
        declare_operators()
    Path(sys.argv[3]).write_bytes(pickle.dumps(run(Path(sys.argv[1]), sys.argv[2])))
