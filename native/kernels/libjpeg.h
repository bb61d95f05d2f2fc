// How libjpeg-turbo is called here. Its errors arrive by longjmp, so a function that sets a jump target keeps objects
// with destructors outside the frames that are jumped over.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

#include <jpeglib.h>

#include "image.h"

namespace fl {

struct JpegErrors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];

    // Errors and warnings go to `jump` from here on.
    void set_up();
};

// A file being read. Made once, it serves any number of files, but tables stay from one to the next: a file that lacks
// one would get another's.
struct JpegRead {
    JpegRead() = default;
    JpegRead(const JpegRead&) = delete;
    JpegRead& operator=(const JpegRead&) = delete;
    ~JpegRead() {
        if (made) jpeg_destroy_decompress(&codec);
    }

    // False where that failed: `errors.message` says why.
    bool read_header(Bytes encoded, bool keep_markers = false);
    // Reads the header and gives the shape, which its bytes could hold. Throws Failure "decode".
    ImageShape open(Bytes encoded, bool keep_markers = false);
    // Four components are ink: they become RGB. Their rows have four samples a pixel until `ink_to_rgb`.
    bool ink() const { return codec.num_components == 4; }
    J_COLOR_SPACE pixels() const { return ink() ? JCS_CMYK : codec.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB; }
    [[noreturn]] void fail() const { throw Failure("decode", std::string("JPEG: ") + errors.message); }

    jpeg_decompress_struct codec{};
    JpegErrors errors{};
    jpeg_progress_mgr progress{};
    bool made = false;
};

// CMYK as every file has it since Adobe's programs wrote them, that is inverted, to RGB as Pillow converts it; with
// four channels each pixel is padded by a byte of 255.
void ink_to_rgb(const std::uint8_t* from, std::size_t pixels, std::uint8_t* to, std::uint32_t channels);

}  // namespace fl
