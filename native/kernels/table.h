// Fixed-width rows inside a mapped file. Blocks are checked against their CRC32C the first time one of their rows is
// touched, so opening costs nothing and no row is believed unchecked. Where the checksums are many, they are a table of
// their own, whose blocks are checked in the same way.
//
// In a table of many megabytes nearly every row asked for at first lies on a page that nobody touched before. Reading
// its block costs less than having the page mapped, unless the page cache has huge ones; see `read_from`.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "atomic_bits.h"
#include "bytes.h"

namespace fl {

class Table {
public:
    // `crcs` holds one little-endian u32 a block of `block_size` bytes; the last block may be short. `list` is a table
    // of these numbers; without one they are known to be right.
    Table(Bytes rows, std::uint32_t row_size, std::uint32_t block_size, Bytes crcs,
          std::shared_ptr<const Table> list = nullptr);

    std::uint64_t rows() const { return rows_; }
    std::uint32_t row_size() const { return row_size_; }
    std::uint32_t block_size() const { return block_size_; }
    std::size_t blocks() const { return blocks_; }

    // From now on a block that was not checked yet is read from this file, at `offset` its first row, where rows are
    // gathered. Only where whole rows make small blocks; else, where the name now means another file, and without
    // descriptors left, everything comes from the mapping as before.
    void read_from(const char* path, std::uint64_t device, std::uint64_t inode, std::uint64_t offset);

    std::size_t size() const { return data_.size(); }

    // The checked bytes of rows [first, first + count). Throws Failure: "index" or "table".
    Bytes at(std::uint64_t first, std::uint64_t count = 1) const;

    // The same, copied out under a guard: a mapped file may become shorter at any moment.
    void copy(std::uint64_t first, std::uint64_t count, std::uint8_t* out) const;

    // Where a row lies, checked; the same as `at`, quick where it was checked before.
    const std::uint8_t* row(std::uint64_t number) const {
        if (number < rows_ && (all_seen() || seen_bytes(number * row_size_, row_size_)))
            return data_.data() + number * row_size_;
        return at(number).data();
    }

    // Where rows lie that were checked before, which have kRowSize bytes each; null for any others. A mapped file may
    // become shorter: what is there is looked at under a guard.
    template <std::uint32_t kRowSize>
    const std::uint8_t* seen_rows(std::uint64_t first, std::uint64_t count = 1) const {
        if (first >= rows_ || count > rows_ - first) return nullptr;
        const auto* const rows = data_.data() + first * kRowSize;
        return all_seen() || seen_bytes(first * kRowSize, count * kRowSize) ? rows : nullptr;
    }

    // A hint only: starts loading a row that will be asked for soon.
    void prefetch(std::uint64_t row) const {
        if (row < rows_) __builtin_prefetch(data_.data() + row * row_size_);
    }

    // The same of the checksum of a block that nobody has read, and of what that one is checked with.
    void prefetch_checksum(std::uint64_t row) const {
        if (!strange(row)) return;
        const auto* const at = crcs_.data() + block_of(row * row_size_) * 4;
        __builtin_prefetch(at);
        if (list_) list_->prefetch_block(static_cast<std::size_t>(at - crcs_.data()));
    }

    // Rows that will be asked for soon, wherever they are: begins to load them, or asks the system for their blocks.
    void expect(std::uint64_t first, std::uint64_t count = 1) const {
        if (first >= rows_ || count > rows_ - first || !count) return;
        const std::size_t begin = block_of(first * row_size_);
        const std::size_t last = block_of((first + count) * row_size_ - 1);
        if (seen(begin) && seen(last))
            __builtin_prefetch(data_.data() + first * row_size_);
        else
            ask(begin, last);
    }
    // The same of all its rows.
    void expect_all() const;

    // Checks all blocks that nobody has read. What is damaged is told when it is.
    void check_all() const;

    // Whether nobody has read this row's block yet.
    bool strange(std::uint64_t row) const { return row < rows_ && !seen(block_of(row * row_size_)); }

    // Whether this row is better read than looked at; it is inside the table then.
    bool far(std::uint64_t row) const { return file_ && strange(row); }

    // The first `width` bytes of a far row, copied out of its block, which is read and checked. Throws Failure: "io" or
    // "table".
    void read(std::uint64_t row, std::size_t width, std::uint8_t* out) const;

    // Checks one block again, whatever was seen before; returns false and both sums when it is damaged.
    bool check_block(std::size_t block, std::uint32_t& stored, std::uint32_t& computed) const;

    // The same of a block that was read to elsewhere. Throws Failure "table" when it is damaged.
    void check_copy(std::size_t block, Bytes bytes) const;

private:
    // Two divisions a row would be a good part of looking rows up.
    std::size_t block_of(std::uint64_t byte) const {
        return block_shift_ < 0 ? byte / block_size_ : byte >> block_shift_;
    }
    void check(std::size_t block) const {
        if (!seen(block)) check_now(block);
    }
    bool seen(std::size_t block) const { return seen_.test(block); }
    bool all_seen() const { return std::atomic_ref(unseen_).load(std::memory_order_relaxed) == 0; }
    bool seen_bytes(std::uint64_t begin, std::uint64_t size) const {
        const std::size_t first = block_of(begin), last = block_of(begin + size - (size != 0));
        return last - first <= 1 && seen(first) && seen(last);
    }
    void ask(std::size_t begin, std::size_t last) const;
    void prefetch_block(std::size_t byte) const {
        const Bytes wanted = block(block_of(byte));
        for (std::size_t at = 0; at < wanted.size(); at += 64) __builtin_prefetch(wanted.data() + at);
    }
    Bytes block(std::size_t number) const {
        const auto begin = number * block_size_;
        return data_.subspan(begin, std::min<std::size_t>(block_size_, data_.size() - begin));
    }
    void see(std::size_t block, std::uint32_t stored, std::uint32_t computed) const;
    void check_now(std::size_t block) const;
    std::uint32_t stored_crc(std::size_t block) const;
    void check_list(std::size_t block) const;

    Bytes data_;
    Bytes crcs_;
    std::shared_ptr<const Table> list_;
    std::uint64_t rows_;
    std::uint32_t row_size_;
    std::uint32_t block_size_;
    int block_shift_;  // where the block size is a power of two, as it is in files of ours; else -1
    std::size_t blocks_;
    mutable std::size_t unseen_;       // blocks that were not checked yet; by atomic_ref alone, so that tables may move
    mutable AtomicBits seen_;          // a bit a block, as the next
    mutable AtomicBits asked_;         // for, of the system
    std::shared_ptr<const int> file_;  // closed with the last table that has it
    std::uint64_t file_offset_ = 0;
};

// Which row of which table each output row comes from; a negative row gives zeros.
struct Picks {
    std::span<const std::int32_t> which;  // empty: all from the first source
    std::span<const std::int64_t> rows;

    std::size_t size() const { return rows.size(); }
    std::size_t source(std::size_t i) const { return which.empty() ? 0 : static_cast<std::size_t>(which[i]); }
};

// A row of a table; no table means a row of zeros.
struct TableRow {
    const Table* table = nullptr;
    std::uint64_t row = 0;

    void prefetch() const {
        if (table) table->prefetch(row);
    }
};

// Copies rows from where the pointers say, under a guard; a null pointer gives zeros, and what is in its place stays.
void copy_rows(const std::uint8_t* const* rows, std::size_t count, std::size_t width, std::uint8_t* out);

// Copies `count` rows of `width` bytes, the i-th being `row_of(i)`, one behind the other. Some hundred are looked up,
// checked and begun to be loaded, then copied, so that their cache misses overlap. Throws Failure with its position.
template <class RowOf>
void gather_rows(std::size_t count, std::size_t width, RowOf row_of, std::uint8_t* out) {
    constexpr std::size_t kAtOnce = 256;
    const std::uint8_t* from[kAtOnce];
    for (std::size_t first = 0; first < count; first += kAtOnce) {
        const std::size_t some = std::min(kAtOnce, count - first);
        std::size_t i = 0;
        try {
            for (; i < some; ++i) {
                const TableRow wanted = row_of(first + i);
                if (wanted.table && wanted.table->far(wanted.row)) {
                    std::uint8_t* const to = out + (first + i) * width;
                    wanted.table->read(wanted.row, width, to);
                    from[i] = to;
                    continue;
                }
                from[i] = wanted.table ? wanted.table->row(wanted.row) : nullptr;
                __builtin_prefetch(from[i]);
            }
        } catch (Failure& failure) {
            failure.position = static_cast<std::int64_t>(first + i);
            throw;
        }
        copy_rows(from, some, width, out + first * width);
    }
}

// Copies the picked rows into `out`, one behind the other.
void take(std::span<const Table* const> tables, const Picks& picks, MutableBytes out);

// For tables of packed bits (row size 1, least significant bit first): one byte, 0 or 1, a picked row.
void take_bits(std::span<const Table* const> tables, const Picks& picks, MutableBytes out);

std::vector<std::uint32_t> block_crcs(Bytes data, std::uint32_t block_size);

}  // namespace fl
