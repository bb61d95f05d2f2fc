// Whole JPEG files: what they hold, and all their pixels.
#include "image.h"
#include "jpeg_index.h"
#include "libjpeg.h"

namespace fl {
namespace {

// `ink` has room for a row of four samples a pixel, where the file needs it.
bool read_pixels(JpegRead& read, std::uint8_t* out, std::uint8_t* ink) {
    if (setjmp(read.errors.jump)) return false;
    auto& codec = read.codec;
    codec.out_color_space = read.pixels();
    codec.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&codec);
    for (; ink && codec.output_scanline < codec.output_height; out += std::size_t{codec.output_width} * 3) {
        jpeg_read_scanlines(&codec, &ink, 1);
        ink_to_rgb(ink, codec.output_width, out, 3);
    }
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

}  // namespace

ImageShape jpeg_info(Bytes encoded) {
    JpegRead read;
    return read.open(jpeg_split(encoded).jpeg);
}

void jpeg_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) {
    JpegRead read;
    if (read.open(jpeg_split(encoded).jpeg) != shape) throw Failure("decode", "JPEG: differs from its stored shape");
    std::vector<std::uint8_t> ink(read.ink() ? std::size_t{shape.width} * 4 : 0);
    if (!read_pixels(read, out.data(), ink.empty() ? nullptr : ink.data())) read.fail();
}

}  // namespace fl
