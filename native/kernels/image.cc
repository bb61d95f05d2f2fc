#include "image.h"

#include "orientation.h"

namespace fl {

namespace {

ImageShape stored_info(ImageKind kind, Bytes encoded) {
    switch (kind) {
        case ImageKind::jpeg: return jpeg_info(encoded);
        case ImageKind::png: return png_info(encoded);
        case ImageKind::webp: return webp_info(encoded);
        case ImageKind::runs: return runs_info(encoded);
        default: return labels_info(encoded);
    }
}

void stored_decode(ImageKind kind, Bytes encoded, const ImageShape& shape, MutableBytes out) {
    switch (kind) {
        case ImageKind::jpeg: return jpeg_decode(encoded, shape, out);
        case ImageKind::png: return png_decode(encoded, shape, out);
        case ImageKind::webp: return webp_decode(encoded, shape, out);
        case ImageKind::runs: return runs_decode(encoded, shape, out);
        default: return labels_decode(encoded, shape, out);
    }
}

}  // namespace

ImageShape image_info(ImageCoding coding, Bytes encoded) {
    const auto shape = stored_info(coding.kind, encoded);
    return coding.upright ? orientation_of(coding.kind, encoded).turned(shape) : shape;
}

void image_decode(ImageCoding coding, Bytes encoded, const ImageShape& shape, MutableBytes out) {
    if (out.size() != shape.bytes()) throw Failure("format", "the output has the wrong size");
    Orientation how;
    if (coding.upright) how = orientation_of(coding.kind, encoded);
    if (how.upright()) return stored_decode(coding.kind, encoded, shape, out);
    const auto stored = how.turned(shape);
    thread_local std::vector<std::uint8_t> lying;
    if (lying.size() < out.size()) lying.resize(out.size());
    stored_decode(coding.kind, encoded, stored, {lying.data(), out.size()});
    const std::size_t pixel = std::size_t{shape.channels} * (shape.bits / 8);
    how.turn(lying.data(), static_cast<std::ptrdiff_t>(stored.width * pixel), stored.height, stored.width, pixel,
             out.data());
}

namespace {

// The most pixels that a byte can stand for.
std::uint64_t pixels_per_byte(ImageKind kind, std::uint32_t bits) {
    switch (kind) {
        // At least a bit or so for each block of 64 pixels.
        case ImageKind::jpeg: return 1024;
        // Of one colour a lossless file needs hardly any bytes; libwebp writes up to 25,600 pixels in one.
        case ImageKind::webp: return 1 << 15;
        // The longest run takes a byte for its label and three for its length.
        case ImageKind::runs: return kLongestRun / 4;
        // Deflate gives at most 1032 bytes for one, and gray or a palette of one bit puts eight pixels in a byte.
        default: return bits == 8 ? 1032 * 8 : 1032;
    }
}

}  // namespace

void check_claim(ImageKind kind, const ImageShape& shape, std::uint64_t size) {
    const bool sane = shape.channels >= 1 && shape.channels <= 4 && (shape.bits == 8 || shape.bits == 16) &&
                      shape.height <= 0x7fffffffu && shape.width <= 0x7fffffffu;
    const auto pixels = std::uint64_t{shape.height} * shape.width;
    const bool possible = pixels / pixels_per_byte(kind, shape.bits) <= size;
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

void image_decode_many(ImageCoding coding, std::span<const Located> located, std::span<const ImageShape> shapes,
                       std::span<const std::int64_t> offsets, MutableBytes out) {
    if (shapes.size() != located.size() || offsets.size() != located.size() + 1)
        throw Failure("format", "picks, shapes and offsets differ");
    std::vector<std::uint8_t> scratch;
    for_each(located, [&](std::size_t i, const Payloads* source, const Extent& extent) {
        if (!source) return;
        const auto begin = static_cast<std::uint64_t>(offsets[i]);
        const auto end = static_cast<std::uint64_t>(offsets[i + 1]);
        if (begin > end || end > out.size()) throw Failure("format", "an image lies outside the output");
        image_decode(coding, source->load(extent, scratch), shapes[i], out.subspan(begin, end - begin));
    });
}

}  // namespace fl
