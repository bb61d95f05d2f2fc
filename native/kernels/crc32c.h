// CRC32C (Castagnoli, reflected), plain and fused with a copy.
#pragma once

#include "bytes.h"

namespace fl {

std::uint32_t crc32c(Bytes data, std::uint32_t crc = 0);

// Copies `src` to `dst` and returns the CRC of the bytes, reading them once. `next` is what will be read soon: it is loaded
// meanwhile, as far as `src` is long.
std::uint32_t copy_crc32c(std::uint8_t* dst, Bytes src, std::uint32_t crc = 0, Bytes next = {});

// The implementations this CPU can run, for tests that compare them; the first is the one in use.
struct Crc32cVariant {
    const char* name;
    std::uint32_t (*run)(std::uint8_t* dst, const std::uint8_t* src, std::size_t size, std::uint32_t crc, Bytes next);
};
std::span<const Crc32cVariant> crc32c_variants();

}  // namespace fl
