// Operations on pixels, and random numbers.
#include "bind.h"

#include "affine.h"
#include "cast.h"
#include "colour.h"
#include "geometry.h"
#include "mix.h"
#include "mix_draw.h"
#include "random.h"
#include "resize.h"
#include "smooth.h"
#include "tones.h"

namespace bind {

namespace {

fl::Simd simd_of(const std::string& level) {
    if (level.empty()) return fl::best_simd();
    for (const auto one : fl::simd_levels())
        if (level == fl::name_of(one)) return one;
    throw nb::value_error("no such instructions on this CPU");
}

fl::ResizeSpec resize_spec(const PixelShape& shape, const FloatBox& box, const PixelSize& size, int filter, bool flip) {
    if (filter < 0 || filter > static_cast<int>(fl::Filter::lanczos)) throw nb::value_error("no such filter");
    const auto [height, width, channels] = shape;
    const auto [left, top, right, bottom] = box;
    const auto [out_height, out_width] = size;
    return {height, width, channels, {left, top, right, bottom}, out_height, out_width,
            static_cast<fl::Filter>(filter), flip};
}

}  // namespace

void bind_resize(nb::module_& m) {
    m.def("simd_levels", [] {
        std::vector<std::string> names;
        for (const auto level : fl::simd_levels()) names.emplace_back(fl::name_of(level));
        return names;
    });

    m.def("resize_region", [](const PixelShape& shape, const FloatBox& box, const PixelSize& size, int filter) {
        const auto region = fl::resize_region(resize_spec(shape, box, size, filter, false));
        return std::tuple(region.top, region.left, region.bottom, region.right);
    }, "shape"_a, "box"_a, "size"_a, "filter"_a);

    m.def("resize", [](nb::object pixels, const PixelShape& shape, int samples, const FloatBox& box,
                       const PixelSize& size, int filter, bool flip, nb::object out, const std::string& level,
                       bool cropped) {
        const auto spec = resize_spec(shape, box, size, filter, flip);
        const auto simd = simd_of(level);
        Buffer from(pixels);
        MutableBuffer to(out);
        const auto run = [&]<class T>(T) {
            const auto source = from.as<T>();
            const auto result = to.as<T>();
            nb::gil_scoped_release release;
            if constexpr (sizeof(T) == 1)
                fl::resize(spec, source, result, simd, cropped);
            else
                fl::resize(spec, source, result);
        };
        if (cropped && samples != 0) throw nb::value_error("a region alone is taken of 8-bit samples");
        switch (samples) {
            case 0: return run(std::uint8_t{});
            case 1: return run(std::uint16_t{});
            case 2: return run(float{});
            default: throw nb::value_error("no such samples");
        }
    }, "pixels"_a, "shape"_a, "samples"_a, "box"_a, "size"_a, "filter"_a, "flip"_a, "out"_a, "level"_a = "",
       "cropped"_a = false,
       nb::sig("def resize(pixels: Buffer, shape: tuple[int, int, int], samples: int, "
               "box: tuple[float, float, float, float], size: tuple[int, int], filter: int, flip: bool, out: Buffer, "
               "level: str = '', cropped: bool = False) -> None"));
}

void bind_cast(nb::module_& m) {
    m.def("cast", [](nb::object pixels, const PixelShape& shape, int element, int layout,
                     const std::vector<float>& scale, const std::vector<float>& bias, bool flip, nb::object out,
                     const std::string& level) {
        if (element < 0 || element > static_cast<int>(fl::Element::float32)) throw nb::value_error("no such element");
        if (layout < 0 || layout > static_cast<int>(fl::Layout::chw)) throw nb::value_error("no such layout");
        const auto [height, width, channels] = shape;
        fl::CastSpec spec{static_cast<fl::Element>(element), static_cast<fl::Layout>(layout), channels, {}, {}, flip};
        if (scale.size() != channels || bias.size() != channels || channels > spec.scale.size())
            throw nb::value_error("one scale and one bias a channel, for up to four channels");
        std::copy(scale.begin(), scale.end(), spec.scale.begin());
        std::copy(bias.begin(), bias.end(), spec.bias.begin());
        const auto simd = simd_of(level);
        Buffer from(pixels);
        MutableBuffer to(out);
        nb::gil_scoped_release release;
        fl::Cast(spec, simd).image(from.bytes(), height, width, to.bytes());
    }, "pixels"_a, "shape"_a, "element"_a, "layout"_a, "scale"_a, "bias"_a, "flip"_a, "out"_a, "level"_a = "",
       nb::sig("def cast(pixels: Buffer, shape: tuple[int, int, int], element: int, layout: int, scale: list[float], "
               "bias: list[float], flip: bool, out: Buffer, level: str = '') -> None"));
}

namespace {

fl::Frame frame_of(const PixelShape& shape) { return {std::get<0>(shape), std::get<1>(shape), std::get<2>(shape)}; }

void refuse_overlap(fl::Bytes from, fl::Bytes to) {
    const std::less<const std::uint8_t*> before;
    if (before(from.data(), to.data() + to.size()) && before(to.data(), from.data() + from.size()))
        throw nb::value_error("the output overlaps the input");
}

// An operation on an image: its pixels and shape, what the operation takes, and where the result goes.
template <class... Options, class Kernel>
auto pixel_op(Kernel kernel, bool in_place = true) {
    return [kernel, in_place](nb::object image, const PixelShape& shape, Options... options, nb::object out,
                              const std::string& level) {
        const auto simd = simd_of(level);
        Buffer from(image);
        MutableBuffer to(out);
        if (!in_place) refuse_overlap(from.bytes(), to.bytes());
        nb::gil_scoped_release release;
        kernel(frame_of(shape), from.bytes(), options..., to.bytes(), simd);
    };
}

// Its result is a table of tones that `make` gives for the image.
template <class... Options, class Make>
auto tone_op(Make make) {
    return pixel_op<Options...>([make](const fl::Frame& frame, fl::Bytes image, Options... options,
                                       fl::MutableBytes out, fl::Simd level) {
        fl::check_frame(frame, image.size(), "image");
        fl::apply_tone(make(frame, image, options...), image, out, level);
    });
}

}  // namespace

#define FL_PIXEL_SIG(name, options) \
    nb::sig("def " name "(image: Buffer, shape: tuple[int, int, int], " options "out: Buffer, level: str = '') -> None")

void bind_tones(nb::module_& m) {
    m.def("brightness", tone_op<float>([](const fl::Frame&, fl::Bytes, float factor) {
              return fl::brightness_tone(factor);
          }),
          "image"_a, "shape"_a, "factor"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("brightness", "factor: float, "));
    m.def("contrast", tone_op<float>([](const fl::Frame& frame, fl::Bytes image, float factor) {
              return fl::contrast_tone(factor, fl::mean_luma(frame, image));
          }),
          "image"_a, "shape"_a, "factor"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("contrast", "factor: float, "));
    m.def("invert", tone_op<>([](const fl::Frame&, fl::Bytes) { return fl::invert_tone(); }), "image"_a,
          "shape"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("invert", ""));
    m.def("solarize", tone_op<std::uint32_t>([](const fl::Frame&, fl::Bytes, std::uint32_t threshold) {
              return fl::solarize_tone(threshold);
          }),
          "image"_a, "shape"_a, "threshold"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("solarize", "threshold: int, "));
    m.def("posterize", tone_op<std::uint32_t>([](const fl::Frame&, fl::Bytes, std::uint32_t bits) {
              return fl::posterize_tone(bits);
          }),
          "image"_a, "shape"_a, "bits"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("posterize", "bits: int, "));
    m.def("equalize", pixel_op<>(fl::equalize), "image"_a, "shape"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("equalize", ""));
    m.def("autocontrast", pixel_op<>(fl::autocontrast), "image"_a, "shape"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("autocontrast", ""));
    m.def("grayscale", pixel_op<std::uint32_t>(fl::grayscale), "image"_a, "shape"_a, "channels"_a, "out"_a,
          "level"_a = "", FL_PIXEL_SIG("grayscale", "channels: int, "));
    m.def("saturation", pixel_op<float>(fl::saturate), "image"_a, "shape"_a, "factor"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("saturation", "factor: float, "));
    m.def("hue", pixel_op<std::uint8_t>(fl::shift_hue), "image"_a, "shape"_a, "shift"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("hue", "shift: int, "));
    m.def("sharpness", pixel_op<float>(fl::sharpen, false), "image"_a, "shape"_a, "factor"_a, "out"_a,
          "level"_a = "", FL_PIXEL_SIG("sharpness", "factor: float, "));
    using Two = std::tuple<std::uint32_t, std::uint32_t>;
    m.def("gaussian_blur", pixel_op<const Two&, const std::tuple<double, double>&>(
              [](const fl::Frame& frame, fl::Bytes image, const Two& size, const std::tuple<double, double>& sigma,
                 fl::MutableBytes out, fl::Simd level) {
                  fl::gaussian_blur(frame, image, std::get<1>(size), std::get<0>(size), std::get<1>(sigma),
                                    std::get<0>(sigma), out, level);
              }, false),
          "image"_a, "shape"_a, "size"_a, "sigma"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("gaussian_blur", "size: tuple[int, int], sigma: tuple[float, float], "));
}

fl::Fill fill_of(const std::vector<std::uint8_t>& values, const PixelShape& shape) {
    fl::Fill fill{};
    if (values.size() != std::get<2>(shape) || values.size() > fill.size())
        throw nb::value_error("one value a channel, for up to four channels");
    std::copy(values.begin(), values.end(), fill.begin());
    return fill;
}

void bind_geometry(nb::module_& m) {
    m.def("affine", [](nb::object image, const PixelShape& shape, const std::vector<double>& matrix, bool bilinear,
                       const std::vector<std::uint8_t>& fill, nb::object out, const PixelSize& size,
                       const std::string& level) {
        fl::Matrix numbers;
        if (matrix.size() != numbers.size()) throw nb::value_error("a matrix of six numbers");
        std::copy(matrix.begin(), matrix.end(), numbers.begin());
        const auto filling = fill_of(fill, shape);
        const auto simd = simd_of(level);
        Buffer from(image);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        nb::gil_scoped_release release;
        fl::affine(frame_of(shape), from.bytes(), numbers, bilinear, filling,
                   {std::get<0>(size), std::get<1>(size), std::get<2>(shape)}, to.bytes(), simd);
    }, "image"_a, "shape"_a, "matrix"_a, "bilinear"_a, "fill"_a, "out"_a, "size"_a, "level"_a = "",
       nb::sig("def affine(image: Buffer, shape: tuple[int, int, int], matrix: list[float], bilinear: bool, "
               "fill: list[int], out: Buffer, size: tuple[int, int], level: str = '') -> None"));

    m.def("pad_image", [](nb::object image, const PixelShape& shape, const std::tuple<std::int32_t, std::int32_t>& at,
                          int mode, const std::vector<std::uint8_t>& fill, nb::object out, const PixelSize& size) {
        if (mode < 0 || mode > static_cast<int>(fl::PadMode::symmetric)) throw nb::value_error("no such padding");
        const auto filling = fill_of(fill, shape);
        Buffer from(image);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        nb::gil_scoped_release release;
        fl::pad(frame_of(shape), from.bytes(), std::get<0>(at), std::get<1>(at), static_cast<fl::PadMode>(mode),
                filling, {std::get<0>(size), std::get<1>(size), std::get<2>(shape)}, to.bytes());
    }, "image"_a, "shape"_a, "at"_a, "mode"_a, "fill"_a, "out"_a, "size"_a,
       nb::sig("def pad_image(image: Buffer, shape: tuple[int, int, int], at: tuple[int, int], mode: int, "
               "fill: list[int], out: Buffer, size: tuple[int, int]) -> None"));

    using WholeBox = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
    const auto box_of = [](const WholeBox& box) {
        const auto [top, left, bottom, right] = box;
        return fl::PixelBox{top, left, bottom, right};
    };
    m.def("erase", [box_of](nb::object image, const PixelShape& shape, const WholeBox& box,
                            const std::vector<std::uint8_t>& fill) {
        MutableBuffer to(image);
        fl::erase(frame_of(shape), to.bytes(), box_of(box), fill_of(fill, shape));
    }, "image"_a, "shape"_a, "box"_a, "fill"_a,
       nb::sig("def erase(image: Buffer, shape: tuple[int, int, int], box: tuple[int, int, int, int], "
               "fill: list[int]) -> None"));
    m.def("erase_noise", [box_of](nb::object image, const PixelShape& shape, const WholeBox& box, std::uint64_t seed,
                                  std::uint64_t epoch, std::uint64_t sample, std::uint32_t op) {
        MutableBuffer to(image);
        nb::gil_scoped_release release;
        fl::Random noise(seed, epoch, sample, op);
        fl::erase(frame_of(shape), to.bytes(), box_of(box), noise);
    }, "image"_a, "shape"_a, "box"_a, "seed"_a, "epoch"_a, "sample"_a, "op"_a,
       nb::sig("def erase_noise(image: Buffer, shape: tuple[int, int, int], box: tuple[int, int, int, int], seed: int, "
               "epoch: int, sample: int, op: int) -> None"));
}

void bind_mix(nb::module_& m) {
    m.def("mixup", [](nb::object batch, int element, nb::object partners, nb::object shares, nb::object out) {
        if (element < 0 || element > static_cast<int>(fl::Element::float32)) throw nb::value_error("no such element");
        Buffer from(batch), whom(partners), how(shares);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        const auto with = whom.as<std::int64_t>();
        const auto parts = how.as<float>();
        nb::gil_scoped_release release;
        fl::mixup(static_cast<fl::Element>(element), from.bytes(), with, parts, to.bytes());
    }, "batch"_a, "element"_a, "partners"_a, "shares"_a, "out"_a,
       nb::sig("def mixup(batch: Buffer, element: int, partners: Buffer, shares: Buffer, out: Buffer) -> None"));

    m.def("cutmix", [](nb::object batch, const PixelShape& shape, std::size_t element_size, int layout,
                       nb::object partners, nb::object boxes, nb::object out) {
        if (layout < 0 || layout > static_cast<int>(fl::Layout::chw)) throw nb::value_error("no such layout");
        Buffer from(batch), whom(partners), where(boxes);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        const auto with = whom.as<std::int64_t>();
        const auto places = where.as<fl::PixelBox>();
        nb::gil_scoped_release release;
        fl::cutmix(frame_of(shape), element_size, static_cast<fl::Layout>(layout), from.bytes(), with, places,
                   to.bytes());
    }, "batch"_a, "shape"_a, "element_size"_a, "layout"_a, "partners"_a, "boxes"_a, "out"_a,
       nb::sig("def cutmix(batch: Buffer, shape: tuple[int, int, int], element_size: int, layout: int, "
               "partners: Buffer, boxes: Buffer, out: Buffer) -> None"));

    m.def("draw_mix", [](std::uint64_t seed, std::uint64_t epoch, nb::object samples, std::uint32_t op, double alpha,
                         nb::object out) {
        Buffer numbers(samples);
        MutableBuffer to(out);
        const auto whom = numbers.as<std::int64_t>();
        const auto draws = to.as<fl::MixDraw>();
        nb::gil_scoped_release release;
        fl::draw_mix(seed, epoch, whom, op, alpha, draws);
    }, "seed"_a, "epoch"_a, "samples"_a, "op"_a, "alpha"_a, "out"_a,
       nb::sig("def draw_mix(seed: int, epoch: int, samples: Buffer, op: int, alpha: float, out: Buffer) -> None"));
}

namespace {

// Fills an array from the beginning of a stream.
template <class T, class Draw>
auto random_op(Draw draw) {
    return [draw](std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample, std::uint32_t op, nb::object out,
                  auto... options) {
        MutableBuffer to(out);
        const auto values = to.as<T>();
        nb::gil_scoped_release release;
        fl::Random random(seed, epoch, sample, op);
        for (auto& value : values) value = draw(random, options...);
    };
}

}  // namespace

#define FL_RANDOM_SIG(name, options) \
    nb::sig("def " name "(seed: int, epoch: int, sample: int, op: int, out: Buffer" options ") -> None")

void bind_random(nb::module_& m) {
    m.def("philox", [](const std::tuple<std::uint32_t, std::uint32_t>& key,
                       const std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>& counter) {
        const auto [a, b, c, d] = counter;
        const auto block = fl::philox({std::get<0>(key), std::get<1>(key)}, {a, b, c, d});
        return std::tuple(block[0], block[1], block[2], block[3]);
    }, "key"_a, "counter"_a);
    using Place = std::uint64_t;
    m.def("random_bits", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out) {
        random_op<std::uint32_t>([](fl::Random& r) { return r.bits(); })(seed, epoch, sample, op, out);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, FL_RANDOM_SIG("random_bits", ""));
    m.def("random_uniform", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out) {
        random_op<double>([](fl::Random& r) { return r.uniform(); })(seed, epoch, sample, op, out);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, FL_RANDOM_SIG("random_uniform", ""));
    m.def("random_below", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out, Place bound) {
        random_op<std::uint64_t>([](fl::Random& r, Place b) { return r.below(b); })(seed, epoch, sample, op, out,
                                                                                     bound);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, "bound"_a, FL_RANDOM_SIG("random_below", ", bound: int"));
    m.def("random_normal", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out) {
        random_op<double>([](fl::Random& r) { return r.normal(); })(seed, epoch, sample, op, out);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, FL_RANDOM_SIG("random_normal", ""));
}

}  // namespace bind
