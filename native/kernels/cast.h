// The last step of an image: rows of 8-bit pixels become elements of a batch. value = pixel * scale + bias, in float32,
// the product rounded and then the sum, on CPUs with fused multiply-add too; then rounded to the element, to even where
// two are as near. That is what numpy gives for (pixels.astype("float32") * scale + bias).astype(element).
#pragma once

#include <array>
#include <vector>

#include "simd.h"

namespace fl {

enum class Element : std::uint8_t { uint8, float16, bfloat16, float32 };
enum class Layout : std::uint8_t { hwc, chw };

inline std::size_t size_of(Element element) {
    return element == Element::uint8 ? 1 : element == Element::float32 ? 4 : 2;
}

struct CastSpec {
    Element element = Element::float32;
    Layout layout = Layout::chw;
    std::uint32_t channels = 3;
    std::array<float, 4> scale{1, 1, 1, 1};  // one a channel; uint8 takes 1 and 0 alone
    std::array<float, 4> bias{};
    bool flip = false;  // left and right exchanged
};

class Cast {
public:
    // Throws Failure "argument" for channels other than 1 to 4, factors that are not finite, uint8 with factors.
    explicit Cast(const CastSpec& spec, Simd level = best_simd());

    // One row of `width` pixels. In hwc they go to `out` one behind the other; in chw the row of channel c goes to
    // out + c * plane elements.
    void row(const std::uint8_t* pixels, std::size_t width, std::uint8_t* out, std::size_t plane) const;

    // A whole image; both sizes are checked.
    void image(Bytes pixels, std::uint32_t height, std::uint32_t width, MutableBytes out) const;

    struct Pattern {  // scale and bias of 24 samples in a row: three registers of eight
        float scale[24], bias[24];
    };

private:
    CastSpec spec_;
    bool avx2_;
    Pattern pattern_;
    std::vector<std::uint32_t> table_;  // the element of each of 256 samples, for each channel
};

#if defined(__x86_64__)
// Each returns how many samples or pixels of the output it made, from the first one on; the rest is left to the caller.
// `samples` is for hwc and makes a multiple of 48; with a flip, of three channels alone. `planes` is for chw and three
// channels, and makes all or none.
std::size_t cast_samples_avx2(const Cast::Pattern& pattern, const CastSpec& spec, const std::uint8_t* from,
                              std::size_t count, std::uint8_t* out);
std::size_t cast_planes_avx2(const CastSpec& spec, const std::uint8_t* pixels, std::size_t width, std::uint8_t* out,
                             std::size_t plane);
#endif

}  // namespace fl
