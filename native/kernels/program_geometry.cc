#include <algorithm>

#include "portable_math.h"
#include "program_steps.h"

namespace fl {
namespace {

using Kind = ProgramStep::Kind;

[[noreturn]] void too_small(const ProgramImage& image, const char* what, std::uint32_t height, std::uint32_t width) {
    throw Failure("size", "an image of " + std::to_string(image.height()) + "x" + std::to_string(image.width()) +
                              " is smaller than the " + what + " of " + std::to_string(height) + "x" +
                              std::to_string(width));
}

// torchvision's draw: ten tries for an area and a ratio that fit, then the largest centred box of an allowed ratio.
Cut draw_resized_crop(const ProgramStep& step, Random& random, std::uint32_t height, std::uint32_t width) {
    const double least = step.numbers[0], most = step.numbers[1], narrow = step.numbers[2], wide = step.numbers[3];
    const double area = static_cast<double>(height) * width;
    const double low = portable_log(narrow), high = portable_log(wide);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double wanted = area * draw_between(random, least, most);
        const double ratio = portable_exp(draw_between(random, low, high));
        const auto w = rounded(std::sqrt(wanted * ratio));
        const auto h = rounded(std::sqrt(wanted / ratio));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        const auto top = static_cast<std::uint32_t>(random.below(height - static_cast<std::uint64_t>(h) + 1));
        const auto left = static_cast<std::uint32_t>(random.below(width - static_cast<std::uint64_t>(w) + 1));
        return {left, top, static_cast<std::uint32_t>(w), static_cast<std::uint32_t>(h)};
    }
    const double shape = static_cast<double>(width) / height;
    std::int64_t w = width, h = height;
    if (shape < narrow)
        h = rounded(static_cast<double>(w) / narrow);
    else if (shape > wide)
        w = rounded(static_cast<double>(h) * wide);
    w = std::clamp<std::int64_t>(w, 1, width);
    h = std::clamp<std::int64_t>(h, 1, height);
    return {static_cast<std::uint32_t>((width - w) / 2), static_cast<std::uint32_t>((height - h) / 2),
            static_cast<std::uint32_t>(w), static_cast<std::uint32_t>(h)};
}

void random_resized_crop(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const auto cut = draw_resized_crop(step, random, image.height(), image.width());
    told({1.0 * cut.left, 1.0 * cut.top, 1.0 * cut.width, 1.0 * cut.height});
    image.crop(cut);
    image.resize(step.height, step.width, step.filter);
}

void resize_both(const ProgramStep& step, ProgramImage& image, Random&, const Told&) {
    image.resize(step.height, step.width, step.filter);
}

// torchvision's size: the longer side follows, its fraction dropped.
void resize_shorter(const ProgramStep& step, ProgramImage& image, Random&, const Told&) {
    const std::uint64_t height = image.height(), width = image.width(), size = step.height;
    const std::uint64_t longer = std::max<std::uint64_t>(size * std::max(height, width) / std::min(height, width), 1);
    if (longer > kLongestSide)
        throw Failure("size", "an image of " + std::to_string(height) + "x" + std::to_string(width) +
                                  " would have a side of " + std::to_string(longer) + " pixels");
    const auto other = static_cast<std::uint32_t>(longer);
    height <= width ? image.resize(step.height, other, step.filter) : image.resize(other, step.height, step.filter);
}

// The image with its first pixel at (top, left) of one of another size.
void place(ProgramImage& image, std::int64_t top, std::int64_t left, PadMode mode, const Fill& fill,
           std::uint32_t height, std::uint32_t width) {
    const auto pixels = image.pixels();
    const Frame from = image.frame(), to{height, width, image.channels()};
    pad(from, pixels, static_cast<std::int32_t>(top), static_cast<std::int32_t>(left), mode, fill, to, image.spare(to));
    image.accept(to);
    image.moved({1, 0, static_cast<double>(left), 0, 1, static_cast<double>(top)});
}

void crop_at(const ProgramStep& step, ProgramImage& image, std::int64_t top, std::int64_t left, const Fill& fill,
             const Told& told) {
    told({static_cast<double>(left), static_cast<double>(top), 1.0 * step.width, 1.0 * step.height});
    const bool inside = top >= 0 && left >= 0 && top + step.height <= image.height() && left + step.width <= image.width();
    if (!inside) return place(image, -top, -left, PadMode::constant, fill, step.height, step.width);
    image.crop({static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top), step.width, step.height});
}

// torchvision's centre: a half is rounded to even.
void centre_crop(const ProgramStep& step, ProgramImage& image, Random&, const Told& told) {
    if (image.height() < step.height || image.width() < step.width) too_small(image, "crop", step.height, step.width);
    const auto top = rounded((image.height() - step.height) / 2.0), left = rounded((image.width() - step.width) / 2.0);
    crop_at(step, image, top, left, {}, told);
}

void random_crop(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const auto padding = static_cast<std::uint32_t>(step.numbers[0]);
    const std::uint32_t height = image.height() + 2 * padding, width = image.width() + 2 * padding;
    if (height < step.height || width < step.width) too_small(image, "crop", step.height, step.width);
    const auto top = static_cast<std::int64_t>(random.below(height - step.height + 1)) - padding;
    const auto left = static_cast<std::int64_t>(random.below(width - step.width + 1)) - padding;
    crop_at(step, image, top, left, fill_of(step, 1), told);
}

void flip(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const bool happens = random.uniform() < step.numbers[0];
    told({happens ? 1.0 : 0.0});
    if (happens) image.mirror();
}

void flip_down(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const bool happens = random.uniform() < step.numbers[0];
    told({happens ? 1.0 : 0.0});
    if (!happens) return;
    image.moved({1, 0, 0, 0, -1, static_cast<double>(image.height())});
    auto* pixels = image.pixels().data();
    const std::size_t row = image.frame().row();
    for (std::uint32_t y = 0; y < image.height() / 2; ++y)
        std::swap_ranges(pixels + y * row, pixels + (y + 1) * row, pixels + (image.height() - 1 - y) * row);
}

void pad_around(const ProgramStep& step, ProgramImage& image, Random&, const Told&) {
    const auto& n = step.numbers;
    const auto left = static_cast<std::uint32_t>(n[0]), top = static_cast<std::uint32_t>(n[1]);
    const std::uint32_t width = image.width() + left + static_cast<std::uint32_t>(n[2]);
    const std::uint32_t height = image.height() + top + static_cast<std::uint32_t>(n[3]);
    if (height > kLongestSide || width > kLongestSide)
        throw Failure("size", "an image of " + std::to_string(height) + "x" + std::to_string(width) + " is too large");
    place(image, top, left, static_cast<PadMode>(n[4]), fill_of(step, 5), height, width);
}

void translate(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const auto most = static_cast<std::int64_t>(step.numbers[0]);
    const auto down = static_cast<std::int64_t>(random.below(2 * static_cast<std::uint64_t>(most) + 1)) - most;
    const auto right = static_cast<std::int64_t>(random.below(2 * static_cast<std::uint64_t>(most) + 1)) - most;
    told({static_cast<double>(right), static_cast<double>(down)});
    place(image, down, right, PadMode::constant, fill_of(step, 1), image.height(), image.width());
}

// torchvision's draw: ten tries for a box that is smaller than the image along both sides, else nothing.
void erase_part(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    const auto& n = step.numbers;
    told({0, 0, 0, 0});
    if (random.uniform() >= n[0]) return;
    const std::uint32_t height = image.height(), width = image.width();
    const double area = static_cast<double>(height) * width, low = portable_log(n[3]), high = portable_log(n[4]);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double wanted = area * draw_between(random, n[1], n[2]);
        const double ratio = portable_exp(draw_between(random, low, high));
        const auto h = rounded(std::sqrt(wanted * ratio));
        const auto w = rounded(std::sqrt(wanted / ratio));
        if (h >= height || w >= width) continue;
        const auto top = static_cast<std::uint32_t>(random.below(height - static_cast<std::uint64_t>(h) + 1));
        const auto left = static_cast<std::uint32_t>(random.below(width - static_cast<std::uint64_t>(w) + 1));
        const PixelBox box{top, left, top + static_cast<std::uint32_t>(h), left + static_cast<std::uint32_t>(w)};
        told({1.0 * left, 1.0 * top, static_cast<double>(w), static_cast<double>(h)});
        const auto pixels = image.pixels();
        if (n[5] != 0) return erase(image.frame(), pixels, box, random);
        return erase(image.frame(), pixels, box, fill_of(step, 6));
    }
}

void cut_out(const ProgramStep& step, ProgramImage& image, Random& random, const Told& told) {
    if (image.height() < step.height || image.width() < step.width) too_small(image, "cutout", step.height, step.width);
    const auto top = static_cast<std::uint32_t>(random.below(image.height() - step.height + 1));
    const auto left = static_cast<std::uint32_t>(random.below(image.width() - step.width + 1));
    told({1.0 * left, 1.0 * top, 1.0 * step.width, 1.0 * step.height});
    const auto pixels = image.pixels();
    erase(image.frame(), pixels, {top, left, top + step.height, left + step.width}, fill_of(step, 0));
}

void check_size(const ProgramStep& step) {
    check_side(step.height, "step");
    check_side(step.width, "step");
}

void check_padding(double pixels) { require(pixels >= 0 && pixels < kLongestSide, "padding"); }

void check_area(const ProgramStep& step, std::size_t at) {
    const auto& n = step.numbers;
    check_range(step, at, 0, 1, "scale");
    require(n[at] > 0 && n[at + 2] > 0, "scale or ratio");
    check_range(step, at + 2, 0, 1e6, "ratio");
}

}  // namespace

StepRule geometry_rule(Kind kind) {
    switch (kind) {
        case Kind::random_resized_crop:
            return {4, [](const ProgramStep& s) { check_size(s); check_area(s, 0); }, random_resized_crop, 4};
        case Kind::resize: return {0, check_size, resize_both};
        case Kind::resize_shorter: return {0, [](const ProgramStep& s) { check_side(s.height, "step"); }, resize_shorter};
        case Kind::centre_crop: return {0, check_size, centre_crop, 4};
        case Kind::random_crop:
            return {4, [](const ProgramStep& s) { check_size(s); check_padding(s.numbers[0]); check_fill(s, 1); }, random_crop, 4};
        case Kind::flip: return {1, check_likelihood, flip, 1};
        case Kind::flip_down: return {1, check_likelihood, flip_down, 1};
        case Kind::pad:
            return {8, [](const ProgramStep& s) {
                        for (std::size_t i = 0; i < 4; ++i) check_padding(s.numbers[i]);
                        require(s.numbers[4] >= 0 && s.numbers[4] <= static_cast<double>(PadMode::symmetric), "a mode");
                        check_fill(s, 5);
                    }, pad_around};
        case Kind::translate:
            return {4, [](const ProgramStep& s) { check_padding(s.numbers[0]); check_fill(s, 1); }, translate, 2};
        case Kind::erase:
            return {9, [](const ProgramStep& s) { check_likelihood(s); check_area(s, 1); check_fill(s, 6); }, erase_part, 4};
        case Kind::cutout: return {3, [](const ProgramStep& s) { check_size(s); check_fill(s, 0); }, cut_out, 4};
        default: return {};
    }
}

}  // namespace fl
