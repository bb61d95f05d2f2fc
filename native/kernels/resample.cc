#include "resample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "portable_math.h"

namespace fl {
namespace {

constexpr double kCrossings = 64;   // of the sinc on each side, at the lower rate
constexpr double kPass = 0.96;      // the cutoff's share of the lower of the two Nyquist frequencies
constexpr double kBeta = 12.0;      // side lobes about 118 dB down
constexpr std::size_t kLanes = 8;   // sums made side by side
constexpr std::size_t kMostWeights = std::size_t{1} << 20;

double bessel(double x) {  // I0, by its series
    double sum = 1, term = 1;
    for (int k = 1; k < 64; ++k) {
        const double step = x / (2 * k);
        term *= step * step;
        sum += term;
    }
    return sum;
}

}  // namespace

Resampler::Resampler(std::uint32_t from, std::uint32_t to) {
    if (from == 0 || to == 0) throw Failure("argument", "rates above 0");
    const std::uint32_t common = std::gcd(from, to);
    up_ = to / common;
    down_ = from / common;
    const double scale = kPass * std::min(1.0, static_cast<double>(up_) / static_cast<double>(down_));
    const double reach = kCrossings / scale;
    before_ = static_cast<std::size_t>(std::ceil(reach));
    taps_ = (2 * before_ + 1 + kLanes - 1) / kLanes * kLanes;
    if (up_ > kMostWeights / taps_)
        throw Failure("argument", "the rates " + std::to_string(from) + " and " + std::to_string(to) +
                                      " have no ratio of small numbers");
    weights_.assign(up_ * taps_, 0);
    const double whole = bessel(kBeta);
    std::vector<double> exact(taps_);
    for (std::uint64_t phase = 0; phase < up_; ++phase) {
        double sum = 0;
        for (std::size_t i = 0; i < taps_; ++i) {
            const double x = static_cast<double>(i) - static_cast<double>(before_) -
                             static_cast<double>(phase) / static_cast<double>(up_);
            const double share = x / reach;
            exact[i] = 0;
            if (share <= -1 || share >= 1) continue;
            const double angle = x * scale;
            const double sinc = angle == 0 ? 1 : sin_pi(angle) / (3.14159265358979323846 * angle);
            exact[i] = sinc * bessel(kBeta * std::sqrt(1 - share * share)) / whole;
            sum += exact[i];
        }
        // Each phase sums to 1, so that a constant stays one.
        for (std::size_t i = 0; i < taps_; ++i) weights_[phase * taps_ + i] = static_cast<float>(exact[i] / sum);
    }
}

std::uint64_t Resampler::length(std::uint64_t samples) const {
    const auto product = static_cast<unsigned __int128>(samples) * up_;
    return static_cast<std::uint64_t>((product + down_ - 1) / down_);
}

void Resampler::run(std::span<const float> in, std::uint32_t channels, std::span<float> out) const {
    const std::size_t frames = in.size() / channels, count = length(frames);
    if (in.size() % channels || out.size() != count * channels) throw Failure("argument", "the sound has another size");
    std::vector<float> padded(frames + taps_ + before_);
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
        for (std::size_t i = 0; i < frames; ++i) padded[before_ + i] = in[i * channels + channel];
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t place = i * down_;
            const float* from = padded.data() + place / up_;
            const float* weight = weights_.data() + place % up_ * taps_;
            float sums[kLanes] = {};
            for (std::size_t k = 0; k < taps_; k += kLanes)
                for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += from[k + lane] * weight[k + lane];
            float sum = 0;
            for (const float one : sums) sum += one;
            out[i * channels + channel] = sum;
        }
    }
}

}  // namespace fl
