// Many bits that any thread may set and look at. They order nothing else. Those that nobody sets take no memory, unless
// they are to have it at once: a page that is looked at before it is written to is then replaced, for which the
// processors of all other threads are interrupted. That takes as long as ten reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace fl {

class AtomicBits {
public:
    explicit AtomicBits(std::size_t count = 0, bool at_once = false)
        : size_(count / 64 + 1), words_(make(size_, at_once)) {}

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
    static std::uint64_t* make(std::size_t size, bool at_once) {
        const std::size_t bytes = size * sizeof(std::uint64_t);
        void* words = at_once ? std::malloc(bytes) : std::calloc(size, sizeof(std::uint64_t));
        if (!words) throw std::bad_alloc();
        if (at_once) {
            asm volatile("" : "+r"(words));  // or the compiler would make a calloc of both
            std::memset(words, 0, bytes);
        }
        return static_cast<std::uint64_t*>(words);
    }
    std::atomic_ref<std::uint64_t> word(std::size_t i) const { return std::atomic_ref(words_[i]); }

    std::size_t size_;
    std::unique_ptr<std::uint64_t[], Free> words_;
};

}  // namespace fl
