// Numbers in memory as numbers of another type, scaled, their channels first or last. value = number * scale + bias in
// float32, the product rounded and then the sum; then rounded to the element. What is not scaled is only converted. That
// is what numpy gives for (numbers.astype("float32") * scale + bias).astype(element).
#pragma once

#include <vector>

#include "cast.h"

namespace fl {

// What numbers may be before; the order is that of kernels.NUMBERS.
enum class Number : std::uint8_t { uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, float64, float16, bfloat16 };
constexpr int kNumbers = static_cast<int>(Number::bfloat16) + 1;
std::size_t size_of(Number number);

struct Conversion {
    Number from = Number::float32;
    Element to = Element::float32;
    std::size_t pixels = 0, channels = 1;  // each pixel has as many numbers as there are channels
    Layout given = Layout::hwc, made = Layout::hwc;
    std::vector<float> scale{}, bias{};  // one a channel, or none at all

    std::size_t given_bytes() const { return pixels * channels * size_of(from); }
    std::size_t made_bytes() const { return pixels * channels * size_of(to); }
};

// Throws Failure "argument" for factors that are not finite or not one a channel, and for uint8 made of anything else.
void check_conversion(const Conversion& how);

// Both have the sizes that the conversion states.
void convert(const Conversion& how, Bytes given, MutableBytes out);

}  // namespace fl
