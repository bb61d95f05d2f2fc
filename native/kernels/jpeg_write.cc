#include "jpeg_write.h"

#include <algorithm>

#include "image.h"
#include "libjpeg.h"

namespace fl {
namespace {

struct Write {
    Write() = default;
    Write(const Write&) = delete;
    Write& operator=(const Write&) = delete;
    ~Write() {
        jpeg_destroy_compress(&codec);
        std::free(data);
    }
    std::vector<std::uint8_t> written() const { return {data, data + size}; }

    jpeg_compress_struct codec{};
    JpegErrors errors{};
    unsigned char* data = nullptr;
    unsigned long size = 0;
};

bool write_pixels(Write& write, const std::uint8_t* pixels, const ImageShape& shape, int quality, int subsampling) {
    write.errors.set_up();
    write.codec.err = &write.errors.base;
    if (setjmp(write.errors.jump)) return false;
    auto& codec = write.codec;
    jpeg_create_compress(&codec);
    jpeg_mem_dest(&codec, &write.data, &write.size);
    codec.image_width = shape.width;
    codec.image_height = shape.height;
    codec.input_components = static_cast<int>(shape.channels);
    codec.in_color_space = shape.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&codec);
    jpeg_set_quality(&codec, quality, TRUE);
    codec.dct_method = JDCT_ISLOW;
    if (shape.channels == 3) {
        codec.comp_info[0].h_samp_factor = subsampling == 444 ? 1 : 2;
        codec.comp_info[0].v_samp_factor = subsampling == 420 ? 2 : 1;
    }
    jpeg_start_compress(&codec, TRUE);
    const std::size_t stride = std::size_t{shape.width} * shape.channels;
    while (codec.next_scanline < codec.image_height) {
        JSAMPROW row = const_cast<JSAMPROW>(pixels + codec.next_scanline * stride);
        jpeg_write_scanlines(&codec, &row, 1);
    }
    jpeg_finish_compress(&codec);
    return true;
}

bool read_coefficients(JpegRead& read, jvirt_barray_ptr*& coefficients) {
    if (setjmp(read.errors.jump)) return false;
    coefficients = jpeg_read_coefficients(&read.codec);
    return true;
}

// Whether every coefficient was sent with all its bits.
bool complete(const jpeg_decompress_struct& codec) {
    if (!codec.coef_bits) return true;
    for (int i = 0; i < codec.num_components; ++i)
        if (std::any_of(codec.coef_bits[i], codec.coef_bits[i] + DCTSIZE2, [](int bits) { return bits != 0; })) return false;
    return true;
}

// Those the library writes itself, from what it read.
bool written_anyway(const jpeg_marker_struct& marker) {
    const auto says = [&](int kind, const char* text, std::size_t size) {
        return marker.marker == JPEG_APP0 + kind && marker.data_length >= size && !std::memcmp(marker.data, text, size);
    };
    return says(0, "JFIF\0", 5) || says(14, "Adobe", 5);
}

// Reading goes on while this writes: the virtual arrays belong to the reader, so its errors come here too.
bool write_coefficients(Write& write, JpegRead& read, jvirt_barray_ptr* coefficients) {
    write.errors.set_up();
    write.codec.err = &write.errors.base;
    if (setjmp(write.errors.jump)) return false;
    if (setjmp(read.errors.jump)) {
        std::memcpy(write.errors.message, read.errors.message, sizeof write.errors.message);
        return false;
    }
    jpeg_create_compress(&write.codec);
    jpeg_mem_dest(&write.codec, &write.data, &write.size);
    jpeg_copy_critical_parameters(&read.codec, &write.codec);
    write.codec.optimize_coding = TRUE;
    jpeg_write_coefficients(&write.codec, coefficients);
    for (const auto* marker = read.codec.marker_list; marker; marker = marker->next)
        if (!written_anyway(*marker))
            jpeg_write_marker(&write.codec, marker->marker, marker->data, marker->data_length);
    jpeg_finish_compress(&write.codec);
    jpeg_finish_decompress(&read.codec);
    return true;
}

[[noreturn]] void fail(const char* kind, const JpegErrors& errors) {
    throw Failure(kind, std::string("JPEG: ") + errors.message);
}

}  // namespace

std::vector<std::uint8_t> jpeg_encode(Bytes pixels, const ImageShape& shape, int quality, int subsampling) {
    if (pixels.size() != shape.bytes()) throw Failure("encode", "JPEG: the pixels do not have the stated shape");
    Write write;
    if (!write_pixels(write, pixels.data(), shape, quality, subsampling)) fail("encode", write.errors);
    return write.written();
}

std::optional<std::vector<std::uint8_t>> jpeg_make_baseline(Bytes jpeg) {
    JpegRead read;
    read.open(jpeg, true);
    if (!jpeg_has_multiple_scans(&read.codec)) return std::nullopt;
    jvirt_barray_ptr* coefficients = nullptr;
    if (!read_coefficients(read, coefficients)) read.fail();
    if (!complete(read.codec)) return std::nullopt;
    Write write;
    if (!write_coefficients(write, read, coefficients)) fail("decode", write.errors);
    return write.written();
}

}  // namespace fl
