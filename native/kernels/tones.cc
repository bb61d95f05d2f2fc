#include "tones.h"

#include <cmath>
#include <numeric>

#include "luma.h"

#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // gcc 12 says it of its own AVX-512 headers
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace fl {
namespace {

template <class Make>
Tone tone_of(Make make) {
    Tone tone;
    for (std::uint32_t i = 0; i < 256; ++i) tone[i] = static_cast<std::uint8_t>(make(i));
    return tone;
}

using Histogram = std::array<std::uint64_t, 256>;

// Two sets of counters, as neighbouring samples are often the same and would wait for each other.
std::array<Histogram, 4> histograms(const Frame& frame, Bytes image) {
    std::array<Histogram, 4> counts{}, others{};
    std::size_t at = 0;
    const std::size_t channels = frame.channels;
    for (std::size_t i = 0; i < frame.pixels(); ++i) {
        auto& to = i & 1 ? others : counts;
        for (std::size_t c = 0; c < channels; ++c) ++to[c][image[at++]];
    }
    for (std::size_t c = 0; c < channels; ++c)
        for (std::size_t i = 0; i < 256; ++i) counts[c][i] += others[c][i];
    return counts;
}

Tone equalizing(const Histogram& counts) {
    const auto total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    std::uint64_t last = 0;
    for (const auto count : counts)
        if (count) last = count;
    const std::uint64_t step = (total - last) / 255;
    if (step == 0) return tone_of([](std::uint32_t i) { return i; });
    std::uint64_t sum = step / 2;
    return tone_of([&](std::uint32_t i) {
        const auto value = std::min<std::uint64_t>(sum / step, 255);
        sum += counts[i];
        return value;
    });
}

Tone stretching(const Histogram& counts) {
    int low = 0, high = 255;
    while (low < 255 && !counts[static_cast<std::size_t>(low)]) ++low;
    while (high > 0 && !counts[static_cast<std::size_t>(high)]) --high;
    if (high <= low) return tone_of([](std::uint32_t i) { return i; });
    const double scale = 255.0 / (high - low), offset = -low * scale;
    return tone_of([&](std::uint32_t i) {
        const double value = i * scale + offset;
        return value <= 0 ? 0 : value >= 255 ? 255 : static_cast<int>(value);
    });
}

#if defined(__x86_64__)
#define FL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

struct ToneTable {
    __m512i part[4];
};

FL_AVX512 inline ToneTable table_of(const Tone& tone) {
    ToneTable table;
    for (int i = 0; i < 4; ++i) table.part[i] = _mm512_loadu_si512(tone.data() + 64 * i);
    return table;
}

// A byte's lower seven bits pick from 128 entries in two registers, its upper bit which 128.
FL_AVX512 inline __m512i looked_up(const ToneTable& table, __m512i index) {
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index),
                                  _mm512_permutex2var_epi8(table.part[0], index, table.part[1]),
                                  _mm512_permutex2var_epi8(table.part[2], index, table.part[3]));
}

FL_AVX512 std::size_t apply_avx512(const Tone& tone, const std::uint8_t* from, std::size_t count, std::uint8_t* out) {
    const auto table = table_of(tone);
    std::size_t at = 0;
    for (; at + 64 <= count; at += 64)
        _mm512_storeu_si512(out + at, looked_up(table, _mm512_loadu_si512(from + at)));
    return at;
}

// Three channels: in 192 bytes the pattern of channels is a whole number of times.
FL_AVX512 std::size_t apply_three_avx512(const Tone* tones, const std::uint8_t* from, std::size_t count,
                                         std::uint8_t* out) {
    const ToneTable red = table_of(tones[0]), green = table_of(tones[1]), blue = table_of(tones[2]);
    std::uint64_t greens[3] = {}, blues[3] = {};
    for (std::size_t i = 0; i < 192; ++i) {
        if (i % 3 == 1) greens[i / 64] |= std::uint64_t{1} << (i % 64);
        if (i % 3 == 2) blues[i / 64] |= std::uint64_t{1} << (i % 64);
    }
    std::size_t at = 0;
    for (; at + 192 <= count; at += 192)
        for (std::size_t i = 0; i < 3; ++i) {
            const __m512i index = _mm512_loadu_si512(from + at + 64 * i);
            const __m512i two = _mm512_mask_blend_epi8(greens[i], looked_up(red, index), looked_up(green, index));
            _mm512_storeu_si512(out + at + 64 * i, _mm512_mask_blend_epi8(blues[i], two, looked_up(blue, index)));
        }
    return at;
}
#endif

template <class Make>
void by_channel(const Frame& frame, Bytes image, MutableBytes out, Simd level, Make make) {
    check_frame(frame, image.size(), "image");
    check_frame(frame, out.size(), "output");
    const auto counts = histograms(frame, image);
    std::array<Tone, 4> tones;
    for (std::size_t c = 0; c < frame.channels; ++c) tones[c] = make(counts[c]);
    std::size_t i = 0;
#if defined(__x86_64__)
    if (level == Simd::avx512 && frame.channels == 3)
        i = apply_three_avx512(tones.data(), image.data(), image.size(), out.data());
#endif
    (void)level;
    while (i < frame.size())
        for (std::size_t c = 0; c < frame.channels; ++c, ++i) out[i] = tones[c][image[i]];
}

}  // namespace

void check_factor(float factor) {
    if (!std::isfinite(factor)) throw Failure("argument", "a factor that is not finite");
}

Tone brightness_tone(float factor) { return contrast_tone(factor, 0); }

Tone contrast_tone(float factor, std::uint8_t mean) {
    check_factor(factor);
    return tone_of([&](std::uint32_t i) { return blended(mean, static_cast<std::uint8_t>(i), factor); });
}

Tone invert_tone() { return solarize_tone(0); }

Tone solarize_tone(std::uint32_t threshold) {
    return tone_of([&](std::uint32_t i) { return i < threshold ? i : 255 - i; });
}

Tone posterize_tone(std::uint32_t bits) {
    if (bits < 1 || bits > 8) throw Failure("argument", "posterize keeps 1 to 8 bits, not " + std::to_string(bits));
    return tone_of([&](std::uint32_t i) { return i & (0xff00u >> bits); });
}

void apply_tone(const Tone& tone, Bytes image, MutableBytes out, Simd level) {
    if (image.size() != out.size()) throw Failure("argument", "the output has another size than the image");
    std::size_t at = 0;
#if defined(__x86_64__)
    if (level == Simd::avx512) at = apply_avx512(tone, image.data(), image.size(), out.data());
#endif
    (void)level;
    for (; at < image.size(); ++at) out[at] = tone[image[at]];
}

std::uint8_t mean_luma(const Frame& frame, Bytes image) {
    check_frame(frame, image.size(), "image");
    if (frame.channels != 1) check_colour(frame);
    std::uint64_t sum = 0;
    if (frame.channels == 1)
        sum = std::accumulate(image.begin(), image.end(), std::uint64_t{0});
    else
        for (std::size_t i = 0; i < image.size(); i += 3) sum += luma(image[i], image[i + 1], image[i + 2]);
    const double mean = static_cast<double>(sum) / static_cast<double>(frame.pixels());
    return static_cast<std::uint8_t>(mean + 0.5);
}

void equalize(const Frame& frame, Bytes image, MutableBytes out, Simd level) {
    by_channel(frame, image, out, level, equalizing);
}

void autocontrast(const Frame& frame, Bytes image, MutableBytes out, Simd level) {
    by_channel(frame, image, out, level, stretching);
}

}  // namespace fl
