// Mel spectrograms as librosa makes them: short-time Fourier transform, triangular bands, decibels. All of it in double
// precision and in a fixed order.
#pragma once

#include <span>

#include "fft.h"

namespace fl {

struct MelSpec {
    double sample_rate = 16000;
    std::uint32_t n_fft = 1024, hop = 256, window = 1024, bands = 80;
    double fmin = 0, fmax = 8000;
    bool magnitude = false;  // in place of its square
    bool center = true;      // frames around their places, with padding at both ends
    enum class Pad : std::uint8_t { constant, reflect, edge } pad = Pad::constant;
    bool slaney_norm = true;  // bands of equal area, in place of equal height
    bool htk = false;         // HTK's mel, in place of Slaney's
    bool decibels = true;
    double reference = 1.0;  // 0: the greatest value
    double least = 1e-10;
    double range = 80;  // decibels below the greatest that are kept; below 0: all
};

class Mel {
public:
    // Throws Failure "argument".
    explicit Mel(const MelSpec& spec);
    const MelSpec& spec() const { return spec_; }

    // Frames of a sound of this length; 0 where it is too short.
    std::size_t frames(std::size_t samples) const;
    // Failure "short" says how long a sound must be at least.
    void check(std::size_t samples) const;

    // (frames, bands) of a sound. Belongs to any thread.
    void run(std::span<const float> sound, std::span<float> out) const;

private:
    struct Band {
        std::size_t first;
        std::vector<double> weights;
    };
    MelSpec spec_;
    RealFft fft_;
    std::vector<double> window_;  // of n_fft numbers
    std::vector<Band> bands_;
};

}  // namespace fl
