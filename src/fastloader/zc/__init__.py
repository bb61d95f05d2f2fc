"""ZCLD shards: raw samples that are never copied. ``docs/reference/zc.md`` describes the format and the loader.

>>> from fastloader.zc import ShardLoader, ZCWriter, to_numpy
"""

from fastloader.formats.zc import ZCWriter
from fastloader.zc.loader import ShardLoader
from fastloader.zc.views import to_numpy, to_torch

__all__ = ["ShardLoader", "ZCWriter", "to_numpy", "to_torch"]
