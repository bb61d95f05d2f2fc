// Padding and erasing. The output of `pad` must not be the image itself.
#pragma once

#include "frame.h"
#include "random.h"

namespace fl {

enum class PadMode : std::uint8_t { constant, edge, reflect, symmetric };

// The image with its first pixel at (top, left) of the output, which may be negative: pads, crops and translates. What
// lies outside of the image is numpy.pad's.
void pad(const Frame& frame, Bytes image, std::int32_t top, std::int32_t left, PadMode mode, const Fill& fill,
         const Frame& out_frame, MutableBytes out);

struct PixelBox {
    std::uint32_t top = 0, left = 0, bottom = 0, right = 0;
};

// In place: the box gets one colour, or bytes that are each as likely.
void erase(const Frame& frame, MutableBytes image, const PixelBox& box, const Fill& fill);
void erase(const Frame& frame, MutableBytes image, const PixelBox& box, Random& noise);

}  // namespace fl
