// A shuffled order as arithmetic: a keyed bijection of [0, n) that needs no memory, whatever n.
#pragma once

#include <array>

#include "bytes.h"

namespace fl {

// A Feistel network over pairs (left, right) of a rectangle that holds n cells or a few more: each round adds to one
// side a function of the other, modulo the side's length, which can be undone and is therefore a bijection. A result
// past n is fed in again until it falls inside; the rectangle has less than one row to spare, so that is rare.
class Permutation {
public:
    Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);

    std::uint64_t size() const { return n_; }
    std::uint64_t at(std::uint64_t position) const;       // position -> sample
    std::uint64_t position_of(std::uint64_t value) const;  // the inverse

    // `at` of many, several at a time: a round waits for the one before it, but not for those of other positions.
    void at(std::span<const std::int64_t> positions, std::span<std::int64_t> samples) const;

private:
    struct Cell {
        std::uint64_t row, column;
    };
    template <std::size_t kCells>
    void walk(Cell (&cells)[kCells]) const;
    std::uint64_t walk_inside(std::uint64_t number) const;  // until it falls below n

    static constexpr int kMostRounds = 16;
    std::uint64_t n_;
    int rounds_;
    std::uint64_t columns_;
    std::uint64_t rows_;
    std::array<std::uint64_t, kMostRounds> keys_;
};

}  // namespace fl
