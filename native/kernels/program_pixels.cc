#include <algorithm>

#include "colour.h"
#include "program_steps.h"
#include "smooth.h"
#include "tones.h"

namespace fl {
namespace {

using Kind = ProgramStep::Kind;

bool happens(const ProgramStep& step, Random& random) { return random.uniform() < step.numbers[0]; }

// For steps that draw nothing more.
bool happens(const ProgramStep& step, Random& random, const Told& told) {
    const bool so = happens(step, random);
    told({so ? 1.0 : 0.0});
    return so;
}

void tone(ProgramImage& image, const Tone& table) {
    const auto pixels = image.pixels();
    apply_tone(table, pixels, pixels, best_simd());
}

// A step that draws one number between two and changes the image by it.
// `kNothing` is the number that stands for no change.
template <void (*kChange)(ProgramImage&, double), int kNothing = 1>
void by_factor(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    told({kNothing});
    if (!happens(step, random)) return;
    const double factor = draw_between(random, step.numbers[1], step.numbers[2]);
    told({factor});
    kChange(image, factor);
}

template <void (*kChange)(ProgramImage&)>
void by_chance(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    if (happens(step, random, told)) kChange(image);
}

// torchvision's draw: an order of the four, then a factor for each; a range of the one factor that changes nothing
// leaves its part out.
void jitter(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    told({1, 1, 1, 0, 0, 1, 2, 3});
    if (!happens(step, random)) return;
    static constexpr void (*kParts[])(ProgramImage&, double) = {brighten, contrast, saturate, turn_hue};
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    std::array<double, 4> factors;
    for (std::size_t i = 0; i < 4; ++i)
        factors[i] = draw_between(random, step.numbers[1 + 2 * i], step.numbers[2 + 2 * i]);
    told({factors[0], factors[1], factors[2], factors[3], 1.0 * order[0], 1.0 * order[1], 1.0 * order[2], 1.0 * order[3]});
    for (const std::size_t i : order) {
        const double nothing = i == 3 ? 0 : 1;
        if (step.numbers[1 + 2 * i] == nothing && step.numbers[2 + 2 * i] == nothing) continue;
        kParts[i](image, factors[i]);
    }
}

void gray(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    if (!happens(step, random, told) || image.channels() == 1) return;
    const auto channels = static_cast<std::uint32_t>(step.numbers[1]);
    if (channels == 1 && image.undecoded()) return image.gray_while_stored();
    const auto pixels = image.pixels();
    const Frame to{image.height(), image.width(), channels};
    grayscale(image.frame(), pixels, channels, image.spare(to), best_simd());
    image.accept(to);
}

void blur(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    told({0});
    if (!happens(step, random)) return;
    const double sigma = draw_between(random, step.numbers[1], step.numbers[2]);
    told({sigma});
    if (step.height / 2 >= image.height() || step.width / 2 >= image.width())
        throw Failure("size", "an image of " + std::to_string(image.height()) + "x" + std::to_string(image.width()) +
                                  " is too small to be reflected for a blur of " + std::to_string(step.height) + "x" +
                                  std::to_string(step.width));
    const auto pixels = image.pixels();
    const Frame frame = image.frame();
    gaussian_blur(frame, pixels, step.width, step.height, sigma, sigma, image.spare(frame), best_simd());
    image.accept(frame);
}

void posterize_step(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    if (happens(step, random, told)) posterize(image, static_cast<std::uint32_t>(step.numbers[1]));
}

void solarize_step(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    if (happens(step, random, told)) solarize(image, step.numbers[1]);
}

void check_factors(const ProgramStep& step) {
    check_likelihood(step);
    check_range(step, 1, 0, 1e6, "a range of factors");
}

void check_hue(const ProgramStep& step) {
    check_likelihood(step);
    check_range(step, 1, -0.5, 0.5, "a range of hues");
}

void check_jitter(const ProgramStep& step) {
    check_likelihood(step);
    for (const std::size_t at : {1u, 3u, 5u}) check_range(step, at, 0, 1e6, "a range of factors");
    check_range(step, 7, -0.5, 0.5, "a range of hues");
}

void check_gray(const ProgramStep& step) {
    check_likelihood(step);
    const double channels = step.numbers[1];
    require(channels == 3 || (channels == 1 && step.numbers[0] == 1), "gray has 3 channels, or 1 where it always happens");
}

void check_blur(const ProgramStep& step) {
    check_likelihood(step);
    check_side(step.height, "blur");
    check_side(step.width, "blur");
    require(step.height % 2 && step.width % 2, "a blur has an odd number of weights");
    require(step.numbers[1] > 0, "sigma");
    check_range(step, 1, 0, 1e6, "sigma");
}

}  // namespace

void brighten(ProgramImage& image, double factor) { tone(image, brightness_tone(static_cast<float>(factor))); }

void contrast(ProgramImage& image, double factor) {
    const auto pixels = image.pixels();
    tone(image, contrast_tone(static_cast<float>(factor), mean_luma(image.frame(), pixels)));
}

void saturate(ProgramImage& image, double factor) {
    if (image.channels() == 1) return;
    const auto pixels = image.pixels();
    saturate(image.frame(), pixels, static_cast<float>(factor), pixels, best_simd());
}

// torchvision's shift of Pillow's 8-bit hue: its fraction dropped, counted round.
void turn_hue(ProgramImage& image, double turns) {
    const auto pixels = image.pixels();
    const auto shift = static_cast<std::uint8_t>(static_cast<std::int32_t>(turns * 255));
    shift_hue(image.frame(), pixels, shift, pixels, best_simd());
}

void sharpen(ProgramImage& image, double factor) {
    const auto pixels = image.pixels();
    const Frame frame = image.frame();
    sharpen(frame, pixels, static_cast<float>(factor), image.spare(frame), best_simd());
    image.accept(frame);
}

void posterize(ProgramImage& image, std::uint32_t bits) { tone(image, posterize_tone(bits)); }

void solarize(ProgramImage& image, double threshold) {
    tone(image, solarize_tone(static_cast<std::uint32_t>(std::ceil(threshold))));
}

void autocontrast(ProgramImage& image) {
    const auto pixels = image.pixels();
    autocontrast(image.frame(), pixels, pixels, best_simd());
}

void equalize(ProgramImage& image) {
    const auto pixels = image.pixels();
    equalize(image.frame(), pixels, pixels, best_simd());
}

void invert(ProgramImage& image) { tone(image, invert_tone()); }

StepRule pixel_rule(Kind kind) {
    switch (kind) {
        case Kind::brightness: return {3, check_factors, by_factor<brighten>, 1};
        case Kind::contrast: return {3, check_factors, by_factor<contrast>, 1};
        case Kind::saturation: return {3, check_factors, by_factor<saturate>, 1};
        case Kind::hue: return {3, check_hue, by_factor<turn_hue, 0>, 1};
        case Kind::jitter: return {9, check_jitter, jitter, 8};
        case Kind::gray: return {2, check_gray, gray, 1};
        case Kind::sharpness: return {3, check_factors, by_factor<sharpen>, 1};
        case Kind::blur: return {3, check_blur, blur, 1};
        case Kind::posterize:
            return {2, [](const ProgramStep& s) {
                        check_likelihood(s);
                        require(s.numbers[1] >= 1 && s.numbers[1] <= 8, "bits");
                    }, posterize_step, 1};
        case Kind::solarize:
            return {2, [](const ProgramStep& s) {
                        check_likelihood(s);
                        require(s.numbers[1] >= 0 && s.numbers[1] <= 256, "a threshold");
                    }, solarize_step, 1};
        case Kind::autocontrast: return {1, check_likelihood, by_chance<autocontrast>, 1};
        case Kind::equalize: return {1, check_likelihood, by_chance<equalize>, 1};
        case Kind::invert: return {1, check_likelihood, by_chance<invert>, 1};
        default: return {};
    }
}

}  // namespace fl
