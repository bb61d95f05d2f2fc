#include "colour.h"

#include <algorithm>
#include <bit>

#include "luma.h"
#include "plain_loops.h"
#include "tones.h"


namespace fl {
namespace {

constexpr std::size_t kBlock = 128;

struct Planes {
    alignas(64) std::uint8_t red[kBlock], green[kBlock], blue[kBlock];
};

FL_INLINE void split(const std::uint8_t* from, std::size_t count, Planes& planes) {
    for (std::size_t i = 0; i < count; ++i) {
        planes.red[i] = from[3 * i];
        planes.green[i] = from[3 * i + 1];
        planes.blue[i] = from[3 * i + 2];
    }
}

FL_INLINE void merge(const Planes& planes, std::size_t count, std::uint8_t* out) {
    for (std::size_t i = 0; i < count; ++i) {
        out[3 * i] = planes.red[i];
        out[3 * i + 1] = planes.green[i];
        out[3 * i + 2] = planes.blue[i];
    }
}

FL_INLINE void luma_of(const Planes& planes, std::uint8_t* out) {
    for (std::size_t i = 0; i < kBlock; ++i)
        out[i] = static_cast<std::uint8_t>(luma(planes.red[i], planes.green[i], planes.blue[i]));
}

FL_INLINE void blend(const std::uint8_t* from, std::uint8_t* to, float factor) {
    for (std::size_t i = 0; i < kBlock; ++i) {
        const float value = static_cast<float>(from[i]) + factor * static_cast<float>(to[i] - from[i]);
        to[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(std::max(value, 0.0f), 255.0f)));
    }
}

// A choice without a branch: a loop with branches does not become SIMD.
FL_INLINE std::int32_t choose(bool condition, std::int32_t yes, std::int32_t no) {
    const std::int32_t mask = -static_cast<std::int32_t>(condition);
    return (yes & mask) | (no & ~mask);
}

// By value: a reference to one of two is a branch as well.
FL_INLINE std::int32_t larger(std::int32_t one, std::int32_t other) { return one > other ? one : other; }
FL_INLINE std::int32_t smaller(std::int32_t one, std::int32_t other) { return one < other ? one : other; }

// Pillow's conversion to HSV and back, with its mixture of float and double. The two halves are loops of their own, as
// each uses all registers.
struct Hsv {
    alignas(64) std::int32_t hue[kBlock], saturation[kBlock], value[kBlock];
};

FL_INLINE void to_hsv(const Planes& planes, Hsv& hsv) {
    alignas(64) std::uint8_t high[kBlock], low[kBlock];
    for (std::size_t i = 0; i < kBlock; ++i) {  // apart from what follows, where the compiler would branch on it
        const std::int32_t r = planes.red[i], g = planes.green[i], b = planes.blue[i];
        high[i] = static_cast<std::uint8_t>(larger(r, larger(g, b)));
        low[i] = static_cast<std::uint8_t>(smaller(r, smaller(g, b)));
    }
    for (std::size_t i = 0; i < kBlock; ++i) {
        const std::int32_t r = planes.red[i], g = planes.green[i], b = planes.blue[i], most = high[i];
        const auto range = static_cast<float>(most - low[i]), safe = static_cast<float>(larger(most - low[i], 1));
        const float rc = static_cast<float>(most - r) / safe, gc = static_cast<float>(most - g) / safe,
                    bc = static_cast<float>(most - b) / safe;
        const float share = range / static_cast<float>(larger(most, 1));
        const float first = bc - gc;
        const auto second = static_cast<float>(2.0 + static_cast<double>(rc) - static_cast<double>(bc));
        const auto third = static_cast<float>(4.0 + static_cast<double>(gc) - static_cast<double>(rc));
        const std::int32_t sector = choose(r == most, std::bit_cast<std::int32_t>(first),
                                           choose(g == most, std::bit_cast<std::int32_t>(second),
                                                  std::bit_cast<std::int32_t>(third)));
        const double around = static_cast<double>(std::bit_cast<float>(sector)) / 6.0 + 1.0;
        const auto turned = static_cast<float>(around - static_cast<double>(static_cast<std::int32_t>(around)));
        hsv.hue[i] = static_cast<std::int32_t>(static_cast<double>(turned) * 255.0);
        hsv.saturation[i] = static_cast<std::int32_t>(static_cast<double>(share) * 255.0);
        hsv.value[i] = most;
    }
}

FL_INLINE void from_hsv(const Hsv& hsv, std::uint8_t shift, Planes& planes) {
    const auto rounded = [](double x) { return static_cast<std::int32_t>(x + 0.5); };
    for (std::size_t i = 0; i < kBlock; ++i) {
        const std::int32_t s = hsv.saturation[i], v = hsv.value[i];
        const double six = static_cast<float>((hsv.hue[i] + shift) & 0xff) * 6.0 / 255.0;
        const auto side = static_cast<std::int32_t>(six);  // 0 to 6
        const auto rest = static_cast<float>(six - static_cast<double>(side));
        const auto fs = static_cast<float>(static_cast<float>(s) / 255.0);
        const double top = v;
        const std::int32_t p = rounded(top * (1.0 - static_cast<double>(fs)));
        const std::int32_t q = rounded(top * (1.0 - static_cast<double>(fs * rest)));
        const std::int32_t t = rounded(top * (1.0 - static_cast<double>(fs) * (1.0 - static_cast<double>(rest))));
        const std::int32_t at = choose(s == 0, 7, choose(side == 6, 0, side));  // 7: no colour, all three are v
        planes.red[i] = static_cast<std::uint8_t>(
            choose((at == 0) | (at == 5) | (at == 7), v, choose(at == 1, q, choose(at == 4, t, p))));
        planes.green[i] = static_cast<std::uint8_t>(
            choose((at == 1) | (at == 2) | (at == 7), v, choose(at == 0, t, choose(at == 3, q, p))));
        planes.blue[i] = static_cast<std::uint8_t>(
            choose((at == 3) | (at == 4) | (at == 7), v, choose(at == 2, t, choose(at == 5, q, p))));
    }
}

FL_INLINE void gray_all(const std::uint8_t* from, std::size_t pixels, std::uint32_t channels, std::uint8_t* out) {
    Planes planes{};
    for (std::size_t at = 0; at < pixels; at += kBlock) {
        const std::size_t count = std::min(kBlock, pixels - at);
        split(from + 3 * at, count, planes);
        luma_of(planes, planes.red);
        if (channels == 1) {
            std::memcpy(out + at, planes.red, count);
            continue;
        }
        std::memcpy(planes.green, planes.red, kBlock);
        std::memcpy(planes.blue, planes.red, kBlock);
        merge(planes, count, out + 3 * at);
    }
}

FL_INLINE void saturate_all(const std::uint8_t* from, std::size_t pixels, float factor, std::uint8_t* out) {
    Planes planes{};
    alignas(64) std::uint8_t gray[kBlock];
    for (std::size_t at = 0; at < pixels; at += kBlock) {
        const std::size_t count = std::min(kBlock, pixels - at);
        split(from + 3 * at, count, planes);
        luma_of(planes, gray);
        for (auto* plane : {planes.red, planes.green, planes.blue}) blend(gray, plane, factor);
        merge(planes, count, out + 3 * at);
    }
}

FL_INLINE void turn_all(const std::uint8_t* from, std::size_t pixels, std::uint8_t shift, std::uint8_t* out) {
    Planes planes{};
    Hsv hsv;
    for (std::size_t at = 0; at < pixels; at += kBlock) {
        const std::size_t count = std::min(kBlock, pixels - at);
        split(from + 3 * at, count, planes);
        to_hsv(planes, hsv);
        from_hsv(hsv, shift, planes);
        merge(planes, count, out + 3 * at);
    }
}

FL_AVX2 void gray_avx2(const std::uint8_t* from, std::size_t pixels, std::uint32_t channels, std::uint8_t* out) {
    gray_all(from, pixels, channels, out);
}
FL_AVX2 void saturate_avx2(const std::uint8_t* from, std::size_t pixels, float factor, std::uint8_t* out) {
    saturate_all(from, pixels, factor, out);
}
FL_AVX2 void turn_avx2(const std::uint8_t* from, std::size_t pixels, std::uint8_t shift, std::uint8_t* out) {
    turn_all(from, pixels, shift, out);
}

void check(const Frame& frame, Bytes image, MutableBytes out) {
    check_frame(frame, image.size(), "image");
    check_colour(frame);
    check_frame(frame, out.size(), "output");
}

}  // namespace

void grayscale(const Frame& frame, Bytes image, std::uint32_t out_channels, MutableBytes out, Simd level) {
    check_frame(frame, image.size(), "image");
    check_colour(frame);
    if (out_channels != 1 && out_channels != 3) throw Failure("argument", "gray has 1 or 3 channels");
    check_frame({frame.height, frame.width, out_channels}, out.size(), "output");
    if (level != Simd::portable) return gray_avx2(image.data(), frame.pixels(), out_channels, out.data());
    gray_all(image.data(), frame.pixels(), out_channels, out.data());
}

void saturate(const Frame& frame, Bytes image, float factor, MutableBytes out, Simd level) {
    check(frame, image, out);
    check_factor(factor);
    if (level != Simd::portable) return saturate_avx2(image.data(), frame.pixels(), factor, out.data());
    saturate_all(image.data(), frame.pixels(), factor, out.data());
}

void shift_hue(const Frame& frame, Bytes image, std::uint8_t shift, MutableBytes out, Simd level) {
    check(frame, image, out);
    if (level != Simd::portable) return turn_avx2(image.data(), frame.pixels(), shift, out.data());
    turn_all(image.data(), frame.pixels(), shift, out.data());
}

}  // namespace fl
