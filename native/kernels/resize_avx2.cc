#include "resize_passes.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

#define FL_AVX2 __attribute__((target("avx2")))

namespace fl {
namespace {

constexpr UnitShape kShape{4, 16, 2};

FL_AVX2 inline __m256i joined(__m256i high, __m256i low) {
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, kPairShift), low), kWeightBits);
}

FL_AVX2 inline __m256i twice(const std::uint32_t* from) {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(from)));
}

FL_AVX2 inline __m256i both(const std::uint8_t* one, const std::uint8_t* other) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(one))),
                                   _mm_loadu_si128(reinterpret_cast<const __m128i*>(other)), 1);
}

// Four rows, two a register, one in each half.
template <bool kSingle>
FL_AVX2 void across_rows(const UnitView& view, const std::uint8_t* const* from, std::uint8_t* const* to) {
    const std::uint32_t* window = view.windows;
    const std::uint32_t* table = view.tables;
    for (const auto& unit : view.units) {
        __m256i high01 = _mm256_setzero_si256(), high23 = high01;
        __m256i low01 = _mm256_set1_epi32(1 << (kWeightBits - 1)), low23 = low01;
        for (std::uint32_t k = 0; k < (kSingle ? 1 : unit.chunks); ++k, ++window, table += kShape.table_size()) {
            const __m256i indices = twice(table), highs = twice(table + 4), lows = twice(table + 8);
            const __m256i a = _mm256_shuffle_epi8(both(from[0] + *window, from[1] + *window), indices);
            const __m256i b = _mm256_shuffle_epi8(both(from[2] + *window, from[3] + *window), indices);
            high01 = _mm256_add_epi32(high01, _mm256_madd_epi16(a, highs));
            low01 = _mm256_add_epi32(low01, _mm256_madd_epi16(a, lows));
            high23 = _mm256_add_epi32(high23, _mm256_madd_epi16(b, highs));
            low23 = _mm256_add_epi32(low23, _mm256_madd_epi16(b, lows));
        }
        const __m256i words = _mm256_packs_epi32(joined(high01, low01), joined(high23, low23));
        const __m256i bytes = _mm256_packus_epi16(words, words);  // rows 0 and 2, then rows 1 and 3
        const __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
        store(to[0] + unit.out, _mm_cvtsi128_si32(even));
        store(to[1] + unit.out, _mm_cvtsi128_si32(odd));
        store(to[2] + unit.out, _mm_extract_epi32(even, 1));
        store(to[3] + unit.out, _mm_extract_epi32(odd, 1));
    }
}

void across(const UnitView& view, bool single, const std::uint8_t* const* rows, std::uint8_t* const* out,
            std::uint32_t count) {
    const std::uint8_t* from[kRowsAtOnce];
    std::uint8_t* to[kRowsAtOnce];
    for (std::uint32_t i = 0; i < kRowsAtOnce; ++i) {  // a row that is not there is the last one once more
        from[i] = rows[std::min(i, count - 1)];
        to[i] = out[std::min(i, count - 1)];
    }
    single ? across_rows<true>(view, from, to) : across_rows<false>(view, from, to);
}

constexpr std::size_t kBlock = 32;
constexpr std::uint32_t kPairs = 8;  // how many pairs of taps have their digits in registers or the nearest cache

struct DownDigits {
    __m256i high[kPairs], low[kPairs];
};

// Adds `count` taps to the sums of 32 bytes, eight a register in the order that unpacking makes.
FL_AVX2 inline void add_taps(const std::uint8_t* const* rows, const DownDigits& digits, std::uint32_t count,
                             std::size_t at, __m256i (&high)[4], __m256i (&low)[4]) {
    const __m256i zero = _mm256_setzero_si256();
    for (std::uint32_t k = 0; k < count; k += 2) {
        const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + at));
        const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[std::min(k + 1, count - 1)] + at));
        const __m256i ab[2] = {_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)};
        for (int i = 0; i < 4; ++i) {
            const __m256i pairs =
                i & 1 ? _mm256_unpackhi_epi8(ab[i / 2], zero) : _mm256_unpacklo_epi8(ab[i / 2], zero);
            high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(pairs, digits.high[k / 2]));
            low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(pairs, digits.low[k / 2]));
        }
    }
}

FL_AVX2 inline DownDigits down_digits(const std::int32_t* weights, std::uint32_t count) {
    DownDigits digits;
    for (std::uint32_t k = 0; k < kPairs; ++k) {
        const auto cut = 2 * k < count ? cut_pair(weights + 2 * k, count - 2 * k) : PairDigits{};
        digits.high[k] = _mm256_set1_epi32(static_cast<int>(cut.high));
        digits.low[k] = _mm256_set1_epi32(static_cast<int>(cut.low));
    }
    return digits;
}

// Packing undoes the order that unpacking made.
FL_AVX2 inline __m256i packed(const __m256i (&high)[4], const __m256i (&low)[4]) {
    return _mm256_packus_epi16(_mm256_packs_epi32(joined(high[0], low[0]), joined(high[1], low[1])),
                               _mm256_packs_epi32(joined(high[2], low[2]), joined(high[3], low[3])));
}

FL_AVX2 inline __m256i down_block(const std::uint8_t* const* rows, const std::int32_t* weights,
                                  const DownDigits& first, std::uint32_t count, std::size_t at) {
    __m256i high[4], low[4];
    for (int i = 0; i < 4; ++i) {
        high[i] = _mm256_setzero_si256();
        low[i] = _mm256_set1_epi32(1 << (kWeightBits - 1));
    }
    add_taps(rows, first, std::min(count, 2 * kPairs), at, high, low);
    for (std::uint32_t k = 2 * kPairs; k < count; k += 2 * kPairs)
        add_taps(rows + k, down_digits(weights + k, count - k), std::min(count - k, 2 * kPairs), at, high, low);
    return packed(high, low);
}

FL_AVX2 void down(const std::uint8_t* const* rows, const std::int32_t* weights, std::uint32_t count, std::uint8_t* out,
                  std::size_t size) {
    const auto first = down_digits(weights, count);
    if (size < kBlock) {
        alignas(kBlock) std::uint8_t block[kBlock];
        _mm256_store_si256(reinterpret_cast<__m256i*>(block), down_block(rows, weights, first, count, 0));
        std::memcpy(out, block, size);
        return;
    }
    for (std::size_t at = 0;; at = std::min(at + kBlock, size - kBlock)) {  // the last block may overlap the one before
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), down_block(rows, weights, first, count, at));
        if (at == size - kBlock) return;
    }
}

constexpr AcrossPass kAcross[] = {{kShape, across}};

}  // namespace

const ResizePasses kAvx2Passes{kAcross, nullptr, down, kBlock};

}  // namespace fl
#endif
