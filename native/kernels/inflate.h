// What zip files need: raw deflate streams, and the CRC-32 of what they stand for.
#pragma once

#include "bytes.h"

namespace fl {

constexpr std::uint64_t kDeflateRatio = 1040;  // no deflate stream makes more of a byte

// Fills `out` exactly, or throws Failure("codec").
void inflate_raw(Bytes data, MutableBytes out);

std::uint32_t crc32(Bytes data);

}  // namespace fl
