// An image from its stored bytes to the finished row of a batch in one go: only the pixels that are needed are decoded,
// resized, flipped, changed, and cast straight to where they belong. Random parameters are drawn by place, so what a
// sample becomes depends on the seed, the epoch and the sample alone.
#pragma once

#include <memory>
#include <vector>

#include "cast.h"
#include "image.h"
#include "random.h"
#include "resize.h"

namespace fl {

struct ProgramStep {
    enum class Kind : std::uint8_t {
        random_resized_crop,  // numbers: least and most area, least and most ratio
        resize,               // to height x width
        resize_shorter,       // the shorter side becomes `height`
        centre_crop,
        random_crop,  // numbers[0]: pixels of padding on each side, filled with `fill`
        flip,         // left and right; numbers[0]: how likely
        flip_down,    // top and bottom
    };
    Kind kind;
    std::uint32_t op = 0;  // its number among the user's, which keys its draws
    std::uint32_t height = 0, width = 0;
    Filter filter = Filter::bilinear;
    std::array<double, 4> numbers{};
    std::array<std::uint8_t, 4> fill{};
};

// How images are stored; of raw ones the shape is known beforehand.
enum class StoredKind : std::uint8_t { jpeg, png, raw };

struct Program {
    Program();
    std::uint64_t id;  // of its own, so that what a thread keeps of one is not taken for another's
    StoredKind stored = StoredKind::jpeg;
    bool seekable = false;  // an index may lie behind the JPEG
    ImageShape raw;         // of raw images
    std::vector<ProgramStep> steps;
    std::uint32_t height = 0, width = 0;  // of the result
    CastSpec cast;                        // its channels are those of the result
    std::uint64_t seed = 0;

    std::size_t row_bytes() const { return std::size_t{height} * width * cast.channels * size_of(cast.element); }
};

// Throws Failure "argument" for a program that can't be run.
void check_program(const Program& program);

// Runs programs; belongs to one thread, and keeps its memory from image to image.
class ProgramRunner {
public:
    ProgramRunner();
    ~ProgramRunner();

    // `shape` is what is stored of the image's; `out` has row_bytes. Throws Failure "decode" or "size".
    void run(const Program& program, Bytes payload, const ImageShape& shape, std::uint64_t epoch, std::uint64_t sample,
             MutableBytes out);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fl
