// Many bits that any thread may set and look at. They order nothing else. Those that nobody sets take no memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace fl {

class AtomicBits {
public:
    explicit AtomicBits(std::size_t count = 0) : size_(count / 64 + 1), words_(make(size_)) {}

    bool test(std::size_t bit) const { return word(bit / 64).load(std::memory_order_relaxed) >> (bit % 64) & 1; }
    // Returns whether it was set already.
    bool set(std::size_t bit) {
        return word(bit / 64).fetch_or(std::uint64_t{1} << (bit % 64), std::memory_order_relaxed) >> (bit % 64) & 1;
    }
    void set_all() {
        for (std::size_t i = 0; i < size_; ++i) word(i).store(~std::uint64_t{0}, std::memory_order_relaxed);
    }
    void clear_all() {
        for (std::size_t i = 0; i < size_; ++i)
            if (word(i).load(std::memory_order_relaxed)) word(i).store(0, std::memory_order_relaxed);
    }

private:
    struct Free {
        void operator()(std::uint64_t* words) const { std::free(words); }
    };
    // The system gives pages of zeros when they are written to.
    static std::uint64_t* make(std::size_t size) {
        if (auto* words = static_cast<std::uint64_t*>(std::calloc(size, sizeof(std::uint64_t)))) return words;
        throw std::bad_alloc();
    }
    std::atomic_ref<std::uint64_t> word(std::size_t i) const { return std::atomic_ref(words_[i]); }

    std::size_t size_;
    std::unique_ptr<std::uint64_t[], Free> words_;
};

}  // namespace fl
