// One direction of a resize: which source positions each output position is made of, and by which weights. Supports,
// weights and rounding are those of Pillow, so that results are too.
#pragma once

#include <vector>

#include "bytes.h"

namespace fl {

enum class Filter : std::uint8_t { nearest, box, bilinear, hamming, bicubic, lanczos };

struct AxisSpec {
    std::uint32_t source = 0;  // length of the source
    std::uint32_t out = 0;     // length of the output
    float begin = 0, end = 0;  // the part of the source that is resized; fractions are fine
    Filter filter = Filter::bilinear;
    bool flip = false;
    std::uint32_t first = 0, count = 0;  // the outputs that are made, counted before the flip; a count of 0: all

    std::uint32_t made() const { return count ? count : out; }
    bool operator==(const AxisSpec&) const = default;
};

// A part of an image, in whole pixels.
struct Window {
    std::uint32_t left = 0, top = 0, width = 0, height = 0;
};

// Far beyond any photo, and short enough that the tables of one axis stay below 64 MiB whatever is claimed.
constexpr std::uint32_t kLongestSide = 1u << 20;
void check_side(std::uint32_t length, const char* what);

// Weights of 8-bit samples are integers: 1 is 2^22. 255 times the sum of their absolute values stays below 2^31.
constexpr int kWeightBits = 22;

template <class Weight>
struct Axis {
    std::vector<std::uint32_t> first;  // the first source position of each output
    std::vector<std::uint32_t> count;  // how many there are: at least one
    std::vector<Weight> weights;       // `stride` for each output, zeros behind the last
    std::uint32_t stride = 0;
    std::uint32_t begin = 0, end = 0;  // what of the source is used at all
    std::uint32_t longest = 0;         // the largest count
    bool identity = false;             // each output is one source position, the next one each time

    std::span<const Weight> of(std::size_t i) const { return {weights.data() + i * stride, count[i]}; }
};

// Throws Failure "argument" where a length is zero or too long, or the part does not lie in the source.
void make_axis(const AxisSpec& spec, Axis<std::int32_t>& axis);
void make_axis(const AxisSpec& spec, Axis<double>& axis);

}  // namespace fl
