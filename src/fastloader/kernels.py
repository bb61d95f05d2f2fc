"""The one door to the native module: everything Python asks of C++ goes through a name listed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastloader._native import (
    ArchiveLookup,
    Dictionary,
    Engine,
    Failure,
    Keys,
    Mel,
    NetBody,
    NetClient,
    Payloads,
    Pinning,
    PlannedRange,
    PlannedRanges,
    PlannedReads,
    Program,
    SoundProgram,
    Table,
    TarScanner,
    Unzstd,
    affine,
    assemble,
    autocontrast,
    best_fit,
    block_crcs,
    brightness,
    cast,
    compress,
    contrast,
    copy_crc32c,
    crc32c,
    crc32c_variants,
    cutmix,
    decode_texts,
    decompress,
    draw_mix,
    equalize,
    erase,
    erase_noise,
    flac_start,
    gather_bytes,
    gather_fixed,
    gather_ragged,
    gaussian_blur,
    grayscale,
    has_uring,
    has_webp,
    hue,
    image_decode,
    image_decode_many,
    image_info,
    image_shapes,
    invert,
    jpeg_baseline,
    jpeg_crop,
    jpeg_encode,
    jpeg_index,
    jpeg_size,
    lay_slots,
    mixup,
    pack_tokens,
    pad_image,
    parse_example,
    permute,
    philox,
    place,
    planned_bytes,
    png_encode,
    posterize,
    random_below,
    random_bits,
    random_normal,
    random_uniform,
    read_files,
    resample_sound,
    resize,
    resize_region,
    runs_encode,
    saturation,
    sharpness,
    simd_levels,
    solarize,
    sort_keys,
    sound_decode,
    sound_info,
    sound_library,
    take,
    take_bits,
    tar_samples,
    train_dictionary,
    unpack_sequences,
    unpack_tokens,
    webp_encode,
    xxh64,
)

if TYPE_CHECKING:
    from fastloader.types import Buffer

__all__ = [
    "CODECS", "ELEMENTS", "FILTERS", "JPEG", "JPEG_ROUTES", "LABELS", "LAYOUTS", "NUMBERS", "PADDINGS", "PART", "PNG",
    "RUNS", "SAMPLES", "SOUNDS", "SOUND_STEPS", "STEPS", "UPRIGHT", "UPRIGHT_SHAPES", "WEBP", "WEIGHT_BITS", "ZSTD",
    "ZSTD_DICTIONARY", "ArchiveLookup", "Dictionary", "Engine", "Failure", "Keys", "Mel", "NetBody", "NetClient",
    "Payloads", "Pinning", "PlannedRange", "PlannedRanges", "PlannedReads", "Program", "SoundProgram", "Table",
    "TarScanner", "Unzstd",
    "affine", "assemble", "autocontrast", "best_fit", "block_crcs", "brightness", "cast", "codec_id", "compress",
    "contrast", "copy_crc32c", "crc32c", "crc32c_variants", "cutmix", "decode_image", "decode_jpeg_box", "decode_texts",
    "decompress", "draw_mix", "equalize", "erase", "erase_noise", "flac_start", "gather_bytes", "gather_fixed",
    "gather_ragged", "gaussian_blur", "grayscale", "has_uring", "has_webp", "hue", "image_decode_many", "image_info",
    "image_shapes", "invert", "jpeg_baseline", "jpeg_encode", "jpeg_index", "jpeg_size", "lay_slots", "mixup",
    "pack_tokens", "pad_image", "parse_example", "permute", "philox", "place", "planned_bytes", "png_encode",
    "posterize", "random_below", "random_bits", "random_normal", "random_uniform", "read_files", "resample_sound",
    "resize", "resize_image", "resize_region", "runs_encode", "saturation", "sharpness", "simd_levels", "solarize",
    "sort_keys", "sound_decode", "sound_info", "sound_library", "take", "take_bits", "tar_samples", "train_dictionary",
    "unpack_sequences", "unpack_tokens", "webp_encode", "xxh64",
]  # fmt: skip

JPEG, PNG, WEBP, RUNS, LABELS = 0, 1, 2, 3, 4
"""Kinds of images: the last two are masks, as runs, and as PNG files whose samples are labels."""
UPRIGHT = 16
"""Added to one of these: images are turned as their EXIF data says, and shapes are those of the turned ones."""
UPRIGHT_SHAPES = 32
"""Of a program: it is told the shapes of turned images, where ``UPRIGHT`` turns them."""
JPEG_ROUTES = ("full", "partial", "splice", "automatic")
"""Ways to a part of a JPEG's pixels, at the index that is their number in the native part."""
CODECS = ("none", "lz4", "zstd")
"""Names of the compressions, at the index that is their number on disk."""
ZSTD, ZSTD_DICTIONARY = 2, 3
"""Numbers on disk: of zstd, and of zstd with a dictionary, which no one asks for by name: a field has one or not."""

FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")
"""Names of the filters of a resize, at the index that is their number in C++."""

SAMPLES = ("uint8", "uint16", "float32")
"""What one sample of an image may be, at the index that is its number in C++."""

ELEMENTS = ("uint8", "float16", "bfloat16", "float32")
"""What pixels can be cast to, at the index that is its number in C++."""

NUMBERS = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64", "float16",
    "bfloat16",
)  # fmt: skip
"""What numbers of arrays may be before they are converted to elements, at the index that is its number in C++."""

LAYOUTS = ("hwc", "chw")
"""The order of the axes of an image in a batch, at the index that is its number in C++."""

PADDINGS = ("constant", "edge", "reflect", "symmetric")
"""What lies around a padded image, as numpy.pad names it, at the index that is its number in C++."""

STEPS = (
    "random_resized_crop", "resize", "resize_shorter", "centre_crop", "random_crop", "flip", "flip_down", "pad",
    "translate", "rotate", "affine", "erase", "cutout", "brightness", "contrast", "saturation", "hue", "jitter", "gray",
    "sharpness", "blur", "posterize", "solarize", "autocontrast", "equalize", "invert", "rand_augment",
    "trivial_augment", "tell_size", "tell_geometry",
)  # fmt: skip
"""Names of the steps of a program, at the index that is their number in C++."""

SOUNDS = ("float32", "float16", "int16", "file", "tokens", "words")
"""How sounds are stored, at the index that is its number in C++."""

SOUND_STEPS = ("segment", "fit", "resample", "mono", "gain", "noise", "shift", "mel", "mask")
"""Names of the steps of a sound program, at the index that is their number in C++."""

PART = np.dtype(
    [
        ("bytes", "<u4"), ("width", "<u4"), ("height", "<u4"), ("at", "<u4"), ("across", "<u4"), ("down", "<u4"),
        ("unused", "<u4", (10,)),
    ]
)  # fmt: skip
"""In front of a row that holds a JPEG of so many ``bytes``, or pixels where there are none. Behind it lie the tables of
its resize, as int32: a first column of the JPEG and ``across`` weights for each column of the result, and the same for
its rows with ``down`` weights. ``at`` is where the JPEG begins."""

WEIGHT_BITS = 22
"""The weight 1 of a resize is 2 to the power of this."""

_DEFAULT_LEVEL = {"none": 0, "lz4": 1, "zstd": 3}
_LEVELS = {"none": (0, 0), "lz4": (1, 12), "zstd": (-7, 22)}


def codec_id(compression: str | None) -> tuple[int, int]:
    """Number and level of a compression such as ``"lz4"``, ``"zstd"`` or ``"zstd:9"``; ``None`` is none.

    >>> codec_id("zstd:9"), codec_id(None)
    ((2, 9), (0, 0))
    """
    name, _, level_text = (compression or "none").partition(":")
    if name not in CODECS:
        raise ValueError(f"unknown compression {compression!r}; choose one of none, lz4, zstd or zstd:LEVEL")
    try:
        level = int(level_text) if level_text else _DEFAULT_LEVEL[name]
    except ValueError:
        raise ValueError(f"compression {compression!r}: the level is a whole number") from None
    low, high = _LEVELS[name]
    if not low <= level <= high:
        raise ValueError(f"compression {compression!r}: {name} takes levels {low} to {high}")
    return CODECS.index(name), level


def decode_image(kind: int, data: Buffer, shape: tuple[int, int, int, int]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Pixels (height, width, channels) of an encoded image; ``shape`` ends with the bits a sample, 8 or 16."""
    height, width, channels, bits = shape
    out = np.empty((height, width, channels), np.uint8 if bits == 8 else np.uint16)
    image_decode(kind, data, np.array(shape, np.uint32), out)
    return out


def decode_jpeg_box(
    data: Buffer,
    index: Buffer,
    shape: tuple[int, int, int, int],
    box: tuple[int, int, int, int],
    *,
    shrink: int = 1,
    padded: bool = False,
    route: str = "automatic",
) -> tuple[NDArray[np.uint8], str]:
    """The pixels of ``box`` (x, y, width, height), and the way they were found.

    They are what the full decode has there. With ``shrink`` 2, 4 or 8 that is the decode whose sides are
    ``ceil(side / shrink)``, and the box counts its pixels. ``shape`` is that of the whole image as it is stored.
    ``index`` is what ``jpeg_index`` made, or nothing. ``padded`` makes each RGB pixel four bytes. A ``route`` that
    can't serve gives way to a slower one.
    """
    width, height = box[2:]
    channels = 4 if padded else shape[2]
    out = np.empty((height, width, channels), np.uint8)
    taken = jpeg_crop(
        data, index, np.array(shape, np.uint32), box, shrink, channels, JPEG_ROUTES.index(route), out
    )  # fmt: skip
    return out, JPEG_ROUTES[taken]


def resize_image(
    pixels: NDArray[Any],
    size: tuple[int, int],
    *,
    box: tuple[float, float, float, float] | None = None,
    filter: str = "bilinear",
    flip: bool = False,
    level: str = "",
) -> NDArray[Any]:
    """A (height, width, channels) image resized to ``size`` = (height, width), as Pillow's ``Image.resize`` does it.

    ``box`` = (left, top, right, bottom) is the part that is resized; ``flip`` exchanges left and right.
    """
    height, width, channels = pixels.shape
    out = np.empty((*size, channels), pixels.dtype)
    whole = (0.0, 0.0, float(width), float(height))
    resize(
        np.ascontiguousarray(pixels), (height, width, channels), SAMPLES.index(str(pixels.dtype)), box or whole, size,
        FILTERS.index(filter), flip, out, level,
    )  # fmt: skip
    return out
