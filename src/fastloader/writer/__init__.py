"""Writing datasets."""

from fastloader.writer.concatenation import concatenate
from fastloader.writer.writer import DatasetWriter, MapDataset

__all__ = ["DatasetWriter", "MapDataset", "concatenate"]
