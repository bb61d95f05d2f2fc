#include "program.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "colour.h"
#include "geometry.h"
#include "jpeg_crop.h"
#include "portable_math.h"

namespace fl {
namespace {

using Kind = ProgramStep::Kind;

// A JPEG is decoded at 1/2, 1/4 or 1/8 only where that leaves this many times the pixels asked for along each side:
// closer to the target, scaling the DCT shows against a filter over all pixels.
constexpr double kSpare = 2.0;
constexpr std::size_t kLargest = 1 << 28;  // bytes of an image between two steps

// Pixels of an image. What lies outside of a box does not count for what becomes of it, as if it had been cut out.
struct Cut {
    std::uint32_t left = 0, top = 0, width = 0, height = 0;
};

std::int64_t rounded(double x) { return static_cast<std::int64_t>(std::nearbyint(x)); }

// torchvision's draw: ten tries for an area and a ratio that fit, then the largest centred box of an allowed ratio.
Cut draw_resized_crop(const ProgramStep& step, Random& random, std::uint32_t height, std::uint32_t width) {
    const auto [least, most, narrow, wide] = step.numbers;
    const double area = static_cast<double>(height) * width;
    const double low = portable_log(narrow), high = portable_log(wide);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double wanted = area * (least + (most - least) * random.uniform());
        const double ratio = portable_exp(low + (high - low) * random.uniform());
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

// torchvision's size of an image whose shorter side becomes `size`.
std::pair<std::uint32_t, std::uint32_t> shorter_side(std::uint32_t size, std::uint32_t height, std::uint32_t width) {
    const auto longer = [&](std::uint64_t other, std::uint64_t shorter) {
        return static_cast<std::uint32_t>(std::max<std::uint64_t>(size * other / shorter, 1));
    };
    return height <= width ? std::pair(size, longer(width, height)) : std::pair(longer(height, width), size);
}

void bad_size(const char* what, std::uint32_t height, std::uint32_t width, std::uint32_t h, std::uint32_t w) {
    throw Failure("size", std::string("an image of ") + std::to_string(height) + "x" + std::to_string(width) +
                              " is smaller than the " + what + " of " + std::to_string(h) + "x" + std::to_string(w));
}

void flip_row(const std::uint8_t* from, std::uint32_t width, std::uint32_t channels, std::uint8_t* to) {
    for (std::uint32_t x = 0; x < width; ++x)
        std::memcpy(to + x * channels, from + (width - 1 - x) * channels, channels);
}

}  // namespace

Program::Program() {
    static std::atomic<std::uint64_t> made{0};
    id = ++made;
}

void check_program(const Program& program) {
    check_side(program.height, "result");
    check_side(program.width, "result");
    if (program.cast.channels != 1 && program.cast.channels != 3) throw Failure("argument", "1 or 3 channels");
    for (const auto& step : program.steps) {
        const auto [a, b, c, d] = step.numbers;
        const bool crop = step.kind == Kind::random_resized_crop;
        if (crop && !(0 < a && a <= b && b <= 1 && 0 < c && c <= d && d < 1e6)) throw Failure("argument", "scale or ratio");
        if ((step.kind == Kind::flip || step.kind == Kind::flip_down) && !(0 <= a && a <= 1))
            throw Failure("argument", "a likelihood");
        if (step.kind == Kind::random_crop && !(0 <= a && a < kLongestSide)) throw Failure("argument", "padding");
        if (step.kind != Kind::flip && step.kind != Kind::flip_down) {
            check_side(step.height, "step");
            if (step.kind != Kind::resize_shorter) check_side(step.width, "step");
        }
    }
    Cast cast(program.cast);  // throws for what can't be cast
}

struct ProgramRunner::State {
    Resizer resizer;
    std::unique_ptr<Cast> cast;
    std::uint64_t cast_of = 0;  // id of the program
    std::vector<std::uint8_t> decoded, converted, image, other, line, flipped;

    // The image as it is now: stored bytes of which `box` is wanted, or pixels in `image`.
    struct Stored {
        Bytes payload;
        ImageShape shape;
    };

    void decode(const Program& program, const Stored& stored, const Cut& cut, ResizeSpec& spec,
                const std::uint8_t*& pixels, std::ptrdiff_t& stride);
    void convert(std::uint32_t height, std::uint32_t width, std::uint32_t from, std::uint32_t to,
                 const std::uint8_t*& pixels, std::ptrdiff_t& stride);
};

ProgramRunner::ProgramRunner() : state_(std::make_unique<State>()) {}
ProgramRunner::~ProgramRunner() = default;

// Gray to colours by repeating, colours to gray by luma, alpha left out: as Pillow converts.
void ProgramRunner::State::convert(std::uint32_t height, std::uint32_t width, std::uint32_t from, std::uint32_t to,
                                   const std::uint8_t*& pixels, std::ptrdiff_t& stride) {
    if (from == to) return;
    converted.resize(std::size_t{height} * width * to);
    const std::uint32_t colours = from <= 2 ? 1 : 3;
    line.resize(std::size_t{width} * 3);
    for (std::uint32_t y = 0; y < height; ++y) {
        const auto* row = pixels + y * stride;
        auto* out = converted.data() + std::size_t{y} * width * to;
        if (colours == to) {
            for (std::uint32_t x = 0; x < width; ++x) std::memcpy(out + x * to, row + x * from, to);
        } else if (to == 3) {
            for (std::uint32_t x = 0; x < width; ++x) std::memset(out + x * 3, row[x * from], 3);
        } else {
            for (std::uint32_t x = 0; x < width; ++x) std::memcpy(line.data() + x * 3, row + x * from, 3);
            grayscale({1, width, 3}, line, 1, {out, width}, best_simd());
        }
    }
    pixels = converted.data();
    stride = static_cast<std::ptrdiff_t>(width) * to;
}

// Prepares the resizer and decodes what it needs of the cut. Where the image is decoded smaller, the cut's edges may lie
// within a pixel.
void ProgramRunner::State::decode(const Program& program, const Stored& stored, const Cut& cut, ResizeSpec& spec,
                                  const std::uint8_t*& pixels, std::ptrdiff_t& stride) {
    const auto& shape = stored.shape;
    Region region;
    std::uint32_t left = cut.left, top = cut.top;
    if (program.stored == StoredKind::jpeg) {
        JpegPayload parts{stored.payload, {}};
        if (program.seekable) parts = jpeg_split(stored.payload);
        std::uint32_t shrink = 1;
        if (spec.filter != Filter::nearest)
            while (shrink < 8 && cut.width >= kSpare * 2 * shrink * spec.out_width &&
                   cut.height >= kSpare * 2 * shrink * spec.out_height)
                shrink *= 2;
        if (shrink > 1) {
            const auto part = static_cast<float>(shrink);
            left = cut.left / shrink;
            top = cut.top / shrink;
            spec.width = (cut.left + cut.width + shrink - 1) / shrink - left;
            spec.height = (cut.top + cut.height + shrink - 1) / shrink - top;
            const float x = static_cast<float>(cut.left) / part - static_cast<float>(left);
            const float y = static_cast<float>(cut.top) / part - static_cast<float>(top);
            spec.box = {x, y, x + static_cast<float>(cut.width) / part, y + static_cast<float>(cut.height) / part};
        }
        region = resizer.prepare(spec);
        const JpegBox box{left + region.left, top + region.top, region.right - region.left, region.bottom - region.top};
        stride = static_cast<std::ptrdiff_t>(box.width) * shape.channels;
        decoded.resize(static_cast<std::size_t>(stride) * box.height);
        jpeg_decode_box(parts.jpeg, parts.index, {shape, box, shrink, 0, JpegRoute::automatic}, decoded.data(),
                        static_cast<std::size_t>(stride));
        pixels = decoded.data();
    } else {
        region = resizer.prepare(spec);
        const std::uint8_t* whole = stored.payload.data();
        if (program.stored == StoredKind::png) {
            decoded.resize(shape.bytes());
            image_decode(ImageKind::png, stored.payload, shape, decoded);
            whole = decoded.data();
        }
        stride = static_cast<std::ptrdiff_t>(shape.width) * shape.channels;
        pixels = whole + (top + region.top) * stride + static_cast<std::ptrdiff_t>(left + region.left) * shape.channels;
    }
    convert(region.bottom - region.top, region.right - region.left, shape.channels, program.cast.channels, pixels, stride);
}

void ProgramRunner::run(const Program& program, Bytes payload, const ImageShape& shape, std::uint64_t epoch,
                        std::uint64_t sample, MutableBytes out) {
    auto& s = *state_;
    if (shape.bits != 8) throw Failure("decode", "a pipeline takes 8 bits a sample, the image has " + std::to_string(shape.bits));
    if (program.stored == StoredKind::png) check_claim(ImageKind::png, shape, payload.size());
    if (program.stored == StoredKind::jpeg) check_claim(ImageKind::jpeg, shape, payload.size());
    if (program.stored == StoredKind::raw && payload.size() != shape.bytes())
        throw Failure("size", "the payload has another size than the image");
    if (s.cast_of != program.id) {
        s.cast = std::make_unique<Cast>(program.cast);
        s.cast_of = program.id;
    }
    const State::Stored stored{payload, shape};
    const std::uint32_t channels = program.cast.channels;
    std::uint32_t height = shape.height, width = shape.width;  // of the image as it is now
    Cut view{0, 0, width, height};  // of what is stored, while nothing is decoded yet
    bool pending = true;
    const std::size_t steps = program.steps.size();
    const std::size_t plane = std::size_t{program.height} * program.width;
    const std::size_t element = size_of(program.cast.element);
    const bool by_pixel = program.cast.layout == Layout::hwc;
    const auto place = [&](std::uint32_t y) {
        const std::size_t at = std::size_t{y} * program.width * (by_pixel ? channels : 1);
        return out.data() + at * element;
    };
    const auto draw = [&](const ProgramStep& step) { return Random(program.seed, epoch, sample, step.op); };
    const auto happens = [&](const ProgramStep& step) { return draw(step).uniform() < step.numbers[0]; };

    // Rows of a resize go to the batch at once where it is the last that happens to the image, else to memory.
    const auto resized = [&](const Cut& cut, std::uint32_t h, std::uint32_t w, Filter filter, bool flip, bool last) {
        if (!last && std::size_t{h} * w > kLargest / channels)
            throw Failure("size", "the image would become " + std::to_string(h) + "x" + std::to_string(w) + " on its way");
        ResizeSpec spec{cut.height, cut.width, channels, {}, h, w, filter, flip};
        spec.box = {0, 0, static_cast<float>(cut.width), static_cast<float>(cut.height)};
        const std::uint8_t* pixels = nullptr;
        std::ptrdiff_t stride = 0;
        if (pending) {
            s.decode(program, stored, cut, spec, pixels, stride);
        } else {
            const auto region = s.resizer.prepare(spec);
            stride = static_cast<std::ptrdiff_t>(width) * channels;
            pixels = s.image.data() + (cut.top + region.top) * stride +
                     static_cast<std::ptrdiff_t>(cut.left + region.left) * channels;
        }
        s.resizer.source(pixels, stride);
        if (last) {
            if (h != program.height || w != program.width) throw Failure("size", "the image became another size than declared");
            s.line.resize(std::size_t{w} * channels);
            for (std::uint32_t y = 0; y < h; ++y) {
                s.resizer.row(y, s.line.data());
                s.cast->row(s.line.data(), w, place(y), plane);
            }
        } else {
            s.other.resize(std::size_t{h} * w * channels);
            for (std::uint32_t y = 0; y < h; ++y) s.resizer.row(y, s.other.data() + std::size_t{y} * w * channels);
            s.image.swap(s.other);
        }
        height = h;
        width = w;
        pending = false;
    };
    // Has the pixels of the view in memory, unchanged.
    const auto materialise = [&](bool flip, bool last) {
        resized(view, view.height, view.width, Filter::nearest, flip, last);
    };

    for (std::size_t i = 0; i < steps; ++i) {
        const auto& step = program.steps[i];
        bool last = i + 1 == steps;
        // A flip behind a resize costs nothing there.
        const auto folded = [&] {
            bool flip = false;
            while (i + 1 < steps && program.steps[i + 1].kind == Kind::flip) {
                flip ^= happens(program.steps[++i]);
                last = i + 1 == steps;
            }
            return flip;
        };
        switch (step.kind) {
            case Kind::random_resized_crop: {
                auto random = draw(step);
                auto cut = draw_resized_crop(step, random, height, width);
                if (pending) {
                    cut.left += view.left;
                    cut.top += view.top;
                }
                const bool flip = folded();
                resized(cut, step.height, step.width, step.filter, flip, last);
                break;
            }
            case Kind::resize:
            case Kind::resize_shorter: {
                std::uint32_t h = step.height, w = step.width;
                if (step.kind == Kind::resize_shorter) std::tie(h, w) = shorter_side(step.height, height, width);
                const Cut cut = pending ? view : Cut{0, 0, width, height};
                const bool flip = folded();
                resized(cut, h, w, step.filter, flip, last);
                break;
            }
            case Kind::centre_crop:
            case Kind::random_crop: {
                const std::uint64_t padding = step.kind == Kind::random_crop ? static_cast<std::uint32_t>(step.numbers[0]) : 0;
                if (height + 2 * padding < step.height || width + 2 * padding < step.width)
                    bad_size("crop", height, width, step.height, step.width);
                std::int64_t top = (height - step.height) / 2, left = (width - step.width) / 2;
                if (step.kind == Kind::centre_crop) {  // torchvision's centre: a half is rounded to even
                    top = rounded((height - step.height) / 2.0);
                    left = rounded((width - step.width) / 2.0);
                } else {
                    auto random = draw(step);
                    top = static_cast<std::int64_t>(random.below(height + 2 * padding - step.height + 1)) - std::int64_t(padding);
                    left = static_cast<std::int64_t>(random.below(width + 2 * padding - step.width + 1)) - std::int64_t(padding);
                }
                const bool inside = top >= 0 && left >= 0 && top + step.height <= height && left + step.width <= width;
                if (pending && inside) {  // only narrows what will be decoded
                    view = {view.left + static_cast<std::uint32_t>(left), view.top + static_cast<std::uint32_t>(top),
                            step.width, step.height};
                } else {
                    if (pending) materialise(false, false);
                    s.other.resize(std::size_t{step.height} * step.width * channels);
                    Fill fill = step.fill;
                    pad({height, width, channels}, {s.image.data(), std::size_t{height} * width * channels},
                        static_cast<std::int32_t>(-top), static_cast<std::int32_t>(-left), PadMode::constant, fill,
                        {step.height, step.width, channels}, s.other);
                    s.image.swap(s.other);
                }
                height = step.height;
                width = step.width;
                break;
            }
            case Kind::flip: {
                if (!happens(step)) break;
                if (pending) {
                    materialise(true, false);
                    break;
                }
                s.flipped.resize(std::size_t{width} * channels);
                for (std::uint32_t y = 0; y < height; ++y) {
                    auto* row = s.image.data() + std::size_t{y} * width * channels;
                    flip_row(row, width, channels, s.flipped.data());
                    std::memcpy(row, s.flipped.data(), s.flipped.size());
                }
                break;
            }
            case Kind::flip_down: {
                if (!happens(step)) break;
                if (pending) materialise(false, false);
                const std::size_t size = std::size_t{width} * channels;
                for (std::uint32_t y = 0; y < height / 2; ++y)
                    std::swap_ranges(s.image.data() + y * size, s.image.data() + (y + 1) * size,
                                     s.image.data() + (height - 1 - y) * size);
                break;
            }
        }
        // The rows went to the batch with the last step that resized.
        if (last && !pending &&
            (step.kind == Kind::random_resized_crop || step.kind == Kind::resize || step.kind == Kind::resize_shorter))
            return;
    }
    if (height != program.height || width != program.width)
        throw Failure("size", "the image is " + std::to_string(height) + "x" + std::to_string(width) + ", not " +
                                  std::to_string(program.height) + "x" + std::to_string(program.width));
    if (pending) return materialise(false, true);
    for (std::uint32_t y = 0; y < height; ++y)
        s.cast->row(s.image.data() + std::size_t{y} * width * channels, width, place(y), plane);
}

}  // namespace fl
