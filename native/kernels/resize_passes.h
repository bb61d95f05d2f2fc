// The two passes of a resize, one set an instruction set.
//
// The sum of a pass is exact in 32 bits. Multipliers of SIMD units take 8 or 16 bits, so a weight is cut in digits, and
// the sums of digits are shifted and added, which gives the same sum. There are two ways to cut: pairs of taps with two
// digits of 16 bits (the low one counts 11 of them), quads of taps with three digits of 8 bits. All digits are signed.
#pragma once

#include "axis.h"
#include "simd.h"

namespace fl {

constexpr int kPairShift = 11;
constexpr int kQuadShift = 8;

// The digits of two or four neighbouring taps as they lie in a register: the highest first, a tap beside the other.
struct PairDigits {
    std::uint32_t high = 0, low = 0;
};
struct QuadDigits {
    std::uint32_t high = 0, middle = 0, low = 0;
};

inline PairDigits cut_pair(const std::int32_t* weights, std::size_t count) {
    PairDigits digits;
    for (std::size_t i = 0; i < 2 && i < count; ++i) {
        constexpr std::int32_t kHalf = 1 << (kPairShift - 1);
        const std::int32_t low = ((weights[i] + kHalf) & (2 * kHalf - 1)) - kHalf;
        digits.low |= (static_cast<std::uint32_t>(low) & 0xffff) << (16 * i);
        digits.high |= (static_cast<std::uint32_t>((weights[i] - low) >> kPairShift) & 0xffff) << (16 * i);
    }
    return digits;
}

inline QuadDigits cut_quad(const std::int32_t* weights, std::size_t count) {
    QuadDigits digits;
    for (std::size_t i = 0; i < 4 && i < count; ++i) {
        const std::int32_t low = static_cast<std::int8_t>(weights[i] & 0xff);
        const std::int32_t rest = (weights[i] - low) >> kQuadShift;
        const std::int32_t middle = static_cast<std::int8_t>(rest & 0xff);
        digits.low |= (static_cast<std::uint32_t>(low) & 0xff) << (8 * i);
        digits.middle |= (static_cast<std::uint32_t>(middle) & 0xff) << (8 * i);
        digits.high |= (static_cast<std::uint32_t>((rest - middle) >> kQuadShift) & 0xff) << (8 * i);
    }
    return digits;
}

// The horizontal pass treats a row as bytes. A unit makes `lanes` neighbouring bytes of the output, or fewer: as many
// as are made of bytes that lie within one window of the source for each chunk of taps. A chunk has a table of
// 32-bit numbers, one a lane: shuffle indices into the window, then the digits, the highest first. Units write all
// their lanes; the surplus is overwritten by the next unit.
struct UnitShape {
    std::uint32_t lanes, window;
    std::uint32_t chunk;  // taps: 2 or 4

    std::uint32_t planes() const { return chunk == 2 ? 3 : 4; }
    std::uint32_t table_size() const { return planes() * lanes; }  // of one chunk, in 32-bit numbers
};

struct Unit {
    std::uint32_t out;     // where its bytes go
    std::uint32_t chunks;  // how many chunks of taps
};

struct UnitView {
    std::span<const Unit> units;
    const std::uint32_t* windows;  // the window's place in the source row, for each chunk of each unit
    const std::uint32_t* tables;   // aligned to 64 bytes; one for each chunk of each unit
};

struct AcrossPass {
    UnitShape shape;
    // Up to kRowsAtOnce rows. `single` says that each unit has one chunk.
    void (*run)(const UnitView& units, bool single, const std::uint8_t* const* rows, std::uint8_t* const* out,
                std::uint32_t count);
};

// Room behind the last byte of a row that the horizontal pass may write.
constexpr std::size_t kRowSlack = 64;
constexpr std::uint32_t kRowsAtOnce = 4;

struct ResizePasses {
    // Empty, or from the smallest chunk to the largest: the first that takes all taps at once serves, else the last.
    std::span<const AcrossPass> across_units;
    void (*across)(const Axis<std::int32_t>& axis, std::uint32_t channels, const std::uint8_t* row, std::uint8_t* out);

    // `rows` has `count` pointers, each to `size` bytes or more; `size` is at least `shortest`, or rows are followed by
    // that much memory.
    void (*down)(const std::uint8_t* const* rows, const std::int32_t* weights, std::uint32_t count, std::uint8_t* out,
                 std::size_t size);
    std::uint32_t shortest;
};

const ResizePasses& resize_passes(Simd level);

extern const ResizePasses kPortablePasses;
#if defined(__x86_64__)
extern const ResizePasses kAvx2Passes;
extern const ResizePasses kAvx512Passes;
#endif

}  // namespace fl
