import io
from pathlib import Path

import numpy as np
import pytest
from pictures import decoded, encoded, pixels, psnr, with_channels
from PIL import Image

import fastloader as fl
from fastloader import kernels
from fastloader.fields import image as image_module
from fastloader.testing import FieldContract, identical
from fastloader.testing.fields import write


class TestRawImageField(FieldContract):
    def fields(self):
        return [
            fl.RawImageField(5, 7),
            fl.RawImageField(5, 7, 1),
            fl.RawImageField(height=8, width=8, channels=4, dtype="uint16"),
            fl.RawImageField(3, 2, 6, dtype="float32"),
        ]

    def values(self, field):
        if field.dtype == "float32":
            return [np.random.default_rng(i).standard_normal(field.shape).astype("float32") for i in range(3)]
        images = [pixels(field.shape, field.dtype, seed) for seed in range(4)]
        return [*images, images[0][:, :, 0].copy()] if field.channels == 1 else images

    def bad_values(self, field):
        height, width, channels = field.shape
        other = "uint16" if field.dtype == "uint8" else "uint8"
        return [
            np.zeros((height + 1, width, channels), field.dtype), np.zeros((height, width, channels + 1), field.dtype),
            np.zeros((height, width, channels), other), np.zeros((height,), field.dtype), b"bytes", "text", 3,
        ]  # fmt: skip

    def equal(self, given, got):
        return identical(with_channels(np.asarray(given)), got)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "int32", "uint64", "float16", "float32", "float64"]
)
def test_raw_pixels_of_every_number_type(dtype, tmp_path):
    values = [(np.random.default_rng(i).standard_normal((4, 3, 2)) * 50).astype(dtype) for i in range(3)]
    reader = write(tmp_path / "x.fld", fl.RawImageField(4, 3, 2, dtype), values)
    assert identical(reader.read_batch([0, 1, 2])["it"], np.stack(values))
    assert identical(reader[1]["it"], values[1])


@pytest.mark.parametrize("field", [fl.RawImageField(6, 5, 3, "uint16"), fl.PNGImageField()], ids=repr)
def test_big_endian_pixels_keep_their_values(field, tmp_path):
    image = pixels((6, 5, 3), "uint16")
    reader = write(tmp_path / "x.fld", field, [image.astype(">u2")])
    assert identical(reader[0]["it"], image)


@pytest.mark.parametrize("options", [{"height": 0, "width": 3}, {"height": 3, "width": 3, "channels": 0}])
def test_raw_images_have_pixels(options):
    with pytest.raises(ValueError, match="an image without pixels"):
        fl.RawImageField(**options)


@pytest.mark.parametrize("dtype", ["complex64", "U3", "bool", "O", "M8[s]"])
def test_raw_pixels_are_numbers(dtype):
    with pytest.raises(TypeError, match="pixels are integers or floats"):
        fl.RawImageField(3, 3, dtype=dtype)


def test_single_raw_images_are_views_of_the_file(tmp_path):
    image = pixels((64, 64, 3))
    reader = write(tmp_path / "x.fld", fl.RawImageField(64, 64), [image])
    got = reader[0]["it"]
    assert not got.flags.writeable
    assert np.shares_memory(got, reader.dataset.file(0).bytes)


class TestJPEGImageField(FieldContract):
    def fields(self):
        return [
            fl.JPEGImageField(),
            fl.JPEGImageField(95, max_height=64, max_width=80, subsampling="444"),
            fl.JPEGImageField(seekable=False, verbatim=True),
        ]

    def values(self, field):
        return [
            pixels((40, 60, 3)),
            pixels((40, 60, 3), seed=1)[::-1, ::-1],
            pixels((33, 17, 1)),
            pixels((16, 8)),
            np.full((1, 1, 3), 77, np.uint8),
            Image.fromarray(pixels((24, 30, 3))),
            encoded(Image.fromarray(pixels((24, 30, 3), seed=2)), "JPEG", quality=50, progressive=True),
            bytearray(encoded(Image.fromarray(pixels((24, 30))), "JPEG")),
        ]

    def bad_values(self, field):
        jpeg = encoded(Image.fromarray(pixels((24, 30, 3))), "JPEG")
        bad = [
            pixels((8, 8, 4)), pixels((8, 8, 2)), pixels((8, 8, 3), "uint16"), np.zeros((8, 8, 3), np.float32),
            np.zeros((0, 8, 3), np.uint8), np.zeros((8, 0), np.uint8), np.zeros(8, np.uint8),
            np.zeros((1, 1, 1, 3), np.uint8),
            b"", b"no picture", jpeg[:20], jpeg[:2], encoded(Image.fromarray(pixels((8, 8, 3))), "PNG"), "path.jpg", 5,
            Image.new("RGBA", (8, 8)), Image.new("F", (8, 8)),
            np.zeros((1, 70_000, 3), np.uint8),
        ]  # fmt: skip
        if field.max_height is not None:
            bad += [pixels((65, 8, 3)), pixels((8, 81, 3)), encoded(Image.fromarray(pixels((65, 8, 3))), "JPEG")]
        return bad

    def equal(self, given, got):
        if isinstance(given, bytes | bytearray):
            return psnr(decoded(bytes(given)), got) > 45 and got.shape == decoded(bytes(given)).shape
        wanted = with_channels(np.asarray(given))
        return got.dtype == np.uint8 and got.shape == wanted.shape and psnr(wanted, got) > 20


class TestPNGImageField(FieldContract):
    def fields(self):
        return [fl.PNGImageField(), fl.PNGImageField(level=0, max_height=64, max_width=80)]

    def values(self, field):
        arrays = [
            pixels((20, 31, *channels), dtype, seed)
            for seed, (channels, dtype) in enumerate(
                (channels, dtype) for dtype in ("uint8", "uint16") for channels in ((), (1,), (2,), (3,), (4,))
            )
        ]
        return [
            *arrays,
            pixels((1, 1, 3)),
            Image.fromarray(pixels((9, 8, 4))),
            encoded(Image.fromarray(pixels((9, 8, 3))), "PNG"),
            memoryview(encoded(Image.fromarray(pixels((9, 8))), "PNG")),
        ]

    def piped_values(self, field):
        return [value for value in self.values(field) if getattr(value, "dtype", None) != np.uint16]

    def bad_values(self, field):
        png = encoded(Image.fromarray(pixels((24, 30, 3))), "PNG")
        bad = [
            pixels((8, 8, 3)).astype("int16"), np.zeros((8, 8, 5), np.uint8), np.zeros((8, 8), bool), b"", png[:20],
            np.zeros((0, 0, 3), np.uint8), encoded(Image.fromarray(pixels((8, 8, 3))), "JPEG"), "x.png",
        ]  # fmt: skip
        return [*bad, pixels((65, 8)), pixels((8, 81))] if field.max_height is not None else bad

    def equal(self, given, got):
        if isinstance(given, bytes | memoryview):
            return identical(decoded(bytes(given)), got)
        return identical(with_channels(np.asarray(given)), got)


@pytest.mark.parametrize(("field", "format_"), [(fl.JPEGImageField(), "JPEG"), (fl.PNGImageField(), "PNG")])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_ready_bytes_are_stored_as_they_are(field, format_, compression, tmp_path):
    files = [encoded(Image.fromarray(pixels((20, 30, 3), seed=i)), format_) + b"trailing"[:i] for i in range(3)]
    reader = write(tmp_path / "x.fld", field, files, compression=compression)
    assert [bytes(reader.read_payload(i, "it")) for i in range(3)] == files


PIL_MODES = {"L": "L", "RGB": "RGB", "1": "L", "P": "RGB", "CMYK": "RGB", "YCbCr": "RGB", "HSV": "RGB"}


@pytest.mark.parametrize("mode", PIL_MODES)
def test_pil_images_of_every_mode_as_one_sees_them(mode, tmp_path):
    image = Image.fromarray(pixels((32, 48, 3))).convert(mode)
    wanted = with_channels(np.asarray(image.convert(PIL_MODES[mode])))
    with fl.DatasetWriter(
        tmp_path / "x.fld", {"jpeg": fl.JPEGImageField(98, subsampling="444"), "png": fl.PNGImageField()}
    ) as writer:
        writer.write_sample({"jpeg": image, "png": image})
    sample = fl.open(tmp_path / "x.fld")[0]
    assert identical(sample["png"], wanted)
    assert sample["jpeg"].shape == wanted.shape
    assert psnr(sample["jpeg"], wanted) > 25


@pytest.mark.parametrize(
    ("mode", "wanted"), [("LA", (5, 4, 2)), ("RGBA", (5, 4, 4)), ("I;16", (5, 4, 1)), ("I", (5, 4, 1))]
)
def test_pil_images_with_alpha_or_16_bits_as_png(mode, wanted, tmp_path):
    source = pixels((5, 4), "uint16") if mode.startswith("I") else pixels((5, 4, 4))
    image = Image.fromarray(source).convert(mode)
    got = write(tmp_path / "x.fld", fl.PNGImageField(), [image])[0]["it"]
    assert got.shape == wanted
    assert got.dtype == (np.uint16 if mode.startswith("I") else np.uint8)
    assert (got == with_channels(np.asarray(image))).all()


def test_a_palette_with_transparency_keeps_it(tmp_path):
    image = Image.fromarray(pixels((6, 6, 3))).convert("P")
    image.info["transparency"] = 3
    got = write(tmp_path / "x.fld", fl.PNGImageField(), [image])[0]["it"]
    assert identical(got, np.asarray(image.convert("RGBA")))


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "I;16"])
def test_a_transparent_colour_is_kept_from_a_pil_image_as_from_its_file(mode, tmp_path):
    source = pixels((6, 6), "uint16") if mode == "I;16" else pixels((6, 6, 3))
    image = Image.fromarray(source).convert(mode)
    colour = image.getpixel((2, 3))
    file = encoded(image, "PNG", transparency=colour)
    opened = Image.open(io.BytesIO(file))
    assert "transparency" in opened.info
    from_file, from_pil = (s["it"] for s in write(tmp_path / "x.fld", fl.PNGImageField(), [file, opened]))
    assert from_file.shape[2] in (2, 4)
    assert identical(from_file, from_pil)
    assert 0 < (from_pil[..., -1] == 0).sum() < 36
    if mode != "I;16":
        jpeg = write(tmp_path / "y.fld", fl.JPEGImageField(), [opened])[0]["it"]
        assert jpeg.shape[2] == from_file.shape[2] - 1


def test_32_bit_pixels_do_not_become_16_bit_ones_silently(tmp_path):
    with pytest.raises(fl.SampleError, match="outside 16 bits"):
        write(tmp_path / "x.fld", fl.PNGImageField(), [Image.fromarray(np.full((3, 3), 70_000, np.int32))])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pil_file_may_be_closed_right_after(workers, tmp_path):
    pictures = [pixels((20, 20, 3), seed=i) for i in range(5)]
    with fl.DatasetWriter(tmp_path / "x.fld", {"it": fl.PNGImageField()}, num_workers=workers) as writer:
        for i, picture in enumerate(pictures):
            Image.fromarray(picture).save(tmp_path / f"{i}.png")
            with Image.open(tmp_path / f"{i}.png") as image:
                writer.write_sample([image])
            (tmp_path / f"{i}.png").unlink()
    assert identical(fl.open(tmp_path / "x.fld").read_batch(range(5))["it"], np.stack(pictures))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16"])
def test_png_files_of_every_kind_are_read_as_pil_reads_them(mode, tmp_path):
    source = pixels((13, 11), "uint16") if mode == "I;16" else pixels((13, 11, 4 if mode.endswith("A") else 3))
    image = Image.fromarray(source).convert(mode)
    seen = image.convert({"1": "L", "P": "RGB"}.get(mode, mode))
    reader = write(tmp_path / "x.fld", fl.PNGImageField(), [encoded(image, "PNG")])
    assert (reader[0]["it"] == with_channels(np.asarray(seen))).all()


@pytest.mark.parametrize(
    "options", [{"progressive": True}, {"optimize": True}, {"subsampling": "4:4:4"}, {"restart_marker_rows": 1}]
)
def test_jpeg_files_of_every_kind_are_read_as_pil_reads_them(options, tmp_path):
    data = encoded(Image.fromarray(pixels((37, 53, 3))), "JPEG", **options)
    reader = write(tmp_path / "x.fld", fl.JPEGImageField(verbatim=True), [data])
    assert psnr(reader[0]["it"], decoded(data)) > 45
    assert bytes(reader.read_payload(0, "it")) == data


def test_a_seekable_jpeg_has_an_index_behind_it_that_is_no_part_of_the_value(tmp_path):
    data = noisy("JPEG")
    sizes = {}
    for seekable in (True, False):
        reader = write(tmp_path / "x.fld", fl.JPEGImageField(seekable=seekable), [data])
        assert reader.fields["it"].seekable is seekable
        assert bytes(reader.read_payload(0, "it")) == data
        assert identical(reader[0]["it"], kernels.decode_image(kernels.JPEG, data, (64, 64, 3, 8)))
        assert identical(reader.read_batch([0])["it"][0], reader[0]["it"])
        sizes[seekable] = reader.dataset.file(0).payload(0, 0).nbytes
    index, why_not = kernels.jpeg_index(data, image_module.JPEG_INDEX_INTERVAL)
    assert not why_not
    assert sizes == {True: len(data) + len(index), False: len(data)}


def test_ready_bytes_that_end_like_an_index_are_kept(tmp_path):
    """What comes from elsewhere is not to be trusted as an index, and no byte of it is lost."""
    data = noisy("JPEG")
    forged = data + kernels.jpeg_index(data, 4)[0]
    for seekable in (True, False):
        reader = write(tmp_path / "x.fld", fl.JPEGImageField(seekable=seekable), [forged])
        assert bytes(reader.read_payload(0, "it")) == forged
        assert identical(reader[0]["it"], kernels.decode_image(kernels.JPEG, data, (64, 64, 3, 8)))


def test_a_progressive_jpeg_is_stored_as_baseline_unless_every_byte_counts(tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "a description"
    options = {"exif": exif, "icc_profile": b"profile" * 99}
    progressive = encoded(Image.fromarray(pixels((64, 80, 3))), "JPEG", progressive=True, **options)
    baseline = encoded(Image.fromarray(pixels((64, 80, 3))), "JPEG", **options)
    for seekable in (True, False):
        reader = write(tmp_path / "x.fld", fl.JPEGImageField(seekable=seekable), [progressive, baseline])
        stored = Image.open(io.BytesIO(reader.read_payload(0, "it")))
        assert not stored.info.get("progressive")
        assert stored.getexif()[0x010E] == "a description"
        assert stored.info["icc_profile"] == b"profile" * 99
        assert identical(reader[0]["it"], kernels.decode_image(kernels.JPEG, progressive, (64, 80, 3, 8)))
        assert bytes(reader.read_payload(1, "it")) == baseline
        reader = write(tmp_path / "y.fld", fl.JPEGImageField(seekable=seekable, verbatim=True), [progressive])
        assert bytes(reader.read_payload(0, "it")) == progressive


def test_a_damaged_progressive_jpeg_is_kept_and_found_when_it_is_read(tmp_path):
    whole = encoded(Image.fromarray(pixels((64, 80, 3))), "JPEG", progressive=True)
    cut = whole[: len(whole) // 2]
    reader = write(tmp_path / "x.fld", fl.JPEGImageField(), [cut])
    assert bytes(reader.read_payload(0, "it")) == cut
    with pytest.raises(fl.DecodeError):
        reader[0]
    with pytest.raises(fl.DecodeError):
        reader.read_batch([0])


@pytest.mark.parametrize("seekable", [False, True])
@pytest.mark.parametrize("verbatim", [False, True])
def test_what_is_beside_the_jpeg_is_remembered(seekable, verbatim):
    field = fl.JPEGImageField(seekable=seekable, verbatim=verbatim)
    assert fl.JPEGImageField.from_binary(field.to_binary()) == field


def test_a_dataset_from_before_there_was_an_index_is_read_and_added_to(tmp_path):
    """Its options say nothing of an index, and must go on to say nothing: shards are compared by them."""
    options = b'{"check":false,"max_height":null,"max_width":null,"quality":90,"subsampling":"420"}'
    field = fl.JPEGImageField.from_binary(options)
    assert field == fl.JPEGImageField(seekable=False, verbatim=True)
    assert field.to_binary() == options
    data = encoded(Image.fromarray(pixels((64, 80, 3))), "JPEG", progressive=True)
    write(tmp_path / "x.fld", field, [data])
    with fl.DatasetWriter(tmp_path / "x.fld", None, mode="a") as writer:
        writer.write_sample([data])
    reader = fl.open(tmp_path / "x.fld")
    assert [bytes(reader.read_payload(i, "it")) for i in range(2)] == [data, data]


def test_a_seekable_dataset_is_added_to_with_an_index(tmp_path):
    data = noisy("JPEG")
    write(tmp_path / "x.fld", fl.JPEGImageField(), [data])
    with fl.DatasetWriter(tmp_path / "x.fld", None, mode="a") as writer:
        writer.write_sample([data])
    reader = fl.open(tmp_path / "x.fld")
    stored = [reader.dataset.file(shard).payload(0, 0).tobytes() for shard in range(2)]
    assert stored[0] == stored[1]
    assert len(stored[0]) > len(data)


def test_quality_and_subsampling_have_an_effect(tmp_path):
    image = pixels((64, 64, 3))
    sizes = {}
    for quality in (30, 90):
        for subsampling in ("420", "422", "444"):
            field = fl.JPEGImageField(quality, subsampling=subsampling)
            sizes[quality, subsampling] = len(write(tmp_path / "x.fld", field, [image]).read_payload(0, "it"))
    assert sizes[30, "420"] < sizes[90, "420"] < sizes[90, "422"] < sizes[90, "444"]


def test_png_levels_have_an_effect(tmp_path):
    image = np.zeros((64, 64, 3), np.uint8)
    fast, small = (
        len(write(tmp_path / "x.fld", fl.PNGImageField(level), [image]).read_payload(0, "it")) for level in (0, 9)
    )
    assert small < fast / 10


def test_images_of_one_shape_make_one_array_and_of_several_a_list(tmp_path):
    images = [pixels((8, 9, 3)), pixels((8, 9, 3), seed=1), pixels((9, 8, 3))]
    reader = write(tmp_path / "x.fld", fl.PNGImageField(), images)
    assert identical(reader.read_batch([1, 0])["it"], np.stack([images[1], images[0]]))
    mixed = reader.read_batch([0, 2])["it"]
    assert isinstance(mixed, list)
    assert [image.shape for image in mixed] == [(8, 9, 3), (9, 8, 3)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fl.JPEGImageField(0), "quality=0: from 1 to 100"),
        (lambda: fl.JPEGImageField(101), "quality=101"),
        (lambda: fl.JPEGImageField(subsampling="411"), "subsampling='411'"),
        (lambda: fl.JPEGImageField(max_height=0), "max_height=0: a limit is at least 1"),
        (lambda: fl.PNGImageField(max_width=-1), "max_width=-1"),
        (lambda: fl.PNGImageField(level=10), "level=10: from 0 to 9"),
    ],
)
def test_options_are_checked_when_given(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fl.JPEGImageField(90.5), "quality=90.5: expected a whole number, got float"),
        (lambda: fl.JPEGImageField(max_width="3"), "max_width='3': expected a whole number, got str"),
        (lambda: fl.PNGImageField(level=6.0), "level=6.0: expected a whole number"),
        (lambda: fl.PNGImageField(max_height=2.0), "max_height=2.0"),
        (lambda: fl.RawImageField(2.0, 3), "height=2.0"),
        (lambda: fl.PNGImageField(check=1), "check=1: True or False"),
        (lambda: fl.JPEGImageField(seekable="no"), "seekable='no': True or False"),
        (lambda: fl.JPEGImageField(verbatim=0), "verbatim=0: True or False"),
    ],
)
def test_options_are_whole_numbers(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    "field",
    [
        fl.JPEGImageField(np.int64(80), max_height=np.uint8(9), max_width=np.int32(7), check=np.True_),
        fl.PNGImageField(np.int8(3), max_height=np.uint64(9), max_width=np.int32(7)),
        fl.RawImageField(np.int64(2), np.int32(3), np.uint8(1)),
    ],
)
def test_options_may_be_numpy_integers(field):
    assert type(field).from_binary(field.to_binary()) == field


def test_options_stored_before_there_was_a_check_are_read():
    assert fl.PNGImageField.from_binary(b'{"level":3,"max_height":null,"max_width":null}') == fl.PNGImageField(3)


def noisy(format_):
    return encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)), format_)


@pytest.mark.parametrize(("make", "format_"), [(fl.JPEGImageField, "JPEG"), (fl.PNGImageField, "PNG")])
def test_check_refuses_ready_bytes_that_do_not_decode(make, format_, tmp_path):
    whole = noisy(format_)
    cut = whole[: len(whole) // 2]
    with pytest.raises(fl.SampleError, match=f"sample 1, field 'it': the {format_} does not decode: {format_}: "):
        write(tmp_path / "x.fld", make(check=True), [whole, cut])
    assert list(tmp_path.iterdir()) == []
    reader = write(tmp_path / "x.fld", make(check=True), [whole, pixels((8, 8, 3))])
    assert reader.fields["it"] == make(check=True)
    assert bytes(reader.read_payload(0, "it")) == whole
    reader = write(tmp_path / "y.fld", make(), [whole, cut])
    assert reader.fields["it"] == make(check=False)
    assert bytes(reader.read_payload(1, "it")) == cut


@pytest.mark.parametrize(("make", "format_"), [(fl.JPEGImageField, "JPEG"), (fl.PNGImageField, "PNG")])
def test_what_does_not_decode_is_told_with_the_command_that_finds_it(make, format_, tmp_path):
    whole = noisy(format_)
    reader = write(tmp_path / "x.fld", make(), [whole, whole[: len(whole) // 2]])
    for read in (lambda: reader[1], lambda: reader.read_batch([0, 1])):
        with pytest.raises(fl.DecodeError) as caught:
            read()
        assert caught.value.hint == f'run "fastloader verify --decode {tmp_path / "x.fld"}"'
        assert caught.value.sample == 1
    assert fl.verify(tmp_path / "x.fld").ok
    assert fl.verify(tmp_path / "x.fld", decode=True).bad_samples == [1]


def test_images_of_one_size_but_another_depth_are_a_list(tmp_path):
    images = [pixels((4, 4, 1)), pixels((4, 4, 1), "uint16"), None, pixels((4, 4, 1))]
    reader = write(tmp_path / "x.fld", fl.PNGImageField(), images)
    batch = reader.read_batch([0, 1, 2])["it"]
    assert isinstance(batch, list)
    assert identical(batch[0], images[0])
    assert identical(batch[1], images[1])
    assert batch[2] is None
    assert [image.dtype for image in reader.read_batch([0, 1])["it"]] == [np.uint8, np.uint16]
    assert isinstance(reader.read_batch([0, 3])["it"], np.ndarray)


def test_reasons_for_refusing_an_image_are_plain(tmp_path):
    for value, reason in (
        (np.zeros((1, 70_000, 3), np.uint8), "sample 0, field 'it': JPEG: Maximum supported image dimension"),
        (b"GIF89a", "these bytes are no JPEG"),
        (np.zeros((8, 8, 4), np.uint8), r"expected \(height, width\) or \(height, width, 1 or 3\), got \(8, 8, 4\)"),
        (np.zeros((0, 8), np.uint8), "an image without pixels"),
        (np.zeros((8, 8)), "expected pixels of uint8, got float64"),
    ):
        with pytest.raises(fl.SampleError, match=reason):
            write(tmp_path / "x.fld", fl.JPEGImageField(), [value])


def test_files_of_images_are_decoded():
    images = Path(__file__).parents[1] / "vectors" / "images"
    for name in ("1-rgb-444.jpg", "2-rgb.png"):
        data = (images / name).read_bytes()
        assert np.array_equal(
            fl.decode_image(memoryview(data)), np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        )
    with pytest.raises(fl.DecodeError, match="is no JPEG, PNG or WebP: it begins with b'GIF8"):
        fl.decode_image(b"GIF89a")
    with pytest.raises(fl.DecodeError, match="the PNG does not decode"):
        fl.decode_image((images / "2-rgb.png").read_bytes()[:60])
