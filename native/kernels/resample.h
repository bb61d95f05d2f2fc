// Another sample rate: a sinc under a Kaiser window, one set of weights for each place an output sample can have between
// two input samples. Weights and sums have the same bits on every machine.
#pragma once

#include <span>
#include <vector>

#include "bytes.h"

namespace fl {

class Resampler {
public:
    // Throws Failure "argument", also where the ratio of the rates is so uneven that the weights would fill memory.
    Resampler(std::uint32_t from, std::uint32_t to);

    // ceil(samples * to / from)
    std::uint64_t length(std::uint64_t samples) const;

    // Channels are interleaved; `out` has length(frames) * channels.
    void run(std::span<const float> in, std::uint32_t channels, std::span<float> out) const;

private:
    std::uint64_t up_, down_;
    std::size_t taps_, before_;    // weights of one output sample, and how many of them lie before its place
    std::vector<float> weights_;   // phase after phase
};

}  // namespace fl
