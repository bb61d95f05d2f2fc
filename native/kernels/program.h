// An image from its stored bytes to the finished row of a batch in one go: only the pixels that are needed are decoded,
// resized, flipped, changed, and cast straight to where they belong. Random parameters are drawn by place, so what a
// sample becomes depends on the seed, the epoch and the sample alone.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "affine.h"
#include "cast.h"
#include "image.h"
#include "random.h"
#include "resize.h"

namespace fl {

struct ProgramStep {
    // With the numbers that each takes. `p` is how likely it happens; a range is its least and its most; a fill is three
    // numbers, one a channel.
    enum class Kind : std::uint8_t {
        random_resized_crop,  // to height x width; ranges of the area and of the ratio
        resize,               // to height x width
        resize_shorter,       // the shorter side becomes `height`
        centre_crop,
        random_crop,      // padding on each side, its fill
        flip,             // left and right; p
        flip_down,        // top and bottom; p
        pad,              // left, top, right, bottom, PadMode, fill
        translate,        // pixels in any direction, fill
        rotate,           // range of degrees, fill
        affine,           // ranges of degrees, shares moved across and down, pixels moved across and down, ranges of the
                          // scale, of the shear across and of the shear down, fill
        erase,            // p, ranges of the area and of the ratio, whether noise, fill
        cutout,           // height x width; fill
        brightness,       // p, range of the factor
        contrast,         // p, range of the factor
        saturation,       // p, range of the factor
        hue,              // p, range of the turns
        jitter,           // p, ranges of the four above
        gray,             // p, channels
        sharpness,        // p, range of the factor
        blur,             // height and width of the weights; p, range of sigma
        posterize,        // p, bits
        solarize,         // p, threshold
        autocontrast,     // p
        equalize,         // p
        invert,           // p
        rand_augment,     // operations, magnitude, magnitudes there are, fill
        trivial_augment,  // magnitudes there are, fill
        tell_size,        // changes nothing, tells the image's height and width
        tell_geometry,    // changes nothing, tells the map from the stored image to this place
    };
    static constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::tell_geometry) + 1;
    Kind kind;
    std::uint32_t op = 0;  // its number among the user's, which keys its draws
    std::uint32_t height = 0, width = 0;
    Filter filter = Filter::bilinear;
    std::vector<double> numbers;
    bool tells = false;  // what it drew, to whom runs the program
};

// How images are stored; of raw ones the shape is known beforehand, unless it is empty.
enum class StoredKind : std::uint8_t { jpeg, png, raw, webp, runs, labels };

// Of an encoded image; raw ones have none.
ImageKind kind_of(StoredKind stored);

// In front of a row that may hold a JPEG instead of pixels, for a decoder elsewhere. Behind it lie, as 32-bit integers, for
// each column of the result the JPEG's first column that it is made of and `across` weights, and the same for its rows
// with `down` weights; then the JPEG. Columns are made first, and rounded. 1 is 2^kWeightBits.
struct PartHeader {
    std::uint32_t bytes = 0;              // of the JPEG; 0: there is none, pixels follow
    std::uint32_t width = 0, height = 0;  // of the JPEG
    std::uint32_t at = 0;                 // where the JPEG begins in the row
    std::uint32_t across = 0, down = 0;
    std::uint32_t unused[10] = {};
};
static_assert(sizeof(PartHeader) == 64);
constexpr std::size_t kPartRoom = 64 << 10;  // for a JPEG, where pixels take less

struct Program {
    Program();
    std::uint64_t id;  // of its own, so that what a thread keeps of one is not taken for another's
    StoredKind stored = StoredKind::jpeg;
    bool seekable = false;  // an index may lie behind the JPEG
    bool upright = false;   // images are turned as their EXIF data says before the first step
    bool upright_shapes = false;  // and the shapes that are given are those of turned ones
    ImageShape raw;         // of raw images
    std::vector<ProgramStep> steps;
    std::uint32_t height = 0, width = 0;  // of the result
    CastSpec cast;                        // its channels are those of the result
    std::uint64_t seed = 0;
    bool parts = false;            // rows have a header, and may hold JPEGs
    double part_share = 0;         // of the samples that may; which ones is drawn by place
    std::uint32_t part_op = 0;     // the number that keys this draw

    std::size_t pixel_bytes() const { return std::size_t{height} * width * cast.channels * size_of(cast.element); }
    std::size_t row_bytes() const {
        const auto room = sizeof(PartHeader) + std::max(pixel_bytes(), kPartRoom);
        return parts ? (room + 63) & ~std::size_t{63} : pixel_bytes();  // tables are read where they lie
    }
};

// Throws Failure "argument" for a program that can't be run.
void check_program(const Program& program);

// How many numbers the steps of a program tell of each image.
std::size_t told_numbers(const Program& program);

// Runs programs; belongs to one thread, and keeps its memory from image to image.
class ProgramRunner {
public:
    ProgramRunner();
    ~ProgramRunner();

    // `shape` is what is stored of the image's; `out` has row_bytes; `told` is empty, or has room for told_numbers.
    // `before` is where the image's pixels came from. Returns where those of the result did, as affine maps of
    // coordinates from there to here. Throws Failure "decode" or "size".
    Matrix run(const Program& program, Bytes payload, const ImageShape& shape, std::uint64_t epoch, std::uint64_t sample,
               MutableBytes out, std::span<double> told = {}, const Matrix& before = kSame);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fl
