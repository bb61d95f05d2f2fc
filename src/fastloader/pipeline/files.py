"""Pipelines kept in a Python file of the user's, for commands: ``--pipeline FILE``."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastloader.modules import run_file
from fastloader.ops import Choose, ClipOp, Follow, LabelOp, Op, SoundOp, Views
from fastloader.pipeline.pieces import PipelineError

NAMES = ("pipelines", "PIPELINES")
"""What the file may call them; the first that is there counts."""


class PipelineFileError(PipelineError, ImportError):
    """A file gives no pipelines."""


def load_pipelines(path: str | Path) -> dict[str, Any]:
    """What a Python file calls ``pipelines``: by field a list of operations, or ``Views``, as a ``DataLoader`` takes.

    The file is run, as by ``import``. Whether the operations fit the fields of a dataset is told by the loader.
    """
    where = Path(path)
    if not where.is_file():
        raise PipelineFileError("there is no such file", path=path, hint="give a Python file that defines pipelines")
    try:
        module = run_file(where)
    except Exception as error:  # whatever a file does when it is run
        raise PipelineFileError(f"can't be run: {_told(where, error)}", path=path) from error
    found = next((getattr(module, name) for name in NAMES if hasattr(module, name)), None)
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        what = "defines no pipelines" if found is None else f"pipelines is a {type(found).__name__}"
        raise PipelineFileError(what, path=path, hint='write pipelines = {"image": [fl.ops.Resize(224)]}')
    return {name: _checked(path, name, ops) for name, ops in found.items()}


def _told(path: Path, error: Exception) -> str:
    """The error, and the line of the file that led to it."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path.absolute())
    ]
    place = f"line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"


def _checked(path: object, name: str, ops: Any) -> Any:
    if isinstance(ops, Views):
        return ops
    if isinstance(ops, str | Op) or not isinstance(ops, Sequence):
        raise PipelineFileError(f"{ops!r} is no list of operations", path=path, field=name)
    for op in ops:
        if not isinstance(op, Op | LabelOp | Follow | SoundOp | ClipOp | Choose):
            raise PipelineFileError(f"{op!r} is no operation", path=path, field=name, hint="see docs/reference/ops.md")
    return list(ops)
