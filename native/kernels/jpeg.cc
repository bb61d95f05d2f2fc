// Whole JPEG files: what they hold, and all their pixels.
#include "image.h"
#include "jpeg_index.h"
#include "libjpeg.h"

namespace fl {
namespace {

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

}  // namespace

ImageShape jpeg_info(Bytes encoded) {
    JpegRead read;
    return read.open(jpeg_split(encoded).jpeg);
}

void jpeg_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) {
    JpegRead read;
    if (read.open(jpeg_split(encoded).jpeg) != shape) throw Failure("decode", "JPEG: differs from its stored shape");
    if (!read_pixels(read, out.data())) read.fail();
}

}  // namespace fl
