"""Is a sample intact? Its bytes against their checksums, on request."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastloader import kernels
from fastloader.errors import FastLoaderError
from fastloader.fields import check_value
from fastloader.formats.extents import ExtentDataset, Extents
from fastloader.viewer.samples import ReaderSamples, Samples
from fastloader.viewer.telling import explained

GOOD, BAD, NONE = "good", "bad", "none"


def check_sample(samples: Samples, index: int) -> list[dict[str, Any]]:
    """For each field whether its table row and its bytes are what was written, and whether they decode."""
    return [{"field": shown.number, **_check(samples, index, shown.number)} for shown in samples.shown]


def _check(samples: Samples, index: int, number: int) -> dict[str, Any]:
    if not isinstance(samples, ReaderSamples):
        try:
            samples.item(index, number)
        except Exception as error:  # whatever reading does
            return {"state": BAD, "text": explained(error)}
        return {"state": NONE, "text": f"readable; {samples.format} has no checksums that could be compared"}
    try:
        checked = _compare(samples, index, number)
        value = samples.reader.read_sample(index, [samples.shown[number].name])[samples.shown[number].name]
        check_value(value)
    except kernels.Failure as failure:
        return {"state": BAD, "text": str(failure.args[1])}
    except ImportError as error:  # a library that decodes is missing, which is no damage
        return {"state": NONE, "text": explained(error)}
    except Exception as error:  # a decoder of the user's too
        return {"state": BAD, "text": explained(error)}
    return checked


def _compare(samples: ReaderSamples, index: int, number: int) -> dict[str, Any]:
    dataset = samples.reader.dataset
    shard, row = dataset.where(index)
    file = dataset.file(shard)
    if file.is_missing(number, row):
        return {"state": GOOD, "text": "missing, and the table that says so is intact"}
    payloads = file.payloads_of(number, np.array([row])) if hasattr(file, "payloads_of") else file.payloads(number)
    if payloads is None:
        return {"state": GOOD, "text": "its row and the table block around it match their CRC32C"}
    for _, _, message, stored, computed in payloads.check(row, row + 1):
        sums = f": crc32c stored {stored:#010x}, computed {computed:#010x}" if stored != computed else ""
        raise FastLoaderError(f"{message}{sums}")
    if isinstance(dataset, ExtentDataset):
        column = dataset.parts[shard].columns.get(dataset.names[number])
        if not isinstance(column, Extents) or column.checksums is None:
            return {"state": NONE, "text": f"it decodes; {samples.format} has no checksum of it"}
        return {"state": GOOD, "text": "its bytes match their checksum, and decode"}
    crc = samples.place(index, number).get("crc32c", "")
    return {"state": GOOD, "text": f"its bytes match their CRC32C{crc and f' {crc}'}, and decode"}
