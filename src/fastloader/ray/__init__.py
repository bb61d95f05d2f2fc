"""For Ray: datasets of Ray Data from and to ``.fld``, and archives and conversions made by a cluster."""

from fastloader.ray.sink import write_fld
from fastloader.ray.source import read_fld

__all__ = ["read_fld", "write_fld"]
