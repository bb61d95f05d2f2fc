// Rotations, shears, scalings and translations of 8-bit images.
#pragma once

#include "frame.h"
#include "simd.h"

namespace fl {

using Matrix = std::array<double, 6>;
constexpr Matrix kSame{1, 0, 0, 0, 1, 0};

inline Matrix followed_by(const Matrix& m, const Matrix& next) {
    return {next[0] * m[0] + next[1] * m[3], next[0] * m[1] + next[1] * m[4], next[0] * m[2] + next[1] * m[5] + next[2],
            next[3] * m[0] + next[4] * m[3], next[3] * m[1] + next[4] * m[4], next[3] * m[2] + next[4] * m[5] + next[5]};
}

inline Matrix reversed(const Matrix& m) {
    const double whole = m[0] * m[4] - m[1] * m[3];
    return {m[4] / whole,  -m[1] / whole, (m[1] * m[5] - m[4] * m[2]) / whole,
            -m[3] / whole, m[0] / whole,  (m[3] * m[2] - m[0] * m[5]) / whole};
}

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
