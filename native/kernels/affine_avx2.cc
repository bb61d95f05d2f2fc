#include "affine.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>

#define FL_AVX2 __attribute__((target("avx2")))

namespace fl {
namespace {

// A pixel's channels as doubles. Three of them are read with the byte behind, or with the one before at the very end.
template <std::uint32_t kChannels>
FL_AVX2 inline __m256d pixel(const std::uint8_t* at, const std::uint8_t* end) {
    const bool over = kChannels == 3 && at + 4 > end;
    const auto bytes = over ? load<std::uint32_t>(at - 1) >> 8 : load<std::uint32_t>(at);
    return _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(static_cast<int>(bytes))));
}

FL_AVX2 inline __m256d mixed(__m256d from, __m256d to, __m256d share) {
    return _mm256_add_pd(from, _mm256_mul_pd(_mm256_sub_pd(to, from), share));
}

// Where four output pixels lie in one direction of the source.
struct FourPlaces {
    alignas(16) std::int32_t one[4], two[4];
    alignas(32) double share[4];
};

FL_AVX2 inline __m256d inside(__m256d at, std::uint32_t side) {
    return _mm256_and_pd(_mm256_cmp_pd(at, _mm256_setzero_pd(), _CMP_GE_OQ),
                         _mm256_cmp_pd(at, _mm256_set1_pd(side), _CMP_LT_OQ));
}

FL_AVX2 inline void place(__m256d at, std::uint32_t side, FourPlaces& places) {
    const __m256d middle = _mm256_sub_pd(at, _mm256_set1_pd(0.5)), first = _mm256_floor_pd(middle);
    const __m128i one = _mm256_cvttpd_epi32(first);
    const __m128i two = _mm_min_epi32(_mm_add_epi32(one, _mm_set1_epi32(1)), _mm_set1_epi32(static_cast<int>(side) - 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(places.one), _mm_max_epi32(one, _mm_setzero_si128()));
    _mm_store_si128(reinterpret_cast<__m128i*>(places.two), two);
    _mm256_store_pd(places.share, _mm256_sub_pd(middle, first));
}

template <std::uint32_t kChannels>
FL_AVX2 void run(const Frame& frame, const std::uint8_t* image, const Matrix& m, const Fill& fill, const Frame& to,
                 std::uint8_t* out) {
    const std::uint8_t* const end = image + frame.size();
    std::uint8_t* const out_end = out + to.size();
    const __m256d halves = _mm256_setr_pd(0.5, 1.5, 2.5, 3.5);
    const __m128i low_bytes = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    FourPlaces across, down;
    for (std::uint32_t y = 0; y < to.height; ++y) {
        const double down_x = m[1] * (y + 0.5), down_y = m[4] * (y + 0.5);
        for (std::uint32_t x = 0; x < to.width; x += 4) {
            const __m256d middle = _mm256_add_pd(_mm256_set1_pd(x), halves);
            const auto map = [&](double right, double below, double shift) FL_AVX2 {
                return _mm256_add_pd(_mm256_add_pd(_mm256_mul_pd(_mm256_set1_pd(right), middle), _mm256_set1_pd(below)),
                                     _mm256_set1_pd(shift));
            };
            const __m256d at_x = map(m[0], down_x, m[2]), at_y = map(m[3], down_y, m[5]);
            const int shown = _mm256_movemask_pd(_mm256_and_pd(inside(at_x, frame.width), inside(at_y, frame.height)));
            place(at_x, frame.width, across);
            place(at_y, frame.height, down);
            for (std::uint32_t i = 0; i < std::min(to.width - x, 4u); ++i, out += kChannels) {
                std::uint32_t result = load<std::uint32_t>(fill.data());
                if (shown >> i & 1) {
                    const std::uint8_t* upper = image + static_cast<std::size_t>(down.one[i]) * frame.row();
                    const std::uint8_t* lower = image + static_cast<std::size_t>(down.two[i]) * frame.row();
                    const std::size_t one = static_cast<std::size_t>(across.one[i]) * kChannels,
                                      two = static_cast<std::size_t>(across.two[i]) * kChannels;
                    const __m256d share = _mm256_set1_pd(across.share[i]);
                    const __m256d above = mixed(pixel<kChannels>(upper + one, end), pixel<kChannels>(upper + two, end), share);
                    const __m256d below = mixed(pixel<kChannels>(lower + one, end), pixel<kChannels>(lower + two, end), share);
                    const __m128i sums = _mm256_cvttpd_epi32(mixed(above, below, _mm256_set1_pd(down.share[i])));
                    result = static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_shuffle_epi8(sums, low_bytes)));
                }
                // The byte too many of three channels is overwritten by the next pixel; the last one has no next.
                std::memcpy(out, &result, kChannels == 4 || out + 4 <= out_end ? 4 : 3);
            }
        }
    }
}

}  // namespace

void bilinear_avx2(const Frame& frame, const std::uint8_t* image, const Matrix& matrix, const Fill& fill,
                   const Frame& to, std::uint8_t* out) {
    frame.channels == 3 ? run<3>(frame, image, matrix, fill, to, out) : run<4>(frame, image, matrix, fill, to, out);
}

}  // namespace fl
#endif
