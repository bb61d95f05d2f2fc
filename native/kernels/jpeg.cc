// libjpeg-turbo through its public API. Its errors arrive by longjmp, so each function that sets a jump target keeps
// objects with destructors outside the jumped-over frames.
#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include <jerror.h>

#include "image.h"

namespace fl {
namespace {

struct Errors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr common) {
    auto* errors = reinterpret_cast<Errors*>(common->err);
    errors->base.format_message(common, errors->message);
    std::longjmp(errors->jump, 1);
}

// libjpeg fills what a truncated or corrupt scan lacks with gray and only warns. Here a warning is an error, except
// for those about bytes that no pixel depends on, which cameras and editors are known to leave behind.
void on_message(j_common_ptr common, int level) {
    const int code = common->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM && code != JWRN_JFIF_MAJOR)
        on_error(common);
}

// A progressive file may ask for the whole image to be walked once a scan; real encoders use about ten.
constexpr int kMaxScans = 256;

void on_progress(j_common_ptr common) {
    auto* codec = reinterpret_cast<j_decompress_ptr>(common);
    if (codec->input_scan_number > kMaxScans) {
        codec->err->msg_code = JERR_BAD_PROGRESSION;
        on_error(common);
    }
}

void set_up(Errors& errors) {
    jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.emit_message = on_message;
    errors.message[0] = 0;
}

struct Read {
    jpeg_decompress_struct codec;
    Errors errors;
    jpeg_progress_mgr progress;
    ImageShape shape;
};

bool read_header(Read& read, Bytes encoded) {
    set_up(read.errors);
    read.codec.err = &read.errors.base;
    if (setjmp(read.errors.jump)) return false;
    jpeg_create_decompress(&read.codec);
    read.progress.progress_monitor = on_progress;
    read.codec.progress = &read.progress;
    jpeg_mem_src(&read.codec, const_cast<unsigned char*>(encoded.data()), static_cast<unsigned long>(encoded.size()));
    jpeg_read_header(&read.codec, TRUE);
    read.shape = {read.codec.image_height, read.codec.image_width,
                  static_cast<std::uint32_t>(read.codec.num_components), 8};
    return true;
}

bool read_pixels(Read& read, std::uint8_t* out) {
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

// Opens, hands to `use`, and always releases.
template <class Use>
void with_header(Bytes encoded, Use use) {
    Read read{};
    bool good = !encoded.empty() && read_header(read, encoded);
    std::string why = encoded.empty() ? "no bytes" : read.errors.message;
    if (good && read.shape.channels != 1 && read.shape.channels != 3) {
        good = false;
        why = std::to_string(read.shape.channels) + " components; grayscale and three components are supported";
    }
    if (good) {
        try {
            check_claim(ImageKind::jpeg, read.shape, encoded.size());
            good = use(read);
            why = read.errors.message;
        } catch (const Failure& failure) {
            good = false;
            why = failure.what();
        }
    }
    jpeg_destroy_decompress(&read.codec);
    if (!good) throw Failure("decode", "JPEG: " + why);
}

struct Write {
    jpeg_compress_struct codec;
    Errors errors;
    unsigned char* data;
    unsigned long size;
};

bool write_pixels(Write& write, const std::uint8_t* pixels, const ImageShape& shape, int quality, int subsampling) {
    set_up(write.errors);
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

}  // namespace

ImageShape jpeg_info(Bytes encoded) {
    ImageShape shape;
    with_header(encoded, [&](Read& read) {
        shape = read.shape;
        return true;
    });
    return shape;
}

void jpeg_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) {
    with_header(encoded, [&](Read& read) {
        if (read.shape == shape) return read_pixels(read, out.data());
        std::snprintf(read.errors.message, sizeof read.errors.message, "differs from its stored shape");
        return false;
    });
}

std::vector<std::uint8_t> jpeg_encode(Bytes pixels, const ImageShape& shape, int quality, int subsampling) {
    if (pixels.size() != shape.bytes()) throw Failure("encode", "JPEG: the pixels do not have the stated shape");
    Write write{};
    const bool good = write_pixels(write, pixels.data(), shape, quality, subsampling);
    std::vector<std::uint8_t> out;
    if (good) out.assign(write.data, write.data + write.size);
    jpeg_destroy_compress(&write.codec);
    std::free(write.data);
    if (!good) throw Failure("encode", std::string("JPEG: ") + write.errors.message);
    return out;
}

}  // namespace fl
