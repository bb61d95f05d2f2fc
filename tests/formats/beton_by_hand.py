"""Another writer of ``.beton`` files, as plain as can be, with pages of any size: real ones have 2 MiB at least."""

from __future__ import annotations

import json
import struct

import numpy as np

TYPES = {"float": 0, "int": 1, "image": 2, "bytes": 3, "ndarray": 4, "json": 5, "tensor": 6, "custom": 255}


class Pages:
    """Data laid one behind the other, each sample's within one page."""

    def __init__(self, size, start):
        self.size, self.start = size, start
        self.pages, self.used, self.table = [], size, []

    def full(self, sizes):
        """Whether the data of a sample, laid one behind the other, would cross the end of this page."""
        return self.used + sum(sizes) > self.size

    def lay(self, sample, data):
        if self.used + len(data) > self.size:
            self.pages.append(bytearray(self.size))
            self.used = 0
        at = self.start + (len(self.pages) - 1) * self.size + self.used
        if data:
            self.pages[-1][self.used : self.used + len(data)] = data
        self.used += len(data)
        self.table.append((sample, at, len(data)))
        return at


def padded(row, kind):
    """Numbers begin at multiples of eight."""
    return row + b"\0" * (-len(row) % 8 if kind in ("float", "int", "ndarray", "tensor") else 0)


def arguments(kind, value):
    if kind not in ("ndarray", "tensor"):
        return b""
    shape = [*value.shape, *[0] * (32 - value.ndim)]
    told = json.dumps([["", value.dtype.str]]).encode()
    return struct.pack("<32QQ", *shape, len(told)) + told


def data_of(kind, value):
    if kind == "json":
        return json.dumps(value).encode() + b"\0"
    if kind in ("float", "int"):
        return None
    return value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()


def row_of(kind, value, at, size, picture):
    if kind in ("float", "int"):
        return struct.pack("<d" if kind == "float" else "<q", value)
    if kind == "image":
        return struct.pack("<BHHQ", not isinstance(value, bytes), picture.shape[1], picture.shape[0], at)
    return struct.pack("<Q", at) if kind in ("ndarray", "tensor") else struct.pack("<QQ", at, size)


def make(kinds, samples, page_size, pictures=None):
    """The file. Images that are JPEGs take their sizes from ``pictures``."""
    head = b"".join(
        struct.pack("<B16s1024s", TYPES[kind], name.encode(), arguments(kind, samples[0][name]))
        for name, kind in kinds.items()
    )
    stride = b""
    for kind in kinds.values():
        width = {"float": 8, "int": 8, "ndarray": 8, "tensor": 8, "image": 13}.get(kind, 16)
        stride = padded(stride, kind) + bytes(width)
    widest = "int" if {"float", "int", "ndarray", "tensor"} & set(kinds.values()) else "bytes"
    stride = len(padded(stride, widest))
    end = 24 + len(head) + stride * len(samples)
    pages = Pages(page_size, -(-end // page_size) * page_size)
    rows = b""
    for number, sample in enumerate(samples):
        data = {name: data_of(kind, sample[name]) for name, kind in kinds.items()}
        if pages.pages and pages.full([len(one) for one in data.values() if one is not None]):
            pages.used = page_size
        row = b""
        for name, kind in kinds.items():
            one = data[name]
            at = None if one is None else pages.lay(number, one)
            size = None if one is None else len(one)
            picture = sample[name] if pictures is None else pictures[number][name]
            row = padded(row, kind) + row_of(kind, sample[name], at, size, picture)
        rows += row + bytes(stride - len(row))
    body = b"".join(pages.pages)
    start = pages.start if body else end
    header = struct.pack("<HHIQQ", 2, len(kinds), page_size, len(samples), start + len(body))
    table = b"".join(struct.pack("<QQQ", *one) for one in pages.table)
    return (header + head + rows).ljust(start, b"\0") + body + table
