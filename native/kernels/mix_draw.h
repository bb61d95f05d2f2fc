// What each sample of a batch draws for Mixup and CutMix, by its own place.
#pragma once

#include <span>

#include "random.h"

namespace fl {

struct MixDraw {
    std::uint64_t rank = 0;  // samples of a batch in this order are each other's partners
    double chance = 0;       // from 0 to 1: whether it is mixed
    double share = 0;        // of the sample itself, by Beta(alpha, alpha)
    double x = 0, y = 0;     // from 0 to 1: the middle of a box
};

// One draw a sample. An alpha not above 0, or above 1000, throws Failure "argument".
void draw_mix(std::uint64_t seed, std::uint64_t epoch, std::span<const std::int64_t> samples, std::uint32_t op,
              double alpha, std::span<MixDraw> out);

}  // namespace fl
