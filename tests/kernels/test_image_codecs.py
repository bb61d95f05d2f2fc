"""JPEG and PNG against Pillow, and against PNG files made here byte by byte."""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sources import make_payloads, numbers
from PIL import Image, features

from fastloader import kernels
from fastloader.kernels import JPEG, PNG

JPEG_TOLERANCE = 0 if features.check("libjpeg_turbo") else 2
SIZES = [(1, 1), (7, 9), (8, 8), (16, 16), (17, 33), (40, 31), (64, 100)]


def picture(height: int, width: int, channels: int, seed: int = 0, dtype: type = np.uint8) -> np.ndarray:
    """Something between a photo and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (3 + c) + seed) + np.cos(y / (5 - c)) for c in range(channels)]
    smooth = (np.stack(waves, -1) + 2) / 4 + rng.normal(0, 0.02, (height, width, channels))
    top = np.iinfo(dtype).max
    return (smooth.clip(0, 1) * top).round().astype(dtype)


def decode(kind: int, data: bytes) -> np.ndarray:
    return kernels.decode_image(kind, data, kernels.image_info(kind, data))


def saved(image: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def pillow_pixels(data: bytes) -> np.ndarray:
    image = Image.open(io.BytesIO(data))
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], -1)


def jpegs():
    """Every kind of JPEG that Pillow can make and training data contains."""
    for (height, width), subsampling in itertools.product(SIZES, ("4:4:4", "4:2:2", "4:2:0")):
        yield f"{height}x{width} {subsampling}", (height, width, 3), {"subsampling": subsampling}
    for height, width in SIZES:
        yield f"{height}x{width} gray", (height, width, 1), {}
    for options in (
        {"progressive": True},
        {"restart_marker_blocks": 3},
        {"restart_marker_rows": 1},
        {"optimize": True},
    ):
        for channels in (1, 3):
            yield f"{options} {channels}", (45, 70, channels), options
    yield "progressive 4:2:0 with restarts", (45, 70, 3), {"progressive": True, "restart_marker_blocks": 2}
    yield "with an embedded profile", (20, 20, 3), {"icc_profile": b"p" * 5000, "comment": b"hello"}
    yield "stored as RGB", (20, 30, 3), {"keep_rgb": True}


@pytest.mark.parametrize(("name", "shape", "options"), list(jpegs()), ids=[name for name, *_ in jpegs()])
def test_jpeg_decodes_as_pillow_does(name, shape, options):
    pixels = picture(*shape)
    data = saved(Image.fromarray(pixels[:, :, 0] if shape[2] == 1 else pixels), "JPEG", quality=88, **options)
    assert kernels.image_info(JPEG, data) == (*shape, 8)
    difference = np.abs(decode(JPEG, data).astype(int) - pillow_pixels(data))
    assert difference.max() <= JPEG_TOLERANCE


@pytest.mark.parametrize("ycck", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_ink_is_read_as_rgb_as_pillow_converts_it(ycck, size):
    data = saved(Image.fromarray(picture(*size, 4), "CMYK"), "JPEG", quality=95)
    if ycck:  # the same numbers, taken for YCC and K
        at = data.index(b"Adobe") + 11
        data = data[:at] + b"\2" + data[at + 1 :]
    image = Image.open(io.BytesIO(data))
    assert image.mode == "CMYK"
    assert kernels.image_info(JPEG, data) == (*size, 3, 8)
    assert (decode(JPEG, data) == np.asarray(image.convert("RGB"))).all()
    assert kernels.jpeg_index(data, 4)[1] == "it has neither one component nor three"


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    error = np.mean((one.astype(float) - other) ** 2)
    return 10 * np.log10(255**2 / max(error, 1e-9))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("subsampling", [444, 422, 420])
@pytest.mark.parametrize("size", SIZES)
def test_pillow_reads_our_jpeg(channels, subsampling, size):
    pixels = picture(*size, channels)
    data = kernels.jpeg_encode(pixels, *size, channels, 95, subsampling)
    image = Image.open(io.BytesIO(data))
    assert image.format == "JPEG"
    assert image.mode == ("L" if channels == 1 else "RGB")
    assert image.size == (size[1], size[0])
    if channels == 3:
        wanted = {444: (1, 1), 422: (2, 1), 420: (2, 2)}[subsampling]
        assert image.layer[0][1:3] == wanted
    assert psnr(pixels, pillow_pixels(data)) > (36 if channels == 1 or subsampling == 444 else 24)


def test_quality_matters():
    pixels = picture(100, 100, 3)
    sizes = [len(kernels.jpeg_encode(pixels, 100, 100, 3, quality, 420)) for quality in (1, 20, 50, 90, 100)]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 5


def png_modes():
    """Images in every mode in which Pillow writes PNG, and the mode their pixels are compared in."""
    gray, rgb = picture(19, 27, 1)[:, :, 0], picture(19, 27, 3)
    alpha = picture(19, 27, 1, seed=5)
    yield "1", Image.fromarray(gray).convert("1"), "L", {}
    yield "L", Image.fromarray(gray), "L", {}
    yield "L with a transparent gray", Image.fromarray(gray), "LA", {"transparency": int(gray[3, 4])}
    yield "LA", Image.fromarray(np.concatenate([gray[..., None], alpha], -1)), "LA", {}
    for bits in (1, 2, 4, 8):
        yield f"P of {bits} bits", Image.fromarray(rgb).quantize(2**bits), "RGB", {"bits": bits}
    yield "P with transparency", Image.fromarray(rgb).quantize(16), "RGBA", {"transparency": bytes(range(0, 256, 16))}
    yield "RGB", Image.fromarray(rgb), "RGB", {}
    yield "RGB with a transparent colour", Image.fromarray(rgb), "RGBA", {"transparency": tuple(rgb[2, 2].tolist())}
    yield "RGBA", Image.fromarray(np.concatenate([rgb, alpha], -1)), "RGBA", {}
    yield "I;16", Image.fromarray(picture(19, 27, 1, dtype=np.uint16)[:, :, 0]), "I;16", {}


@pytest.mark.parametrize(
    ("name", "image", "mode", "options"), list(png_modes()), ids=[name for name, *_ in png_modes()]
)
def test_png_decodes_as_pillow_does(name, image, mode, options):
    data = saved(image, "PNG", **options)
    seen = Image.open(io.BytesIO(data))
    wanted = np.asarray(seen if seen.mode == mode else seen.convert(mode)).astype(
        np.uint16 if mode == "I;16" else np.uint8
    )
    found = decode(PNG, data)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted.reshape(19, 27, -1))


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def make_png(pixels: np.ndarray, *, interlaced: bool = False, extra: bytes = b"") -> bytes:
    """A PNG of 8 or 16 bits, without filters, in one pass or in the seven of Adam7."""
    height, width, channels = pixels.shape
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    rows = b""
    for y, x, down, right in passes:
        part = pixels[y::down, x::right].astype(pixels.dtype.newbyteorder(">"))
        if part.size:
            rows += b"".join(b"\0" + row.tobytes() for row in part)
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, pixels.itemsize * 8, colour, 0, 0, int(interlaced))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (9, 17), (33, 20)])
def test_png_of_any_depth_and_colour_is_exact(size, channels, dtype, interlaced):
    pixels = picture(*size, channels, dtype=dtype)
    data = make_png(pixels, interlaced=interlaced)
    assert kernels.image_info(PNG, data) == (*size, channels, pixels.itemsize * 8)
    np.testing.assert_array_equal(decode(PNG, data), pixels)
    if dtype == np.uint8:
        np.testing.assert_array_equal(pillow_pixels(data), pixels)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("level", [0, 6, 9])
def test_our_png_is_exact_for_us_and_for_pillow(channels, dtype, level):
    pixels = picture(21, 34, channels, dtype=dtype)
    data = kernels.png_encode(pixels, 21, 34, channels, pixels.itemsize * 8, level)
    np.testing.assert_array_equal(decode(PNG, data), pixels)
    if dtype == np.uint8 or channels == 1:  # Pillow keeps 16 bits for gray alone
        np.testing.assert_array_equal(pillow_pixels(data), pixels)


@pytest.mark.parametrize("mode", ["1", "P", "L", "RGB", "RGBA"])
def test_a_large_image_of_one_colour_is_no_bomb(mode):
    """A mask without anything on it compresses further than any photo; with one bit a pixel, further still."""
    data = saved(Image.new(mode, (3000, 2000)), "PNG", optimize=True)
    assert kernels.image_info(PNG, data)[:2] == (2000, 3000)
    assert not decode(PNG, data)[..., :1].any()


@pytest.mark.parametrize("size", [(3000, 2000), (8000, 8000)])
def test_a_large_jpeg_of_one_colour_is_no_bomb(size):
    for options in ({"optimize": True}, {"progressive": True}):
        data = saved(Image.new("L", size), "JPEG", quality=1, **options)
        assert kernels.image_info(JPEG, data)[:2] == size[::-1]


def test_claims_that_bytes_can_not_hold_are_refused_without_allocating_them():
    before = peak_from_now_on()
    data = bytearray(make_png(picture(4, 4, 3)))
    data[16:24] = struct.pack(">II", 0x7FFFFFFF, 0x7FFFFFFF)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    with pytest.raises(kernels.Failure, match="more pixels than its bytes could hold"):
        kernels.image_info(PNG, bytes(data))
    jpeg = bytearray(saved(Image.new("L", (8, 8)), "JPEG"))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = b"\xff\x00\xff\x00"
    with pytest.raises(kernels.Failure, match="more pixels than its bytes could hold"):
        kernels.image_info(JPEG, bytes(jpeg))
    assert peak() - before < 200 << 10, "KiB"


def peak() -> int:
    """The most memory that this process has had, in KiB."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def peak_from_now_on() -> int:
    """Forgets what it was before: other tests may have needed much."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


TRUNCATED = {
    "gray.jpg": (JPEG, saved(Image.fromarray(picture(17, 20, 1)[:, :, 0]), "JPEG")),
    "rgb.jpg": (JPEG, saved(Image.fromarray(picture(17, 20, 3)), "JPEG")),
    "progressive.jpg": (JPEG, saved(Image.fromarray(picture(17, 20, 3)), "JPEG", progressive=True)),
    "rgb.png": (PNG, make_png(picture(9, 12, 3))),
    "interlaced.png": (PNG, make_png(picture(9, 12, 3), interlaced=True)),
    "16.png": (PNG, make_png(picture(9, 12, 1, dtype=np.uint16))),
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_truncated_image_is_an_error_wherever_it_was_cut(name):
    kind, data = TRUNCATED[name]
    shape = kernels.image_info(kind, data)
    for keep in range(len(data)):
        with pytest.raises(kernels.Failure) as caught:
            kernels.decode_image(kind, data[:keep], shape)
        assert caught.value.args[0] == "decode", keep


@given(st.sampled_from(sorted(TRUNCATED)), st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_image_is_an_error_or_pixels_and_never_more_than_its_place(name, data):
    kind, whole = TRUNCATED[name]
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    shape = kernels.image_info(kind, whole)
    size = shape[0] * shape[1] * shape[2] * shape[3] // 8
    out = np.full(size + 256, 93, np.uint8)
    try:
        kernels.image_decode(kind, bytes(changed), np.array(shape, np.uint32), out[:size])
    except kernels.Failure as failure:
        found = failure.args[0]
    else:
        found = "decode"
    assert found == "decode"
    assert (out[size:] == 93).all()


@pytest.mark.parametrize("kind", [JPEG, PNG])
def test_bytes_that_are_no_image_are_refused(kind):
    for data in (b"", b"x", b"GIF89a", bytes(1000)):
        with pytest.raises(kernels.Failure) as caught:
            kernels.image_info(kind, data)
        assert caught.value.args[0] == "decode"


def test_another_shape_than_the_stored_one_is_refused():
    for kind, data in TRUNCATED.values():
        height, width, channels, bits = kernels.image_info(kind, data)
        for wrong in (
            (width, height, channels, bits),
            (height + 1, width, channels, bits),
            (height, width, channels % 4 + 1, bits),
        ):
            with pytest.raises(kernels.Failure, match="differs from its stored shape"):
                kernels.decode_image(kind, data, wrong)
        with pytest.raises(kernels.Failure, match="wrong size"):
            kernels.image_decode(
                kind, data, np.array([height, width, channels, bits], np.uint32), np.zeros(3, np.uint8)
            )


def test_a_small_cut_of_padding_after_the_image_is_fine():
    """Cameras leave bytes behind the end; no pixel depends on them."""
    pixels = picture(17, 20, 3)
    data = saved(Image.fromarray(pixels), "JPEG")
    np.testing.assert_array_equal(decode(JPEG, data + bytes(100)), decode(JPEG, data))


@pytest.mark.parametrize("kind", [JPEG, PNG])
@pytest.mark.parametrize("codec", [0, 2])
def test_decoding_many_is_decoding_one_by_one(kind, codec):
    images: list[list[bytes]] = []
    for source in range(3):
        shapes = [(5 + i, 30 - i, (1, 3)[(i + source) % 2]) for i in range(6)]
        pixels = [picture(*shape, seed=source) for shape in shapes]
        encode = (
            (lambda p: kernels.jpeg_encode(p, *p.shape, 90, 420))
            if kind == JPEG
            else (lambda p: kernels.png_encode(p, *p.shape, 8, 6))
        )
        images.append([encode(p) for p in pixels])
    sources = [make_payloads(encoded, [codec] * 6)[1] for encoded in images]
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, 40).astype(np.int32)
    rows = rng.integers(-2, 6, 40)
    shapes = np.array(
        [kernels.image_info(kind, images[w][r]) if r >= 0 else (0, 0, 0, 0) for w, r in zip(which, rows, strict=True)],
        np.uint32,
    )
    values, offsets = kernels.image_decode_many(kind, sources, which, rows, shapes)
    wanted = [decode(kind, images[w][r]).tobytes() if r >= 0 else b"" for w, r in zip(which, rows, strict=True)]
    assert values.tobytes() == b"".join(wanted)
    assert offsets.tolist() == np.cumsum([0, *map(len, wanted)]).tolist()


def test_decoding_many_names_the_one_that_failed():
    good = kernels.png_encode(picture(4, 4, 3), 4, 4, 3, 8, 6)
    _, source = make_payloads([good, good[:-20], good])
    shapes = np.array([(4, 4, 3, 8)] * 3, np.uint32)
    with pytest.raises(kernels.Failure, match="truncated") as caught:
        kernels.image_decode_many(PNG, [source], None, numbers([0, 2, 1]), shapes)
    assert caught.value.args[2] == 2
    shapes[1] = (1 << 30, 1 << 30, 4, 16)
    with pytest.raises(kernels.Failure, match="more pixels than its bytes could hold") as caught:
        kernels.image_decode_many(PNG, [source], None, numbers([0, 2, 0]), shapes)
    assert caught.value.args[2] == 1
    with pytest.raises(kernels.Failure, match="differ"):
        kernels.image_decode_many(PNG, [source], None, numbers([0]), shapes)


def test_encoders_refuse_pixels_of_another_shape():
    pixels = picture(4, 4, 3)
    with pytest.raises(kernels.Failure, match="shape"):
        kernels.jpeg_encode(pixels, 5, 4, 3, 90, 420)
    with pytest.raises(kernels.Failure, match="shape"):
        kernels.png_encode(pixels, 4, 4, 4, 8, 6)
    with pytest.raises(kernels.Failure, match="one to four channels"):
        kernels.png_encode(b"", 0, 4, 3, 8, 6)
