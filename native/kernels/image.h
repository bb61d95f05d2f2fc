// JPEG, PNG, WebP and masks: what an encoded image holds, its pixels, and encoding. Pixels are rows of interleaved channels,
// 8 bits a sample or 16 in native byte order. Bytes that do not decode cleanly throw Failure "decode".
#pragma once

#include <limits>
#include <vector>

#include "axis.h"
#include "payloads.h"

namespace fl {

struct ImageShape {
    std::uint32_t height = 0;
    std::uint32_t width = 0;
    std::uint32_t channels = 0;
    std::uint32_t bits = 8;

    bool operator==(const ImageShape&) const = default;
    // All ones where it does not fit: no buffer has that size.
    std::uint64_t bytes() const {
        std::uint64_t size = std::uint64_t{height} * width;
        if (__builtin_mul_overflow(size, channels, &size) || __builtin_mul_overflow(size, bits / 8, &size))
            return std::numeric_limits<std::uint64_t>::max();
        return size;
    }
};

// The last two are masks of one channel of 8 bits: runs of labels, and PNG files whose samples are labels, those of a palette
// its numbers.
enum class ImageKind : std::uint8_t { jpeg, png, webp, runs, labels };

// How images are kept, and whether they are turned as their EXIF data says; shapes are then those of upright images.
struct ImageCoding {
    ImageKind kind = ImageKind::jpeg;
    bool upright = false;
};

// Reads the headers only. Refuses an image whose claimed size its bytes could not hold.
ImageShape image_info(ImageCoding coding, Bytes encoded);

// Decodes into `out`. The image must have the shape that was stored for it.
void image_decode(ImageCoding coding, Bytes encoded, const ImageShape& shape, MutableBytes out);

// `subsampling` is 444, 422 or 420.
std::vector<std::uint8_t> jpeg_encode(Bytes pixels, const ImageShape& shape, int quality, int subsampling);
std::vector<std::uint8_t> png_encode(Bytes pixels, const ImageShape& shape, int level);
std::vector<std::uint8_t> webp_encode(Bytes pixels, const ImageShape& shape, float quality, bool lossless);

// Where each picked image goes when they lie one behind the other: picks + 1 offsets, with claims checked.
void image_offsets(ImageKind kind, std::span<const Located> located, std::span<const ImageShape> shapes,
                   std::span<std::int64_t> offsets);

// Decodes each picked payload to its own place: offsets[i] .. offsets[i + 1] in `out`.
void image_decode_many(ImageCoding coding, std::span<const Located> located, std::span<const ImageShape> shapes,
                       std::span<const std::int64_t> offsets, MutableBytes out);

// Throws unless `size` encoded bytes could hold an image of this shape: checked before pixels are allocated, so that
// a tiny file can't claim a huge image.
void check_claim(ImageKind kind, const ImageShape& shape, std::uint64_t size);

// Pixels of a run of a mask. It bounds what few bytes can claim.
constexpr std::uint32_t kLongestRun = 1 << 16;

// WebP needs libwebp when this is built; without it, its functions fail.
bool has_webp();

// One pair a format, in jpeg.cc, png.cc, webp.cc and runs.cc. Decoding refuses an image of another shape.
ImageShape jpeg_info(Bytes encoded);
ImageShape png_info(Bytes encoded);
ImageShape webp_info(Bytes encoded);
ImageShape runs_info(Bytes encoded);
ImageShape labels_info(Bytes encoded);
void jpeg_decode(Bytes encoded, const ImageShape& shape, MutableBytes out);
void png_decode(Bytes encoded, const ImageShape& shape, MutableBytes out);
void webp_decode(Bytes encoded, const ImageShape& shape, MutableBytes out);
void runs_decode(Bytes encoded, const ImageShape& shape, MutableBytes out);
void labels_decode(Bytes encoded, const ImageShape& shape, MutableBytes out);

}  // namespace fl
