#include "image.h"

namespace fl {

ImageShape image_info(ImageKind kind, Bytes encoded) {
    return kind == ImageKind::jpeg ? jpeg_info(encoded) : png_info(encoded);
}

void image_decode(ImageKind kind, Bytes encoded, const ImageShape& shape, MutableBytes out) {
    if (out.size() != shape.bytes()) throw Failure("format", "the output has the wrong size");
    kind == ImageKind::jpeg ? jpeg_decode(encoded, shape, out) : png_decode(encoded, shape, out);
}

void check_claim(ImageKind kind, const ImageShape& shape, std::uint64_t size) {
    // A JPEG spends at least a bit or so on each block of 64 pixels; deflate gives at most 1032 bytes for one, and
    // gray or a palette of one bit puts eight pixels in a byte.
    constexpr std::uint64_t kPixelsPerJpegByte = 1024;
    constexpr std::uint64_t kBytesPerPngByte = 1032;
    const bool sane = shape.channels >= 1 && shape.channels <= 4 && (shape.bits == 8 || shape.bits == 16) &&
                      shape.height <= 0x7fffffffu && shape.width <= 0x7fffffffu;
    const auto pixels = std::uint64_t{shape.height} * shape.width;
    const auto png_pixels = kBytesPerPngByte * (shape.bits == 8 ? 8 : 1);
    const bool possible = pixels / (kind == ImageKind::jpeg ? kPixelsPerJpegByte : png_pixels) <= size;
    if (!sane || !possible) throw Failure("decode", "claims more pixels than its bytes could hold");
}

void image_offsets(ImageKind kind, std::span<const Located> located, std::span<const ImageShape> shapes,
                   std::span<std::int64_t> offsets) {
    if (shapes.size() != located.size() || offsets.size() != located.size() + 1)
        throw Failure("format", "picks, shapes and offsets differ");
    offsets[0] = 0;
    for_each(located, [&](std::size_t i, const Payloads* source, const Extent& extent) {
        offsets[i + 1] = offsets[i];
        if (!source) return;
        check_claim(kind, shapes[i], extent.raw_size);
        if (__builtin_add_overflow(offsets[i], static_cast<std::int64_t>(shapes[i].bytes()), &offsets[i + 1]))
            throw Failure("size", "the batch is too large");
    });
}

void image_decode_many(ImageKind kind, std::span<const Located> located, std::span<const ImageShape> shapes,
                       std::span<const std::int64_t> offsets, MutableBytes out) {
    if (shapes.size() != located.size() || offsets.size() != located.size() + 1)
        throw Failure("format", "picks, shapes and offsets differ");
    std::vector<std::uint8_t> scratch;
    for_each(located, [&](std::size_t i, const Payloads* source, const Extent& extent) {
        if (!source) return;
        const auto begin = static_cast<std::uint64_t>(offsets[i]);
        const auto end = static_cast<std::uint64_t>(offsets[i + 1]);
        if (begin > end || end > out.size()) throw Failure("format", "an image lies outside the output");
        image_decode(kind, source->load(extent, scratch), shapes[i], out.subspan(begin, end - begin));
    });
}

}  // namespace fl
