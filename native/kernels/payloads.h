// One field's payloads in one file: a table of extents over the mapped bytes they point into. Every read checks the
// extent against the file's bounds and the bytes against their CRC32C.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "codec.h"
#include "table.h"
#include "upcoming.h"

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

// Payloads that need no extents, since they are arithmetic: row i has the `size` bytes at `begin + i * step`, as long as
// they end before `end`. Where the bytes are the rows of a table, `items`, it has their checksums; it begins at `begin`.
struct Windows {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t size = 0;
    std::uint64_t step = 1;
    const Table* items = nullptr;

    // Bytes of the file, from the first to behind the last.
    struct Span {
        std::uint64_t begin, end;
    };

    std::uint64_t rows() const;
    // What must be read so that these bytes can be checked: the blocks they lie in, where there are some.
    Span checkable(Span bytes) const;
    // The same of all windows that begin in the same `unit` of the file as these bytes do; of these bytes alone where there
    // is no unit, or where little of what lies between windows would be used.
    Span together(Span bytes, std::uint64_t unit) const;
    // How many have some of these bytes.
    std::uint64_t within(Span bytes) const;
};

// Extents of files that others wrote. They may have no checksums, or zip's: a CRC-32 of what is made of the stored bytes.
// And the bytes may be no file's at all, but in memory.
struct Foreign {
    bool unchecked = false;
    bool zipped = false;
    bool in_memory = false;
};

class Payloads {
public:
    Payloads(Bytes file, const Table& extents, std::uint64_t data_begin, std::uint64_t data_end,
             const Dictionary* dictionary = nullptr, Foreign foreign = {});
    Payloads(Bytes file, const Windows& windows);

    std::uint64_t rows() const;

    // The row's extent, known to lie inside the data. Throws Failure: "index", "table" or "extent".
    Extent extent(std::uint64_t row) const;
    Extent unchecked_extent(std::uint64_t row) const;

    // In what follows `there` is where the stored bytes were read to, or null: then they are taken from the mapping.

    // Throws unless the extent lies inside the data and its sizes make sense.
    void check(const Extent& extent, const std::uint8_t* there = nullptr) const;
    bool inside(const Extent& extent) const {
        return extent.pointer >= data_begin_ && extent.pointer <= data_end_ && extent.size <= data_end_ - extent.pointer;
    }
    // The row of the table that holds an extent; none where extents are arithmetic, and `window` gives them.
    TableRow place(std::uint64_t row) const { return extents_ ? TableRow{extents_, row} : TableRow{}; }
    const Table& extents() const { return *extents_; }  // where there are some
    bool has_windows() const { return !extents_; }
    bool in_memory() const { return foreign_.in_memory; }
    const Windows& windows() const { return windows_; }  // where there are some
    Extent window(std::uint64_t row) const;
    // Whether the payload is what is stored, and CRC32C its checksum.
    bool plain(const Extent& extent) const {
        return extents_ && extent.codec == Codec::none && !foreign_.unchecked && !foreign_.zipped;
    }
    Bytes file() const { return file_; }
    std::uint64_t data_end() const { return data_end_; }

    // The stored bytes, checked. Throws Failure "checksum" besides.
    Bytes stored(const Extent& extent, const std::uint8_t* there = nullptr) const;

    // The payload as it was given to the writer, into `out`, which must have raw_size bytes. May also throw "codec".
    // `next` is what will be read soon.
    void read(const Extent& extent, MutableBytes out, const std::uint8_t* there = nullptr, Upcoming* next = nullptr) const;

    // The same into `scratch`. A decoder works on that copy: it can't be left by a jump if the file becomes shorter.
    Bytes load(const Extent& extent, std::vector<std::uint8_t>& scratch, const std::uint8_t* there = nullptr) const;

    // Starts loading the payload's beginning; beyond that the CPU's own prefetching has long caught on.
    static constexpr std::uint64_t kPrefetched = 4096;
    void prefetch(const Extent& extent, const std::uint8_t* there = nullptr) const {
        const auto size = std::min(extent.size, kPrefetched);
        const auto* from = there ? there : file_.data() + extent.pointer;
        for (std::size_t i = 0; i < size; i += 64) __builtin_prefetch(from + i, 0, 1);
    }
    // Starts loading a line of each of its first pages: much of the time that takes goes into finding these.
    void prefetch_pages(const Extent& extent) const {
        const auto size = std::min(extent.size, 4 * kPage);
        for (std::size_t i = 0; i < size; i += kPage) __builtin_prefetch(file_.data() + extent.pointer + i);
    }

private:
    static constexpr std::uint64_t kPage = 4096;
    void copy(const Extent& extent, std::uint8_t* out, const std::uint8_t* there, Upcoming* next) const;
    Bytes unchecked(const Extent& extent, const std::uint8_t* there) const {
        return there ? Bytes(there, extent.size) : file_.subspan(extent.pointer, extent.size);
    }

    void read_zipped(const Extent& extent, MutableBytes out, const std::uint8_t* there) const;
    void check_items(const Extent& extent) const;

    Bytes file_;
    const Table* extents_ = nullptr;
    std::uint64_t data_begin_;
    std::uint64_t data_end_;
    const Dictionary* dictionary_ = nullptr;
    Foreign foreign_{};
    Windows windows_{};
};

using Sources = std::span<const Payloads* const>;

// A pick, found: the source is null where the row is negative.
struct Located {
    const Payloads* source = nullptr;
    Extent extent{};
    const std::uint8_t* there = nullptr;  // the stored bytes, where they were read into memory
};

namespace detail {
// The bytes of each, which is plain, to its place; whether all are there and right.
bool copy_plain(std::span<const Located> located, std::uint8_t* const* out);
}  // namespace detail

// All extents at once, so that their cache misses overlap: `row_of(i)` gives a PayloadRow, whose source may be null.
// `found` are their extents, where someone has looked them up. Throws Failure with its position.
struct PayloadRow {
    const Payloads* source = nullptr;
    std::uint64_t row = 0;
    Bytes there{};             // bytes read into memory, if any
    std::uint64_t offset = 0;  // where in the file they lie

    // Those bytes, if they are the extent's.
    const std::uint8_t* of(const Extent& extent) const {
        return there.size() == extent.size && offset == extent.pointer ? there.data() : nullptr;
    }
};

template <class RowOf>
std::vector<Located> locate_rows(std::size_t count, RowOf row_of, const Extent* found = nullptr) {
    thread_local std::vector<Extent> extents;
    if (found)
        extents.assign(found, found + count);
    else
        extents.resize(count);
    std::vector<Located> located(count);
    thread_local std::vector<PayloadRow> wanted;
    wanted.resize(count);
    const auto place = [&](std::size_t i) -> TableRow {
        wanted[i] = row_of(i);
        located[i].source = wanted[i].source;
        return wanted[i].source ? wanted[i].source->place(wanted[i].row) : TableRow{};
    };
    if (found)
        for (std::size_t i = 0; i < count; ++i) place(i);
    else
        gather_rows(count, sizeof(Extent), place, reinterpret_cast<std::uint8_t*>(extents.data()));
    for (std::size_t i = 0; i < count; ++i) {
        if (!located[i].source) continue;
        try {
            if (located[i].source->has_windows()) extents[i] = located[i].source->window(wanted[i].row);
            located[i].there = wanted[i].of(extents[i]);
            located[i].source->check(extents[i], located[i].there);
            located[i].extent = extents[i];
        } catch (Failure& failure) {
            failure.position = static_cast<std::int64_t>(i);
            throw;
        }
    }
    return located;
}

std::vector<Located> locate(Sources sources, const Picks& picks);

// Calls `use(i, source, extent)` for each and stamps failures with their position. While one payload is used, the one
// after the next is on its way to the second-level cache (nearer or farther measured slower).
template <class Use>
void for_each(std::span<const Located> located, Use use) {
    for (std::size_t i = 0; i < located.size(); ++i) {
        if (i + 2 < located.size() && located[i + 2].source) located[i + 2].source->prefetch(located[i + 2].extent);
        try {
            use(i, located[i].source, located[i].extent);
        } catch (Failure& failure) {
            failure.position = static_cast<std::int64_t>(i);
            throw;
        }
    }
}

// Copies payloads that are stored as they are, `to(i)` telling where to, all under one guard. Returns false where one is of
// another kind, or does not fit, or is damaged, or gone: one by one they tell which.
template <class To>
bool copy_together(std::span<const Located> located, To to) {
    constexpr std::size_t kAtOnce = 256;
    for (std::size_t first = 0; first < located.size(); first += kAtOnce) {
        const auto some = located.subspan(first, std::min(kAtOnce, located.size() - first));
        std::array<std::uint8_t*, kAtOnce> out;
        for (std::size_t i = 0; i < some.size(); ++i) {
            const MutableBytes room = to(first + i);
            if (!some[i].source || !some[i].source->plain(some[i].extent) || room.size() != some[i].extent.raw_size)
                return false;
            out[i] = room.data();
        }
        if (!detail::copy_plain(some, out.data())) return false;
    }
    return true;
}

// Payloads of `row_bytes` bytes each, one behind the other. A payload of another size is Failure "size".
void gather_fixed(std::span<const Located> located, std::size_t row_bytes, MutableBytes out);

// Payloads of any size: offsets[i] .. offsets[i + 1] is payload i in `values`. The first call sizes, the second fills.
void ragged_offsets(std::span<const Located> located, std::span<std::int64_t> offsets);
void gather_ragged(std::span<const Located> located, std::span<const std::int64_t> offsets, MutableBytes values);

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
