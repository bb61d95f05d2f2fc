// Time in ticks of a counter that is read in some nanoseconds, where the CPU has one: a clock takes longer, and waits for
// all loads that were begun before. From one to five ticks a nanosecond, so they tell long from short and no more.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace fl {

inline std::uint64_t ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
#endif
}

}  // namespace fl
