// CRC32C (Castagnoli, reflected), plain and fused with a copy.
#pragma once

#include "bytes.h"
#include "upcoming.h"

namespace fl {

std::uint32_t crc32c(Bytes data, std::uint32_t crc = 0);

// Copies `src` to `dst` and returns the CRC of the bytes, reading them once. Meanwhile about as many bytes of what is read
// next are loaded, if there is anything.
std::uint32_t copy_crc32c(std::uint8_t* dst, Bytes src, std::uint32_t crc = 0, Upcoming* next = nullptr);

// The implementations this CPU can run, for tests that compare them; the first is the one in use.
struct Crc32cVariant {
    const char* name;
    std::uint32_t (*run)(std::uint8_t* dst, const std::uint8_t* src, std::size_t size, std::uint32_t crc, Upcoming* next);
};
std::span<const Crc32cVariant> crc32c_variants();

}  // namespace fl
