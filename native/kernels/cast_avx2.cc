#include "cast.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define FL_AVX2 __attribute__((target("avx2,f16c")))

namespace fl {
namespace {

FL_AVX2 inline __m256 scaled(__m128i samples, __m256 scale, __m256 bias) {
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(samples)), scale), bias);
}

FL_AVX2 inline __m256i bfloats(__m256 values) {  // in the low half of each number
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
}

// Eight samples in the low half of a register to eight elements.
template <Element kElement>
FL_AVX2 inline void put_eight(__m128i samples, __m256 scale, __m256 bias, std::uint8_t* out) {
    const __m256 values = scaled(samples, scale, bias);
    if constexpr (kElement == Element::float16) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                         _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else if constexpr (kElement == Element::bfloat16) {
        const __m256i bits = bfloats(values);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                         _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
    } else {
        _mm256_storeu_ps(reinterpret_cast<float*>(out), values);
    }
}

struct Bytes48 {
    __m128i part[3];
};

FL_AVX2 inline Bytes48 load48(const std::uint8_t* from) {
    const auto* parts = reinterpret_cast<const __m128i*>(from);
    return {{_mm_loadu_si128(parts), _mm_loadu_si128(parts + 1), _mm_loadu_si128(parts + 2)}};
}

// 16 pixels of three bytes in the opposite order.
FL_AVX2 inline Bytes48 mirrored(const Bytes48& x) {
    const auto pick = [](__m128i from, __m128i order) FL_AVX2 { return _mm_shuffle_epi8(from, order); };
    const auto [a, b, c] = x.part;
    return {{_mm_or_si128(pick(c, _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1)),
                          pick(b, _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 14))),
             _mm_or_si128(_mm_or_si128(
                 pick(b, _mm_setr_epi8(15, -1, 11, 12, 13, 8, 9, 10, 5, 6, 7, 2, 3, 4, -1, 0)),
                 pick(c, _mm_setr_epi8(-1, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1))),
                 pick(a, _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 15, -1))),
             _mm_or_si128(pick(b, _mm_setr_epi8(1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1)),
                          pick(a, _mm_setr_epi8(-1, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2)))}};
}

template <Element kElement, bool kFlip>
FL_AVX2 std::size_t samples(const Cast::Pattern& pattern, const std::uint8_t* from, std::size_t count,
                            std::uint8_t* out) {
    __m256 scale[3], bias[3];
    for (int i = 0; i < 3; ++i) {
        scale[i] = _mm256_loadu_ps(pattern.scale + 8 * i);
        bias[i] = _mm256_loadu_ps(pattern.bias + 8 * i);
    }
    constexpr std::size_t kSize = kElement == Element::float32 ? 4 : kElement == Element::uint8 ? 1 : 2;
    std::size_t at = 0;
    for (; at + 48 <= count; at += 48) {
        const auto bytes = kFlip ? mirrored(load48(from + count - 48 - at)) : load48(from + at);
        for (std::size_t i = 0; i < 3; ++i) {
            std::uint8_t* to = out + (at + 16 * i) * kSize;
            if constexpr (kElement == Element::uint8) {
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes.part[i]);
            } else {
                const std::size_t j = 2 * i % 3, k = (2 * i + 1) % 3;
                put_eight<kElement>(bytes.part[i], scale[j], bias[j], to);
                put_eight<kElement>(_mm_srli_si128(bytes.part[i], 8), scale[k], bias[k], to + 8 * kSize);
            }
        }
    }
    return at;
}

// 16 pixels of three channels: each byte of a plane lies in one of three registers.
struct Planes {
    __m128i plane[3];
};

FL_AVX2 inline Planes split(const Bytes48& pixels) {
    const auto [a, b, c] = pixels.part;
    const auto gather = [a = a, b = b, c = c](__m128i from_a, __m128i from_b, __m128i from_c) FL_AVX2 {
        return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, from_a), _mm_shuffle_epi8(b, from_b)),
                            _mm_shuffle_epi8(c, from_c));
    };
    return {{gather(_mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13)),
             gather(_mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14)),
             gather(_mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15))}};
}

template <Element kElement, bool kFlip>
FL_AVX2 std::size_t planes(const CastSpec& spec, const std::uint8_t* pixels, std::size_t width, std::uint8_t* out,
                           std::size_t plane) {
    if (width < 16) return 0;
    constexpr std::size_t kSize = kElement == Element::uint8 ? 1 : kElement == Element::float32 ? 4 : 2;
    __m256 scale[3], bias[3];
    for (int c = 0; c < 3; ++c) {
        scale[c] = _mm256_set1_ps(spec.scale[c]);
        bias[c] = _mm256_set1_ps(spec.bias[c]);
    }
    for (std::size_t x = 0;; x = x + 32 <= width ? x + 16 : width - 16) {  // the last 16 may overlap those before
        const auto split_pixels =
            split(kFlip ? mirrored(load48(pixels + 3 * (width - 16 - x))) : load48(pixels + 3 * x));
        for (int c = 0; c < 3; ++c) {
            const __m128i values = split_pixels.plane[c];
            std::uint8_t* to = out + (c * plane + x) * kSize;
            if constexpr (kElement == Element::uint8) {
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to), values);
            } else {
                put_eight<kElement>(values, scale[c], bias[c], to);
                put_eight<kElement>(_mm_srli_si128(values, 8), scale[c], bias[c], to + 8 * kSize);
            }
        }
        if (x + 16 == width) return width;
    }
}

}  // namespace

std::size_t cast_samples_avx2(const Cast::Pattern& pattern, const CastSpec& spec, const std::uint8_t* from,
                              std::size_t count, std::uint8_t* out) {
    const auto run = [&]<Element kElement>() {
        return spec.flip ? samples<kElement, true>(pattern, from, count, out)
                         : samples<kElement, false>(pattern, from, count, out);
    };
    switch (spec.element) {
        case Element::uint8: return run.operator()<Element::uint8>();
        case Element::float16: return run.operator()<Element::float16>();
        case Element::bfloat16: return run.operator()<Element::bfloat16>();
        default: return run.operator()<Element::float32>();
    }
}

std::size_t cast_planes_avx2(const CastSpec& spec, const std::uint8_t* pixels, std::size_t width, std::uint8_t* out,
                             std::size_t plane) {
    const auto run = [&]<Element kElement>() {
        return spec.flip ? planes<kElement, true>(spec, pixels, width, out, plane)
                         : planes<kElement, false>(spec, pixels, width, out, plane);
    };
    switch (spec.element) {
        case Element::uint8: return run.operator()<Element::uint8>();
        case Element::float16: return run.operator()<Element::float16>();
        case Element::bfloat16: return run.operator()<Element::bfloat16>();
        default: return run.operator()<Element::float32>();
    }
}

}  // namespace fl
#endif
