#include <algorithm>

#include "resize_passes.h"

namespace fl {
namespace {

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

std::uint8_t narrowed(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255)); }

template <std::uint32_t kChannels>
void across_channels(const Axis<std::int32_t>& axis, const std::uint8_t* row, std::uint8_t* out) {
    for (std::size_t x = 0; x < axis.first.size(); ++x, out += kChannels) {
        const auto weights = axis.of(x);
        const std::uint8_t* from = row + std::size_t{axis.first[x] - axis.begin} * kChannels;
        std::int32_t sums[kChannels];
        for (auto& sum : sums) sum = kHalf;
        for (const auto weight : weights)
            for (std::uint32_t c = 0; c < kChannels; ++c) sums[c] += *from++ * weight;
        for (std::uint32_t c = 0; c < kChannels; ++c) out[c] = narrowed(sums[c]);
    }
}

void across(const Axis<std::int32_t>& axis, std::uint32_t channels, const std::uint8_t* row, std::uint8_t* out) {
    switch (channels) {
        case 1: return across_channels<1>(axis, row, out);
        case 2: return across_channels<2>(axis, row, out);
        case 3: return across_channels<3>(axis, row, out);
        default: return across_channels<4>(axis, row, out);
    }
}

void down(const std::uint8_t* const* rows, const std::int32_t* weights, std::uint32_t count, std::uint8_t* out,
          std::size_t size) {
    constexpr std::size_t kBlock = 64;
    for (std::size_t at = 0; at < size; at += kBlock) {
        const std::size_t n = std::min(kBlock, size - at);
        std::int32_t sums[kBlock];
        std::fill_n(sums, kBlock, kHalf);
        for (std::uint32_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < n; ++j) sums[j] += rows[i][at + j] * weights[i];
        for (std::size_t j = 0; j < n; ++j) out[at + j] = narrowed(sums[j]);
    }
}

}  // namespace

const ResizePasses kPortablePasses{{}, across, down, 0};

}  // namespace fl
