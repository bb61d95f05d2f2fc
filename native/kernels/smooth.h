// Operations that look at a pixel's neighbours. `out` must not be the image itself.
#pragma once

#include "frame.h"
#include "simd.h"

namespace fl {

// Pillow's ImageEnhance.Sharpness, bit for bit: blended with its smoothed self, 1 gives the image. The pixels at the
// edges are not smoothed, nor is an image of fewer than three rows or columns.
void sharpen(const Frame& frame, Bytes image, float factor, MutableBytes out, Simd level);

// torchvision's gaussian_blur: `size` weights (odd) in each direction, with the border reflected. Across, then down, each
// rounded to 8 bits, so a sample is within 1 of the result in float32. A border wider than the image throws.
void gaussian_blur(const Frame& frame, Bytes image, std::uint32_t size_x, std::uint32_t size_y, double sigma_x,
                   double sigma_y, MutableBytes out, Simd level);

}  // namespace fl
