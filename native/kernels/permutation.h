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

private:
    static constexpr int kMostRounds = 16;
    std::uint64_t n_;
    int rounds_;
    std::uint64_t columns_;
    std::uint64_t rows_;
    std::array<std::uint64_t, kMostRounds> keys_;
};

}  // namespace fl
