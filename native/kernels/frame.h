// What the pixel operations speak: 8-bit images as bytes and a shape, checked once.
#pragma once

#include <array>

#include "axis.h"

namespace fl {

struct Frame {
    std::uint32_t height = 0, width = 0, channels = 0;

    std::size_t pixels() const { return std::size_t{height} * width; }
    std::size_t size() const { return pixels() * channels; }
    std::size_t row() const { return std::size_t{width} * channels; }
};

using Fill = std::array<std::uint8_t, 4>;  // a colour, one value a channel

// Throws Failure "argument" where a side is zero or too long, or `bytes` is not what the frame holds.
inline void check_frame(const Frame& frame, std::size_t bytes, const char* what) {
    check_side(frame.height, what);
    check_side(frame.width, what);
    if (frame.channels < 1 || frame.channels > 4)
        throw Failure("argument", std::string("the ") + what + " has " + std::to_string(frame.channels) +
                                      " channels; it may have 1 to 4");
    if (bytes != frame.size()) throw Failure("argument", std::string("the ") + what + " has another size than its shape");
}

inline void check_colour(const Frame& frame) {
    if (frame.channels != 3)
        throw Failure("argument", "an image of " + std::to_string(frame.channels) + " channels has no colours; 3 have");
}

}  // namespace fl
