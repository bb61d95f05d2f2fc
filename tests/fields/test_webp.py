"""WebP images: stored as they came, decoded as Pillow decodes them."""

import io

import numpy as np
import pytest
from pictures import encoded, pixels, psnr, with_channels
from PIL import Image

import fastloader as fl
from fastloader import kernels
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write


def webp(image, **options):
    return encoded(image if isinstance(image, Image.Image) else Image.fromarray(image), "WEBP", **options)


def seen(data):
    """Pillow's pixels, which libwebp made as well."""
    image = Image.open(io.BytesIO(data))
    return np.asarray(image.convert("RGBA" if image.mode == "RGBA" else "RGB"))


def animation():
    frames = [Image.fromarray(pixels((8, 9, 3), seed=i)) for i in range(3)]
    return encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:])


class TestWebPImageField(FieldContract):
    def fields(self):
        return [
            fl.WebPImageField(),
            fl.WebPImageField(40, max_height=64, max_width=80),
            fl.WebPImageField(lossless=True),
        ]

    def values(self, field):
        return [
            pixels((40, 60, 3)),
            pixels((40, 60, 4), seed=1)[::-1, ::-1],
            np.full((1, 1, 3), 77, np.uint8),
            Image.fromarray(pixels((24, 30, 3))),
            Image.fromarray(pixels((24, 30, 4))),
            webp(pixels((24, 30, 3), seed=2), quality=50),
            bytearray(webp(pixels((24, 30, 4)), lossless=True)),
        ]

    def bad_values(self, field):
        ready = webp(pixels((24, 30, 3)))
        bad = [
            pixels((8, 8, 1)), pixels((8, 8)), pixels((8, 8, 2)), pixels((8, 8, 3), "uint16"),
            np.zeros((8, 8, 3), np.float32), np.zeros((0, 8, 3), np.uint8), np.zeros((1, 16384, 3), np.uint8),
            b"", b"no picture", ready[:12], ready[:25], animation(), webp(pixels((8, 8, 3))).replace(b"WEBP", b"WAVE"),
            encoded(Image.fromarray(pixels((8, 8, 3))), "PNG"), "path.webp", 5, Image.new("F", (8, 8)),
        ]  # fmt: skip
        if field.max_height is not None:
            bad += [pixels((65, 8, 3)), pixels((8, 81, 3)), webp(pixels((65, 8, 3)))]
        return bad

    def equal(self, given, got):
        if isinstance(given, bytes | bytearray):
            return identical(seen(bytes(given)), got)
        wanted = with_channels(np.asarray(given))
        return got.dtype == np.uint8 and got.shape == wanted.shape and psnr(wanted, got) > 20


@pytest.mark.parametrize("channels", [3, 4])
def test_lossless_keeps_every_sample_where_it_is_transparent_too(channels, tmp_path):
    image = pixels((33, 47, channels))
    image[5:20, 3:40, channels - 1] = 0
    reader = write(tmp_path / "x.fld", fl.WebPImageField(lossless=True), [image])
    assert identical(reader[0]["it"], image)


@pytest.mark.parametrize("lossless", [False, True])
def test_an_alpha_channel_without_transparency_is_kept(lossless, tmp_path):
    image = np.dstack([pixels((21, 30, 3)), np.full((21, 30), 255, np.uint8)])
    reader = write(tmp_path / "x.fld", fl.WebPImageField(lossless=lossless), [image])
    got = reader[0]["it"]
    assert identical(got, seen(bytes(reader.read_payload(0, "it"))))
    assert identical(got[..., 3], image[..., 3])
    assert not lossless or identical(got, image)


def test_quality_is_libwebps(tmp_path):
    image = pixels((90, 120, 3))
    sizes = [
        len(write(tmp_path / f"{q}.fld", fl.WebPImageField(q), [image]).read_payload(0, "it")) for q in (5, 50, 95)
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "CMYK"])
def test_pil_images_without_colours_get_some(mode, tmp_path):
    image = Image.fromarray(pixels((20, 30, 3))).convert(mode)
    got = write(tmp_path / "x.fld", fl.WebPImageField(lossless=True), [image])[0]["it"]
    assert identical(got, np.asarray(image.convert("RGBA" if mode == "LA" else "RGB")))


def test_ready_bytes_are_stored_as_they_are(tmp_path):
    files = [webp(pixels((20, 30, 3), seed=i), exif=b"II*\0\x08\0\0\0\0\0") + b"trailing"[:i] for i in range(3)]
    reader = write(tmp_path / "x.fld", fl.WebPImageField(), files)
    assert [bytes(reader.read_payload(i, "it")) for i in range(3)] == files


def test_an_animation_is_refused_with_its_sample(tmp_path):
    with pytest.raises(fl.SampleError, match=r"sample 1.*an animation; store its frames"):
        write(tmp_path / "x.fld", fl.WebPImageField(), [webp(pixels((8, 8, 3))), animation()])


def test_a_truncated_file_is_told_wherever_it_was_cut(tmp_path):
    for options in ({"quality": 90}, {"lossless": True}):
        data = webp(pixels((60, 80, 4)), **options)
        for cut in range(30, len(data), len(data) // 40):
            shape = kernels.image_info(kernels.WEBP, data)
            with pytest.raises(kernels.Failure, match="WebP"):
                kernels.decode_image(kernels.WEBP, data[:cut], shape)
    with pytest.raises(fl.SampleError, match=r"sample 0.*does not decode"):
        write(tmp_path / "x.fld", fl.WebPImageField(check=True), [data[: len(data) * 3 // 4]])


def test_a_claim_of_many_pixels_is_refused_before_any_is_allocated():
    data = bytearray(webp(Image.new("RGB", (16, 16)), lossless=True))
    at = data.index(b"VP8L") + 9  # behind the signature byte: 14 bits of width - 1, 14 of height - 1
    data[at : at + 4] = (0x3FFF | 0x3FFF << 14 | data[at + 3] >> 4 << 28).to_bytes(4, "little")
    with pytest.raises(kernels.Failure, match="claims more pixels than its bytes could hold"):
        kernels.image_info(kernels.WEBP, bytes(data))


def test_one_colour_in_few_bytes_is_no_such_claim():
    data = webp(Image.new("RGB", (3000, 2000), (1, 2, 3)), lossless=True)
    assert len(data) < 600
    assert (kernels.decode_image(kernels.WEBP, data, kernels.image_info(kernels.WEBP, data)) == (1, 2, 3)).all()


def test_without_libwebp_the_error_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "x.fld"
    write(path, fl.WebPImageField(), [pixels((8, 8, 3))])
    monkeypatch.setattr(kernels, "has_webp", lambda: False)
    with pytest.raises(fl.MissingLibraryError, match="apt-get install libwebp-dev and build it anew"):
        fl.open(path)[0]
    with pytest.raises(fl.MissingLibraryError, match="libwebp"):
        list(fl.DataLoader(fl.open(path), 1))
    with pytest.raises(fl.SampleError, match="libwebp"):
        write(tmp_path / "y.fld", fl.WebPImageField(), [pixels((8, 8, 3))])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fl.WebPImageField(101), "quality=101: from 0 to 100"),
        (lambda: fl.WebPImageField(lossless=1), "lossless=1: True or False"),
        (lambda: fl.WebPImageField(max_height=0), "max_height=0"),
        (lambda: fl.WebPImageField(orient="yes"), "orient='yes': True or False"),
    ],
)
def test_options_are_checked(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
