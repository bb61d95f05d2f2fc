"""The native functions called directly with what no caller of ours would give them: they may raise, never crash."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tarfile
import threading
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from fastloader import kernels
from fastloader._native import image_decode
from fastloader.formats.extents import table_of
from fastloader.formats.fld.layout import EXTENT, NO_FIELD, Kind
from fastloader.types import TypeId

from .datasets import Base
from .internals import change_jpeg, flip

NUMBERS = [
    0,
    1,
    2,
    3,
    7,
    8,
    16,
    32,
    64,
    100,
    4096,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
]


def exact(data: bytes) -> np.ndarray:
    """The bytes in a heap block of their size, where a sanitizer sees the first byte too many."""
    array = np.empty(len(data), np.uint8)
    array[:] = np.frombuffer(data, np.uint8)
    return array


PICTURES = {
    TypeId.IMAGE_JPEG: kernels.JPEG, TypeId.IMAGE_PNG: kernels.PNG, TypeId.IMAGE_WEBP: kernels.WEBP,
    TypeId.MASK: kernels.RUNS,
}  # fmt: skip
"""Images by their type, and how kernels call them."""


class Wild:
    """Arguments, right and wrong, drawn from a generator."""

    def __init__(self, bases: dict[str, Base], rng: Random) -> None:
        self.rng = rng
        self.base = bases[rng.choice(["blobs", "arrays", "pictures", "masks", "sounds", "pages", "empty"])]
        self.file = self.base.files[""]
        self.anatomy = self.base.anatomies[""]

    def number(self) -> int:
        return self.rng.choice([*NUMBERS, self.rng.randrange(200), -1, len(self.file), len(self.file) - 1])

    def small(self) -> int:
        return self.rng.choice([0, 1, 2, 3, 4, 5, 6, 8, 12])

    def data(self) -> Any:
        """Some bytes: part of a file, a payload, or noise, in one of the shapes a buffer can have."""
        payloads = self.anatomy.payloads
        kind = self.rng.randrange(5)
        if kind < 2 and payloads:
            p = self.rng.choice(payloads)
            raw = self.file[p.begin : p.begin + p.size]
        elif kind == 2:
            begin = self.rng.randrange(len(self.file))
            raw = self.file[begin : begin + self.rng.choice([0, 1, 7, 300])]
        else:
            raw = self.rng.randbytes(self.rng.choice([0, 1, 8, 33, 512, 5000]))
        return self.rng.choice([exact(raw), exact(raw), raw, bytearray(raw), memoryview(raw), exact(b"x" + raw)[1:]])

    def out(self, size: int | None = None) -> Any:
        """Room for output: of the right size, of another, misaligned, read-only, or no memory at all."""
        size = self.rng.choice([0, 1, 8, 64, 1000]) if size is None or self.rng.random() < 0.3 else size
        room = np.zeros(min(size, 1 << 20), np.uint8)
        kind = self.rng.randrange(12)
        if kind == 0:
            room.setflags(write=False)
        elif kind == 1:
            return np.zeros(len(room) + 1, np.uint8)[1:]
        elif kind == 2:
            return np.zeros(2 * len(room), np.uint8)[::2]
        elif kind == 3:
            return self.rng.choice([None, "text", 7, b"", []])
        return room

    def rows(self) -> Any:
        count = self.small()
        values = [self.rng.choice([0, 1, 2, 3, 4, 5, -1, -(2**63), 2**63 - 1, 10**6]) for _ in range(count)]
        if self.rng.random() < 0.7:
            values = [v % 6 for v in values]
        kind = self.rng.randrange(12)
        if kind == 0:
            return np.array(values, np.int64).view(np.uint8)[: 8 * count - 3]
        if kind == 1:
            return np.array([0, *values], np.int64).view(np.uint8)[4 : 4 + 8 * count]
        return np.array(values, np.int64)

    def which(self, rows: Any) -> Any:
        if self.rng.random() < 0.5:
            return None
        count = len(rows) if self.rng.random() < 0.8 else self.small()
        return np.array([self.rng.choice([0, 0, 0, 1, 2, -1, 2**31 - 1, -(2**31)]) for _ in range(count)], np.int32)

    def table(self, kinds: tuple[Kind, ...] = ()) -> kernels.Table:
        """A table of the file, or one made up."""
        keys = [key for key in self.anatomy.entries if key[0] not in (Kind.DATA, Kind.DESCRIPTORS)]
        chosen = self.rng.choice([key for key in keys if key[0] in kinds] or keys)
        names = ("offset", "size", "row_size", "block_size", "crcs_offset")
        numbers = [self.anatomy.entries[chosen][name].get(self.file) for name in names]
        file = self.file
        if self.rng.random() < 0.25:
            numbers[self.rng.randrange(5)] = self.number()
        if self.rng.random() < 0.1:
            file = file[: self.rng.randrange(len(file) + 1)]
        listed = None if self.rng.random() < 0.9 else (self.rng.choice([4, 8, 256, self.number()]), self.number())
        return kernels.Table(exact(file), *numbers, listed)

    def payloads(self) -> kernels.Payloads:
        begin, size = (self.anatomy.number(Kind.DATA, NO_FIELD, name).get(self.file) for name in ("offset", "size"))
        end = begin + size
        if self.rng.random() < 0.2:
            begin, end = self.number(), self.number()
        file = self.file if self.rng.random() < 0.9 else self.file[: self.rng.randrange(len(self.file) + 1)]
        return kernels.Payloads(exact(file), self.table((Kind.EXTENTS,)), begin, end)

    def sources(self) -> list[kernels.Payloads]:
        return [self.payloads() for _ in range(self.rng.choice([0, 1, 1, 2]))]

    def shape(self) -> tuple[int, int, int, int]:
        if self.rng.random() < 0.5:
            return (self.rng.choice([1, 4, 20]), self.rng.choice([1, 4, 24]), self.rng.choice([1, 3, 4]), 8)
        choices = [0, 1, 3, 4, 8, 16, 20, 24, 255, 65500, 2**16, 2**31 - 1, 2**31, 2**32 - 1]
        return tuple(self.rng.choice(choices) for _ in range(4))  # type: ignore[return-value]

    def picture(self) -> tuple[int, Any]:
        """A kind of image and bytes, mostly of an image of that kind."""
        pictures = [p for p in self.anatomy.payloads if p.type_id in PICTURES and not p.codec]
        if not pictures or self.rng.random() < 0.2:
            return self.rng.choice([0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 32, -1, 255, 256]), self.data()
        p = self.rng.choice(pictures)
        raw = bytearray(self.file[p.begin : p.begin + p.size])
        for _ in range(self.rng.choice([0, 1, 3])):
            raw[self.rng.randrange(len(raw))] ^= 1 << self.rng.randrange(8)
        return PICTURES[p.type_id] | self.rng.choice([0, kernels.UPRIGHT]), exact(
            bytes(raw[: self.rng.choice([len(raw), len(raw), len(raw) // 2])])
        )


@functools.cache
def scene(subsampling: int, channels: int) -> bytes:
    """A JPEG with some MCUs in each direction."""
    rows = np.random.default_rng(0).integers(0, 256, (70, 110, channels), np.uint8)
    return kernels.jpeg_encode(rows, 70, 110, channels, 30, subsampling)


def use_table(w: Wild) -> None:
    table = w.table()
    for method in (lambda: table.rows, lambda: table.blocks, lambda: table.row(w.number(), w.number()),
                   lambda: table.row(w.small()), lambda: table.check(w.number(), w.number())):  # fmt: skip
        attempt(method)


def use_payloads(w: Wild) -> None:
    payloads = w.payloads()  # the table lives on only because the payloads hold it
    row = w.small() if w.rng.random() < 0.7 else w.number()
    for method in (payloads.extent, payloads.locate, payloads.read):
        attempt(lambda method=method: method(row))
    attempt(lambda: payloads.check(w.number(), w.number()))


def use_keys(w: Wild) -> None:
    kinds = [(Kind.KEY_OFFSETS,), (Kind.KEY_BYTES,), (Kind.KEY_SLOTS,)]
    if w.rng.random() < 0.3:
        w.rng.shuffle(kinds)
    keys = kernels.Keys(*(w.table(kind) for kind in kinds))
    attempt(lambda: len(keys))
    attempt(lambda: keys.key(w.number()))
    attempt(lambda: keys.find(w.rng.choice([b"", b"dir/001.bin", b"x" * 300])))
    attempt(lambda: keys.check(w.number(), w.number()))


def use_take(w: Wild) -> None:
    kind = (w.rng.choice([Kind.METADATA, Kind.VALIDITY, Kind.PAGES]),)
    tables = [w.table(kind) for _ in range(w.small() % 4)]
    rows = w.rows()
    width = w.rng.choice([1, 8, 16, 72])
    w.rng.choice([kernels.take, kernels.take_bits])(tables, w.which(rows), rows, w.out(len(rows) * width))


def use_gather(w: Wild) -> None:
    sources, rows = w.sources(), w.rows()
    which = w.which(rows)
    size = w.rng.choice([0, 24, 48, w.small(), w.number()])
    kind = w.rng.randrange(4)
    if kind == 0:
        kernels.gather_fixed(sources, which, rows, size, w.out(len(rows) * max(size, 0)))
    elif kind == 1:
        kernels.gather_ragged(sources, which, rows)
    elif kind == 2:
        kernels.gather_bytes(sources, which, rows)
    else:
        shapes = np.array([w.shape() for _ in range(w.rng.choice([len(rows), len(rows), w.small()]))], np.uint32)
        kernels.image_decode_many(w.rng.choice([0, 1, 1, 2, 3, 4, 5, 16, 17, 18, 19]), sources, which, rows, shapes)


def use_images(w: Wild) -> None:
    kind, data = w.picture()
    shape = w.shape()
    attempt(lambda: kernels.image_info(kind, data))
    if w.rng.random() < 0.7:
        attempt(lambda: image_decode(kind, data, np.array(kernels.image_info(kind, data), np.uint32), w.out(1440)))
    size = int(np.prod(np.array(shape, object))) // 8
    attempt(lambda: image_decode(kind, data, np.array(shape, np.uint32), w.out(size)))
    height, width, channels, bits = shape
    attempt(lambda: kernels.png_encode(w.out(size), height, width, channels, bits, w.rng.choice([-1, 0, 9, 100])))
    quality, subsampling = w.rng.choice([-5, 0, 50, 100, 999]), w.rng.choice([0, 420, 422, 444, -1])
    attempt(lambda: kernels.jpeg_encode(w.out(size), height, width, channels, quality, subsampling))
    attempt(lambda: kernels.runs_encode(w.out(size), height, width))
    attempt(lambda: kernels.webp_encode(w.out(size), height, width, channels, quality, w.rng.random() < 0.5))


def use_jpeg_parts(w: Wild) -> None:
    whole = scene(w.rng.choice([420, 422, 444]), w.rng.choice([1, 3]))
    shape = kernels.image_info(kernels.JPEG, whole)
    data, index = whole, kernels.jpeg_index(whole, w.rng.choice([1, 2, 4, 8]))[0]
    for _ in range(w.rng.choice([0, 1, 1, 3])):
        if w.rng.random() < 0.5:
            index = flip(w.rng, index)
        else:
            data = w.rng.choice([change_jpeg, flip])(w.rng, data)
    if w.rng.random() < 0.1:
        index = w.rng.choice([b"", index[: w.small()], data[:40]])
    if w.rng.random() < 0.1:
        shape = w.shape()
    x, y = w.rng.randrange(110), w.rng.randrange(70)
    box = (x, y, w.rng.randint(1, 110 - x), w.rng.randint(1, 70 - y))
    if w.rng.random() < 0.1:
        box = tuple(w.number() % 2**32 for _ in range(4))
    shrink, channels = w.rng.choice([1, 1, 2, 4, 8, 3]), w.rng.choice([0, 0, 0, 3, 4])
    size = box[2] * box[3] * (channels or shape[2])
    out = w.out(size if size < 1 << 20 else 0)
    route = w.rng.choice([2, 2, 2, 3, 1, 0, 7])
    arguments = exact(data), exact(index), np.array(shape, np.uint32), box
    attempt(lambda: kernels.jpeg_crop(*arguments, shrink, channels, route, out))
    attempt(lambda: kernels.jpeg_index(exact(data), w.rng.choice([1, 4, 128, w.number() % 2**32])))
    attempt(lambda: kernels.jpeg_baseline(exact(data)))
    attempt(lambda: kernels.jpeg_size(exact(data + index)))


def use_codecs(w: Wild) -> None:
    data, codec = w.data(), w.rng.choice([0, 1, 2, 3, -1, 256, 258])
    attempt(lambda: kernels.decompress(data, codec, w.out()))
    packed = kernels.compress(data, codec, w.rng.choice([-(2**31), -7, 0, 1, 3, 12, 22, 2**31 - 1]))
    damaged = bytearray(packed)
    for _ in range(w.rng.choice([0, 1, 4])):
        damaged[w.rng.randrange(len(damaged))] ^= 1 << w.rng.randrange(8)
    kernels.decompress(exact(bytes(damaged)), codec, w.out(len(data)))


def use_sums(w: Wild) -> None:
    data = w.data()
    attempt(lambda: kernels.crc32c(data, w.number()))
    attempt(lambda: kernels.xxh64(data, w.number()))
    attempt(lambda: kernels.block_crcs(data, w.number()))
    attempt(lambda: kernels.copy_crc32c(data, w.out(len(data)), w.rng.choice([*kernels.crc32c_variants(), "none"])))


def use_placement(w: Wild) -> None:
    def words(count: int) -> Any:
        return np.array([w.number() % 2**64 for _ in range(count)], np.uint64)

    count, fields = w.small(), w.rng.choice([0, 1, 2, 3, 2**63, 2**64 - 1])
    total = count * fields if fields < 4 else w.small()
    sizes, offsets = words(total), np.zeros(w.rng.choice([total, total, w.small()]), np.uint64)
    cursor = (w.number(), w.number(), w.number())
    starts = np.zeros(count, np.uint64)
    page = w.rng.choice([4096, 2**31, 2**63, 1, w.number()])
    attempt(lambda: kernels.place(sizes, fields, page, w.number(), cursor, offsets, starts))
    hashes = np.sort(words(count))
    samples, slots = words(w.rng.choice([count, count, w.small()])), np.zeros(w.small() * 4, np.uint64)
    attempt(lambda: kernels.lay_slots(hashes, samples, w.number(), w.number(), w.number(), slots))
    parts = [w.data() for _ in range(count)]
    places = np.cumsum([0, *(len(p) for p in parts)])[: w.rng.choice([count, count, w.small()])].astype(np.uint64)
    if w.rng.random() < 0.3 and len(places):
        places[w.rng.randrange(len(places))] = w.number() % 2**64
    sums = np.zeros(w.rng.choice([count, count, w.small()]), np.uint32)
    attempt(lambda: kernels.assemble(parts, places, w.rng.choice([0, 0, 5, 2**63]), w.out(sum(map(len, parts))), sums))


def elements(w: Wild) -> tuple[int, int, int, int, bool, bytes]:
    """Elements to be padded or joined; a length may be far too long, never so long that it might be had."""
    length, multiple = w.rng.choice([0, 0, 1, 9, 2**62]), w.rng.choice([1, 1, 8, 0, 2**64 - 1])
    return w.small(), w.rng.choice([0, 0, 1, 2, 3]), length, multiple, w.rng.random() < 0.5, b"ab"[: w.small()]


def views(w: Wild) -> list[tuple[kernels.Program, bool]]:
    """Programs of views, if any: of one kind of image or not, telling what they drew or not."""
    return [
        (
            kernels.Program(
                w.rng.choice([0, 0, 1, 2]), w.rng.random() < 0.5, (5, 5, 3), [(0, 0, 8, 8, 2, (0.1, 1.0, 0.5, 2.0))],
                (8, 8, 3), 0, 0, (1.0,) * 4, (0.0,) * 4, 5, [0] * w.rng.choice([0, 1]),
            ),
            w.rng.random() < 0.5,
        )
        for _ in range(w.rng.choice([0, 0, 0, 1, 2, 3]))
    ]  # fmt: skip


def use_engine(w: Wild) -> None:
    """Plans that do not fit their tables, rows that are not there, batches nobody waits for or waited for twice."""
    columns = w.rng.choice([1, 1, 2])
    plans = [
        (
            w.rng.choice([0, 1, 2, 3, 4, 5, -1]), w.rng.choice([0, 8, 16, 16, 72]), w.small(),
            w.rng.choice([0, 1, 1, 5]), w.rng.choice([None, elements(w), elements(w)]), views(w),
        )
        for _ in range(columns)
    ]  # fmt: skip
    io = (
        w.rng.choice([0, 0, 0, 1, 2, 3, 4, 9]), w.rng.choice([0, 4096, 1 << 20]),
        w.rng.choice([0, 0, 512, 4096, 7]), w.rng.random() < 0.2,
    )  # fmt: skip
    engine = kernels.Engine(plans, w.rng.choice([0, 1, 3]), w.rng.choice([0, 1, 4]), w.small(), io)
    status = os.stat(__file__)
    files = [("", 0, 0), ("/dev/zero", 1, 2), (__file__, status.st_dev, status.st_ino)]
    for _ in range(w.rng.choice([0, 1, 2])):
        tables = [
            (
                w.rng.choice([None, w.table((Kind.METADATA,))]),
                w.rng.choice([None, None, w.table((Kind.VALIDITY,))]),
                w.rng.choice([None, w.payloads(), w.payloads()]),
                w.rng.choice([0, 0, 1, w.number()]),
            )
            for _ in range(w.rng.choice([columns, columns, w.small()]))
        ]
        there = [payloads for _, _, payloads, _ in tables if payloads is not None]
        attempt(lambda there=there: engine.add_file(w.rng.choice(files), there))
        attempt(lambda tables=tables: engine.add_source(tables))
    if w.rng.random() < 0.9:
        engine.start()
    tickets = [w.number()]
    for _ in range(w.small()):
        rows = w.rows()
        attempt(lambda rows=rows: tickets.append(engine.submit(w.which(rows), rows, w.rng.random() < 0.7)))
    for ticket in w.rng.sample(tickets, len(tickets)):
        attempt(lambda ticket=ticket: w.rng.choice([engine.wait, engine.wait, engine.forget, engine.fill])(ticket))
    if w.rng.random() < 0.5:
        engine.stop()


def use_orders(w: Wild) -> None:
    values, out = w.rows(), w.rng.choice([w.rows(), w.out()])
    attempt(lambda: kernels.permute(w.number(), w.number(), w.number(), values, out, w.rng.random() < 0.5))
    kernels.permute(len(values), w.number(), w.number(), np.arange(len(values)), values)


def use_pixels(w: Wild) -> None:
    """Shapes that are not those of the memory, boxes outside of it, factors that are no numbers."""

    def side() -> int:
        return w.rng.choice([1, 2, 3, 5, 8, 17, 22, 40, w.number()])

    def real() -> float:
        return w.rng.choice([0.0, 0.5, 1.0, 1.5, 3.0, 7.25, -1.0, 1e30, float("nan"), float("inf"), side()])

    channels = w.rng.choice([1, 3, 3, 4, 0, 5])
    shape, size = (side(), side(), channels), (side(), side())
    bytes_in, bytes_out = abs(shape[0] * shape[1] * channels), abs(size[0] * size[1] * channels)
    image, level = w.out(bytes_in), w.rng.choice([*kernels.simd_levels(), ""])
    width, height = min(shape[1], 2**20), min(shape[0], 2**20)
    box = (0.0, 0.0, width, height) if w.rng.random() < 0.5 else (real(), real(), real(), real())
    filter, samples = w.rng.choice([0, 1, 2, 3, 4, 5, 6]), w.rng.choice([0, 0, 1, 2, 3])
    attempt(lambda: kernels.resize_region(shape, box, size, filter))
    room, flip = w.out(bytes_out), w.rng.random() < 0.5
    attempt(lambda: kernels.resize(image, shape, samples, box, size, filter, flip, room, level, w.rng.random() < 0.3))
    element, layout = w.rng.choice([0, 1, 2, 3, 4]), w.rng.choice([0, 1, 2])
    scale, bias = [real()] * channels, [0.0] * channels
    wide = w.out(bytes_in * [1, 2, 2, 4, 1][element])
    attempt(lambda: kernels.cast(image, shape, element, layout, scale, bias, flip, wide, level))
    like, op = w.out(bytes_in), w.rng.choice(["brightness", "contrast", "saturation", "sharpness"])
    attempt(lambda: getattr(kernels, op)(image, shape, real(), like, level))
    attempt(lambda: kernels.hue(image, shape, w.number(), like, level))
    attempt(lambda: kernels.posterize(image, shape, w.small(), like, level))
    attempt(lambda: kernels.grayscale(image, shape, w.small(), like, level))
    attempt(lambda: getattr(kernels, w.rng.choice(["equalize", "autocontrast", "invert"]))(image, shape, like, level))
    attempt(lambda: kernels.gaussian_blur(image, shape, (side(), side()), (real(), real()), like, level))
    matrix, fill = [real() for _ in range(w.rng.choice([6, 6, 6, 5]))], [3] * w.rng.choice([channels, 3])
    attempt(lambda: kernels.affine(image, shape, matrix, flip, fill, room, size))
    at = (w.rng.choice([0, -1, 5, 2**31 - 1, -(2**31)]), w.rng.choice([0, -9, 5, 2**31 - 1, -(2**31)]))
    attempt(lambda: kernels.pad_image(image, shape, at, w.rng.choice([0, 1, 2, 3, 4]), fill, room, size))
    place = (side() - 1, side() - 1, side(), side())
    attempt(lambda: kernels.erase(image, shape, place, fill))
    attempt(lambda: kernels.erase_noise(image, shape, place, 1, 2, 3, 4))
    partners = w.rng.choice([w.rows(), np.zeros(1, np.int64), np.array([2, 0, 1])])
    shares = np.array([w.rng.choice([0.0, 0.3, 1.0, real()]) for _ in partners], np.float32)
    many = 8 * len(partners)
    attempt(lambda: kernels.mixup(w.out(many), element, partners, shares, w.out(many)))
    boxes = np.array([side() % 2**32 for _ in range(4 * len(partners))], np.uint32).reshape(-1, 4)
    boxes[:, :2] //= w.rng.choice([1, 40])
    attempt(lambda: kernels.cutmix(image, shape, w.rng.choice([1, 1, 2]), layout, partners, boxes, w.out(bytes_in)))


NUMBERS = ((0.08, 1.0, 0.75, 1.3), (0.5, 0.0, 0.0, 0.0), (9.0, 0.0, 0.0, 0.0), (1e9, 1e9, 1e9, 1e9))


def use_programs(w: Wild) -> None:
    """Steps of any size on images that are not what their shape says."""
    pick = w.rng.choice
    side, channels, stored = pick([1, 2, 5, 16, 40]), pick([1, 3, 3, 4]), pick([0, 0, 1, 2, 3, 4, 4, 5, 6])
    steps = [
        (
            pick(range(len(kernels.STEPS) + 1)),
            k,
            pick([side, 8, 300, 0]),
            pick([side, 8, 2**31]),
            pick([0, 2, 5, 6]),
            pick(NUMBERS),
        )
        for k in range(pick([0, 1, 1, 2, 3]))
    ]
    raw = (pick([side, 3]), pick([side, 7]), channels)
    result = (pick([side, 8]), pick([side, 8]), pick([1, 3, 3]))
    scale = (pick([1.0, float("nan")]),) * 4
    stored |= pick([0, 0, kernels.UPRIGHT, kernels.UPRIGHT | kernels.UPRIGHT_SHAPES, kernels.UPRIGHT_SHAPES])
    program = kernels.Program(
        stored,
        w.rng.random() < 0.5,
        raw,
        steps,
        result,
        pick([0, 1, 3, 4]),
        pick([0, 1, 2]),
        scale,
        (0.0,) * 4,
        5,
        pick([[], [], [0], [1, 2]]),
    )
    shape = np.array([side, side, channels, pick([8, 8, 16])], np.uint32)
    kind = {0: 0, 1: 1, 3: 2, 4: 3, 5: 4}.get(stored & 15, 0)
    given = pick([w.picture()[1], w.out(raw[0] * raw[1] * channels)])
    out = np.empty(program.row_bytes, np.uint8)
    if w.rng.random() < 0.5:
        shape[:] = kernels.image_info(kind | stored & kernels.UPRIGHT, given)
    told = pick([None, np.empty(program.told), np.empty(w.small())])
    program.run(given, shape, w.rng.randrange(2**64), w.rng.randrange(2**64), out, told)


def use_texts(w: Wild) -> None:
    """Dictionaries, texts, packed sequences, windows."""
    pick, data = w.rng.choice, w.data()
    raw = bytes(memoryview(data).cast("B")) if memoryview(data).nbytes else b""
    header = b"\x37\xa4\x30\xec" if w.rng.random() < 0.5 else b""
    dictionary = kernels.Dictionary(exact(header + raw))
    attempt(lambda: kernels.train_dictionary([raw[i::7] for i in range(pick([0, 1, 5, 50]))], pick([0, 1, 256, 4096])))
    packed = kernels.compress(raw, 3, pick([-7, 1, 3, 19]), dictionary)
    attempt(lambda: kernels.decompress(exact(packed), 3, w.out(len(raw)), dictionary))
    ends = np.sort(np.array([w.rng.randrange(-2, len(raw) + 3) for _ in range(pick([0, 1, 2, 9]))], np.int64))
    attempt(lambda: kernels.decode_texts(exact(raw), pick([ends, ends[::-1].copy(), np.arange(len(raw) + 1)])))
    lengths = np.array([w.rng.randrange(-1, 9) for _ in range(pick([0, 3, 20]))], np.int64)
    attempt(
        lambda: kernels.best_fit(lengths, pick([0, 7, 8, 2**63]), np.empty(len(lengths) + pick([0, 0, 0, 1]), np.int64))
    )
    rows, length = max(0, len(ends) - 1), pick([0, 1, 8, 8, 2**31, 2**63])
    room = rows * length if length < 100 else 64
    counts = np.array([pick([0, 1, 2, 2**31, 2**32 - 1, w.rng.randrange(9)]) for _ in range(2 * rows)], np.uint32)
    out = [np.empty(room, np.int32) for _ in range(2)]
    kernels_out = (np.empty(room, np.uint16), *out, np.empty(pick([0, 8, 4096]), np.int32))
    pad = pick([np.zeros(1, np.uint16), np.zeros(0, np.uint16)])
    attempt(lambda: kernels.unpack_sequences(exact(raw), ends, counts, length, pad, *kernels_out))
    begin, end, size, step = (
        pick([0, 1, 8, len(raw) // 2, len(raw), len(raw) + 1, 2**63, 2**64 - 1]) for _ in range(4)
    )
    windows = kernels.Payloads.windows(exact(raw), begin, end, size, step)
    for row in (0, windows.rows - 1, windows.rows, 2**64 - 1):
        attempt(lambda row=row: windows.read(max(0, row)))  # type: ignore[misc]
    kernels.gather_fixed([windows], None, np.array([0, -1, windows.rows], np.int64), size, w.out(3 * min(size, 1000)))


def use_fetched_windows(w: Wild) -> None:
    """Windows of an object whose bytes may be wrong, too few or missing; and two kinds of them in one file."""
    pick, item = w.rng.choice, w.rng.choice([1, 2, 4])
    tokens, block = w.rng.randbytes(item * pick([0, 1, 50, 700])), pick([1, 7, 64, 256, 5000, 2**32 - 1])
    begin = pick([0, 1, 64, 300])
    held = exact(bytes(begin) + tokens + kernels.block_crcs(tokens, block))
    table = kernels.Table(held, begin, len(tokens), item, block, begin + len(tokens))
    size = item * pick([1, 3, 40])
    kinds = [
        kernels.Payloads.windows(
            held, pick([begin, begin, begin // 2]), begin + len(tokens) - pick([0, 0, 1]), size,
            pick([item, size, 5 * size, 2**63]), pick([table, table, None]),
        )
        for _ in range(pick([1, 1, 2]))
    ]  # fmt: skip
    io = (5, pick([0, 300, 1 << 20]), pick([0, 1, 64, 512, 1 << 40]), w.rng.random() < 0.3)
    engine = kernels.Engine([(1, 0, size, 0, None, [])], 2, 2, 0, io)
    file = engine.add_file(("object", 0, 0), kinds)
    for windows in kinds:
        engine.add_source([(None, None, windows, file)])
    ended, answers = threading.Event(), Random(w.rng.random())

    def serve() -> None:
        while not ended.is_set():
            for ticket, _, at, count in engine.take_reads(4, 5):
                answer = answers.choice(["right", "right", "right", "noise", "few", "none"])
                if answer == "none":
                    engine.fail_read(ticket, "not now")
                else:
                    right = bytes(held[at : at + count])
                    engine.finish_read(ticket, exact({"few": right[:-1], "noise": right[::-1]}.get(answer, right)))

    engine.start()
    server = threading.Thread(target=serve)
    server.start()
    try:
        tickets = []
        for _ in range(pick([1, 4])):
            rows = w.rows()
            attempt(lambda rows=rows: tickets.append(engine.submit(w.which(rows), rows)))
        for ticket in tickets:
            attempt(lambda ticket=ticket: engine.wait(ticket))
    finally:
        ended.set()
        engine.wake_reads()
        server.join()
        engine.stop()


def use_conversions(w: Wild) -> None:
    """Arrays as numbers of another type, of sizes that may not be theirs."""
    pick = w.rng.choice
    count, channels = pick([1, 3, 40]), pick([1, 2, 3, 0])
    factors = pick([[], [0.5] * channels, [float("nan")] * channels, [1.0, 2.0]])
    program = kernels.Program.rows(pick([count * channels * pick([1, 2, 4, 8]), w.small(), 2**62]), 7)
    converted = program.then_conversion(
        pick(range(-1, len(kernels.NUMBERS) + 1)),
        pick(range(-1, len(kernels.ELEMENTS) + 1)),
        (pick([count, 2**63]), channels),
        pick([0, 1, 2]),
        pick([0, 1]),
        factors,
        factors,
    )
    given = w.out(pick([count * channels * 4, 8]))
    attempt(lambda: converted.run(given, b"", 0, 0, np.empty(converted.row_bytes % 2**20, np.uint8)))
    samples = w.rows()
    out = np.empty(len(samples) * converted.row_bytes % 2**20, np.uint8)
    converted.run_rows(b"", w.out(pick([len(samples), 2])), 0, samples, out)


def use_sounds(w: Wild) -> None:
    """Tokens, spectrograms and programs over bytes that are not what their rows say."""
    pick = w.rng.choice
    shape = pick([1, 2, 3, 0, 2**16, 2**32 - 1]), pick([1, 7, 10, 32, 0, 33])
    attempt(lambda: kernels.unpack_tokens(w.data(), *shape, w.number(), w.number(), pick([1, 2, 4, 8]), w.out()))
    attempt(lambda: kernels.unpack_tokens(w.data(), *shape, 1, 2, pick([1, 2, 4]), w.out(2 * shape[0] % 4096 * 4)))
    attempt(lambda: kernels.pack_tokens(w.out(), *shape, w.out()))
    file = bytearray(w.data())
    for _ in range(pick([0, 1, 3]) if file else 0):
        file[w.rng.randrange(len(file))] = w.rng.randrange(256)
    facts = pick([9000, 40, w.number() % 2**62]), pick([8000, 8001]), pick([1, 2, 0])
    attempt(lambda: kernels.flac_start(exact(bytes(file)), w.rng.randrange(9500)))
    attempt(lambda: kernels.sound_info(exact(bytes(file))))
    attempt(lambda: kernels.sound_decode(exact(bytes(file)), facts, w.rng.randrange(9500), pick([9000, 30, 9700])))
    rates = pick([8000, 16000, 0, 7, 2**32 - 1]), pick([8000, 44100, 1, 0, 2**31])
    attempt(lambda: kernels.resample_sound(w.out(), pick([1, 2, 3, 0]), *rates))
    mel: Any = None
    with contextlib.suppress(*BAD_ARGUMENT):
        sizes = (pick([64, 63, 1, 0, 2**32 - 1]), pick([16, 1, 0, 2**31]), pick([64, 1, 30, 0]))
        hertz = (pick([0.0, 50.0, -1.0]), pick([4000.0, 1e9, float("nan")]))
        scale = (pick([0.0, 1.0, float("inf")]), pick([1e-10, 0.0]), pick([80.0, -1.0]))
        flags = [w.rng.random() < 0.5 for _ in range(5)]
        mel = kernels.Mel(8000, sizes, pick([1, 5, 0]), hertz, *flags[:2], pick([0, 1, 2, 3]), *flags[2:], scale)
        mel.run(w.out(), w.out())
    length = pick([1.0, 5.0, 40.0, 0.0, 1e300]), pick([0.0, 1.0])
    numbers = {
        0: (*length, pick([0.0, 1.0])), 1: (*length, pick([0.0, 1.0, 2.0]), 0.0), 2: (pick([4000.0, 16000.0, 0.0]),),
        3: (), 4: (1.0, -3.0, 3.0), 5: (1.0, 0.0, 30.0), 6: (1.0, *length, pick([0.0, 1.0])), 7: (),
        8: (pick([1, 3, -1]), pick([2, 900]), 1, pick([1, 90]), pick([0.5, 2.0]), 0.0, pick([0.0, 1.0])),
    }  # fmt: skip
    steps = []
    for k in range(pick([0, 1, 2, 4])):
        kind = pick([*range(9), 9])
        steps.append((kind, k, numbers.get(kind, ()), mel if kind == 7 else None))
    stored, channels = pick(range(6)), pick([0, 1, 2, 3])
    result = (pick([1, 5, 40, 2**40]), pick([1, 2, 5]))
    item, bits = pick([1, 2, 4]), pick([3, 10, 0])
    program = kernels.SoundProgram(stored, channels, 8000, bits, steps, result, item, w.rng.random() < 0.3, 5)
    payload = w.data()
    size = 16 if stored == 3 else 8 if channels else 72
    row = np.zeros(9, np.uint64)
    row[:3] = (
        pick([2, w.number() % 2**64, len(payload) // 4]),
        pick([3, len(payload) // 4, w.number() % 2**64]),
        pick([1, 2, 0]),
    )
    out = np.empty(min(program.row_bytes, 1 << 16), np.uint8)
    program.run(payload, row.view(np.uint8)[:size], w.rng.randrange(2**64), w.rng.randrange(2**64), out)


@functools.cache
def tar_bytes(format: int) -> bytes:
    """A small tar with a long name and a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as file:
        for name, data in (("a.txt", b"one"), ("long/" * 40 + "b.txt", b"two" * 300), ("c.jpg", b"")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.LNKTYPE, "a.txt"
        file.addfile(link)
    return out.getvalue()


def use_tars(w: Wild) -> None:
    raw = bytearray(tar_bytes(w.rng.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])))
    for _ in range(w.rng.choice([0, 1, 3])):
        raw[w.rng.randrange(len(raw))] ^= 1 << w.rng.randrange(8)
        at = w.rng.randrange(len(raw) // 512) * 512
        raw[at + 148 : at + 156] = b" " * 8
        raw[at + 148 : at + 156] = b"%06o\0 " % sum(raw[at : at + 512])
    data = (
        exact(bytes(raw[: w.rng.choice([len(raw), w.rng.randrange(len(raw))])])) if w.rng.random() < 0.8 else w.data()
    )
    size = w.rng.choice([len(data), w.number() % 2**64])
    scanner = kernels.TarScanner(size)
    attempt(lambda: scanner.feed(data, w.rng.choice([0, 0, 0, 512, w.number() % 2**64])))
    for _ in range(w.small()):
        attempt(lambda: scanner.feed(data[scanner.next : scanner.next + scanner.needed], scanner.next))
    attempt(lambda: scanner.last)
    attempt(lambda: scanner.finish(w.rng.choice([size, w.number() % 2**64])))
    ends = np.array([w.rng.choice([0, 3, 5, 7, len(raw), -1, 2**63 - 1]) for _ in range(w.small())], np.int64)
    chosen = np.ones(w.rng.choice([len(ends), len(ends), w.small()]), np.uint8)
    attempt(lambda: kernels.tar_samples(exact(b"a.txtb.x.ya.txtc"), np.sort(ends) if w.small() else ends, chosen))
    attempt(lambda: kernels.Unzstd().feed(w.rng.choice([w.data(), kernels.compress(b"x" * 9000, kernels.ZSTD, 1)])))


def use_foreign(w: Wild) -> None:
    raw = zlib.compress(b"some text " * 50, 9, -15)
    file = exact(raw + w.rng.randbytes(w.rng.choice([0, 9, 500])))
    rows = np.zeros(w.small(), EXTENT)
    for row in rows:
        size = w.rng.choice([len(raw), len(raw), w.number() % 2**64])
        row["pointer"], row["size"] = w.rng.choice([0, 0, w.number() % 2**64]), size
        row["raw_size"] = w.rng.choice([500, 500, size, w.number() % 2**64])
        row["codec"] = w.rng.choice([0, 255, 255, 1, 2, 77])
        row["crc"] = w.rng.choice([zlib.crc32(b"some text " * 50), 0])
    table = table_of(rows.view(np.uint8).reshape(-1), EXTENT.itemsize)
    flags = [w.rng.random() < 0.5 for _ in range(3)]
    payloads = kernels.Payloads.foreign(file, table, *flags)
    row = w.small() if w.rng.random() < 0.7 else w.number()
    for method in (payloads.extent, payloads.locate, payloads.read):
        attempt(lambda method=method: method(row))
    wanted = w.rows()
    attempt(lambda: kernels.gather_bytes([payloads], w.which(wanted), wanted))
    attempt(
        lambda: kernels.image_shapes(w.rng.choice([0, 1, 2, 16, 99]), [payloads], None, wanted, w.out(16 * len(wanted)))
    )


CALLS: list[Callable[[Wild], None]] = [
    use_table, use_payloads, use_keys, use_take, use_gather, use_gather, use_images, use_jpeg_parts, use_codecs,
    use_sums, use_placement, use_engine, use_engine, use_orders, use_pixels, use_pixels,
    use_programs, use_programs, use_conversions, use_sounds, use_sounds, use_texts, use_texts,
    use_fetched_windows,
    use_tars, use_foreign,
]  # fmt: skip

BAD_ARGUMENT = (ValueError, TypeError, IndexError, BufferError, OverflowError)
"""Python's usual words for it; ``kernels.Failure`` is a ValueError."""


def attempt(use: Callable[[], Any]) -> None:
    """Call, and let it refuse."""
    with contextlib.suppress(*BAD_ARGUMENT):
        use()


def call(bases: dict[str, Base], seed: int, number: int) -> list[str]:
    """One wild call (or a few on one object); returns what was wrong with how it was refused."""
    rng = Random(f"wild {seed} {number}")
    try:
        attempt(lambda: rng.choice(CALLS)(Wild(bases, rng)))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return []
