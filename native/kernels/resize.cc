#include "resize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "resize_passes.h"

namespace fl {

const ResizePasses& resize_passes(Simd level) {
#if defined(__x86_64__)
    if (level == Simd::avx512) return kAvx512Passes;
    if (level == Simd::avx2) return kAvx2Passes;
#endif
    (void)level;
    return kPortablePasses;
}

namespace {

AxisSpec across_of(const ResizeSpec& s) {
    return {s.width, s.out_width, s.box.left, s.box.right, s.filter, s.flip, s.window.left, s.window.width};
}
AxisSpec down_of(const ResizeSpec& s) {
    return {s.height, s.out_height, s.box.top, s.box.bottom, s.filter, false, s.window.top, s.window.height};
}

void check_channels(const ResizeSpec& spec) {
    if (spec.channels < 1 || spec.channels > 4)
        throw Failure("argument", "an image of " + std::to_string(spec.channels) + " channels; it may have 1 to 4");
}

}  // namespace

struct Resizer::Units {
    const AcrossPass* pass = nullptr;
    bool single = false;
    std::vector<Unit> units;
    std::vector<std::uint32_t> windows;
    std::vector<std::uint32_t> memory;  // the tables, behind what aligns them

    std::uint32_t* tables() {
        return memory.data() + (-reinterpret_cast<std::uintptr_t>(memory.data()) & 63) / sizeof(std::uint32_t);
    }

    UnitView view() { return {units, windows.data(), tables()}; }

    void make(const Axis<std::int32_t>& axis, std::uint32_t channels, std::span<const AcrossPass> passes) {
        pass = &passes.back();
        for (const auto& one : passes)
            if (one.shape.chunk >= axis.longest) {
                pass = &one;
                break;
            }
        const auto& shape = pass->shape;
        single = axis.longest <= shape.chunk;
        const auto bytes = static_cast<std::uint32_t>(axis.first.size()) * channels;
        units.clear();
        std::size_t chunks = 0;
        for (std::uint32_t out = 0; out < bytes;) {
            const auto [most, next] = reach(axis, channels, shape, out, bytes);
            units.push_back({out, (most + shape.chunk - 1) / shape.chunk});
            chunks += units.back().chunks;
            out = next;
        }
        windows.clear();
        memory.assign(chunks * shape.table_size() + 16, 0);
        auto* table = tables();
        for (std::size_t u = 0; u < units.size(); ++u) {
            const auto end = u + 1 < units.size() ? units[u + 1].out : bytes;
            for (std::uint32_t k = 0; k < units[u].chunks; ++k, table += shape.table_size())
                windows.push_back(fill(axis, channels, shape, units[u].out, end, k * shape.chunk, table));
        }
    }

    // The unit that begins at `out`: its largest count of taps, and where the next one begins.
    static std::pair<std::uint32_t, std::uint32_t> reach(const Axis<std::int32_t>& axis, std::uint32_t channels,
                                                         const UnitShape& shape, std::uint32_t out,
                                                         std::uint32_t bytes) {
        const auto x = out / channels;
        const auto stop = std::min(out + shape.lanes, bytes);
        std::uint32_t most = 0, next = x;
        for (; next * channels < stop; ++next) {
            const auto one = axis.first[x], other = axis.first[next];
            const auto apart = one < other ? other - one : one - other;
            if (next > x && (apart + shape.chunk) * channels > shape.window) break;
            most = std::max(most, axis.count[next]);
        }
        return {most, std::min(stop, next * channels)};
    }

    // The table of the taps from `tap` on, for the bytes begin..end of the output; returns where the window lies.
    static std::uint32_t fill(const Axis<std::int32_t>& axis, std::uint32_t channels, const UnitShape& shape,
                              std::uint32_t begin, std::uint32_t end, std::uint32_t tap, std::uint32_t* table) {
        const auto row_bytes = (axis.end - axis.begin) * channels;
        const auto leftmost = std::min(axis.first[begin / channels], axis.first[(end - 1) / channels]) - axis.begin;
        const auto window =
            std::min((leftmost + tap) * channels, std::max(row_bytes, shape.window) - shape.window);
        const bool pairs = shape.chunk == 2;
        // A lane's indices: where its first byte lies, and one pixel further for each tap. 0x80 gives a zero, which makes
        // 16 bits of a byte. What lies past a pixel's last tap has no weight and may be any byte.
        const std::uint32_t ones = pairs ? 0x00010001u : 0x01010101u;
        const std::uint32_t steps = pairs ? 0x80008000u + (channels << 16) : channels * 0x03020100u;
        for (std::uint32_t x = begin / channels; x * channels < end; ++x) {
            const auto weights = axis.of(x);
            if (weights.size() <= tap) continue;
            std::uint32_t digits[3] = {};
            if (pairs) {
                const auto cut = cut_pair(weights.data() + tap, weights.size() - tap);
                digits[0] = cut.high, digits[1] = cut.low;
            } else {
                const auto cut = cut_quad(weights.data() + tap, weights.size() - tap);
                digits[0] = cut.high, digits[1] = cut.middle, digits[2] = cut.low;
            }
            const auto pixel = (axis.first[x] - axis.begin + tap) * channels - window;
            const auto first = std::max(x * channels, begin), last = std::min((x + 1) * channels, end);
            for (auto out = first; out < last; ++out) {
                auto* lane = table + (out - begin);
                lane[0] = (pixel + (out - x * channels)) * ones + steps;
                for (std::uint32_t d = 0; d + 1 < shape.planes(); ++d) lane[(d + 1) * shape.lanes] = digits[d];
            }
        }
        return window;
    }
};

Resizer::Resizer(Simd level) : passes_(resize_passes(level)), units_(std::make_unique<Units>()) {}
Resizer::~Resizer() = default;

Region Resizer::prepare(const ResizeSpec& spec) {
    check_channels(spec);
    const auto across = across_of(spec), down = down_of(spec);
    if (across_spec_ != across) {
        across_spec_.reset();  // a failure leaves no half-made table behind
        make_axis(across, across_);
        across_spec_ = across;
        units_channels_ = 0;
    }
    if (down_spec_ != down) {
        down_spec_.reset();
        make_axis(down, down_);
        down_spec_ = down;
    }
    spec_ = spec;
    const std::size_t row_bytes = std::size_t{spec.made_width()} * spec.channels;
    in_place_ = spec.filter == Filter::nearest || (across_.identity && row_bytes >= passes_.shortest);
    if (!in_place_) {
        if (!passes_.across_units.empty() && units_channels_ != spec.channels) {
            units_->make(across_, spec.channels, passes_.across_units);
            units_channels_ = spec.channels;
            narrow_.resize(kRowsAtOnce * std::size_t{units_->pass->shape.window});
        }
        ring_stride_ = (row_bytes + kRowSlack + 63) & ~std::size_t{63};
        ring_rows_ = std::bit_ceil(std::min(down_.longest + kRowsAtOnce, down_.end - down_.begin));
        ring_.resize(ring_stride_ * ring_rows_);
    }
    taps_.resize(down_.longest);
    return {down_.begin, across_.begin, down_.end, across_.end};
}

void Resizer::source(const std::uint8_t* pixels, std::ptrdiff_t stride) {
    pixels_ = pixels;
    stride_ = stride;
    ready_ = down_.begin;
}

// The horizontal pass, over source rows up to `end` and as many more as are done at once.
void Resizer::fill_until(std::uint32_t end) {
    const std::size_t row_bytes = std::size_t{across_.end - across_.begin} * spec_.channels;
    const std::uint8_t* rows[kRowsAtOnce];
    std::uint8_t* out[kRowsAtOnce];
    while (ready_ < end) {
        const auto count = std::min({kRowsAtOnce, down_.end - ready_, ring_rows_});
        for (std::uint32_t i = 0; i < count; ++i) {
            rows[i] = pixels_ + static_cast<std::ptrdiff_t>(ready_ + i - down_.begin) * stride_;
            out[i] = ring_.data() + ((ready_ + i) & (ring_rows_ - 1)) * ring_stride_;
        }
        if (const auto* pass = passes_.across_units.empty() ? nullptr : units_->pass) {
            if (const std::size_t window = pass->shape.window; row_bytes < window)  // windows reach past such a row
                for (std::uint32_t i = 0; i < count; ++i) {
                    std::memcpy(narrow_.data() + i * window, rows[i], row_bytes);
                    rows[i] = narrow_.data() + i * window;
                }
            pass->run(units_->view(), units_->single, rows, out, count);
        } else {
            for (std::uint32_t i = 0; i < count; ++i) passes_.across(across_, spec_.channels, rows[i], out[i]);
        }
        ready_ += count;
    }
}

void Resizer::row(std::uint32_t y, std::uint8_t* out) {
    const std::size_t row_bytes = std::size_t{spec_.made_width()} * spec_.channels;
    const auto first = down_.first[y], count = down_.count[y];
    const auto at = [&](std::uint32_t row) {
        return pixels_ + static_cast<std::ptrdiff_t>(row - down_.begin) * stride_;
    };
    if (spec_.filter == Filter::nearest) {
        const std::uint8_t* from = at(first);
        for (std::size_t x = 0; x < spec_.made_width(); ++x, out += spec_.channels) {
            const std::uint8_t* pixel = from + std::size_t{across_.first[x] - across_.begin} * spec_.channels;
            for (std::uint32_t c = 0; c < spec_.channels; ++c) out[c] = pixel[c];
        }
        return;
    }
    if (!in_place_) fill_until(first + count);
    for (std::uint32_t i = 0; i < count; ++i)
        taps_[i] = in_place_ ? at(first + i) : ring_.data() + ((first + i) & (ring_rows_ - 1)) * ring_stride_;
    const std::int32_t* weights = down_.weights.data() + std::size_t{y} * down_.stride;
    if (count == 1 && weights[0] == 1 << kWeightBits)
        std::memcpy(out, taps_[0], row_bytes);
    else
        passes_.down(taps_.data(), weights, count, out, row_bytes);
}

namespace {

void check_size(std::size_t given, const ResizeSpec& spec, std::uint64_t height, std::uint64_t width, const char* what) {
    if (given != height * width * spec.channels)
        throw Failure("argument", std::string("the ") + what + " has another size than its shape");
}

void check_spec(const ResizeSpec& spec) {
    check_channels(spec);
    for (const auto side : {spec.height, spec.width}) check_side(side, "source");
    for (const auto side : {spec.out_height, spec.out_width}) check_side(side, "output");
}

Resizer& of_this_thread(Simd level) {
    thread_local std::unique_ptr<Resizer> resizers[3];
    auto& one = resizers[static_cast<std::size_t>(level)];
    if (!one) one = std::make_unique<Resizer>(level);
    return *one;
}

std::uint16_t to_sample(double value, std::uint16_t) {
    return static_cast<std::uint16_t>(std::clamp(std::floor(value + 0.5), 0.0, 65535.0));
}
float to_sample(double value, float) { return static_cast<float>(value); }

template <class T>
void resize_plain(const ResizeSpec& spec, std::span<const T> pixels, std::span<T> out) {
    check_spec(spec);
    check_size(pixels.size(), spec, spec.height, spec.width, "source");
    check_size(out.size(), spec, spec.made_height(), spec.made_width(), "output");
    Axis<double> across, down;
    make_axis(across_of(spec), across);
    make_axis(down_of(spec), down);
    const std::size_t channels = spec.channels, row = spec.made_width() * channels;
    std::vector<T> middle((down.end - down.begin) * row);
    for (std::size_t y = down.begin; y < down.end; ++y)
        for (std::size_t x = 0; x < spec.made_width(); ++x)
            for (std::size_t c = 0; c < channels; ++c) {
                const T* from = pixels.data() + (y * spec.width + across.first[x]) * channels + c;
                double sum = 0;
                for (const double weight : across.of(x)) {
                    sum += *from * weight;
                    from += channels;
                }
                middle[(y - down.begin) * row + x * channels + c] = to_sample(sum, T{});
            }
    for (std::size_t y = 0; y < spec.made_height(); ++y)
        for (std::size_t i = 0; i < row; ++i) {
            const T* from = middle.data() + (down.first[y] - down.begin) * row + i;
            double sum = 0;
            for (const double weight : down.of(y)) {
                sum += *from * weight;
                from += row;
            }
            out[y * row + i] = to_sample(sum, T{});
        }
}

}  // namespace

Region resize_region(const ResizeSpec& spec) {
    check_spec(spec);
    return of_this_thread(best_simd()).prepare(spec);
}

void resize(const ResizeSpec& spec, std::span<const std::uint8_t> pixels, std::span<std::uint8_t> out, Simd level,
            bool cropped) {
    check_spec(spec);
    check_size(out.size(), spec, spec.made_height(), spec.made_width(), "output");
    Resizer& resizer = of_this_thread(level);
    const auto region = resizer.prepare(spec);
    const auto height = cropped ? region.bottom - region.top : spec.height;
    const auto width = cropped ? region.right - region.left : spec.width;
    check_size(pixels.size(), spec, height, width, cropped ? "region" : "source");
    const std::size_t stride = std::size_t{width} * spec.channels;
    const std::size_t begin = cropped ? 0 : region.top * stride + std::size_t{region.left} * spec.channels;
    resizer.source(pixels.data() + begin, static_cast<std::ptrdiff_t>(stride));
    for (std::uint32_t y = 0; y < spec.made_height(); ++y)
        resizer.row(y, out.data() + std::size_t{y} * spec.made_width() * spec.channels);
}

void resize(const ResizeSpec& spec, std::span<const std::uint16_t> pixels, std::span<std::uint16_t> out) {
    resize_plain(spec, pixels, out);
}

void resize(const ResizeSpec& spec, std::span<const float> pixels, std::span<float> out) {
    resize_plain(spec, pixels, out);
}

}  // namespace fl
