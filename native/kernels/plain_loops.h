// For plain loops over a few pixels that are compiled once for each instruction set: the compiler makes SIMD of them, and as
// no product is fused with a sum, the bits are the same.
#pragma once

#if defined(__x86_64__)
#define FL_AVX2 __attribute__((target("avx2")))
#else
#define FL_AVX2
#endif
#define FL_INLINE inline __attribute__((always_inline))
