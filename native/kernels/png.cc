// libpng through its standard API. As in jpeg.cc, nothing with a destructor lives in a frame that a longjmp skips.
#include <bit>
#include <csetjmp>
#include <cstdio>

#include <png.h>

#include "image.h"

namespace fl {
namespace {

constexpr std::uint64_t kDeflateRatio = 1032;

struct State {
    png_structp png = nullptr;
    png_infop info = nullptr;
    Bytes input;
    std::size_t at = 0;
    std::vector<std::uint8_t>* output = nullptr;
    unsigned __int128 claimed = 0;
    ImageShape shape;
    bool labels = false;
    char message[160] = "no bytes";
};

[[noreturn]] void on_error(png_structp png, png_const_charp why) {
    auto* state = static_cast<State*>(png_get_error_ptr(png));
    std::snprintf(state->message, sizeof state->message, "%s", why);
    png_longjmp(png, 1);
}

// Ancillary complaints (an odd colour profile, say) do not touch pixels.
void on_warning(png_structp, png_const_charp) {}

void read_input(png_structp png, png_bytep to, std::size_t size) {
    auto* state = static_cast<State*>(png_get_io_ptr(png));
    if (size > state->input.size() - state->at) png_error(png, "truncated");
    std::memcpy(to, state->input.data() + state->at, size);
    state->at += size;
}

void write_output(png_structp png, png_bytep from, std::size_t size) {
    auto* state = static_cast<State*>(png_get_io_ptr(png));
    try {
        state->output->insert(state->output->end(), from, from + size);
    } catch (...) {
        size = 0;
    }
    if (size == 0) png_error(png, "out of memory");
}

void flush_output(png_structp) {}

// Reads the header, and leaves in `claimed` how many bytes the image has before it is compressed.
bool read_header(State& state) {
    state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, on_error, on_warning);
    if (!state.png) return false;
    state.info = png_create_info_struct(state.png);
    if (!state.info) return false;
    if (setjmp(png_jmpbuf(state.png))) return false;
    png_set_read_fn(state.png, &state, read_input);
    png_set_user_limits(state.png, 0x7fffffff, 0x7fffffff);
    // No pixel depends on text, profiles and the like, and a few bytes of them can unpack to megabytes each.
    png_set_keep_unknown_chunks(state.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(state.png, state.info);
    state.claimed = static_cast<unsigned __int128>(png_get_rowbytes(state.png, state.info)) *
                    png_get_image_height(state.png, state.info);
    return true;
}

// A sample is a label: neither scaled to 8 bits nor looked up in the palette.
void set_labels(State& state) {
    const auto colours = png_get_color_type(state.png, state.info);
    const bool one = colours == PNG_COLOR_TYPE_GRAY || colours == PNG_COLOR_TYPE_PALETTE;
    if (!one || png_get_bit_depth(state.png, state.info) > 8)
        png_error(state.png, "has colours, alpha or 16 bits, so its samples are no labels of 0 to 255");
    png_set_packing(state.png);
}

// Asks for plain gray, gray + alpha, RGB or RGBA in 8 or 16 bits. Allocates rows of the width the header claims.
bool set_output(State& state) {
    if (setjmp(png_jmpbuf(state.png))) return false;
    if (state.labels) {
        set_labels(state);
    } else {
        png_set_palette_to_rgb(state.png);
        png_set_expand_gray_1_2_4_to_8(state.png);
        if (png_get_valid(state.png, state.info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(state.png);
        if constexpr (std::endian::native == std::endian::little) png_set_swap(state.png);
    }
    png_set_interlace_handling(state.png);
    png_read_update_info(state.png, state.info);
    state.shape = {png_get_image_height(state.png, state.info), png_get_image_width(state.png, state.info),
                   png_get_channels(state.png, state.info), png_get_bit_depth(state.png, state.info)};
    return true;
}

bool read_pixels(State& state, std::uint8_t** rows) {
    if (setjmp(png_jmpbuf(state.png))) return false;
    png_read_image(state.png, rows);
    png_read_end(state.png, nullptr);
    return true;
}

template <class Use>
void with_header(Bytes encoded, bool labels, Use use) {
    State state;
    state.input = encoded;
    state.labels = labels;
    bool good = !encoded.empty() && read_header(state);
    if (good && state.claimed / kDeflateRatio > encoded.size()) {
        good = false;
        std::snprintf(state.message, sizeof state.message, "claims more pixels than its bytes could hold");
    }
    good = good && set_output(state) && use(state);
    png_destroy_read_struct(&state.png, &state.info, nullptr);
    if (!good) throw Failure("decode", std::string("PNG: ") + state.message);
}

bool write_pixels(State& state, std::uint8_t** rows, int level) {
    state.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &state, on_error, on_warning);
    if (!state.png) return false;
    state.info = png_create_info_struct(state.png);
    if (!state.info) return false;
    if (setjmp(png_jmpbuf(state.png))) return false;
    constexpr int kColours[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                PNG_COLOR_TYPE_RGB_ALPHA};
    png_set_write_fn(state.png, &state, write_output, flush_output);
    png_set_compression_level(state.png, level);
    png_set_IHDR(state.png, state.info, state.shape.width, state.shape.height, static_cast<int>(state.shape.bits),
                 kColours[state.shape.channels - 1], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(state.png, state.info);
    if constexpr (std::endian::native == std::endian::little)
        if (state.shape.bits == 16) png_set_swap(state.png);
    png_write_image(state.png, rows);
    png_write_end(state.png, nullptr);
    return true;
}

std::vector<std::uint8_t*> row_pointers(const std::uint8_t* pixels, const ImageShape& shape) {
    const std::size_t stride = std::size_t{shape.width} * shape.channels * (shape.bits / 8);
    std::vector<std::uint8_t*> rows(shape.height);
    for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = const_cast<std::uint8_t*>(pixels) + y * stride;
    return rows;
}

ImageShape info_of(Bytes encoded, bool labels) {
    ImageShape shape;
    with_header(encoded, labels, [&](State& state) {
        shape = state.shape;
        return true;
    });
    return shape;
}

void decode_as(Bytes encoded, bool labels, const ImageShape& shape, MutableBytes out) {
    std::vector<std::uint8_t*> rows;
    with_header(encoded, labels, [&](State& state) {
        if (state.shape == shape) {
            rows = row_pointers(out.data(), shape);
            return read_pixels(state, rows.data());
        }
        std::snprintf(state.message, sizeof state.message, "differs from its stored shape");
        return false;
    });
}

}  // namespace

ImageShape png_info(Bytes encoded) { return info_of(encoded, false); }
ImageShape labels_info(Bytes encoded) { return info_of(encoded, true); }

void png_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) { decode_as(encoded, false, shape, out); }
void labels_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) { decode_as(encoded, true, shape, out); }

std::vector<std::uint8_t> png_encode(Bytes pixels, const ImageShape& shape, int level) {
    if (pixels.size() != shape.bytes()) throw Failure("encode", "PNG: the pixels do not have the stated shape");
    if (shape.channels < 1 || shape.channels > 4 || (shape.bits != 8 && shape.bits != 16) || !shape.height ||
        !shape.width)
        throw Failure("encode", "PNG: one to four channels of 8 or 16 bits");
    auto rows = row_pointers(pixels.data(), shape);
    std::vector<std::uint8_t> out;
    State state;
    state.shape = shape;
    state.output = &out;
    const bool good = write_pixels(state, rows.data(), level);
    png_destroy_write_struct(&state.png, &state.info);
    if (!good) throw Failure("encode", std::string("PNG: ") + state.message);
    return out;
}

}  // namespace fl
