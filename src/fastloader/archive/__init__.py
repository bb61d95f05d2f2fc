"""Archives: any folder in one ``.fld`` file, with random access by path, ready for training."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastloader.archive.archive import Archive
    from fastloader.archive.decoded import Codec, DecodedView
    from fastloader.archive.folders import FolderSink, FolderSource
    from fastloader.archive.patterns import Choice
    from fastloader.archive.writer import ArchiveWriter

__all__ = ["Archive", "ArchiveWriter", "Choice", "Codec", "DecodedView", "FolderSink", "FolderSource"]

_WHERE = {
    "Archive": "archive", "ArchiveWriter": "writer", "Choice": "patterns", "Codec": "decoded",
    "DecodedView": "decoded", "FolderSink": "folders", "FolderSource": "folders",
}  # fmt: skip
"""Writing an archive takes far less than reading one, which is a dataset too: each is loaded when it is used."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'fastloader.archive' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"fastloader.archive.{_WHERE[name]}"), name)
    return found
