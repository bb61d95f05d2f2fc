// torchvision's RandAugment and TrivialAugmentWide: one of fourteen operations, by a magnitude out of a number of them.
#include <algorithm>

#include "program_steps.h"

namespace fl {
namespace {

using Kind = ProgramStep::Kind;

enum class Change : std::uint8_t {
    identity, shear_x, shear_y, translate_x, translate_y, rotate, brightness, saturation, contrast, sharpness,
    posterize, solarize, autocontrast, equalize,
};
constexpr std::size_t kChanges = static_cast<std::size_t>(Change::equalize) + 1;

// How far the greatest magnitude goes; a translation in pixels, which may follow from the image.
struct Space {
    double shear, translate_x, translate_y, degrees, factor, bits;
};

double greatest(Change change, const Space& space) {
    switch (change) {
        case Change::shear_x:
        case Change::shear_y: return space.shear;
        case Change::translate_x: return space.translate_x;
        case Change::translate_y: return space.translate_y;
        case Change::rotate: return space.degrees;
        case Change::brightness:
        case Change::saturation:
        case Change::contrast:
        case Change::sharpness: return space.factor;
        default: return 0;
    }
}

bool is_signed(Change change) { return change >= Change::shear_x && change <= Change::sharpness; }
bool has_magnitude(Change change) { return change >= Change::shear_x && change <= Change::solarize; }

// How far a change goes: a slope, pixels, degrees, a factor, bits or a threshold; 0 for those without.
double amount_of(Change change, double share, bool negative, const Space& space) {
    const double amount = greatest(change, space) * share * (negative ? -1 : 1);
    switch (change) {
        case Change::translate_x:
        case Change::translate_y: return std::trunc(amount);
        case Change::brightness:
        case Change::saturation:
        case Change::contrast:
        case Change::sharpness: return 1 + amount;
        case Change::posterize: return static_cast<double>(8 - rounded(share * space.bits));
        case Change::solarize: return 255 - 255 * share;
        default: return amount;
    }
}

void apply(ProgramImage& image, Change change, double amount, Filter filter, const Fill& fill) {
    switch (change) {
        case Change::identity: return;
        case Change::shear_x: return move(image, {1, amount, 0, 0, 1, 0}, filter, fill);
        case Change::shear_y: return move(image, {1, 0, 0, amount, 1, 0}, filter, fill);
        case Change::translate_x: return move(image, {1, 0, -amount, 0, 1, 0}, filter, fill);
        case Change::translate_y: return move(image, {1, 0, 0, 0, 1, -amount}, filter, fill);
        case Change::rotate: return move(image, rotation(amount, image.height(), image.width()), filter, fill);
        case Change::brightness: return brighten(image, amount);
        case Change::saturation: return saturate(image, amount);
        case Change::contrast: return contrast(image, amount);
        case Change::sharpness: return sharpen(image, amount);
        case Change::posterize: return posterize(image, static_cast<std::uint32_t>(amount));
        case Change::solarize: return solarize(image, amount);
        case Change::autocontrast: return autocontrast(image);
        case Change::equalize: return equalize(image);
    }
}

void rand_augment(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const auto& n = step.numbers;
    const double share = n[1] / (n[2] - 1), most = 150.0 / 331.0;
    const Space space{0.3, most * image.width(), most * image.height(), 30, 0.9, 4};
    for (std::size_t i = 0; i < static_cast<std::size_t>(n[0]); ++i) {
        const auto change = static_cast<Change>(random.below(kChanges));
        const bool negative = is_signed(change) && random.below(2) == 1;
        const double amount = amount_of(change, share, negative, space);
        told({static_cast<double>(change), amount}, 2 * i);
        apply(image, change, amount, step.filter, fill_of(step, 3));
    }
}

void trivial_augment(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const auto bins = static_cast<std::uint64_t>(step.numbers[0]);
    const Space space{0.99, 32, 32, 135, 0.99, 6};
    const auto change = static_cast<Change>(random.below(kChanges));
    const double share =
        has_magnitude(change) ? static_cast<double>(random.below(bins)) / static_cast<double>(bins - 1) : 0;
    const bool negative = is_signed(change) && random.below(2) == 1;
    const double amount = amount_of(change, share, negative, space);
    told({static_cast<double>(change), amount});
    apply(image, change, amount, step.filter, fill_of(step, 1));
}

void check_filter(const ProgramStep& step) {
    require(step.filter == Filter::nearest || step.filter == Filter::bilinear, "a filter");
}

}  // namespace

StepRule augment_rule(Kind kind) {
    switch (kind) {
        case Kind::rand_augment:
            return {6, [](const ProgramStep& s) {
                        const auto& n = s.numbers;
                        check_filter(s);
                        require(n[0] >= 0 && n[0] <= 1000 && n[2] >= 2 && n[2] <= 1e6 && n[1] >= 0 && n[1] < n[2], "a magnitude");
                        check_fill(s, 3);
                    }, rand_augment, 2};
        case Kind::trivial_augment:
            return {4, [](const ProgramStep& s) {
                        check_filter(s);
                        require(s.numbers[0] >= 2 && s.numbers[0] <= 1e6, "magnitudes");
                        check_fill(s, 1);
                    }, trivial_augment, 2};
        default: return {};
    }
}

}  // namespace fl
