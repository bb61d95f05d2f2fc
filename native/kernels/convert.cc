#include "convert.h"

#include <cmath>

#include "half.h"

namespace fl {
namespace {

struct Half {
    std::uint16_t bits;
    explicit operator float() const { return from_half(bits); }
};

struct Bfloat {
    std::uint16_t bits;
    explicit operator float() const { return from_bfloat(bits); }
};

// Calls `what` with a number of the type that is named.
template <class What>
auto with_type(Number number, What what) {
    switch (number) {
        case Number::uint8: return what(std::uint8_t{});
        case Number::int8: return what(std::int8_t{});
        case Number::uint16: return what(std::uint16_t{});
        case Number::int16: return what(std::int16_t{});
        case Number::uint32: return what(std::uint32_t{});
        case Number::int32: return what(std::int32_t{});
        case Number::uint64: return what(std::uint64_t{});
        case Number::int64: return what(std::int64_t{});
        case Number::float32: return what(float{});
        case Number::float16: return what(Half{});
        case Number::bfloat16: return what(Bfloat{});
        default: return what(double{});
    }
}

// Channel by channel; `made` turns a float32 into what is stored.
template <class From, class Made>
void each(const Conversion& how, const std::uint8_t* given, std::uint8_t* out, Made made) {
    using To = decltype(made(0.0f));
    const auto first = [&](Layout layout, std::size_t c) { return layout == Layout::hwc ? c : c * how.pixels; };
    const auto step = [&](Layout layout) { return layout == Layout::hwc ? how.channels : 1; };
    const std::size_t from_step = step(how.given) * sizeof(From), to_step = step(how.made) * sizeof(To);
    for (std::size_t c = 0; c < how.channels; ++c) {
        const auto* from = given + first(how.given, c) * sizeof(From);
        auto* to = out + first(how.made, c) * sizeof(To);
        const auto number = [&](std::size_t i) { return static_cast<float>(load<From>(from + i * from_step)); };
        if (how.scale.empty()) {
            for (std::size_t i = 0; i < how.pixels; ++i) store(to + i * to_step, made(number(i)));
            continue;
        }
        const float scale = how.scale[c], bias = how.bias[c];
        for (std::size_t i = 0; i < how.pixels; ++i) {
            const float product = number(i) * scale;
            store(to + i * to_step, made(product + bias));
        }
    }
}

}  // namespace

std::size_t size_of(Number number) {
    return with_type(number, [](auto zero) { return sizeof zero; });
}

void check_conversion(const Conversion& how) {
    if (how.scale.size() != how.bias.size() || (!how.scale.empty() && how.scale.size() != how.channels))
        throw Failure("argument", "a scale and a bias for each channel");
    for (std::size_t c = 0; c < how.scale.size(); ++c)
        if (!std::isfinite(how.scale[c]) || !std::isfinite(how.bias[c]))
            throw Failure("argument", "the factors of channel " + std::to_string(c) + " are not finite");
    if (how.to == Element::uint8 && (how.from != Number::uint8 || !how.scale.empty()))
        throw Failure("argument", "uint8 is made of uint8 alone, as it is");
    constexpr std::size_t kMost = std::size_t{1} << 56;
    if (how.channels == 0 || how.pixels == 0 || how.pixels > kMost / how.channels)
        throw Failure("argument", "an array without numbers, or with too many");
}

void convert(const Conversion& how, Bytes given, MutableBytes out) {
    with_type(how.from, [&](auto zero) {
        using From = decltype(zero);
        switch (how.to) {
            case Element::uint8: return each<From>(how, given.data(), out.data(), [](float x) { return static_cast<std::uint8_t>(x); });
            case Element::float16: return each<From>(how, given.data(), out.data(), to_half);
            case Element::bfloat16: return each<From>(how, given.data(), out.data(), to_bfloat);
            default: return each<From>(how, given.data(), out.data(), [](float x) { return x; });
        }
    });
}

}  // namespace fl
