// Which instructions this CPU has, as a ladder of three: kernels with variants pick theirs by it. Every variant of a
// kernel gives the same bits; tests compare them.
#pragma once

#include "bytes.h"

namespace fl {

// avx512 stands for F, BW, VL, VBMI and VNNI together; avx2 includes F16C.
enum class Simd : std::uint8_t { portable, avx2, avx512 };

std::span<const Simd> simd_levels();  // those this CPU has, the best first
inline Simd best_simd() { return simd_levels().front(); }
const char* name_of(Simd level);

}  // namespace fl
