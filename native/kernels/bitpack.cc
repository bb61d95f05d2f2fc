#include "bitpack.h"

namespace fl {
namespace {

// Up to eight bytes from `at` on, as a number; what lies behind the end counts as 0.
std::uint64_t word(Bytes data, std::size_t at) {
    if (at + 8 <= data.size()) return load<std::uint64_t>(data.data() + at);
    std::uint64_t value = 0;
    if (at < data.size()) std::memcpy(&value, data.data() + at, data.size() - at);
    return value;
}

template <class T>
void unpack(const TokenShape& shape, Bytes packed, std::uint64_t first, std::uint64_t count, std::uint8_t* out) {
    const std::uint64_t mask = (std::uint64_t{1} << shape.bits) - 1;
    std::uint64_t place = first * shape.codebooks * shape.bits;
    for (std::uint64_t frame = 0; frame < count; ++frame)
        for (std::uint32_t book = 0; book < shape.codebooks; ++book, place += shape.bits)
            store(out + (book * count + frame) * sizeof(T), static_cast<T>((word(packed, place / 8) >> (place % 8)) & mask));
}

}  // namespace

void TokenShape::check() const {
    if (codebooks < 1 || codebooks > (1u << 16)) throw Failure("argument", "1 to 65536 codebooks");
    if (bits < 1 || bits > 32) throw Failure("argument", "tokens have 1 to 32 bits");
}

std::size_t TokenShape::bytes(std::uint64_t frames) const {
    std::uint64_t all;
    if (__builtin_mul_overflow(frames, std::uint64_t{codebooks} * bits, &all))
        throw Failure("format", "no payload has " + std::to_string(frames) + " frames");
    return all / 8 + (all % 8 != 0);
}

void pack_tokens(const TokenShape& shape, std::span<const std::uint32_t> tokens, MutableBytes out) {
    shape.check();
    const std::uint64_t frames = tokens.size() / shape.codebooks;
    if (tokens.size() % shape.codebooks || out.size() != shape.bytes(frames))
        throw Failure("argument", "tokens and their room have other sizes");
    std::uint64_t waiting = 0;
    std::uint32_t held = 0;
    std::size_t at = 0;
    for (std::uint64_t frame = 0; frame < frames; ++frame)
        for (std::uint32_t book = 0; book < shape.codebooks; ++book) {
            const std::uint64_t token = tokens[book * frames + frame];
            if (token >> shape.bits) throw Failure("argument", "a token has more bits than its codebook");
            waiting |= token << held;
            held += shape.bits;
            for (; held >= 8; held -= 8, waiting >>= 8) out[at++] = static_cast<std::uint8_t>(waiting);
        }
    if (held) out[at] = static_cast<std::uint8_t>(waiting);
}

void unpack_tokens(const TokenShape& shape, Bytes packed, std::uint64_t first, std::uint64_t count, std::size_t item,
                   MutableBytes out) {
    shape.check();
    std::uint64_t end, all;
    if (__builtin_add_overflow(first, count, &end) || shape.bytes(end) > packed.size())
        throw Failure("format", "the payload has fewer frames");
    if (__builtin_mul_overflow(count, std::uint64_t{shape.codebooks} * item, &all) || all != out.size())
        throw Failure("argument", "the tokens have another size");
    if (item == 1 && shape.bits <= 8) return unpack<std::uint8_t>(shape, packed, first, count, out.data());
    if (item == 2 && shape.bits <= 16) return unpack<std::uint16_t>(shape, packed, first, count, out.data());
    if (item == 4) return unpack<std::uint32_t>(shape, packed, first, count, out.data());
    throw Failure("argument", "tokens of 1, 2 or 4 bytes, as many as they need");
}

}  // namespace fl
