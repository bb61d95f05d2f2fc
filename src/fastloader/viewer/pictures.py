"""Pictures for the page: pixels of images, masks, frames and flow, no larger than they are shown.

Of an image file only the part that is seen is decoded, at a fraction of its size where the codec can: one program of
the pipeline's compiler goes from stored bytes to the picture.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastloader import kernels, ops
from fastloader.errors import DecodeError, FormatError
from fastloader.fields import Field, ImageFileField, MaskField, RawImageField, Video
from fastloader.fields.image_files import SHAPE
from fastloader.pipeline import compile_pipeline
from fastloader.viewer.items import Item

MOST_PIXELS = 1 << 28
"""Larger images are not decoded: one made to harm would take all memory."""
QUALITY = 85
STRIP = 64
"""Frames of a strip, at most."""

Pixels = NDArray[np.uint8]
Size = tuple[int, int]


def shape_of(item: Item) -> tuple[int, int, int, int]:
    """Height, width, channels and bits of an image."""
    if item.media is None and isinstance(item.field, ImageFileField | MaskField) and item.row is not None:
        height, width, channels, bits = (int(number) for number in item.row.tolist())
        return height, width, channels, bits
    if isinstance(item.field, RawImageField):
        return *item.field.shape, 8
    if item.media is not None and isinstance(item.field, ImageFileField):
        try:
            return kernels.image_info(item.field.coding, item.data)
        except kernels.Failure as failure:
            raise DecodeError(failure.args[1]) from failure
    height, width, channels = np.asarray(item.value).shape
    return height, width, channels, 8


def fitted(shape: Size, room: Size) -> Size:
    """The largest size of the same proportions that fits, but no larger than it is."""
    scale = min(1.0, room[0] / shape[0], room[1] / shape[1])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def covering(shape: Size, room: Size) -> Size:
    """The smallest size of the same proportions that leaves nothing of ``room`` free, but no larger than it is."""
    scale = min(1.0, max(room[0] / shape[0], room[1] / shape[1]))
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def picture(item: Item, room: Size | None, crop: bool = False, overlay: bool = False) -> bytes:
    """An encoded picture of a value, for ``room`` = (height, width) or of its own size.

    ``crop`` fills the room with the middle of the picture. ``overlay``: of a mask, what lies over an image, transparent
    where there is no label.
    """
    if item.kind == "mask":
        return encoded(coloured(_pixels(item, room, crop)[:, :, 0], overlay))
    if item.kind in ("video", "frames"):
        return encoded(_frame(item, room, crop))
    if item.kind == "flow":
        return encoded(_resized(flow_picture(np.asarray(item.value)), room, crop))
    if item.kind == "image":
        return encoded(_pixels(item, room, crop))
    raise FormatError(f"a value shown as {item.kind} is no picture")


def encoded(pixels: Pixels) -> bytes:
    """JPEG, or PNG where something is transparent."""
    pixels = np.ascontiguousarray(pixels)
    height, width, channels = pixels.shape
    if channels == 4:
        return kernels.png_encode(pixels, height, width, 4, 8, 1)
    return kernels.jpeg_encode(pixels, height, width, channels, QUALITY, 420)


def _pixels(item: Item, room: Size | None, crop: bool) -> Pixels:
    """(height, width, 1 or 3), made from stored bytes by one program where that is possible."""
    height, width, channels, bits = shape_of(item)
    if height * width > MOST_PIXELS:
        raise FormatError(f"{height}x{width} pixels: too large to be shown")
    field = item.field
    room = room or (height, width)
    files = isinstance(field, ImageFileField | MaskField)
    if not files or channels in (2, 4) or bits == 16:
        return _resized(as_shown(_decoded(item)), room, crop)
    assert field is not None
    size = covering((height, width), room) if crop else fitted((height, width), room)
    cut = (min(size[0], room[0]), min(size[1], room[1])) if crop else size
    program, made = _program(field, channels, size, cut)
    out = np.empty(made, np.uint8)
    metadata = np.array([(height, width, channels, bits)], SHAPE)
    payload = item.payload() if item.payload is not None and item.media is None else item.data
    try:
        program.run(payload, metadata.view(np.uint8), 0, item.number, out.view(np.uint8))
    except kernels.Failure as failure:
        raise DecodeError(failure.args[1]) from failure
    return out


@lru_cache(256)
def _program(field: Field, channels: int, size: Size, cut: Size) -> tuple[kernels.Program, tuple[int, int, int]]:
    mask = isinstance(field, MaskField)
    steps: list[ops.Op] = [ops.Resize(size, filter="nearest" if mask else "bilinear")]
    if cut != size:
        steps.append(ops.CenterCrop(cut))
    compiled = compile_pipeline("picture", field, steps, 0)
    return compiled.program, (*cut, 1 if mask else 3)


def _decoded(item: Item) -> NDArray[Any]:
    if item.media is not None and isinstance(item.field, ImageFileField):
        try:
            return kernels.decode_image(item.field.coding, item.data, kernels.image_info(item.field.coding, item.data))
        except kernels.Failure as failure:
            raise DecodeError(failure.args[1]) from failure
    return np.asarray(item.value)


def as_shown(array: NDArray[Any]) -> Pixels:
    """Any numbers (height, width, channels) as 8-bit gray or RGB: others than 8-bit ones from least to most.

    What is transparent lies over a middle gray.
    """
    if array.ndim == 2:
        array = array[:, :, None]
    if array.dtype != np.uint8:
        array = _stretched(array)
    channels = array.shape[2]
    if channels in (2, 4):
        alpha = array[:, :, -1:].astype(np.float32) / 255
        array = np.rint(array[:, :, :-1] * alpha + 160 * (1 - alpha)).astype(np.uint8)
    return array if array.shape[2] in (1, 3) else np.ascontiguousarray(array[:, :, :1])


def _stretched(array: NDArray[Any]) -> Pixels:
    numbers = array.astype(np.float32)
    good = np.isfinite(numbers)
    if not good.any():
        return np.zeros(array.shape, np.uint8)
    low, high = float(numbers[good].min()), float(numbers[good].max())
    scaled = (np.where(good, numbers, low) - low) * (255 / (high - low) if high > low else 0)
    return np.rint(scaled).astype(np.uint8)


def _resized(pixels: Pixels, room: Size | None, crop: bool) -> Pixels:
    height, width, _ = pixels.shape
    if room is None:
        return pixels
    if crop:
        size = covering((height, width), room)
        cut = min(size[0], room[0]), min(size[1], room[1])
        scale = height / size[0]
        top, left = (height - cut[0] * scale) / 2, (width - cut[1] * scale) / 2
        box = (max(0.0, left), max(0.0, top), min(width, left + cut[1] * scale), min(height, top + cut[0] * scale))
        return kernels.resize_image(pixels, cut, box=box)
    return kernels.resize_image(pixels, fitted((height, width), room))


def _frame(item: Item, room: Size | None, crop: bool) -> Pixels:
    """The middle frame of a video, decoded at the size at which it is shown."""
    video = _video(item)
    if not video.num_frames:
        raise FormatError("has no frames")
    shape = (video.height, video.width)
    size = None if room is None else covering(shape, room) if crop else fitted(shape, room)
    frame = as_shown(video.frames([video.num_frames // 2], size=size)[0])
    return _resized(frame, room, True) if crop else frame


def _video(item: Item) -> Video:
    video = item.value
    if not isinstance(video, Video):
        raise FormatError("is a video file whose frames are not indexed; the player shows it")
    if video.height * video.width > MOST_PIXELS:
        raise FormatError(f"frames of {video.height}x{video.width} pixels: too large to be shown")
    return video


def strip(item: Item, room: Size, count: int) -> tuple[bytes, list[int]]:
    """Frames side by side in one picture, evenly chosen, and which they are."""
    video = _video(item)
    count = max(1, min(count, STRIP, video.num_frames))
    numbers = np.unique(np.linspace(0, video.num_frames - 1, count).round().astype(np.int64))
    size = fitted((video.height, video.width), room)
    frames = video.frames(numbers, size=size)
    return encoded(np.concatenate([as_shown(frame) for frame in frames], axis=1)), numbers.tolist()


@lru_cache(1)
def palette() -> NDArray[np.uint8]:
    """A colour a label, neighbours far apart: hues a golden angle from each other."""
    labels = np.arange(256)
    hue = (labels * 0.61803398875) % 1 * 6
    x = 1 - np.abs(hue % 2 - 1)
    one, none = np.ones(256), np.zeros(256)
    sectors = [(one, x, none), (x, one, none), (none, one, x), (none, x, one), (x, none, one), (one, none, x)]
    colours = np.choose(hue.astype(int)[None, :], [np.stack(sector) for sector in sectors]).T
    made = np.rint(255 * (0.25 + 0.7 * colours)).astype(np.uint8)
    made[0] = (24, 26, 32)
    return made


def coloured(labels: NDArray[np.uint8], overlay: bool) -> Pixels:
    """Labels as colours."""
    colours = palette()[labels]
    if not overlay:
        return colours
    alpha = np.where(labels[:, :, None] > 0, np.uint8(150), np.uint8(0))
    return np.concatenate([colours, alpha], axis=2)


def flow_picture(flow: NDArray[Any]) -> Pixels:
    """Where pixels move, as hue, and how far, as strength; gray where it is not known. Of several, the middle one."""
    if flow.ndim == 4:
        flow = flow[len(flow) // 2]
    known = np.isfinite(flow).all(axis=2)
    across, down = (np.where(known, flow[..., i], 0) for i in range(2))
    far = np.hypot(across, down)
    strength = far / max(float(far.max(initial=0)), 1e-9)
    hue = (np.arctan2(down, across) / (2 * np.pi)) % 1 * 6
    channels = [strength * np.clip(2 - np.abs((hue - centre + 3) % 6 - 3), 0, 1) for centre in (0, 2, 4)]
    white = 1 - strength
    made = np.stack([white + channel for channel in channels], axis=2)
    made[~known] = 0.5
    shown: Pixels = np.rint(255 * np.clip(made, 0, 1)).astype(np.uint8)
    return shown
