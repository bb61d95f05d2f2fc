#include "smooth.h"

#include <algorithm>
#include <cmath>

#include "plain_loops.h"
#include "portable_math.h"
#include "resize_passes.h"
#include "tones.h"

namespace fl {
namespace {

// Nine samples, the middle one five times: a thirteenth of the sum, rounded, which no halves can disturb.
FL_INLINE void sharpen_row(const std::uint8_t* __restrict above, const std::uint8_t* __restrict row,
                           const std::uint8_t* __restrict below, std::size_t channels, std::size_t count, float factor,
                           std::uint8_t* __restrict out) {
    const auto three = [channels](const std::uint8_t* at) {
        return std::uint32_t{*(at - channels)} + *at + *(at + channels);
    };
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t sum = three(above + i) + three(row + i) + three(below + i) + 4 * std::uint32_t{row[i]};
        const auto smooth = static_cast<std::int32_t>((sum + 6) * 5042 >> 16);  // (sum + 6) / 13 for all sums there are
        const float value = static_cast<float>(smooth) + factor * static_cast<float>(row[i] - smooth);
        out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(std::max(value, 0.0f), 255.0f)));
    }
}

FL_INLINE void sharpen_all(const Frame& frame, const std::uint8_t* image, float factor, std::uint8_t* out) {
    const std::size_t row = frame.row(), channels = frame.channels;
    std::memcpy(out, image, row);
    for (std::size_t y = 1; y + 1 < frame.height; ++y) {
        const std::uint8_t* at = image + y * row;
        std::uint8_t* to = out + y * row;
        std::memcpy(to, at, channels);
        sharpen_row(at - row + channels, at + channels, at + row + channels, channels, row - 2 * channels, factor,
                    to + channels);
        std::memcpy(to + row - channels, at + row - channels, channels);
    }
    std::memcpy(out + (frame.height - 1) * row, image + (frame.height - 1) * row, row);
}

FL_AVX2 void sharpen_avx2(const Frame& frame, const std::uint8_t* image, float factor, std::uint8_t* out) {
    sharpen_all(frame, image, factor, out);
}

std::vector<std::int32_t> gaussian(std::uint32_t size, double sigma) {
    if (size % 2 == 0 || size > kLongestSide)
        throw Failure("argument", "a blur of " + std::to_string(size) + " pixels; their number is odd");
    if (!(sigma > 0) || !std::isfinite(sigma)) throw Failure("argument", "the sigma of a blur is more than 0");
    std::vector<double> values(size);
    double sum = 0;
    for (std::uint32_t i = 0; i < size; ++i) {
        const double x = (static_cast<double>(i) - (size - 1) / 2.0) / sigma;
        sum += values[i] = portable_exp(-0.5 * x * x);
    }
    std::vector<std::int32_t> weights;
    for (const double value : values) weights.push_back(static_cast<std::int32_t>(value / sum * (1 << kWeightBits) + 0.5));
    return weights;
}

void check_border(std::uint32_t size, std::uint32_t side) {
    if (size / 2 >= side)
        throw Failure("argument", "a blur of " + std::to_string(size) + " pixels reflects more than the " +
                                      std::to_string(side) + " that there are");
}

// The position that a border of reflected pixels shows; no further than one reflection.
std::size_t reflected(std::int64_t at, std::uint32_t side) {
    return static_cast<std::size_t>(at < 0 ? -at : at >= side ? 2 * (std::int64_t{side} - 1) - at : at);
}

}  // namespace

void sharpen(const Frame& frame, Bytes image, float factor, MutableBytes out, Simd level) {
    check_frame(frame, image.size(), "image");
    check_frame(frame, out.size(), "output");
    check_factor(factor);
    if (frame.height < 3 || frame.width < 3) {
        std::memcpy(out.data(), image.data(), image.size());
        return;
    }
    if (level != Simd::portable) return sharpen_avx2(frame, image.data(), factor, out.data());
    sharpen_all(frame, image.data(), factor, out.data());
}

// Both directions are the vertical pass of a resize: a row beside itself, shifted by a pixel, is a row above another.
void gaussian_blur(const Frame& frame, Bytes image, std::uint32_t size_x, std::uint32_t size_y, double sigma_x,
                   double sigma_y, MutableBytes out, Simd level) {
    check_frame(frame, image.size(), "image");
    check_frame(frame, out.size(), "output");
    const auto across = gaussian(size_x, sigma_x), down = gaussian(size_y, sigma_y);
    check_border(size_x, frame.width);
    check_border(size_y, frame.height);
    const auto& passes = resize_passes(level);
    const std::size_t row = frame.row(), channels = frame.channels, border = size_x / 2;
    std::vector<std::uint8_t> wide(row + 2 * border * channels + kRowSlack);
    std::vector<std::uint8_t> middle(row * frame.height + kRowSlack);
    std::vector<const std::uint8_t*> taps(std::max(size_x, size_y));
    for (std::uint32_t i = 0; i < size_x; ++i) taps[i] = wide.data() + i * channels;
    for (std::size_t y = 0; y < frame.height; ++y) {
        const std::uint8_t* from = image.data() + y * row;
        std::memcpy(wide.data() + border * channels, from, row);
        for (std::size_t i = 1; i <= border; ++i) {
            const auto beyond = reflected(static_cast<std::int64_t>(frame.width - 1 + i), frame.width);
            std::memcpy(wide.data() + (border - i) * channels, from + i * channels, channels);
            std::memcpy(wide.data() + (border + frame.width - 1 + i) * channels, from + beyond * channels, channels);
        }
        passes.down(taps.data(), across.data(), size_x, middle.data() + y * row, row);
    }
    for (std::size_t y = 0; y < frame.height; ++y) {
        for (std::uint32_t i = 0; i < size_y; ++i) {
            const auto at = static_cast<std::int64_t>(y + i) - size_y / 2;
            taps[i] = middle.data() + reflected(at, frame.height) * row;
        }
        passes.down(taps.data(), down.data(), size_y, out.data() + y * row, row);
    }
}

}  // namespace fl
