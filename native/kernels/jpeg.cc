// Whole JPEG files: what they hold, and all their pixels.
#include "image.h"
#include "jpeg_index.h"
#include "libjpeg.h"

namespace fl {
namespace {

ImageShape shape_of(const JpegRead& read) {
    return {read.codec.image_height, read.codec.image_width, static_cast<std::uint32_t>(read.codec.num_components), 8};
}

bool read_pixels(JpegRead& read, std::uint8_t* out) {
    if (setjmp(read.errors.jump)) return false;
    auto& codec = read.codec;
    codec.out_color_space = codec.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    codec.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&codec);
    const std::size_t stride = std::size_t{codec.output_width} * static_cast<std::size_t>(codec.output_components);
    while (codec.output_scanline < codec.output_height) {
        JSAMPROW rows[8];
        const std::size_t first = codec.output_scanline;
        JDIMENSION count = 0;
        for (; count < 8 && first + count < codec.output_height; ++count) rows[count] = out + (first + count) * stride;
        jpeg_read_scanlines(&codec, rows, count);
    }
    jpeg_finish_decompress(&codec);
    return true;
}

[[noreturn]] void fail(const std::string& why) { throw Failure("decode", "JPEG: " + why); }

// Reads the header of what is before the index, if there is one. Gives the image's shape.
ImageShape open(JpegRead& read, Bytes payload) {
    const auto jpeg = jpeg_split(payload).jpeg;
    if (jpeg.empty()) fail("no bytes");
    if (!read.read_header(jpeg)) fail(read.errors.message);
    const auto shape = shape_of(read);
    if (shape.channels != 1 && shape.channels != 3)
        fail(std::to_string(shape.channels) + " components; grayscale and three components are supported");
    try {
        check_claim(ImageKind::jpeg, shape, jpeg.size());
    } catch (const Failure& failure) {
        fail(failure.what());
    }
    return shape;
}

}  // namespace

ImageShape jpeg_info(Bytes encoded) {
    JpegRead read;
    return open(read, encoded);
}

void jpeg_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) {
    JpegRead read;
    if (open(read, encoded) != shape) fail("differs from its stored shape");
    if (!read_pixels(read, out.data())) fail(read.errors.message);
}

}  // namespace fl
