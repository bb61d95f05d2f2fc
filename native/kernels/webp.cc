#include "webp.h"

#include <algorithm>

#if defined(FASTLOADER_WEBP)

#include <memory>

#include <webp/decode.h>
#include <webp/encode.h>

namespace fl {
namespace {

[[noreturn]] void fail(const std::string& why) { throw Failure("decode", "WebP: " + why); }

const char* words(VP8StatusCode status) {
    switch (status) {
        case VP8_STATUS_OUT_OF_MEMORY: return "not enough memory";
        case VP8_STATUS_UNSUPPORTED_FEATURE: return "a feature that libwebp does not know";
        case VP8_STATUS_SUSPENDED:
        case VP8_STATUS_NOT_ENOUGH_DATA: return "truncated";
        default: return "damaged, or no WebP";
    }
}

void decode_into(Bytes encoded, const ImageShape& shape, const Window& part, MutableBytes out) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) fail("libwebp has another version than its headers");
    config.options.use_cropping = part.width != shape.width || part.height != shape.height;
    config.options.crop_left = static_cast<int>(part.left);
    config.options.crop_top = static_cast<int>(part.top);
    config.options.crop_width = static_cast<int>(part.width);
    config.options.crop_height = static_cast<int>(part.height);
    config.output.colorspace = shape.channels == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out.data();
    config.output.u.RGBA.stride = static_cast<int>(part.width * shape.channels);
    config.output.u.RGBA.size = out.size();
    if (const auto status = WebPDecode(encoded.data(), encoded.size(), &config); status != VP8_STATUS_OK)
        fail(words(status));
}

void check_shape(Bytes encoded, const ImageShape& shape) {
    if (webp_info(encoded) != shape) fail("differs from its stored shape");
}

// libwebp leaves out an alpha channel in which nothing is transparent. Here the file says that it has one, or the image
// would be read without. Each file begins with RIFF, its size, WEBP, the name and the size of its only chunk.
void say_alpha(std::vector<std::uint8_t>& file, const ImageShape& shape) {
    constexpr std::size_t kRiff = 12, kChunk = 8;
    if (std::memcmp(&file[kRiff], "VP8L", 4) == 0) {
        file[kRiff + kChunk + 4] |= 0x10;  // behind a byte, 14 bits of the width and 14 of the height
        return;
    }
    std::uint8_t extended[kChunk + 10] = {'V', 'P', '8', 'X', 10, 0, 0, 0, 0x10};
    for (std::size_t i = 0; i < 3; ++i) {
        extended[kChunk + 4 + i] = static_cast<std::uint8_t>((shape.width - 1) >> 8 * i);
        extended[kChunk + 7 + i] = static_cast<std::uint8_t>((shape.height - 1) >> 8 * i);
    }
    file.insert(file.begin() + kRiff, extended, extended + sizeof extended);
    store(&file[4], static_cast<std::uint32_t>(file.size() - 8));
}

struct Picture {
    Picture() {
        if (!WebPPictureInit(&picture)) throw Failure("encode", "WebP: libwebp has another version than its headers");
        WebPMemoryWriterInit(&written);
        picture.writer = WebPMemoryWrite;
        picture.custom_ptr = &written;
    }
    Picture(const Picture&) = delete;
    Picture& operator=(const Picture&) = delete;
    ~Picture() {
        WebPPictureFree(&picture);
        WebPMemoryWriterClear(&written);
    }

    WebPPicture picture{};
    WebPMemoryWriter written{};
};

}  // namespace

bool has_webp() { return true; }

ImageShape webp_info(Bytes encoded) {
    WebPBitstreamFeatures features;
    const auto status = WebPGetFeatures(encoded.data(), encoded.size(), &features);
    if (status != VP8_STATUS_OK) fail(words(status));
    if (features.has_animation) fail("an animation; store its frames as images of their own");
    const ImageShape shape{static_cast<std::uint32_t>(features.height), static_cast<std::uint32_t>(features.width),
                           features.has_alpha ? 4u : 3u, 8};
    try {
        check_claim(ImageKind::webp, shape, encoded.size());
    } catch (const Failure& failure) {
        fail(failure.what());
    }
    return shape;
}

void webp_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) {
    check_shape(encoded, shape);
    decode_into(encoded, shape, {0, 0, shape.width, shape.height}, out);
}

PixelRows webp_decode_part(Bytes encoded, const ImageShape& shape, const Window& part, std::vector<std::uint8_t>& room) {
    check_shape(encoded, shape);
    // A cut begins at an even row and column. At its edges colours are upsampled as at those of an image, so one more of
    // their samples is taken on each side.
    const auto before = [](std::uint32_t at) { return at < 2 ? 0 : (at - 2) & ~1u; };
    Window around{before(part.left), before(part.top), 0, 0};
    around.width = std::min(shape.width, part.left + part.width + 2) - around.left;
    around.height = std::min(shape.height, part.top + part.height + 2) - around.top;
    const auto stride = static_cast<std::ptrdiff_t>(around.width) * shape.channels;
    const auto size = static_cast<std::size_t>(stride) * around.height;
    if (room.size() < size) room.resize(size);
    decode_into(encoded, shape, around, {room.data(), size});
    return {room.data() + (part.top - around.top) * stride +
                static_cast<std::ptrdiff_t>(part.left - around.left) * shape.channels,
            stride};
}

std::vector<std::uint8_t> webp_encode(Bytes pixels, const ImageShape& shape, float quality, bool lossless) {
    if (pixels.size() != shape.bytes()) throw Failure("encode", "WebP: the pixels do not have the stated shape");
    if ((shape.channels != 3 && shape.channels != 4) || shape.bits != 8 || !shape.height || !shape.width)
        throw Failure("encode", "WebP: three or four channels of 8 bits");
    if (std::max(shape.height, shape.width) > WEBP_MAX_DIMENSION)
        throw Failure("encode", "WebP: a side has at most " + std::to_string(WEBP_MAX_DIMENSION) + " pixels");
    WebPConfig config;
    if (!WebPConfigInit(&config)) throw Failure("encode", "WebP: libwebp has another version than its headers");
    config.quality = quality;
    config.lossless = lossless;
    config.exact = lossless;  // colours stay where they are transparent, too
    Picture made;
    auto& picture = made.picture;
    picture.use_argb = lossless;
    picture.width = static_cast<int>(shape.width);
    picture.height = static_cast<int>(shape.height);
    const auto stride = static_cast<int>(shape.width * shape.channels);
    const bool taken = shape.channels == 4 ? WebPPictureImportRGBA(&picture, pixels.data(), stride)
                                           : WebPPictureImportRGB(&picture, pixels.data(), stride);
    if (!taken || !WebPEncode(&config, &picture))
        throw Failure("encode", "WebP: libwebp's error " + std::to_string(picture.error_code));
    std::vector<std::uint8_t> file(made.written.mem, made.written.mem + made.written.size);
    if (shape.channels == 4 && webp_info(file).channels == 3) say_alpha(file, shape);
    return file;
}

}  // namespace fl

#else

namespace fl {
namespace {

[[noreturn]] void missing() { throw Failure("decode", "WebP: this build has no libwebp"); }

}  // namespace

bool has_webp() { return false; }
ImageShape webp_info(Bytes) { missing(); }
void webp_decode(Bytes, const ImageShape&, MutableBytes) { missing(); }
PixelRows webp_decode_part(Bytes, const ImageShape&, const Window&, std::vector<std::uint8_t>&) { missing(); }
std::vector<std::uint8_t> webp_encode(Bytes, const ImageShape&, float, bool) { missing(); }

}  // namespace fl

#endif
