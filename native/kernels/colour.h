// Operations on the colours of RGB images, equal to Pillow's bit for bit. `out` may be the image itself.
#pragma once

#include "frame.h"
#include "simd.h"

namespace fl {

// Luma in one channel, or in each of three.
void grayscale(const Frame& frame, Bytes image, std::uint32_t out_channels, MutableBytes out, Simd level);

// Blended with its luma: 0 gives gray, 1 the image, more than 1 stronger colours.
void saturate(const Frame& frame, Bytes image, float factor, MutableBytes out, Simd level);

// Pillow's HSV, with `shift` added to the 8-bit hue, which goes round at 256.
void shift_hue(const Frame& frame, Bytes image, std::uint8_t shift, MutableBytes out, Simd level);

}  // namespace fl
