#include "affine.h"

#include <cmath>

#include "channels.h"

namespace fl {
namespace {

bool fits_fixed(const Matrix& m, double x, double y) {
    return std::abs(x * m[0] + y * m[1] + m[2]) < 32768.0 && std::abs(x * m[3] + y * m[4] + m[5]) < 32768.0;
}

std::int64_t fixed(double value) { return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5)); }

template <std::uint32_t kChannels>
void nearest_fixed(const Frame& frame, const std::uint8_t* image, const Matrix& m, const Fill& fill,
                   const Frame& to, std::uint8_t* out) {
    const std::int64_t right = fixed(m[0]), down = fixed(m[1]), right_y = fixed(m[3]), down_y = fixed(m[4]);
    std::int64_t first_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), first_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    for (std::uint32_t y = 0; y < to.height; ++y, first_x += down, first_y += down_y) {
        std::int64_t at_x = first_x, at_y = first_y;
        for (std::uint32_t x = 0; x < to.width; ++x, out += kChannels, at_x += right, at_y += right_y) {
            const auto from_x = static_cast<std::uint64_t>(at_x >> 16), from_y = static_cast<std::uint64_t>(at_y >> 16);
            const bool inside = (from_x < frame.width) & (from_y < frame.height);  // a negative one is past any end
            copy_pixel<kChannels>(out, inside ? image + (from_y * frame.width + from_x) * kChannels : fill.data());
        }
    }
}

template <std::uint32_t kChannels>
void nearest(const Frame& frame, const std::uint8_t* image, const Matrix& m, const Fill& fill,
             const Frame& to, std::uint8_t* out) {
    double first_x = m[2] + m[0] * 0.5 + m[1] * 0.5, first_y = m[5] + m[3] * 0.5 + m[4] * 0.5;
    for (std::uint32_t y = 0; y < to.height; ++y, first_x += m[1], first_y += m[4]) {
        double at_x = first_x, at_y = first_y;
        for (std::uint32_t x = 0; x < to.width; ++x, out += kChannels, at_x += m[0], at_y += m[3]) {
            const bool inside = at_x >= 0 && at_x < frame.width && at_y >= 0 && at_y < frame.height;
            copy_pixel<kChannels>(out, inside ? image + (static_cast<std::size_t>(at_y) * frame.width +
                                                         static_cast<std::size_t>(at_x)) * kChannels
                                              : fill.data());
        }
    }
}

// Two neighbouring positions and how far the second is mixed in; at the edges both are the same pixel.
struct Between {
    std::size_t one, two;
    double share;
};

inline Between between(double at, std::uint32_t side) {  // 0 <= at < side
    const double middle = at - 0.5;
    const std::int64_t one = middle < 0 ? -1 : static_cast<std::int64_t>(middle);
    const double share = middle - static_cast<double>(one);
    return {static_cast<std::size_t>(one < 0 ? 0 : one), static_cast<std::size_t>(one + 1 < side ? one + 1 : one),
            share};
}

template <std::uint32_t kChannels>
void bilinear(const Frame& frame, const std::uint8_t* image, const Matrix& m, const Fill& fill,
              const Frame& to, std::uint8_t* out) {
    const double width = frame.width, height = frame.height;
    for (std::uint32_t y = 0; y < to.height; ++y)
        for (std::uint32_t x = 0; x < to.width; ++x, out += kChannels) {
            const double middle_x = x + 0.5, middle_y = y + 0.5;
            const double at_x = m[0] * middle_x + m[1] * middle_y + m[2];
            const double at_y = m[3] * middle_x + m[4] * middle_y + m[5];
            if (!(at_x >= 0 && at_x < width && at_y >= 0 && at_y < height)) {
                copy_pixel<kChannels>(out, fill.data());
                continue;
            }
            const auto across = between(at_x, frame.width), down = between(at_y, frame.height);
            const std::uint8_t* upper = image + down.one * frame.row();
            const std::uint8_t* lower = image + down.two * frame.row();
            const std::size_t one = across.one * kChannels, two = across.two * kChannels;
            for (std::uint32_t c = 0; c < kChannels; ++c) {
                const double above = upper[one + c] + (upper[two + c] - upper[one + c]) * across.share;
                const double below = lower[one + c] + (lower[two + c] - lower[one + c]) * across.share;
                out[c] = static_cast<std::uint8_t>(static_cast<std::int32_t>(above + (below - above) * down.share));
            }
        }
}

}  // namespace

void affine(const Frame& frame, Bytes image, const Matrix& m, bool smooth, const Fill& fill,
            const Frame& to, MutableBytes out, Simd level) {
    check_pair(frame, image, to, out);
    for (const double number : m)
        if (!std::isfinite(number)) throw Failure("argument", "a number of the matrix is not finite");
    const double w = to.width, h = to.height;
    const bool exact = (m[1] != 0 || m[3] != 0) && fits_fixed(m, 0, 0) && fits_fixed(m, w, h) && fits_fixed(m, 0, h) &&
                       fits_fixed(m, w, 0);
#if defined(__x86_64__)
    if (smooth && level != Simd::portable && frame.channels >= 3 && image.size() >= 4)
        return bilinear_avx2(frame, image.data(), m, fill, to, out.data());
#endif
    (void)level;
    with_channels(frame.channels, [&]<std::uint32_t kChannels>() {
        if (smooth) return bilinear<kChannels>(frame, image.data(), m, fill, to, out.data());
        if (exact) return nearest_fixed<kChannels>(frame, image.data(), m, fill, to, out.data());
        nearest<kChannels>(frame, image.data(), m, fill, to, out.data());
    });
}

}  // namespace fl
