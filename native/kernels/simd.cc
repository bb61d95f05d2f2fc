#include "simd.h"

#include <vector>

namespace fl {

std::span<const Simd> simd_levels() {
    static const std::vector<Simd> levels = [] {
        std::vector<Simd> found;
#if defined(__x86_64__)
        __builtin_cpu_init();
        const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
        if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
            __builtin_cpu_supports("avx512vnni"))
            found.push_back(Simd::avx512);
        if (avx2) found.push_back(Simd::avx2);
#endif
        found.push_back(Simd::portable);
        return found;
    }();
    return levels;
}

const char* name_of(Simd level) {
    switch (level) {
        case Simd::avx512: return "avx512";
        case Simd::avx2: return "avx2";
        default: return "portable";
    }
}

}  // namespace fl
