// Bytes of pixels are multiplied as they are, four taps at a time, or as pairs of 16 bits where there are two taps.
// With one chunk of taps the sum of the high digits is shifted and goes on as the sum of the next ones.
#include "resize_passes.h"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // gcc 12 says it of its own AVX-512 headers
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <algorithm>

#define FL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))

namespace fl {
namespace {

constexpr UnitShape kPairShape{16, 64, 2};
constexpr UnitShape kQuadShape{16, 64, 4};
constexpr int kHalf = 1 << (kWeightBits - 1);

FL_AVX512 inline __m512i joined(__m512i high, __m512i middle, __m512i low) {
    const __m512i upper = _mm512_add_epi32(_mm512_slli_epi32(high, kQuadShift), middle);
    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(upper, kQuadShift), low), kWeightBits);
}

FL_AVX512 inline __m512i quad_sum(__m512i bytes, __m512i highs, __m512i middles, __m512i lows) {
    __m512i sum = _mm512_dpbusd_epi32(_mm512_set1_epi32(kHalf >> (2 * kQuadShift)), bytes, highs);
    sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, kQuadShift), bytes, middles);
    sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, kQuadShift), bytes, lows);
    return _mm512_srai_epi32(sum, kWeightBits);
}

FL_AVX512 inline __m512i pair_sum(__m512i words, __m512i highs, __m512i lows) {
    const __m512i sum = _mm512_dpwssd_epi32(_mm512_set1_epi32(kHalf >> kPairShift), words, highs);
    return _mm512_srai_epi32(_mm512_dpwssd_epi32(_mm512_slli_epi32(sum, kPairShift), words, lows), kWeightBits);
}

// 16 sums of each of four rows, as bytes, to their places.
FL_AVX512 inline void put(const __m512i (&sums)[4], std::uint8_t* const* out, std::size_t at) {
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_packs_epi32(sums[0], sums[1]), _mm512_packs_epi32(sums[2], sums[3]));
    const __m512i rows = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out[0] + at), _mm512_castsi512_si128(rows));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out[1] + at), _mm512_extracti32x4_epi32(rows, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out[2] + at), _mm512_extracti32x4_epi32(rows, 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out[3] + at), _mm512_extracti32x4_epi32(rows, 3));
}

struct FourRows {  // a row that is not there is the last one once more
    FourRows(const std::uint8_t* const* rows, std::uint8_t* const* out, std::uint32_t count) {
        for (std::uint32_t i = 0; i < kRowsAtOnce; ++i) {
            from[i] = rows[std::min(i, count - 1)];
            to[i] = out[std::min(i, count - 1)];
        }
    }
    const std::uint8_t* from[kRowsAtOnce];
    std::uint8_t* to[kRowsAtOnce];
};

FL_AVX512 void across_pairs(const UnitView& view, bool, const std::uint8_t* const* rows, std::uint8_t* const* out,
                            std::uint32_t count) {
    const FourRows four(rows, out, count);
    const std::uint32_t* window = view.windows;
    const std::uint32_t* table = view.tables;
    for (const auto& unit : view.units) {
        const __m512i indices = _mm512_load_si512(table), highs = _mm512_load_si512(table + 16),
                      lows = _mm512_load_si512(table + 32);
        __m512i sums[4];
        for (int r = 0; r < 4; ++r) {
            const __m512i words = _mm512_maskz_permutexvar_epi8(0x5555555555555555u, indices,
                                                                _mm512_loadu_si512(four.from[r] + *window));
            sums[r] = pair_sum(words, highs, lows);
        }
        put(sums, four.to, unit.out);
        ++window;
        table += kPairShape.table_size();
    }
}

template <bool kSingle>
FL_AVX512 void across_quads(const UnitView& view, const FourRows& four) {
    const std::uint32_t* window = view.windows;
    const std::uint32_t* table = view.tables;
    for (const auto& unit : view.units) {
        __m512i high[4], middle[4], low[4], sums[4];
        for (int r = 0; r < 4; ++r) {
            high[r] = middle[r] = _mm512_setzero_si512();
            low[r] = _mm512_set1_epi32(kHalf);
        }
        for (std::uint32_t k = 0; k < (kSingle ? 1 : unit.chunks); ++k, ++window, table += kQuadShape.table_size()) {
            const __m512i indices = _mm512_load_si512(table), highs = _mm512_load_si512(table + 16),
                          middles = _mm512_load_si512(table + 32), lows = _mm512_load_si512(table + 48);
            for (int r = 0; r < 4; ++r) {
                const __m512i bytes = _mm512_permutexvar_epi8(indices, _mm512_loadu_si512(four.from[r] + *window));
                if constexpr (kSingle) {
                    sums[r] = quad_sum(bytes, highs, middles, lows);
                } else {
                    high[r] = _mm512_dpbusd_epi32(high[r], bytes, highs);
                    middle[r] = _mm512_dpbusd_epi32(middle[r], bytes, middles);
                    low[r] = _mm512_dpbusd_epi32(low[r], bytes, lows);
                }
            }
        }
        if constexpr (!kSingle)
            for (int r = 0; r < 4; ++r) sums[r] = joined(high[r], middle[r], low[r]);
        put(sums, four.to, unit.out);
    }
}

void across(const UnitView& view, bool single, const std::uint8_t* const* rows, std::uint8_t* const* out,
            std::uint32_t count) {
    const FourRows four(rows, out, count);
    single ? across_quads<true>(view, four) : across_quads<false>(view, four);
}

constexpr std::size_t kBlock = 64;

// Packing undoes the order that unpacking made.
FL_AVX512 inline __m512i packed(const __m512i (&sums)[4]) {
    return _mm512_packus_epi16(_mm512_packs_epi32(sums[0], sums[1]), _mm512_packs_epi32(sums[2], sums[3]));
}

struct Broadcast {
    __m512i high, middle, low;
};

FL_AVX512 inline Broadcast broadcast(const QuadDigits& digits) {
    return {_mm512_set1_epi32(static_cast<int>(digits.high)), _mm512_set1_epi32(static_cast<int>(digits.middle)),
            _mm512_set1_epi32(static_cast<int>(digits.low))};
}

// The bytes of four rows beside each other, four columns' worth in each of four registers.
FL_AVX512 inline void interleaved(const std::uint8_t* const* rows, std::uint32_t count, std::size_t at,
                                  __m512i (&quads)[4]) {
    __m512i row[4];
    for (std::uint32_t i = 0; i < 4; ++i) row[i] = _mm512_loadu_si512(rows[std::min(i, count - 1)] + at);
    const __m512i ab[2] = {_mm512_unpacklo_epi8(row[0], row[1]), _mm512_unpackhi_epi8(row[0], row[1])};
    const __m512i cd[2] = {_mm512_unpacklo_epi8(row[2], row[3]), _mm512_unpackhi_epi8(row[2], row[3])};
    for (int i = 0; i < 2; ++i) {
        quads[2 * i] = _mm512_unpacklo_epi16(ab[i], cd[i]);
        quads[2 * i + 1] = _mm512_unpackhi_epi16(ab[i], cd[i]);
    }
}

FL_AVX512 inline __m512i down_two(const std::uint8_t* const* rows, __m512i highs, __m512i lows, std::size_t at) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i a = _mm512_loadu_si512(rows[0] + at), b = _mm512_loadu_si512(rows[1] + at);
    const __m512i ab[2] = {_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b)};
    __m512i sums[4];
    for (int i = 0; i < 2; ++i) {
        sums[2 * i] = pair_sum(_mm512_unpacklo_epi8(ab[i], zero), highs, lows);
        sums[2 * i + 1] = pair_sum(_mm512_unpackhi_epi8(ab[i], zero), highs, lows);
    }
    return packed(sums);
}

FL_AVX512 inline __m512i down_four(const std::uint8_t* const* rows, std::uint32_t count, const Broadcast& digits,
                                   std::size_t at) {
    __m512i quads[4], sums[4];
    interleaved(rows, count, at, quads);
    for (int i = 0; i < 4; ++i) sums[i] = quad_sum(quads[i], digits.high, digits.middle, digits.low);
    return packed(sums);
}

FL_AVX512 inline __m512i down_many(const std::uint8_t* const* rows, const QuadDigits* cut, std::uint32_t count,
                                   std::size_t at) {
    __m512i high[4], middle[4], low[4], sums[4];
    for (int i = 0; i < 4; ++i) {
        high[i] = middle[i] = _mm512_setzero_si512();
        low[i] = _mm512_set1_epi32(kHalf);
    }
    for (std::uint32_t k = 0; k < count; k += 4) {
        const auto digits = broadcast(cut[k / 4]);
        __m512i quads[4];
        interleaved(rows + k, count - k, at, quads);
        for (int i = 0; i < 4; ++i) {
            high[i] = _mm512_dpbusd_epi32(high[i], quads[i], digits.high);
            middle[i] = _mm512_dpbusd_epi32(middle[i], quads[i], digits.middle);
            low[i] = _mm512_dpbusd_epi32(low[i], quads[i], digits.low);
        }
    }
    for (int i = 0; i < 4; ++i) sums[i] = joined(high[i], middle[i], low[i]);
    return packed(sums);
}

template <class Block>
FL_AVX512 inline void each_block(std::uint8_t* out, std::size_t size, Block block) {
    if (size < kBlock) {
        alignas(kBlock) std::uint8_t bytes[kBlock];
        _mm512_store_si512(bytes, block(0));
        std::memcpy(out, bytes, size);
        return;
    }
    for (std::size_t at = 0;; at = std::min(at + kBlock, size - kBlock)) {  // the last block may overlap the one before
        _mm512_storeu_si512(out + at, block(at));
        if (at == size - kBlock) return;
    }
}

FL_AVX512 void down(const std::uint8_t* const* rows, const std::int32_t* weights, std::uint32_t count,
                    std::uint8_t* out, std::size_t size) {
    if (count == 2) {
        const auto cut = cut_pair(weights, 2);
        const __m512i highs = _mm512_set1_epi32(static_cast<int>(cut.high)),
                      lows = _mm512_set1_epi32(static_cast<int>(cut.low));
        each_block(out, size, [&](std::size_t at) FL_AVX512 { return down_two(rows, highs, lows, at); });
    } else if (count <= 4) {
        const auto digits = broadcast(cut_quad(weights, count));
        each_block(out, size, [&](std::size_t at) FL_AVX512 { return down_four(rows, count, digits, at); });
    } else {
        QuadDigits few[16];
        std::vector<QuadDigits> many(count > 64 ? (count + 3) / 4 : 0);
        QuadDigits* cut = count > 64 ? many.data() : few;
        for (std::uint32_t k = 0; k < count; k += 4) cut[k / 4] = cut_quad(weights + k, count - k);
        each_block(out, size, [&](std::size_t at) FL_AVX512 { return down_many(rows, cut, count, at); });
    }
}

constexpr AcrossPass kAcross[] = {{kPairShape, across_pairs}, {kQuadShape, across}};

}  // namespace

const ResizePasses kAvx512Passes{kAcross, nullptr, down, kBlock};

}  // namespace fl
#endif
