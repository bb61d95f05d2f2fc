// A part of a JPEG's pixels, without decoding the rest where that can be avoided.
#pragma once

#include <optional>

#include "image.h"
#include "jpeg_index.h"

namespace fl {

// Pixels of the image as it is after scaling.
struct JpegBox {
    std::uint32_t x = 0;
    std::uint32_t y = 0;
    std::uint32_t width = 0;
    std::uint32_t height = 0;
};

// By which way pixels are found. All give the same.
enum class JpegRoute : std::uint8_t {
    full,     // decode every row down to the box's last, then take the box
    partial,  // pass over rows above the box and leave out columns beside it; their bits are still decoded
    splice,   // decode a small JPEG made of the MCUs around the box; needs an index
    automatic,
};

struct JpegRequest {
    ImageShape shape;  // the whole image's, unscaled
    JpegBox box;
    std::uint32_t shrink = 1;    // 1, 2, 4 or 8: sides become ceil(side / shrink), by scaling the DCT
    std::uint32_t channels = 0;  // of a pixel in memory: the shape's, or 4 to have each RGB pixel padded by a byte of 255
    JpegRoute route = JpegRoute::automatic;
};

// The box's rows, `stride` bytes from one to the next. They are what the full decode at the same scale has there, bit
// for bit. `index` may be empty. Data outside what the box needs may go unread, so that damage there goes unnoticed;
// damage inside is Failure "decode". Returns the way taken: a way that can't serve gives way to the one before it.
JpegRoute jpeg_decode_box(Bytes jpeg, Bytes index, const JpegRequest& request, std::uint8_t* out, std::size_t stride);

// A JPEG of its own that shows a part of another: where that lies in the whole image.
struct JpegPart {
    Bytes data;
    std::uint32_t left = 0, top = 0, width = 0, height = 0;
};

// The box as a JPEG, for a decoder elsewhere: small where there is an index, else the whole. The data is there until this
// thread's next call. Nothing where not every decoder would read it alike: what is not one sequential scan of YCbCr.
std::optional<JpegPart> jpeg_cut_box(Bytes jpeg, Bytes index, const ImageShape& shape, const JpegBox& box);

}  // namespace fl
