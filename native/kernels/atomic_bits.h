// Many bits that any thread may set and look at. They order nothing else. Those that nobody sets take no memory.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace fl {

class AtomicBits {
public:
    explicit AtomicBits(std::size_t count = 0) : size_(count / 64 + 1), words_(make(size_), Free{size_}) {}

    bool test(std::size_t bit) const { return word(bit / 64).load(std::memory_order_relaxed) >> (bit % 64) & 1; }
    void set(std::size_t bit) { word(bit / 64).fetch_or(std::uint64_t{1} << (bit % 64), std::memory_order_relaxed); }
    void set_all() {
        for (std::size_t i = 0; i < size_; ++i) word(i).store(~std::uint64_t{0}, std::memory_order_relaxed);
    }
    void clear_all() {
        for (std::size_t i = 0; i < size_; ++i)
            if (word(i).load(std::memory_order_relaxed)) word(i).store(0, std::memory_order_relaxed);
    }

private:
    static constexpr std::size_t kMany = 2048;  // words: some pages
    struct Free {
        std::size_t size = 0;
        void operator()(std::uint64_t* words) const {
            size < kMany ? std::free(words) : static_cast<void>(::munmap(words, size * sizeof(std::uint64_t)));
        }
    };
    // The system gives pages of zeros when they are written to; memory that was used before would be cleared whole.
    static std::uint64_t* make(std::size_t size) {
        void* words = size < kMany ? std::calloc(size, sizeof(std::uint64_t))
                                   : ::mmap(nullptr, size * sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (!words || words == MAP_FAILED) throw std::bad_alloc();
        return static_cast<std::uint64_t*>(words);
    }
    std::atomic_ref<std::uint64_t> word(std::size_t i) const { return std::atomic_ref(words_[i]); }

    std::size_t size_;
    std::unique_ptr<std::uint64_t[], Free> words_;
};

}  // namespace fl
