#include "permutation.h"

#include <cmath>

namespace fl {
namespace {

// The finaliser of SplitMix64: every input bit flips each output bit with a chance of about one half.
constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// A pseudo-random number below `bound`.
constexpr std::uint64_t draw(std::uint64_t key, std::uint64_t from, std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(mix(from + key)) * bound) >> 64);
}

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) : n_(n) {
    if (n > (std::uint64_t{1} << 62)) throw Failure("format", "at most 2^62 samples can be permuted");
    columns_ = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(n)));
    while (columns_ * columns_ < n) ++columns_;  // the square root as a double may be off by a little
    if (columns_ == 0) columns_ = 1;
    rows_ = (n + columns_ - 1) / columns_;
    if (rows_ == 0) rows_ = 1;
    // Short orders have few pairs to mix, so they get more rounds: with 16, all orders of five samples are as likely.
    rounds_ = n < 65536 ? kMostRounds : 8;
    std::uint64_t key = mix(mix(seed + kGolden) + epoch + kGolden);
    for (auto& one : keys_) one = mix(key += kGolden);
}

std::uint64_t Permutation::at(std::uint64_t position) const {
    if (position >= n_) throw Failure("index", "a position past the end of the order");
    do {
        std::uint64_t row = position / columns_, column = position % columns_;
        for (int round = 0; round < rounds_; round += 2) {
            column += draw(keys_[round], row, columns_);
            if (column >= columns_) column -= columns_;
            row += draw(keys_[round + 1], column, rows_);
            if (row >= rows_) row -= rows_;
        }
        position = row * columns_ + column;
    } while (position >= n_);
    return position;
}

std::uint64_t Permutation::position_of(std::uint64_t value) const {
    if (value >= n_) throw Failure("index", "a sample past the end of the order");
    do {
        std::uint64_t row = value / columns_, column = value % columns_;
        for (int round = rounds_ - 2; round >= 0; round -= 2) {
            const auto down = draw(keys_[round + 1], column, rows_);
            row = row >= down ? row - down : row + rows_ - down;
            const auto left = draw(keys_[round], row, columns_);
            column = column >= left ? column - left : column + columns_ - left;
        }
        value = row * columns_ + column;
    } while (value >= n_);
    return value;
}

}  // namespace fl
