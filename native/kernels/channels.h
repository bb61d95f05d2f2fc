// Loops over pixels with the number of channels known to the compiler.
#pragma once

#include "frame.h"

namespace fl {

inline void check_pair(const Frame& frame, Bytes image, const Frame& out_frame, MutableBytes out) {
    check_frame(frame, image.size(), "image");
    check_frame(out_frame, out.size(), "output");
    if (frame.channels != out_frame.channels) throw Failure("argument", "the output has another number of channels");
}

template <std::uint32_t kChannels>
void fill_rows(std::uint8_t* out, std::size_t pixels, const Fill& fill) {
    for (std::size_t i = 0; i < pixels; ++i)
        for (std::uint32_t c = 0; c < kChannels; ++c) out[i * kChannels + c] = fill[c];
}

template <class Run>
void with_channels(std::uint32_t channels, Run run) {
    switch (channels) {
        case 1: return run.template operator()<1>();
        case 2: return run.template operator()<2>();
        case 3: return run.template operator()<3>();
        default: return run.template operator()<4>();
    }
}

template <std::uint32_t kChannels>
void copy_pixel(std::uint8_t* to, const std::uint8_t* from) {
    for (std::uint32_t c = 0; c < kChannels; ++c) to[c] = from[c];
}

}  // namespace fl
