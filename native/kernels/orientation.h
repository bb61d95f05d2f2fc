// How a stored image has to be turned to stand upright: what the EXIF data in its file says.
#pragma once

#include "affine.h"
#include "image.h"

namespace fl {

// A pixel (y, x) of the upright image is the stored one at (x, y) where `swapped`, else at (y, x), counted from the last
// row where `down` and from the last column where `across`.
struct Orientation {
    bool swapped = false, down = false, across = false;

    bool upright() const { return !swapped && !down && !across; }

    // Of the upright image from the stored one's, and back.
    ImageShape turned(ImageShape shape) const;
    // Where a part of the upright image, which is height x width, lies in the stored one.
    Window stored(Window part, std::uint32_t height, std::uint32_t width) const;
    // From positions in a stored image of this size to those in the upright one.
    Matrix map(std::uint32_t height, std::uint32_t width) const;
    // The pixels of a stored image, or of a part of one, as they stand upright, one row behind the other.
    void turn(const std::uint8_t* pixels, std::ptrdiff_t stride, std::uint32_t height, std::uint32_t width,
              std::size_t pixel_bytes, std::uint8_t* out) const;
};

// Upright where the file has no EXIF data, or none that can be read. Looks at headers only.
Orientation orientation_of(ImageKind kind, Bytes encoded);

}  // namespace fl
