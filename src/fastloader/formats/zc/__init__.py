"""The ZCLD shard format: raw samples and a JSON table of where they lie. ``docs/reference/zc.md`` describes it."""

from fastloader.formats.zc.shard import ZCShard
from fastloader.formats.zc.writer import ZCWriter

__all__ = ["ZCShard", "ZCWriter"]
