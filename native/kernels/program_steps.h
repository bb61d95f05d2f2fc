// What the steps of a program do to its image. Each draws all it needs from a stream of its own, in a fixed order; where
// a step may stay out, that is drawn first.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <span>

#include "affine.h"
#include "geometry.h"
#include "program_image.h"

namespace fl {

inline std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::nearbyint(x)); }

inline double draw_between(Random& random, double least, double most) {
    return least + (most - least) * random.uniform();
}

// The fill that a step's numbers hold from `at` on.
inline Fill fill_of(const ProgramStep& step, std::size_t at) {
    const auto value = [&](std::size_t i) { return static_cast<std::uint8_t>(step.numbers[at + i]); };
    return {value(0), value(1), value(2), 0};
}

// What steps are built from.
void move(ProgramImage& image, const Matrix& matrix, Filter filter, const Fill& fill);

void brighten(ProgramImage& image, double factor);
void contrast(ProgramImage& image, double factor);
void saturate(ProgramImage& image, double factor);  // gray stays as it is
void turn_hue(ProgramImage& image, double turns);
void sharpen(ProgramImage& image, double factor);
void posterize(ProgramImage& image, std::uint32_t bits);
void solarize(ProgramImage& image, double threshold);
void autocontrast(ProgramImage& image);
void equalize(ProgramImage& image);
void invert(ProgramImage& image);

Matrix rotation(double degrees, std::uint32_t height, std::uint32_t width);  // counter-clockwise, as Pillow's rotate has it

// Where a step tells what it drew; nowhere, if it was not asked to.
class Told {
public:
    explicit Told(std::span<double> room) : room_(room) {}
    void operator()(std::initializer_list<double> numbers, std::size_t at = 0) const {
        if (!room_.empty()) std::copy(numbers.begin(), numbers.end(), room_.begin() + static_cast<std::ptrdiff_t>(at));
    }

private:
    std::span<double> room_;
};

// The steps themselves, and what can't be done by them: Failure "argument".
using RunStep = void (*)(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told);
using CheckStep = void (*)(const ProgramStep& step);

struct StepRule {
    std::size_t numbers;
    CheckStep check;
    RunStep run;
    std::size_t told = 0;  // numbers it tells; of rand_augment, for each of its operations
};
StepRule geometry_rule(ProgramStep::Kind kind);
StepRule affine_rule(ProgramStep::Kind kind);
StepRule pixel_rule(ProgramStep::Kind kind);
StepRule augment_rule(ProgramStep::Kind kind);
StepRule telling_rule(ProgramStep::Kind kind);

inline void require(bool holds, const char* what) {
    if (!holds) throw Failure("argument", what);
}
inline void check_fill(const ProgramStep& step, std::size_t at) {
    for (std::size_t i = at; i < at + 3; ++i) require(step.numbers[i] >= 0 && step.numbers[i] <= 255, "a fill");
}
inline void check_likelihood(const ProgramStep& step) {
    require(step.numbers[0] >= 0 && step.numbers[0] <= 1, "a likelihood");
}
// Both finite, neither below nor above what is allowed.
inline void check_range(const ProgramStep& step, std::size_t at, double low, double high, const char* what) {
    const double least = step.numbers[at], most = step.numbers[at + 1];
    require(low <= least && least <= most && most <= high, what);
}

}  // namespace fl
