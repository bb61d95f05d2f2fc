#include "mel.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "bytes.h"
#include "portable_math.h"

namespace fl {
namespace {

constexpr double kLinearStep = 200.0 / 3, kBreak = 1000.0, kBreakMel = 15.0;  // Slaney's: linear up to 1 kHz
const double kLogStep = portable_log(6.4) / 27.0;
constexpr double kPerDecade = 0.43429448190325182765;  // 1 / ln 10

double to_mel(double hertz, bool htk) {
    if (htk) return 2595.0 * kPerDecade * portable_log(1.0 + hertz / 700.0);
    return hertz < kBreak ? hertz / kLinearStep : kBreakMel + portable_log(hertz / kBreak) / kLogStep;
}

double to_hertz(double mel, bool htk) {
    if (htk) return 700.0 * (portable_exp(mel / (2595.0 * kPerDecade)) - 1.0);
    return mel < kBreakMel ? mel * kLinearStep : kBreak * portable_exp(kLogStep * (mel - kBreakMel));
}

double decibels(double power) { return 10.0 * kPerDecade * portable_log(power); }

void require(bool holds, const char* what) {
    if (!holds) throw Failure("argument", what);
}

const MelSpec& checked(const MelSpec& spec) {
    require(spec.n_fft >= 1 && spec.n_fft <= (1u << 20), "n_fft");
    require(spec.hop >= 1, "hop_length");
    require(spec.window >= 1 && spec.window <= spec.n_fft, "win_length");
    require(spec.bands >= 1 && spec.bands <= (1u << 16), "n_mels");
    require(std::isfinite(spec.sample_rate) && spec.sample_rate > 0, "sample_rate");
    require(spec.fmin >= 0 && spec.fmin < spec.fmax && spec.fmax <= spec.sample_rate, "fmin and fmax");
    require(spec.least > 0 && std::isfinite(spec.least) && std::isnormal(spec.least), "amin");
    require(std::isfinite(spec.reference) && spec.reference >= 0, "ref");
    require(std::isfinite(spec.range), "top_db");
    return spec;
}

}  // namespace

Mel::Mel(const MelSpec& spec) : spec_(checked(spec)), fft_(spec.n_fft), window_(spec.n_fft) {
    const std::size_t before = (spec.n_fft - spec.window) / 2;
    for (std::size_t i = 0; i < spec.window; ++i)
        window_[before + i] = 0.5 - 0.5 * cos_pi(2.0 * static_cast<double>(i) / spec.window);
    if (spec.window == 1) window_[before] = 1;

    const double low = to_mel(spec.fmin, spec.htk), high = to_mel(spec.fmax, spec.htk);
    std::vector<double> edges(spec.bands + 2);
    for (std::size_t i = 0; i < edges.size(); ++i)
        edges[i] = to_hertz(low + (high - low) * static_cast<double>(i) / static_cast<double>(spec.bands + 1), spec.htk);
    for (std::size_t band = 0; band < spec.bands; ++band) {
        const double left = edges[band], peak = edges[band + 1], right = edges[band + 2];
        const double height = spec.slaney_norm ? 2.0 / (right - left) : 1.0;
        Band made{0, {}};
        const auto bin = [&](double hertz) { return hertz * spec.n_fft / spec.sample_rate; };
        const auto first = static_cast<std::size_t>(std::max(0.0, bin(left) - 1));
        const auto last = std::min(fft_.bins(), static_cast<std::size_t>(bin(right) + 2));
        for (std::size_t k = first; k < last; ++k) {
            const double hertz = static_cast<double>(k) * spec.sample_rate / spec.n_fft;
            const double weight = std::max(0.0, std::min((hertz - left) / (peak - left), (right - hertz) / (right - peak)));
            const double rounded = static_cast<float>(weight * height);  // as librosa keeps them
            if (rounded > 0) {
                if (made.weights.empty()) made.first = k;
                made.weights.resize(k - made.first + 1);
                made.weights.back() = rounded;
            }
        }
        bands_.push_back(std::move(made));
    }
}

std::size_t Mel::frames(std::size_t samples) const {
    const std::size_t padding = spec_.center ? spec_.n_fft / 2 : 0;
    if (samples == 0 || samples + 2 * padding < spec_.n_fft) return 0;
    if (spec_.center && spec_.pad == MelSpec::Pad::reflect && samples <= padding) return 0;
    return 1 + (samples + 2 * padding - spec_.n_fft) / spec_.hop;
}

void Mel::check(std::size_t samples) const {
    if (frames(samples)) return;
    const std::size_t least = !spec_.center ? spec_.n_fft
                              : spec_.pad == MelSpec::Pad::reflect ? spec_.n_fft / 2 + 1 : 1 + spec_.n_fft % 2;
    throw Failure("short", "has " + std::to_string(samples) + " samples, and a spectrogram with n_fft=" +
                               std::to_string(spec_.n_fft) + " takes at least " + std::to_string(least));
}

void Mel::run(std::span<const float> sound, std::span<float> out) const {
    check(sound.size());
    const std::size_t count = frames(sound.size()), bands = spec_.bands, size = spec_.n_fft;
    if (out.size() != count * bands) throw Failure("argument", "the spectrogram has another size");
    thread_local std::vector<double> piece, power, made;
    thread_local RealFft::Room room;
    piece.resize(size);
    power.resize(fft_.bins());
    made.resize(count * bands);
    const auto length = static_cast<std::int64_t>(sound.size());
    const auto padding = static_cast<std::int64_t>(spec_.center ? size / 2 : 0);
    const auto at = [&](std::int64_t i) -> double {
        if (i >= 0 && i < length) return sound[static_cast<std::size_t>(i)];
        switch (spec_.pad) {
            case MelSpec::Pad::constant: return 0;
            case MelSpec::Pad::edge: return sound[static_cast<std::size_t>(i < 0 ? 0 : length - 1)];
            default: return sound[static_cast<std::size_t>(i < 0 ? -i : 2 * (length - 1) - i)];
        }
    };
    for (std::size_t frame = 0; frame < count; ++frame) {
        const auto from = static_cast<std::int64_t>(frame * spec_.hop) - padding;
        if (from >= 0 && from + static_cast<std::int64_t>(size) <= length) {
            const float* samples = sound.data() + from;
            for (std::size_t i = 0; i < size; ++i) piece[i] = samples[i] * window_[i];
        } else {
            for (std::size_t i = 0; i < size; ++i) piece[i] = at(from + static_cast<std::int64_t>(i)) * window_[i];
        }
        fft_.power(piece.data(), power.data(), room);
        if (spec_.magnitude)
            for (auto& value : power) value = std::sqrt(value);
        for (std::size_t band = 0; band < bands; ++band) {
            const auto& one = bands_[band];
            double sum = 0;
            for (std::size_t k = 0; k < one.weights.size(); ++k) sum += one.weights[k] * power[one.first + k];
            made[frame * bands + band] = sum;
        }
    }
    if (spec_.decibels) {
        double greatest = 0;
        for (const double value : made) greatest = std::max(greatest, value);
        const double reference = decibels(std::max(spec_.least, spec_.reference > 0 ? spec_.reference : greatest));
        const double floor = spec_.range < 0 ? -std::numeric_limits<double>::infinity()
                                             : decibels(std::max(spec_.least, greatest)) - reference - spec_.range;
        for (auto& value : made) value = std::max(decibels(std::max(spec_.least, value)) - reference, floor);
    }
    for (std::size_t i = 0; i < made.size(); ++i) out[i] = static_cast<float>(made[i]);
}

}  // namespace fl
