#include "axis.h"

#include <algorithm>
#include <cmath>

#include "portable_math.h"

namespace fl {
namespace {

double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double bilinear(double x) {
    x = std::abs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

constexpr double kPi = 3.14159265358979323846;

double hamming(double x) {
    x = std::abs(x);
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    return sin_pi(x) / (x * kPi) * (static_cast<double>(0.54f) + static_cast<double>(0.46f) * cos_pi(x));
}

double bicubic(double x) {
    constexpr double a = -0.5;
    x = std::abs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

double lanczos(double x) {
    if (x == 0.0) return 1.0;
    if (!(-3.0 <= x && x < 3.0)) return 0.0;
    return sin_pi(x) * sin_pi(x / 3) * 3 / (x * x * (kPi * kPi));
}

void check(const AxisSpec& spec) {
    check_side(spec.source, "source");
    check_side(spec.out, "output");
    if (!(spec.begin >= 0 && spec.begin < spec.end && spec.end <= static_cast<float>(spec.source)))
        throw Failure("argument", "the box from " + std::to_string(spec.begin) + " to " + std::to_string(spec.end) +
                                      " does not lie in a source of " + std::to_string(spec.source) + " pixels");
    if (spec.first >= spec.out || spec.made() > spec.out - spec.first)
        throw Failure("argument", "the window lies outside the output");
}

std::int32_t rounded(double weight, std::int32_t) {
    const double scaled = weight * (1 << kWeightBits);
    return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}
double rounded(double weight, double) { return weight; }

// A weight that happens to be zero at the edge of the source may have been left out where the next output needs that
// position. Such outputs get it back: whoever walks along the axis relies on first positions that never go back.
template <class Weight>
void settle(const AxisSpec& spec, Axis<Weight>& axis) {
    const auto made = spec.made();
    axis.begin = axis.first[spec.flip ? made - 1 : 0];
    axis.end = axis.longest = 0;
    std::uint32_t next = spec.source;
    for (std::uint32_t x = made; x-- > 0;) {
        const std::size_t to = spec.flip ? made - 1 - x : x;
        if (const auto back = axis.first[to] > next ? axis.first[to] - next : 0) {
            Weight* weights = axis.weights.data() + to * axis.stride;
            std::copy_backward(weights, weights + axis.count[to], weights + axis.count[to] + back);
            std::fill_n(weights, back, Weight{0});
            axis.first[to] = next;
            axis.count[to] += back;
        }
        next = axis.first[to];
        axis.begin = std::min(axis.begin, next);
        axis.end = std::max(axis.end, next + axis.count[to]);
        axis.longest = std::max(axis.longest, axis.count[to]);
    }
}

template <auto kKernel, class Weight>
void fill(const AxisSpec& spec, double radius, Axis<Weight>& axis) {
    const double scale = static_cast<double>(spec.end - spec.begin) / spec.out;
    const double widening = std::max(scale, 1.0);  // antialiasing: a filter spans at least one output pixel
    const double support = radius * widening;
    const double per_pixel = 1.0 / widening;
    axis.stride = static_cast<std::uint32_t>(std::ceil(support)) * 2 + 1;
    const auto made = spec.made();
    axis.first.resize(made);
    axis.count.resize(made);
    axis.weights.assign(static_cast<std::size_t>(made) * axis.stride, 0);
    std::vector<double> taps(axis.stride);
    for (std::uint32_t x = 0; x < made; ++x) {
        const double centre = spec.begin + (spec.first + x + 0.5) * scale;
        auto first = static_cast<std::int64_t>(std::max(centre - support + 0.5, 0.0));
        auto last = std::min(static_cast<std::int64_t>(centre + support + 0.5), std::int64_t{spec.source});
        const auto count = static_cast<std::size_t>(last - first);
        double sum = 0;
        for (std::size_t i = 0; i < count; ++i) {
            taps[i] = kKernel((static_cast<double>(first + static_cast<std::int64_t>(i)) - centre + 0.5) * per_pixel);
            sum += taps[i];
        }
        const std::size_t to = spec.flip ? made - 1 - x : x;
        Weight* weights = axis.weights.data() + to * axis.stride;
        std::size_t from = count, until = 0;  // positions of no weight at either end are not read
        for (std::size_t i = 0; i < count; ++i) {
            weights[i] = rounded(sum != 0.0 ? taps[i] / sum : taps[i], Weight{});
            if (weights[i] != 0) {
                from = std::min(from, i);
                until = i + 1;
            }
        }
        if (from >= until) from = 0, until = 1;
        if (from) {
            std::copy(weights + from, weights + until, weights);
            std::fill(weights + (until - from), weights + until, Weight{0});
        }
        axis.first[to] = static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(from);
        axis.count[to] = static_cast<std::uint32_t>(until - from);
    }
    settle(spec, axis);
    axis.identity = axis.longest == 1;
    for (std::uint32_t x = 0; axis.identity && x < made; ++x)
        axis.identity = axis.first[x] == axis.first[0] + x && axis.weights[x * axis.stride] == rounded(1.0, Weight{});
}

// Pillow adds the step again and again, and so must this: the sum of roundings decides ties.
template <class Weight>
void fill_nearest(const AxisSpec& spec, Axis<Weight>& axis) {
    const double step = static_cast<double>(spec.end - spec.begin) / spec.out;
    double at = spec.begin + step * 0.5;
    axis.stride = axis.longest = 1;
    const auto made = spec.made();
    axis.first.resize(made);
    axis.count.assign(made, 1);
    axis.weights.assign(made, rounded(1.0, Weight{}));
    axis.identity = !spec.flip;
    for (std::uint32_t x = 0; x < spec.first; ++x) at += step;
    for (std::uint32_t x = 0; x < made; ++x, at += step) {
        const auto position = static_cast<std::uint32_t>(std::min(at, static_cast<double>(spec.source - 1)));
        axis.first[spec.flip ? made - 1 - x : x] = position;
        axis.identity = axis.identity && position == axis.first[0] + x;
    }
    const auto [low, high] = std::minmax(axis.first.front(), axis.first.back());
    axis.begin = low;
    axis.end = high + 1;
}

template <class Weight>
void make(const AxisSpec& spec, Axis<Weight>& axis) {
    check(spec);
    switch (spec.filter) {
        case Filter::nearest: return fill_nearest(spec, axis);
        case Filter::box: return fill<box>(spec, 0.5, axis);
        case Filter::bilinear: return fill<bilinear>(spec, 1.0, axis);
        case Filter::hamming: return fill<hamming>(spec, 1.0, axis);
        case Filter::bicubic: return fill<bicubic>(spec, 2.0, axis);
        case Filter::lanczos: return fill<lanczos>(spec, 3.0, axis);
    }
    throw Failure("argument", "no such filter");
}

}  // namespace

void check_side(std::uint32_t length, const char* what) {
    if (length == 0 || length > kLongestSide)
        throw Failure("argument", std::string("a side of the ") + what + " has " + std::to_string(length) +
                                      " pixels; it may have 1 to " + std::to_string(kLongestSide));
}

void make_axis(const AxisSpec& spec, Axis<std::int32_t>& axis) { make(spec, axis); }
void make_axis(const AxisSpec& spec, Axis<double>& axis) { make(spec, axis); }

}  // namespace fl
