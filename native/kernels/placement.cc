#include "placement.h"

#include <algorithm>
#include <bit>

#include "crc32c.h"

namespace fl {
namespace {

constexpr std::uint64_t kMaxAlignment = 64;
constexpr std::uint64_t kSmallShare = 32;    // a record up to page_size / 32 never straddles a page
constexpr std::uint64_t kPaddingShare = 32;  // a larger one only while padding stays under payload / 32, ...

constexpr std::uint64_t align_up(std::uint64_t at, std::uint64_t to) { return (at + to - 1) & ~(to - 1); }

struct Laid {
    std::uint64_t begin;  // first byte of payload
    std::uint64_t end;
};

Laid lay(std::span<const std::uint64_t> sizes, std::uint64_t at, std::span<std::uint64_t> offsets) {
    Laid laid{at, at};
    bool first = true;
    for (std::size_t f = 0; f < sizes.size(); ++f) {
        if (sizes[f]) at = align_up(at, alignment_of(sizes[f]));
        offsets[f] = at;
        if (sizes[f] && first) {
            laid.begin = at;
            first = false;
        }
        at += sizes[f];
    }
    laid.end = at;
    return laid;
}

}  // namespace

std::uint64_t alignment_of(std::uint64_t size) {
    return std::min(kMaxAlignment, std::bit_floor(size / 64 + 1));
}

std::size_t place(std::span<const std::uint64_t> sizes, std::size_t fields, std::uint64_t page_size,
                  std::uint64_t limit, Cursor& cursor, std::span<std::uint64_t> offsets,
                  std::span<std::uint64_t> starts) {
    if (!std::has_single_bit(page_size)) throw Failure("format", "the page size is a power of two");
    const bool even = fields ? sizes.size() % fields == 0 && sizes.size() / fields == starts.size() : sizes.empty();
    if (offsets.size() != sizes.size() || !even)
        throw Failure("format", "sizes, offsets and starts differ");
    for (std::size_t i = 0; i < starts.size(); ++i) {
        const auto mine = sizes.subspan(i * fields, fields);
        const auto out = offsets.subspan(i * fields, fields);
        std::uint64_t payload = 0;
        for (const auto size : mine)
            if (__builtin_add_overflow(payload, size, &payload)) throw Failure("size", "the sample is too large");

        Laid laid = lay(mine, cursor.at, out);
        if (payload && laid.begin / page_size != (laid.end - 1) / page_size) {
            const auto next = align_up(cursor.at, page_size);
            const auto length = lay(mine, next, out).end - next;
            const bool small = length <= page_size / kSmallShare;
            // ... counting the gap that a small record may still leave at the end of the page: see "Padding".
            const auto padding = cursor.padding + (next - cursor.at) + page_size / kSmallShare;
            const bool affordable = length <= page_size && padding * kPaddingShare <= cursor.payload + payload;
            laid = lay(mine, small || affordable ? next : cursor.at, out);
        }
        const bool first = cursor.payload + cursor.padding == 0;
        if (laid.end > limit && !first) return i;
        starts[i] = payload ? laid.begin : cursor.at - (cursor.at != 0);
        cursor.padding += laid.end - cursor.at - payload;
        cursor.payload += payload;
        cursor.at = laid.end;
    }
    return starts.size();
}

void assemble(std::span<const Bytes> parts, std::span<const std::uint64_t> offsets, std::uint64_t base,
              MutableBytes out, std::span<std::uint32_t> crcs) {
    if (parts.size() != offsets.size() || parts.size() != crcs.size())
        throw Failure("format", "parts, offsets and sums differ");
    std::uint64_t filled = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto at = offsets[i] - base;
        if (offsets[i] < base || at < filled || at > out.size() || parts[i].size() > out.size() - at)
            throw Failure("format", "a part lies outside the output");
        if (at > filled) std::memset(out.data() + filled, 0, at - filled);
        crcs[i] = copy_crc32c(out.data() + at, parts[i]);
        filled = at + parts[i].size();
    }
    if (filled < out.size()) std::memset(out.data() + filled, 0, out.size() - filled);
}

}  // namespace fl
