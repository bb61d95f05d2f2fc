// One field's payloads in one file: a table of extents over the mapped bytes they point into. Every read checks the
// extent against the file's bounds and the bytes against their CRC32C.
#pragma once

#include <vector>

#include "codec.h"
#include "table.h"

namespace fl {

// A row of the extents table (docs/reference/format.md, "Extents").
struct Extent {
    std::uint64_t pointer;
    std::uint64_t size;      // bytes in the file
    std::uint64_t raw_size;  // bytes after decompression
    std::uint32_t crc;       // of the bytes in the file
    Codec codec;
    std::uint8_t reserved[3];
};
static_assert(sizeof(Extent) == 32);

class Payloads {
public:
    Payloads(Bytes file, const Table& extents, std::uint64_t data_begin, std::uint64_t data_end);

    std::uint64_t rows() const { return extents_.rows(); }

    // The row's extent, known to lie inside the data. Throws Failure: "index", "table" or "extent".
    Extent extent(std::uint64_t row) const;

    // The stored bytes, checked. Throws Failure "checksum" besides.
    Bytes stored(const Extent& extent) const;

    // The payload as it was given to the writer, into `out`, which must have raw_size bytes. May also throw "codec".
    void read(const Extent& extent, MutableBytes out) const;

    // The same without a copy where nothing is compressed; otherwise through `scratch`.
    Bytes view(const Extent& extent, std::vector<std::uint8_t>& scratch) const;

    void prefetch_extent(std::uint64_t row) const { extents_.prefetch(row); }
    void prefetch_payload(std::uint64_t row) const;

private:
    Bytes unchecked(const Extent& extent) const { return file_.subspan(extent.pointer, extent.size); }

    Bytes file_;
    const Table& extents_;
    std::uint64_t data_begin_;
    std::uint64_t data_end_;
};

using Sources = std::span<const Payloads* const>;

inline const Payloads& source_of(Sources sources, const Picks& picks, std::size_t i) {
    const auto source = picks.source(i);
    if (source >= sources.size()) throw Failure("index", "no such source");
    return *sources[source];
}

// Calls `use(i, source, row)` for each pick (source is null where the row is negative), loading what comes next ahead
// of time, and stamps failures with their position.
template <class Use>
void for_each_pick(Sources sources, const Picks& picks, Use use) {
    constexpr std::size_t kExtentsAhead = 16, kPayloadsAhead = 4;
    const auto row_at = [&](std::size_t i) { return static_cast<std::uint64_t>(picks.rows[i]); };
    for (std::size_t i = 0; i < picks.size(); ++i) {
        if (i + kExtentsAhead < picks.size() && picks.rows[i + kExtentsAhead] >= 0)
            source_of(sources, picks, i + kExtentsAhead).prefetch_extent(row_at(i + kExtentsAhead));
        if (i + kPayloadsAhead < picks.size() && picks.rows[i + kPayloadsAhead] >= 0)
            source_of(sources, picks, i + kPayloadsAhead).prefetch_payload(row_at(i + kPayloadsAhead));
        try {
            if (picks.rows[i] < 0)
                use(i, nullptr, 0);
            else
                use(i, &source_of(sources, picks, i), row_at(i));
        } catch (Failure& failure) {
            failure.position = static_cast<std::int64_t>(i);
            throw;
        }
    }
}

// Payloads of `row_bytes` bytes each, one behind the other. A payload of another size is Failure "size".
void gather_fixed(Sources sources, const Picks& picks, std::size_t row_bytes, MutableBytes out);

// Payloads of any size: offsets[i] .. offsets[i + 1] is payload i in `values`. The first call sizes, the second fills.
void ragged_offsets(Sources sources, const Picks& picks, std::span<std::int64_t> offsets);
void gather_ragged(Sources sources, const Picks& picks, std::span<const std::int64_t> offsets, MutableBytes values);

// Every damaged payload of rows [begin, end): read and decompressed, not decoded.
struct Damage {
    std::uint64_t row;
    const char* kind;
    std::string message;
    std::uint32_t stored;
    std::uint32_t computed;
};
std::vector<Damage> check_payloads(const Payloads& source, std::uint64_t begin, std::uint64_t end);

}  // namespace fl
