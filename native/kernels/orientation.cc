#include "orientation.h"

#include <algorithm>

namespace fl {
namespace {

constexpr std::uint8_t kExif[] = {'E', 'x', 'i', 'f', 0, 0};

bool begins_with(Bytes data, Bytes with) {
    return data.size() >= with.size() && std::equal(with.begin(), with.end(), data.begin());
}

std::uint32_t number(Bytes data, std::size_t at, std::size_t size, bool big) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value |= std::uint32_t{data[at + i]} << 8 * (big ? size - 1 - i : i);
    return value;
}

// The EXIF data of each kind of file, empty where there is none.
Bytes jpeg_exif(Bytes file) {
    for (std::size_t at = 2; at + 4 <= file.size() && file[at] == 0xFF;) {
        const auto marker = file[at + 1];
        if (marker == 0xFF) {  // may be repeated
            ++at;
            continue;
        }
        if (marker == 0xDA || marker == 0xD9) break;
        if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
            at += 2;
            continue;
        }
        const std::size_t size = number(file, at + 2, 2, true);
        if (size < 2 || size > file.size() - at - 2) break;
        const auto segment = file.subspan(at + 4, size - 2);
        if (marker == 0xE1 && begins_with(segment, kExif)) return segment;
        at += 2 + size;
    }
    return {};
}

Bytes png_exif(Bytes file) {
    constexpr std::uint8_t kChunk[] = {'e', 'X', 'I', 'f'};
    for (std::size_t at = 8; at + 12 <= file.size();) {
        const std::size_t size = number(file, at, 4, true);
        if (size > file.size() - at - 12) break;
        if (begins_with(file.subspan(at + 4), kChunk)) return file.subspan(at + 8, size);
        at += 12 + size;
    }
    return {};
}

Bytes webp_exif(Bytes file) {
    constexpr std::uint8_t kChunk[] = {'E', 'X', 'I', 'F'};
    for (std::size_t at = 12; at + 8 <= file.size();) {
        const std::size_t size = number(file, at + 4, 4, false);
        if (size > file.size() - at - 8) break;
        if (begins_with(file.subspan(at), kChunk)) return file.subspan(at + 8, size);
        at += 8 + size + size % 2;
    }
    return {};
}

// The tag of the first directory, 1 where there is none.
std::uint32_t orientation_tag(Bytes exif) {
    while (begins_with(exif, kExif)) exif = exif.subspan(sizeof kExif);
    constexpr std::uint8_t kLittle[] = {'I', 'I', 42, 0}, kBig[] = {'M', 'M', 0, 42};
    const bool big = begins_with(exif, kBig);
    if ((!big && !begins_with(exif, kLittle)) || exif.size() < 8) return 1;
    const std::size_t directory = number(exif, 4, 4, big);
    if (directory > exif.size() - 2) return 1;
    const std::size_t entries = number(exif, directory, 2, big);
    constexpr std::size_t kEntry = 12;
    for (std::size_t i = 0; i < entries; ++i) {
        const std::size_t at = directory + 2 + i * kEntry;
        if (at + kEntry > exif.size()) break;
        if (number(exif, at, 2, big) != 0x0112) continue;
        const auto type = number(exif, at + 2, 2, big);
        const std::size_t size = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
        return size && number(exif, at + 4, 4, big) == 1 ? number(exif, at + 8, size, big) : 1;
    }
    return 1;
}

constexpr std::uint32_t kTile = 32;  // pixels; rows and columns are exchanged in squares that stay in the cache

template <std::size_t kBytes>
void turn_pixels(const Orientation& how, const std::uint8_t* pixels, std::ptrdiff_t stride, std::uint32_t height,
                 std::uint32_t width, std::uint8_t* out) {
    const auto out_height = how.swapped ? width : height, out_width = how.swapped ? height : width;
    // The stored pixel that comes first, and the steps from there along a row and down a column.
    const auto* first = pixels + (how.down ? (height - 1) * stride : 0) + (how.across ? (width - 1) * kBytes : 0);
    const std::ptrdiff_t along = how.across ? -static_cast<std::ptrdiff_t>(kBytes) : static_cast<std::ptrdiff_t>(kBytes);
    const std::ptrdiff_t below = how.down ? -stride : stride;
    const auto step_x = how.swapped ? below : along, step_y = how.swapped ? along : below;
    const auto tile = how.swapped ? kTile : out_width;
    for (std::uint32_t top = 0; top < out_height; top += kTile)
        for (std::uint32_t left = 0; left < out_width; left += tile)
            for (std::uint32_t y = top; y < std::min(top + kTile, out_height); ++y) {
                const auto* from = first + y * step_y + left * step_x;
                auto* to = out + (std::size_t{y} * out_width + left) * kBytes;
                for (std::uint32_t x = left; x < std::min(left + tile, out_width); ++x, from += step_x, to += kBytes)
                    std::memcpy(to, from, kBytes);
            }
}

}  // namespace

ImageShape Orientation::turned(ImageShape shape) const {
    if (swapped) std::swap(shape.height, shape.width);
    return shape;
}

Window Orientation::stored(Window part, std::uint32_t height, std::uint32_t width) const {
    if (swapped) {
        std::swap(part.left, part.top);
        std::swap(part.width, part.height);
        std::swap(width, height);
    }
    if (across) part.left = width - part.left - part.width;
    if (down) part.top = height - part.top - part.height;
    return part;
}

Matrix Orientation::map(std::uint32_t height, std::uint32_t width) const {
    const double along = across ? -1 : 1, from_x = across ? width : 0;
    const double below = down ? -1 : 1, from_y = down ? height : 0;
    return swapped ? Matrix{0, below, from_y, along, 0, from_x} : Matrix{along, 0, from_x, 0, below, from_y};
}

void Orientation::turn(const std::uint8_t* pixels, std::ptrdiff_t stride, std::uint32_t height, std::uint32_t width,
                       std::size_t pixel_bytes, std::uint8_t* out) const {
    const auto run = [&]<std::size_t kBytes>() { turn_pixels<kBytes>(*this, pixels, stride, height, width, out); };
    switch (pixel_bytes) {
        case 1: return run.template operator()<1>();
        case 2: return run.template operator()<2>();
        case 3: return run.template operator()<3>();
        case 4: return run.template operator()<4>();
        case 6: return run.template operator()<6>();
        case 8: return run.template operator()<8>();
        default: throw Failure("format", "no such pixels");
    }
}

Orientation orientation_of(ImageKind kind, Bytes encoded) {
    if (kind == ImageKind::runs || kind == ImageKind::labels) return {};  // masks say nothing
    const auto exif = kind == ImageKind::jpeg  ? jpeg_exif(encoded)
                      : kind == ImageKind::png ? png_exif(encoded)
                                               : webp_exif(encoded);
    switch (orientation_tag(exif)) {
        case 2: return {false, false, true};
        case 3: return {false, true, true};
        case 4: return {false, true, false};
        case 5: return {true, false, false};
        case 6: return {true, true, false};
        case 7: return {true, true, true};
        case 8: return {true, false, true};
        default: return {};
    }
}

}  // namespace fl
