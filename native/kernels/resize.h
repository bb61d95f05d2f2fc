// Antialiased resize of 8-bit images, one output row at a time: the caller may finish a row while it is in the cache.
// Results equal Pillow's Image.resize(size, filter, box=box) bit for bit on every CPU; channels are independent of
// each other, an alpha channel too.
#pragma once

#include <memory>
#include <optional>

#include "axis.h"
#include "simd.h"

namespace fl {

struct Box {
    float left = 0, top = 0, right = 0, bottom = 0;
};

struct ResizeSpec {
    std::uint32_t height = 0, width = 0, channels = 0;  // of the source
    Box box;                                            // in source pixels, fractions are fine
    std::uint32_t out_height = 0, out_width = 0;
    Filter filter = Filter::bilinear;
    bool flip = false;  // left and right exchanged, at no cost
    // What of the output is made, as if it had been cut from all of it, and flipped only then. Without a size: all.
    Window window;

    std::uint32_t made_height() const { return window.height ? window.height : out_height; }
    std::uint32_t made_width() const { return window.width ? window.width : out_width; }
};

// The pixels of the source that are read.
struct Region {
    std::uint32_t top = 0, left = 0, bottom = 0, right = 0;
};

struct ResizePasses;  // in resize_passes.h

// Keeps its tables and scratch memory from one image to the next, so it belongs to one thread. Tables are made anew
// only where size, box, filter or flip changed.
class Resizer {
public:
    explicit Resizer(Simd level = best_simd());
    ~Resizer();
    Resizer(const Resizer&) = delete;
    Resizer& operator=(const Resizer&) = delete;

    // Throws Failure "argument" for what can't be done.
    Region prepare(const ResizeSpec& spec);

    // The tables of what was prepared, in columns and rows of the source.
    const Axis<std::int32_t>& across() const { return across_; }
    const Axis<std::int32_t>& down() const { return down_; }

    // `pixels` is the region's first pixel, `stride` the bytes from a row to the next; no byte outside of the region
    // is read.
    void source(const std::uint8_t* pixels, std::ptrdiff_t stride);

    // Writes made_width * channels bytes. Rows are asked for from the first to the last, none twice.
    void row(std::uint32_t y, std::uint8_t* out);

private:
    void fill_until(std::uint32_t end);

    const ResizePasses& passes_;
    ResizeSpec spec_;
    std::optional<AxisSpec> across_spec_, down_spec_;
    std::uint32_t units_channels_ = 0;
    Axis<std::int32_t> across_, down_;
    struct Units;
    std::unique_ptr<Units> units_;

    const std::uint8_t* pixels_ = nullptr;
    std::ptrdiff_t stride_ = 0;
    bool in_place_ = false;           // rows need no horizontal pass and are read where they lie
    std::uint32_t ready_ = 0;         // source rows below this one went through the horizontal pass
    std::uint32_t ring_rows_ = 0;     // a power of two
    std::size_t ring_stride_ = 0;
    std::vector<std::uint8_t> ring_;  // rows after the horizontal pass, those that output rows still need
    std::vector<std::uint8_t> narrow_;
    std::vector<const std::uint8_t*> taps_;
};

// Whole images. `pixels` is the whole source, or its region alone where `cropped`. 16-bit and float samples go through
// plain code, in double precision and one order, so that their bits are the same everywhere as well.
Region resize_region(const ResizeSpec& spec);
void resize(const ResizeSpec& spec, std::span<const std::uint8_t> pixels, std::span<std::uint8_t> out, Simd level,
            bool cropped = false);
void resize(const ResizeSpec& spec, std::span<const std::uint16_t> pixels, std::span<std::uint16_t> out);
void resize(const ResizeSpec& spec, std::span<const float> pixels, std::span<float> out);

}  // namespace fl
