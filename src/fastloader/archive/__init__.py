"""Archives: any folder in one ``.fld`` file, with random access by path, ready for training."""

from fastloader.archive.archive import Archive
from fastloader.archive.decoded import Codec, DecodedView
from fastloader.archive.folders import FolderSink, FolderSource
from fastloader.archive.patterns import Choice
from fastloader.archive.writer import ArchiveWriter

__all__ = ["Archive", "ArchiveWriter", "Choice", "Codec", "DecodedView", "FolderSink", "FolderSource"]
