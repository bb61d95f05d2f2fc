// Where payloads go in the file. One sample's payloads lie together; the rules are in docs/reference/format.md.
#pragma once

#include <vector>

#include "bytes.h"

namespace fl {

// Grows with payload size, so that aligning costs at most 1/64 of the payload: 64 from 4,032 bytes up, 1 below 64.
std::uint64_t alignment_of(std::uint64_t size);

struct Cursor {
    std::uint64_t at = 0;       // the next free byte
    std::uint64_t payload = 0;  // bytes of payload so far
    std::uint64_t padding = 0;  // bytes skipped so far
};

// Places `samples` rows of `fields` sizes each. Writes an offset for each size and, for each sample, where its record
// begins; a sample without payload counts with the byte before it, since none may follow. Stops before the first
// sample that would end past `limit` unless it is the first of the file (payload + padding == 0). Returns how many
// samples were placed.
std::size_t place(std::span<const std::uint64_t> sizes, std::size_t fields, std::uint64_t page_size,
                  std::uint64_t limit, Cursor& cursor, std::span<std::uint64_t> offsets,
                  std::span<std::uint64_t> starts);

// Copies each part to offsets[i] - base in `out`, zeroes what lies between, and returns each part's CRC32C.
// Offsets ascend.
void assemble(std::span<const Bytes> parts, std::span<const std::uint64_t> offsets, std::uint64_t base,
              MutableBytes out, std::span<std::uint32_t> crcs);

}  // namespace fl
