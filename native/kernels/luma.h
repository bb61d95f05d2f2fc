// Pillow's luma: the weights of ITU-R BT.601 in 16 bits.
#pragma once

#include <cstdint>

namespace fl {

inline std::uint32_t luma(std::uint32_t red, std::uint32_t green, std::uint32_t blue) {
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
}

}  // namespace fl
