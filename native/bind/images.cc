// Images decoded and encoded.
#include "bind.h"

#include "jpeg_crop.h"
#include "jpeg_write.h"
#include "runs.h"

namespace bind {

void bind_images(nb::module_& m) {
    m.def("image_info", [](int kind, nb::object data) {
        Buffer buffer(data);
        const auto image = coding_of(kind);
        nb::gil_scoped_release release;
        const auto shape = fl::image_info(image, buffer.bytes());
        return std::tuple(shape.height, shape.width, shape.channels, shape.bits);
    }, "kind"_a, "data"_a, nb::sig("def image_info(kind: int, data: Buffer) -> tuple[int, int, int, int]"));

    m.def("image_decode", [](int kind, nb::object data, nb::object shape, nb::object out) {
        Buffer buffer(data), shapes(shape);
        MutableBuffer to(out);
        const auto wanted = shapes.as<fl::ImageShape>();
        if (wanted.size() != 1) throw nb::value_error("one shape of four uint32");
        const auto image = coding_of(kind);
        nb::gil_scoped_release release;
        fl::image_decode(image, buffer.bytes(), wanted[0], to.bytes());
    }, "kind"_a, "data"_a, "shape"_a, "out"_a,
       nb::sig("def image_decode(kind: int, data: Buffer, shape: Buffer, out: Buffer) -> None"));

    m.def("image_decode_many", [](int kind, const std::vector<const BoundPayloads*>& sources, nb::object which,
                                  nb::object rows, nb::object shapes) {
        Buffer buffer(shapes);
        const auto wanted = buffer.as<fl::ImageShape>();
        const auto located = locate(sources, which, rows);
        const auto images = coding_of(kind);
        return ragged(located.size(), [&](auto offsets) { fl::image_offsets(images.kind, located, wanted, offsets); },
                      [&](auto offsets, auto values) {
                          fl::image_decode_many(images, located, wanted, offsets, values);
                      });
    }, "kind"_a, "sources"_a, "which"_a.none(), "rows"_a, "shapes"_a,
       nb::sig("def image_decode_many(kind: int, sources: list[Payloads], which: Buffer | None, rows: Buffer, "
               "shapes: Buffer) -> tuple[NDArray[np.uint8], NDArray[np.int64]]"));

    m.def("jpeg_encode", [](nb::object pixels, std::uint32_t height, std::uint32_t width, std::uint32_t channels,
                            int quality, int subsampling) {
        Buffer buffer(pixels);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::jpeg_encode(buffer.bytes(), {height, width, channels, 8}, quality, subsampling);
        }
        return to_bytes(out);
    }, "pixels"_a, "height"_a, "width"_a, "channels"_a, "quality"_a, "subsampling"_a,
       nb::sig("def jpeg_encode(pixels: Buffer, height: int, width: int, channels: int, quality: int, "
               "subsampling: int) -> bytes"));

    m.def("jpeg_index", [](nb::object data, std::uint32_t interval) {
        Buffer buffer(data);
        fl::JpegIndexed made;
        {
            nb::gil_scoped_release release;
            made = fl::jpeg_make_index(buffer.bytes(), interval);
        }
        return std::tuple(to_bytes(made.index), std::string(made.why_not ? made.why_not : ""));
    }, "data"_a, "interval"_a, nb::sig("def jpeg_index(data: Buffer, interval: int) -> tuple[bytes, str]"));

    m.def("jpeg_size", [](nb::object payload) { return fl::jpeg_split(Buffer(payload).bytes()).jpeg.size(); },
          "payload"_a, nb::sig("def jpeg_size(payload: Buffer) -> int"));

    m.def("jpeg_baseline", [](nb::object data) -> std::optional<nb::bytes> {
        Buffer buffer(data);
        std::optional<std::vector<std::uint8_t>> made;
        {
            nb::gil_scoped_release release;
            made = fl::jpeg_make_baseline(buffer.bytes());
        }
        return made ? std::optional(to_bytes(*made)) : std::nullopt;
    }, "data"_a, nb::sig("def jpeg_baseline(data: Buffer) -> bytes | None"));

    m.def("jpeg_crop", [](nb::object data, nb::object index, nb::object shape,
                          std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t> box,
                          std::uint32_t shrink, std::uint32_t channels, int route, nb::object out) {
        Buffer jpeg(data), anchors(index), shapes(shape);
        MutableBuffer to(out);
        const auto stored = shapes.as<fl::ImageShape>();
        if (stored.size() != 1) throw nb::value_error("one shape of four uint32");
        if (route < 0 || route > static_cast<int>(fl::JpegRoute::automatic)) throw nb::value_error("no such route");
        const auto [x, y, width, height] = box;
        const fl::JpegRequest request{stored[0], {x, y, width, height}, shrink, channels,
                                      static_cast<fl::JpegRoute>(route)};
        const auto stride = std::size_t{width} * (channels ? channels : stored[0].channels);
        if (stored[0].channels > 4 || channels > 4 || to.bytes().size() != stride * height)
            throw nb::value_error("the output has the wrong size");
        nb::gil_scoped_release release;
        return static_cast<int>(fl::jpeg_decode_box(jpeg.bytes(), anchors.bytes(), request, to.bytes().data(), stride));
    }, "data"_a, "index"_a, "shape"_a, "box"_a, "shrink"_a, "channels"_a, "route"_a, "out"_a,
       nb::sig("def jpeg_crop(data: Buffer, index: Buffer, shape: Buffer, box: tuple[int, int, int, int], shrink: int, "
               "channels: int, route: int, out: Buffer) -> int"));

    m.def("png_encode", [](nb::object pixels, std::uint32_t height, std::uint32_t width, std::uint32_t channels,
                           std::uint32_t bits, int level) {
        Buffer buffer(pixels);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::png_encode(buffer.bytes(), {height, width, channels, bits}, level);
        }
        return to_bytes(out);
    }, "pixels"_a, "height"_a, "width"_a, "channels"_a, "bits"_a, "level"_a,
       nb::sig("def png_encode(pixels: Buffer, height: int, width: int, channels: int, bits: int, level: int) -> "
               "bytes"));

    m.def("runs_encode", [](nb::object labels, std::uint32_t height, std::uint32_t width) {
        Buffer buffer(labels);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::runs_encode(buffer.bytes(), {height, width, 1, 8});
        }
        return to_bytes(out);
    }, "labels"_a, "height"_a, "width"_a,
       nb::sig("def runs_encode(labels: Buffer, height: int, width: int) -> bytes"));

    m.def("has_webp", fl::has_webp);
    m.def("webp_encode", [](nb::object pixels, std::uint32_t height, std::uint32_t width, std::uint32_t channels,
                            float quality, bool lossless) {
        Buffer buffer(pixels);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::webp_encode(buffer.bytes(), {height, width, channels, 8}, quality, lossless);
        }
        return to_bytes(out);
    }, "pixels"_a, "height"_a, "width"_a, "channels"_a, "quality"_a, "lossless"_a,
       nb::sig("def webp_encode(pixels: Buffer, height: int, width: int, channels: int, quality: float, "
               "lossless: bool) -> bytes"));
}

}  // namespace bind
