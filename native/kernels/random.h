// Random numbers as a place, not a history: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3")
// keyed by seed, epoch, sample and op. Nothing is shared, so neither threads nor the order of work change a draw.
#pragma once

#include <array>

#include "bytes.h"

namespace fl {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;
PhiloxCounter philox(PhiloxKey key, PhiloxCounter counter);

// The stream of one op on one sample. Seed, epoch and sample have more bits than a key: a first block, under the seed,
// makes 128 bits of them, two words of which are the key of the stream and two a part of its counters.
class Random {
public:
    Random(std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample, std::uint32_t op);

    std::uint32_t bits();
    double uniform();                          // 0 <= x < 1, of 53 bits
    std::uint64_t below(std::uint64_t bound);  // 0 <= x < bound, each as likely; a bound of 0 throws Failure "argument"
    double normal();                           // mean 0, deviation 1
    void bytes(MutableBytes out);

private:
    std::uint64_t bits64();

    PhiloxKey key_;
    PhiloxCounter next_;
    PhiloxCounter block_{};
    std::uint32_t used_ = 4;
};

}  // namespace fl
