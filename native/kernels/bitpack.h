// Tokens of a codec, as few bits each as their codebook needs: frame after frame, in it codebook after codebook, without
// gaps. The first bit is the least significant of the first byte. Any run of frames is unpacked without the others.
#pragma once

#include <span>

#include "bytes.h"

namespace fl {

struct TokenShape {
    std::uint32_t codebooks = 1;
    std::uint32_t bits = 10;  // of a token, 1 to 32

    // Throws Failure "argument".
    void check() const;
    // Bytes of so many frames; Failure "format" where no payload has so many.
    std::size_t bytes(std::uint64_t frames) const;
};

// `tokens` is (codebooks, frames). Throws Failure "argument" for sizes that don't fit, or a token with more bits.
void pack_tokens(const TokenShape& shape, std::span<const std::uint32_t> tokens, MutableBytes out);

// Frames [first, first + count) of a payload, as (codebooks, count) of `item` bytes each: 1, 2 or 4.
void unpack_tokens(const TokenShape& shape, Bytes packed, std::uint64_t first, std::uint64_t count, std::size_t item,
                   MutableBytes out);

}  // namespace fl
