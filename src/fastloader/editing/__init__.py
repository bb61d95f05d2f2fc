"""Datasets that change: rows deleted and updated, columns added, renamed and dropped, every state of them kept."""

from fastloader.editing.editor import DatasetEditor, edit
from fastloader.editing.log import Snapshot

__all__ = ["DatasetEditor", "Snapshot", "edit"]
