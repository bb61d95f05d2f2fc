#include "libjpeg.h"

#include <jerror.h>

namespace fl {
namespace {

[[noreturn]] void on_error(j_common_ptr common) {
    auto* errors = reinterpret_cast<JpegErrors*>(common->err);
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

}  // namespace

void JpegErrors::set_up() {
    jpeg_std_error(&base);
    base.error_exit = on_error;
    base.emit_message = on_message;
    message[0] = 0;
}

bool JpegRead::read_header(Bytes encoded, bool keep_markers) {
    errors.set_up();
    codec.err = &errors.base;
    if (setjmp(errors.jump)) return false;
    if (made) {
        jpeg_abort_decompress(&codec);
    } else {
        jpeg_create_decompress(&codec);
        made = true;
        progress.progress_monitor = on_progress;
        codec.progress = &progress;
    }
    if (keep_markers) {
        jpeg_save_markers(&codec, JPEG_COM, 0xFFFF);
        for (int i = 0; i < 16; ++i) jpeg_save_markers(&codec, JPEG_APP0 + i, 0xFFFF);
    }
    jpeg_mem_src(&codec, const_cast<unsigned char*>(encoded.data()), static_cast<unsigned long>(encoded.size()));
    jpeg_read_header(&codec, TRUE);
    return true;
}

void ink_to_rgb(const std::uint8_t* from, std::size_t pixels, std::uint8_t* to, std::uint32_t channels) {
    for (std::size_t i = 0; i < pixels; ++i, from += 4, to += channels) {
        const std::uint32_t light = from[3];
        for (int c = 0; c < 3; ++c) {
            const std::uint32_t product = (255u - from[c]) * light + 128;
            to[c] = static_cast<std::uint8_t>(light - ((product + (product >> 8)) >> 8));
        }
        if (channels == 4) to[3] = 255;
    }
}

ImageShape JpegRead::open(Bytes encoded, bool keep_markers) {
    if (encoded.empty()) throw Failure("decode", "JPEG: no bytes");
    if (!read_header(encoded, keep_markers)) fail();
    const auto channels = ink() ? 3u : static_cast<std::uint32_t>(codec.num_components);
    const ImageShape shape{codec.image_height, codec.image_width, channels, 8};
    if (shape.channels != 1 && shape.channels != 3)
        throw Failure("decode", "JPEG: " + std::to_string(shape.channels) +
                                    " components; one, three and four are supported");
    try {
        check_claim(ImageKind::jpeg, shape, encoded.size());
    } catch (const Failure& failure) {
        throw Failure("decode", std::string("JPEG: ") + failure.what());
    }
    return shape;
}

}  // namespace fl
