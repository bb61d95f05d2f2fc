// Fixed-width rows inside a mapped file. Blocks are checked against their CRC32C the first time one of their rows is
// touched, so opening costs nothing and no row is believed unchecked.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "bytes.h"

namespace fl {

class Table {
public:
    // `crcs` holds one little-endian u32 a block of `block_size` bytes; the last block may be short.
    Table(Bytes rows, std::uint32_t row_size, std::uint32_t block_size, Bytes crcs);

    std::uint64_t rows() const { return rows_; }
    std::uint32_t row_size() const { return row_size_; }
    std::size_t blocks() const { return blocks_; }

    // The checked bytes of rows [first, first + count). Throws Failure: "index" or "table".
    Bytes at(std::uint64_t first, std::uint64_t count = 1) const;

    // The same, copied out under a guard: a mapped file may become shorter at any moment.
    void copy(std::uint64_t first, std::uint64_t count, std::uint8_t* out) const;

    // A hint only: starts loading a row that will be asked for soon.
    void prefetch(std::uint64_t row) const {
        if (row < rows_) __builtin_prefetch(data_.data() + row * row_size_);
    }

    // Checks one block again, whatever was seen before; returns false and both sums when it is damaged.
    bool check_block(std::size_t block, std::uint32_t& stored, std::uint32_t& computed) const;

private:
    // Two divisions a row would be a good part of looking rows up.
    std::size_t block_of(std::uint64_t byte) const {
        return block_shift_ < 0 ? byte / block_size_ : byte >> block_shift_;
    }
    void check(std::size_t block) const {
        if (!seen_[block].load(std::memory_order_relaxed)) check_now(block);
    }
    void check_now(std::size_t block) const;

    Bytes data_;
    Bytes crcs_;
    std::uint64_t rows_;
    std::uint32_t row_size_;
    std::uint32_t block_size_;
    int block_shift_;  // where the block size is a power of two, as it is in files of ours; else -1
    std::size_t blocks_;
    std::unique_ptr<std::atomic<std::uint8_t>[]> seen_;
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

// Copies rows from where the pointers say, under a guard; a null pointer gives zeros.
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
                from[i] = wanted.table ? wanted.table->at(wanted.row).data() : nullptr;
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
