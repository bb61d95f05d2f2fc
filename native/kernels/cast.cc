#include "cast.h"

#include <algorithm>
#include <cmath>

#include "axis.h"
#include "half.h"

namespace fl {
namespace {

std::uint32_t element_of(std::uint32_t sample, float scale, float bias, Element element) {
    const float product = static_cast<float>(sample) * scale;
    const float value = product + bias;
    switch (element) {
        case Element::uint8: return sample;
        case Element::float16: return to_half(value);
        case Element::bfloat16: return to_bfloat(value);
        default: return std::bit_cast<std::uint32_t>(value);
    }
}

void check(const CastSpec& spec) {
    if (spec.channels < 1 || spec.channels > 4)
        throw Failure("argument", "an image of " + std::to_string(spec.channels) + " channels; it may have 1 to 4");
    for (std::uint32_t c = 0; c < spec.channels; ++c) {
        if (!std::isfinite(spec.scale[c]) || !std::isfinite(spec.bias[c]))
            throw Failure("argument", "the factors of channel " + std::to_string(c) + " are not finite");
        if (spec.element == Element::uint8 && (spec.scale[c] != 1 || spec.bias[c] != 0))
            throw Failure("argument", "uint8 takes no normalisation; cast to float16, bfloat16 or float32");
    }
}

// Samples that lie `step` bytes apart, back to front where it is negative, to elements `out_step` apart.
template <class T>
void look_up(const std::uint32_t* table, const std::uint8_t* from, std::size_t count, std::ptrdiff_t step,
             std::size_t out_step, std::uint8_t* out) {
    for (std::size_t i = 0; i < count; ++i)
        store(out + i * out_step * sizeof(T), static_cast<T>(table[from[static_cast<std::ptrdiff_t>(i) * step]]));
}

}  // namespace

Cast::Cast(const CastSpec& spec, Simd level) : spec_(spec), avx2_(level != Simd::portable) {
    check(spec);
    if (spec.channels == 1) spec_.layout = Layout::hwc;  // one plane is the same either way, and the simpler path
    table_.resize(256 * spec.channels);
    for (std::uint32_t i = 0; i < table_.size(); ++i)
        table_[i] = element_of(i % 256, spec.scale[i / 256], spec.bias[i / 256], spec.element);
    for (std::uint32_t i = 0; i < 24; ++i) {
        pattern_.scale[i] = spec.scale[i % spec.channels];
        pattern_.bias[i] = spec.bias[i % spec.channels];
    }
}

void Cast::row(const std::uint8_t* pixels, std::size_t width, std::uint8_t* out, std::size_t plane) const {
    const std::size_t channels = spec_.channels, size = size_of(spec_.element);
    const bool hwc = spec_.layout == Layout::hwc;
    if (hwc && !spec_.flip && spec_.element == Element::uint8) {
        std::memcpy(out, pixels, width * channels);
        return;
    }
    std::size_t done = 0;
#if defined(__x86_64__)
    if (avx2_ && hwc && (!spec_.flip || channels == 3))
        done = cast_samples_avx2(pattern_, spec_, pixels, width * channels, out) / channels;
    else if (avx2_ && !hwc && channels == 3)
        done = cast_planes_avx2(spec_, pixels, width, out, plane);
#endif
    if (done == width) return;
    const auto step = static_cast<std::ptrdiff_t>(spec_.flip ? -channels : channels);
    for (std::size_t c = 0; c < channels; ++c) {
        const std::uint32_t* table = table_.data() + 256 * c;
        const std::uint8_t* from = pixels + (spec_.flip ? width - 1 - done : done) * channels + c;
        std::uint8_t* to = out + (hwc ? done * channels + c : c * plane + done) * size;
        const std::size_t out_step = hwc ? channels : 1;
        switch (size) {
            case 1: look_up<std::uint8_t>(table, from, width - done, step, out_step, to); break;
            case 2: look_up<std::uint16_t>(table, from, width - done, step, out_step, to); break;
            default: look_up<std::uint32_t>(table, from, width - done, step, out_step, to);
        }
    }
}

void Cast::image(Bytes pixels, std::uint32_t height, std::uint32_t width, MutableBytes out) const {
    check_side(height, "image"), check_side(width, "image");
    const std::size_t plane = std::size_t{height} * width, samples = plane * spec_.channels;
    const std::size_t size = size_of(spec_.element);
    if (pixels.size() != samples) throw Failure("argument", "the pixels have another size than their shape");
    if (out.size() != samples * size) throw Failure("argument", "the output has another size than its shape");
    if (!spec_.flip) return row(pixels.data(), plane, out.data(), plane);  // rows follow each other
    const std::size_t step = std::size_t{width} * (spec_.layout == Layout::hwc ? spec_.channels : 1) * size;
    const std::size_t row_bytes = std::size_t{width} * spec_.channels;
    for (std::size_t y = 0; y < height; ++y) {
        // Rows are read from their end, which the CPU does not foresee.
        for (std::size_t ahead = (y + 2) * row_bytes; ahead < std::min((y + 3) * row_bytes, samples); ahead += 64)
            __builtin_prefetch(pixels.data() + ahead);
        row(pixels.data() + y * row_bytes, width, out.data() + y * step, plane);
    }
}

}  // namespace fl
