#include "crc32c.h"

#include <algorithm>
#include <array>
#include <vector>

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // gcc 12 says it of its own AVX-512 headers
#include <immintrin.h>
#pragma GCC diagnostic pop
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace fl {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
    Tables t{};
    for (std::uint32_t n = 0; n < 256; ++n) {
        std::uint32_t c = n;
        for (int k = 0; k < 8; ++k) c = (c >> 1) ^ ((c & 1) ? kPolynomial : 0);
        t[0][n] = c;
    }
    for (std::size_t k = 1; k < 8; ++k)
        for (std::size_t n = 0; n < 256; ++n) t[k][n] = (t[k - 1][n] >> 8) ^ t[0][t[k - 1][n] & 0xff];
    return t;
}

constexpr Tables kTables = make_tables();

// Eight bytes a step through tables; runs anywhere.
template <bool kCopy>
std::uint32_t run_portable(std::uint8_t* dst, const std::uint8_t* src, std::size_t size, std::uint32_t crc, Upcoming*) {
    std::uint32_t c = ~crc;
    while (size >= 8) {
        const auto word = load<std::uint64_t>(src);
        if constexpr (kCopy) store(dst, word);
        const std::uint64_t x = word ^ c;
        c = kTables[7][x & 0xff] ^ kTables[6][(x >> 8) & 0xff] ^ kTables[5][(x >> 16) & 0xff] ^
            kTables[4][(x >> 24) & 0xff] ^ kTables[3][(x >> 32) & 0xff] ^ kTables[2][(x >> 40) & 0xff] ^
            kTables[1][(x >> 48) & 0xff] ^ kTables[0][x >> 56];
        src += 8;
        if constexpr (kCopy) dst += 8;
        size -= 8;
    }
    for (; size; --size, ++src) {
        if constexpr (kCopy) *dst++ = *src;
        c = (c >> 8) ^ kTables[0][(c ^ *src) & 0xff];
    }
    return ~c;
}

#if defined(__x86_64__) || defined(__aarch64__)

// The CRC instruction takes one word a cycle but answers three cycles later, so three runs go side by side and are
// joined after. Joining needs "this CRC, followed by kRun zero bytes", a linear map kept as four tables of 256.
using Shift = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr std::uint32_t times(const std::array<std::uint32_t, 32>& matrix, std::uint32_t vector) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; vector; vector >>= 1, ++i)
        if (vector & 1) sum ^= matrix[i];
    return sum;
}

constexpr Shift make_shift(std::size_t zero_bytes) {
    std::array<std::uint32_t, 32> step{};  // one zero bit
    step[0] = kPolynomial;
    for (std::size_t i = 1; i < 32; ++i) step[i] = 1u << (i - 1);
    std::array<std::uint32_t, 32> total{};  // the identity
    for (std::size_t i = 0; i < 32; ++i) total[i] = 1u << i;
    for (std::size_t bits = zero_bytes * 8; bits; bits >>= 1) {
        if (bits & 1)
            for (auto& column : total) column = times(step, column);
        std::array<std::uint32_t, 32> squared{};
        for (std::size_t i = 0; i < 32; ++i) squared[i] = times(step, step[i]);
        step = squared;
    }
    Shift shift{};
    for (std::size_t byte = 0; byte < 4; ++byte)
        for (std::uint32_t value = 0; value < 256; ++value) shift[byte][value] = times(total, value << (8 * byte));
    return shift;
}

constexpr std::size_t kLong = 1024;
constexpr std::size_t kShort = 128;
constexpr Shift kShiftLong = make_shift(kLong);
constexpr Shift kShiftShort = make_shift(kShort);

inline std::uint32_t apply(const Shift& shift, std::uint32_t crc) {
    return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^ shift[3][crc >> 24];
}

#if defined(__x86_64__)
#define FL_CRC_TARGET __attribute__((target("sse4.2")))
#define FL_CRC64(c, x) static_cast<std::uint32_t>(_mm_crc32_u64((c), (x)))
#define FL_CRC8(c, x) _mm_crc32_u8((c), (x))
#else
#define FL_CRC_TARGET __attribute__((target("+crc")))
#define FL_CRC64(c, x) __crc32cd((c), (x))
#define FL_CRC8(c, x) __crc32cb((c), (x))
#endif

template <bool kCopy, std::size_t kRun>
FL_CRC_TARGET inline std::uint32_t three_runs(std::uint8_t* dst, const std::uint8_t* src, std::uint32_t a,
                                              const Shift& shift) {
    std::uint32_t b = 0, c = 0;
    for (std::size_t i = 0; i < kRun; i += 8) {
        const auto x = load<std::uint64_t>(src + i);
        const auto y = load<std::uint64_t>(src + kRun + i);
        const auto z = load<std::uint64_t>(src + 2 * kRun + i);
        if constexpr (kCopy) {
            store(dst + i, x);
            store(dst + kRun + i, y);
            store(dst + 2 * kRun + i, z);
        }
        a = FL_CRC64(a, x);
        b = FL_CRC64(b, y);
        c = FL_CRC64(c, z);
    }
    return apply(shift, apply(shift, a) ^ b) ^ c;
}

template <bool kCopy>
FL_CRC_TARGET std::uint32_t run_hardware(std::uint8_t* dst, const std::uint8_t* src, std::size_t size,
                                         std::uint32_t crc, Upcoming* next) {
    std::uint32_t c = ~crc;
    const auto advance = [&](std::size_t by) {
        src += by;
        if constexpr (kCopy) dst += by;
        size -= by;
    };
    while (size >= 3 * kLong) {
        if (kCopy && next) next->load(3 * kLong);
        c = three_runs<kCopy, kLong>(dst, src, c, kShiftLong);
        advance(3 * kLong);
    }
    while (size >= 3 * kShort) {
        if (kCopy && next) next->load(3 * kShort);
        c = three_runs<kCopy, kShort>(dst, src, c, kShiftShort);
        advance(3 * kShort);
    }
    while (size >= 8) {
        const auto word = load<std::uint64_t>(src);
        if constexpr (kCopy) store(dst, word);
        c = FL_CRC64(c, word);
        advance(8);
    }
    while (size) {
        if constexpr (kCopy) *dst = *src;
        c = FL_CRC8(c, *src);
        advance(1);
    }
    return ~c;
}

#if defined(__x86_64__)

// x^bits mod the polynomial, reflected, one place up: what a carry-less product is multiplied by to move it `bits`
// further from the end of the message.
constexpr std::uint64_t fold_constant(unsigned bits) {
    std::uint32_t r = 0x80000000u;
    for (; bits; --bits) r = (r >> 1) ^ ((r & 1) ? kPolynomial : 0);
    return std::uint64_t{r} << 1;
}

#define FL_FOLD_TARGET __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

// Each 128-bit lane moved `kDistance` bytes on: the low half is 64 bits further from the end than the high half.
template <unsigned kDistance>
FL_FOLD_TARGET inline __m512i fold(__m512i x, __m512i next) {
    const auto constants = _mm512_broadcast_i32x4(
        _mm_set_epi64x(static_cast<long long>(fold_constant(kDistance * 8 - 32)),
                       static_cast<long long>(fold_constant(kDistance * 8 + 32))));
    const auto low = _mm512_clmulepi64_epi128(x, constants, 0x00);
    const auto high = _mm512_clmulepi64_epi128(x, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

// Folds 256 bytes a step, 64 at a time side by side, then leaves the last 64 and the tail to the CRC instruction.
template <bool kCopy>
FL_FOLD_TARGET std::uint32_t run_folding(std::uint8_t* dst, const std::uint8_t* src, std::size_t size,
                                         std::uint32_t crc, Upcoming* next) {
    if (size < 512) return run_hardware<kCopy>(dst, src, size, crc, next);
    const auto take = [&](std::size_t at) FL_FOLD_TARGET {
        const auto x = _mm512_loadu_si512(src + at);
        if constexpr (kCopy) _mm512_storeu_si512(dst + at, x);
        return x;
    };
    auto a = _mm512_xor_si512(take(0), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~crc))));
    auto b = take(64), c = take(128), d = take(192);
    if (kCopy && next) next->load(256);
    std::size_t at = 256;
    for (; at + 256 <= size; at += 256) {
        if (kCopy && next) next->load(256);
        a = fold<256>(a, take(at));
        b = fold<256>(b, take(at + 64));
        c = fold<256>(c, take(at + 128));
        d = fold<256>(d, take(at + 192));
    }
    d = fold<64>(fold<64>(fold<64>(a, b), c), d);
    alignas(64) std::uint64_t words[8];
    _mm512_store_si512(words, d);
    std::uint64_t state = 0;
    for (const auto word : words) state = _mm_crc32_u64(state, word);
    _mm256_zeroupper();  // gcc 12 leaves it out before a tail call, and SSE code is three times as slow without it
    return run_hardware<kCopy>(kCopy ? dst + at : nullptr, src + at, size - at, ~static_cast<std::uint32_t>(state), nullptr);
}

bool has_folding() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("sse4.2");
}

#endif

bool has_hardware() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
#else
    return (getauxval(AT_HWCAP) & (1ul << 7)) != 0;  // HWCAP_CRC32
#endif
}

#endif  // a CPU family with a CRC instruction

template <bool kCopy>
std::uint32_t (*pick())(std::uint8_t*, const std::uint8_t*, std::size_t, std::uint32_t, Upcoming*) {
#if defined(__x86_64__)
    if (has_folding()) return run_folding<kCopy>;
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    if (has_hardware()) return run_hardware<kCopy>;
#endif
    return run_portable<kCopy>;
}

const auto g_plain = pick<false>();
const auto g_copy = pick<true>();

}  // namespace

std::uint32_t crc32c(Bytes data, std::uint32_t crc) { return g_plain(nullptr, data.data(), data.size(), crc, nullptr); }

std::uint32_t copy_crc32c(std::uint8_t* dst, Bytes src, std::uint32_t crc, Upcoming* next) {
    return g_copy(dst, src.data(), src.size(), crc, next);
}

std::span<const Crc32cVariant> crc32c_variants() {
    static const std::vector<Crc32cVariant> variants = [] {
        std::vector<Crc32cVariant> found;
#if defined(__x86_64__)
        if (has_folding()) found.push_back({"folding", run_folding<true>});
#endif
#if defined(__x86_64__) || defined(__aarch64__)
        if (has_hardware()) found.push_back({"hardware", run_hardware<true>});
#endif
        found.push_back({"portable", run_portable<true>});
        return found;
    }();
    return variants;
}

}  // namespace fl
