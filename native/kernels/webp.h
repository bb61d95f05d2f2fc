// A part of a WebP's pixels.
#pragma once

#include "image.h"

namespace fl {

struct PixelRows {
    const std::uint8_t* first = nullptr;
    std::ptrdiff_t stride = 0;
};

// The pixels of `part`, of the shape's channels, as the full decode has them; they lie in `room`. Rows below the part are
// not decoded, so damage there goes unnoticed unless bytes are missing.
PixelRows webp_decode_part(Bytes encoded, const ImageShape& shape, const Window& part, std::vector<std::uint8_t>& room);

}  // namespace fl
