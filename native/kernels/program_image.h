// The image of one sample while a program runs: stored bytes or pixels in memory, and what is still to be done with them.
// Crops, a resize, crops of that, and a mirror are only noted. They happen when the pixels are asked for, or row by row on
// the way to the batch if nobody asks.
#pragma once

#include <vector>

#include "frame.h"
#include "orientation.h"
#include "program.h"

namespace fl {

// Pixels of an image. What lies outside does not count for what becomes of them, as if they had been cut out.
using Cut = Window;

class ProgramImage {
public:
    // The payload outlives the image.
    void begin(const Program& program, Bytes payload, const ImageShape& shape);

    std::uint32_t height() const { return height_; }
    std::uint32_t width() const { return width_; }
    std::uint32_t channels() const { return channels_; }
    Frame frame() const { return {height_, width_, channels_}; }

    void crop(const Cut& cut);  // lies within the image
    void resize(std::uint32_t height, std::uint32_t width, Filter filter);
    void mirror();             // left and right exchanged
    void gray_while_stored();  // gray from here on; only where `undecoded`
    bool undecoded() const { return stored_ && !resized_; }

    // From coordinates of the stored image to those of this one; a pixel's middle lies half a pixel from its corner.
    // Crops, resizes and mirrors are in it; who moves pixels in memory says so.
    const Matrix& geometry() const { return geometry_; }
    void moved(const Matrix& map) { geometry_ = followed_by(geometry_, map); }

    MutableBytes pixels();  // as they are now, to be changed in place

    // Room for another version of the image, which `accept` makes the image.
    MutableBytes spare(const Frame& frame);
    void accept(const Frame& frame);

    // Into the row of the batch. Throws Failure "size" where the image has not the size declared.
    void finish(const Cast& cast, MutableBytes out);

    // The same left to a decoder elsewhere: a PartHeader and a JPEG. False where the image is no longer, or not, a JPEG that
    // can be left to it, or where it does not fit; the row is then as it was.
    bool finish_as_part(MutableBytes out);

private:
    void check_size() const;
    void load();
    void prepare();
    const std::uint8_t* row_at(std::uint32_t y, std::uint8_t* room);
    Region needed(const ResizeSpec& spec);
    void decode(ResizeSpec& spec);
    void shrink_cut(Window& cut, std::uint32_t shrink, ResizeSpec& spec) const;
    void decode_part(const Window& part, std::uint32_t shrink);
    void convert(std::uint32_t height, std::uint32_t width, std::uint32_t from);

    const Program* program_ = nullptr;
    Bytes payload_;
    ImageShape shape_{};       // of the image as it is stored
    Orientation orientation_;  // by which a stored image is turned
    bool stored_ = true;  // else the pixels lie in image_, rows of source_width_ pixels
    std::uint32_t source_width_ = 0, source_height_ = 0;
    Cut cut_;  // of the source
    bool resized_ = false, mirrored_ = false;
    Filter filter_ = Filter::nearest;
    std::uint32_t resized_height_ = 0, resized_width_ = 0;
    Cut window_;  // of what the resize makes; mirrored only then
    std::uint32_t height_ = 0, width_ = 0, channels_ = 3;
    Matrix geometry_ = kSame;

    const std::uint8_t* pixels_ = nullptr;  // the first that is needed, and the bytes from a row to the next
    std::ptrdiff_t stride_ = 0;
    Resizer resizer_;
    std::vector<std::uint8_t> decoded_, turned_, converted_, image_, other_, line_;
};

}  // namespace fl
