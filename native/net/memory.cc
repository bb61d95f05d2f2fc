#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace fl::net {
namespace {

constexpr std::size_t kPage = 4096;

// Eight sizes between a power of two and the next, so that nearly the same size finds what was used before.
std::size_t rounded(std::size_t size) {
    const std::size_t step = std::max(kPage, std::bit_floor(std::max<std::size_t>(size, 1)) / 8);
    return (std::max<std::size_t>(size, 1) + step - 1) / step * step;
}

// Smaller pieces are the heap's: of mappings a process has some ten thousand at most.
constexpr std::size_t kMapped = 256 << 10;

std::uint8_t* allocate(std::size_t size) {
    if (size < kMapped) return static_cast<std::uint8_t*>(std::aligned_alloc(kPage, size));
    void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return nullptr;
#ifdef MADV_POPULATE_WRITE
    // All at once costs less than a fault for each page; who can't have it gets it page by page.
    madvise(bytes, size, MADV_POPULATE_WRITE);
#endif
    return static_cast<std::uint8_t*>(bytes);
}

void release(std::uint8_t* bytes, std::size_t size) noexcept {
    if (size < kMapped)
        std::free(bytes);
    else
        munmap(bytes, size);
}

}  // namespace

Memory::Memory() : process_(getpid()) {}

Memory::~Memory() {
    for (const auto& [size, pieces] : idle_)
        for (const auto& piece : pieces) release(piece.bytes, size);
}

std::shared_ptr<std::uint8_t> Memory::get(std::size_t size) {
    const auto whole = rounded(size);
    if (whole < size) return nullptr;
    std::uint8_t* bytes = nullptr;
    {
        std::lock_guard lock(mutex_);
        const auto found = idle_.find(whole);
        if (found != idle_.end() && !found->second.empty()) {
            bytes = found->second.back().bytes;
            found->second.pop_back();
            idle_bytes_ -= whole;
        }
    }
    if (!bytes) bytes = allocate(whole);
    if (!bytes) return nullptr;
    {
        std::lock_guard lock(mutex_);
        ++lent_;
    }
    return {bytes, [self = shared_from_this(), whole](std::uint8_t* mine) { self->put_back(mine, whole); }};
}

void Memory::put_back(std::uint8_t* bytes, std::size_t size) noexcept {
    // In a forked child some thread of the parent's may hold the lock for ever.
    if (getpid() != process_) return release(bytes, size);
    try {
        std::lock_guard lock(mutex_);
        --lent_;
        idle_[size].push_back({bytes, Clock::now()});
        idle_bytes_ += size;
    } catch (const std::bad_alloc&) {
        release(bytes, size);
    }
}

void Memory::trim(Clock::time_point since) {
    std::vector<std::pair<std::uint8_t*, std::size_t>> gone;
    {
        std::lock_guard lock(mutex_);
        for (auto& [size, pieces] : idle_) {
            std::size_t old = 0;
            while (old < pieces.size() && pieces[old].since < since) gone.emplace_back(pieces[old++].bytes, size);
            pieces.erase(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(old));
            idle_bytes_ -= old * size;
        }
    }
    for (const auto& [bytes, size] : gone) release(bytes, size);
}

std::size_t Memory::idle_bytes() const {
    std::lock_guard lock(mutex_);
    return idle_bytes_;
}

bool Memory::in_use() const {
    std::lock_guard lock(mutex_);
    return lent_ || idle_bytes_;
}

}  // namespace fl::net
