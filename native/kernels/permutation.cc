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

template <std::size_t kCells>
void Permutation::walk(Cell (&cells)[kCells]) const {
    for (int round = 0; round < rounds_; round += 2) {
        for (auto& [row, column] : cells) {
            column += draw(keys_[round], row, columns_);
            if (column >= columns_) column -= columns_;
        }
        for (auto& [row, column] : cells) {
            row += draw(keys_[round + 1], column, rows_);
            if (row >= rows_) row -= rows_;
        }
    }
}

std::uint64_t Permutation::walk_inside(std::uint64_t number) const {
    do {
        Cell cell[] = {{number / columns_, number % columns_}};
        walk(cell);
        number = cell[0].row * columns_ + cell[0].column;
    } while (number >= n_);
    return number;
}

std::uint64_t Permutation::at(std::uint64_t position) const {
    if (position >= n_) throw Failure("index", "a position past the end of the order");
    return walk_inside(position);
}

void Permutation::at(std::span<const std::int64_t> positions, std::span<std::int64_t> samples) const {
    constexpr std::size_t kCells = 8;
    std::size_t i = 0;
    for (; i + kCells <= positions.size(); i += kCells) {
        Cell cells[kCells];
        for (std::size_t j = 0; j < kCells; ++j) {
            const auto position = static_cast<std::uint64_t>(positions[i + j]);  // a negative one is past any end
            if (position >= n_) throw Failure("index", "a position past the end of the order");
            cells[j] = {position / columns_, position % columns_};
        }
        walk(cells);
        for (std::size_t j = 0; j < kCells; ++j) {
            const auto sample = cells[j].row * columns_ + cells[j].column;
            samples[i + j] = static_cast<std::int64_t>(sample < n_ ? sample : walk_inside(sample));
        }
    }
    for (; i < positions.size(); ++i)
        samples[i] = static_cast<std::int64_t>(at(static_cast<std::uint64_t>(positions[i])));
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
