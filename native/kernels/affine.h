// Rotations, shears, scalings and translations of 8-bit images.
#pragma once

#include "frame.h"
#include "simd.h"

namespace fl {

using Matrix = std::array<double, 6>;

// Pillow's Image.transform(size, AFFINE, matrix), bit for bit: the output's pixel (x, y), its middle, shows the source at
// (a x + b y + c, d x + e y + f); what lies outside of the source is filled. Coordinates are doubles, or fixed-point
// numbers where Pillow has them, in one order of operations. `out` must not be the image itself.
void affine(const Frame& frame, Bytes image, const Matrix& matrix, bool bilinear, const Fill& fill,
            const Frame& out_frame, MutableBytes out, Simd level);

#if defined(__x86_64__)
// For three or four channels and images of four bytes or more.
void bilinear_avx2(const Frame& frame, const std::uint8_t* image, const Matrix& matrix, const Fill& fill,
                   const Frame& out_frame, std::uint8_t* out);
#endif

}  // namespace fl
