// Operations on the tones of an image, each equal to Pillow's (ImageEnhance, ImageOps) bit for bit: a table of 256
// values, one for all channels or one for each. `out` may be the image itself.
#pragma once

#include <array>

#include "frame.h"
#include "simd.h"

namespace fl {

using Tone = std::array<std::uint8_t, 256>;

Tone brightness_tone(float factor);
Tone contrast_tone(float factor, std::uint8_t mean);  // `mean` from mean_luma
Tone invert_tone();
Tone solarize_tone(std::uint32_t threshold);  // samples from the threshold on are inverted; 256 changes none
Tone posterize_tone(std::uint32_t bits);      // 1 to 8 bits are kept

void apply_tone(const Tone& tone, Bytes image, MutableBytes out, Simd level);

std::uint8_t mean_luma(const Frame& frame, Bytes image);  // rounded to the nearest, a half upwards
void equalize(const Frame& frame, Bytes image, MutableBytes out, Simd level);
void autocontrast(const Frame& frame, Bytes image, MutableBytes out, Simd level);

// Pillow's Image.blend of two samples: what lies outside of 0 to 255 is clipped, fractions are dropped.
inline std::uint8_t blended(std::uint8_t from, std::uint8_t to, float factor) {
    const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
    return value <= 0 ? 0 : value >= 255 ? 255 : static_cast<std::uint8_t>(value);
}

void check_factor(float factor);  // finite

}  // namespace fl
