// Fixed-width rows inside a mapped file. Blocks are checked against their CRC32C the first time one of their rows is
// touched, so opening costs nothing and no row is believed unchecked.
#pragma once

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

    // A hint only: starts loading a row that will be asked for soon.
    void prefetch(std::uint64_t row) const {
        if (row < rows_) __builtin_prefetch(data_.data() + row * row_size_);
    }

    // Checks one block again, whatever was seen before; returns false and both sums when it is damaged.
    bool check_block(std::size_t block, std::uint32_t& stored, std::uint32_t& computed) const;

private:
    void check(std::size_t block) const;

    Bytes data_;
    Bytes crcs_;
    std::uint64_t rows_;
    std::uint32_t row_size_;
    std::uint32_t block_size_;
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

// Copies the picked rows into `out`, one behind the other.
void take(std::span<const Table* const> tables, const Picks& picks, MutableBytes out);

// For tables of packed bits (row size 1, least significant bit first): one byte, 0 or 1, a picked row.
void take_bits(std::span<const Table* const> tables, const Picks& picks, MutableBytes out);

std::vector<std::uint32_t> block_crcs(Bytes data, std::uint32_t block_size);

}  // namespace fl
