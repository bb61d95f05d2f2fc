// The compressions a payload may be stored with. The numbers are on disk.
#pragma once

#include <vector>

#include "bytes.h"

namespace fl {

enum class Codec : std::uint8_t { none = 0, lz4 = 1, zstd = 2 };

// Level: lz4 1 is the fast mode and 2..12 the high-compression one; zstd takes its own levels.
std::vector<std::uint8_t> compress(Bytes data, Codec codec, int level);

// Fills `out` exactly, or throws Failure("codec").
void decompress(Bytes data, Codec codec, MutableBytes out);

// Throws Failure("codec") unless `stored` compressed bytes could hold `raw` bytes at all: checked before `raw` bytes
// are allocated, so a hostile size costs nothing. `head` is the beginning of them, kHeadBytes or all there are.
constexpr std::size_t kHeadBytes = 32;
constexpr std::uint64_t kMostRatio = 32768;  // no compression makes more of a byte
void check_ratio(Bytes head, std::uint64_t stored, Codec codec, std::uint64_t raw);

}  // namespace fl
