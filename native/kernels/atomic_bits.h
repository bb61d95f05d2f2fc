// Many bits that any thread may set and look at. They order nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace fl {

class AtomicBits {
public:
    explicit AtomicBits(std::size_t count = 0)
        : words_(count / 64 + 1), bits_(std::make_unique<std::atomic<std::uint64_t>[]>(words_)) {}

    bool test(std::size_t bit) const { return bits_[bit / 64].load(std::memory_order_relaxed) >> (bit % 64) & 1; }
    void set(std::size_t bit) { bits_[bit / 64].fetch_or(std::uint64_t{1} << (bit % 64), std::memory_order_relaxed); }
    void set_all() { fill(~std::uint64_t{0}); }
    void clear_all() { fill(0); }

private:
    void fill(std::uint64_t word) {
        for (std::size_t i = 0; i < words_; ++i) bits_[i].store(word, std::memory_order_relaxed);
    }

    std::size_t words_;
    std::unique_ptr<std::atomic<std::uint64_t>[]> bits_;
};

}  // namespace fl
