#include "slot.h"

#include <sys/mman.h>

#include <new>

namespace fl {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHuge = 2 << 20;

}  // namespace

std::size_t AlignedBytes::rounded(std::size_t size) { return (size + kPage - 1) / kPage * kPage; }

std::uint8_t* AlignedBytes::reserve(std::size_t size) {
    if (size > capacity_) {
        // Large ones in huge pages, where they are to be had: there sooner when they are first written, and cheaper to
        // write. They need not end with one.
        const std::size_t bytes = rounded(size);
        const bool huge = bytes >= 2 * kHuge;
        data_.reset();
        capacity_ = 0;
        void* memory = nullptr;
        if (posix_memalign(&memory, huge ? kHuge : kPage, bytes)) throw std::bad_alloc();
        data_.reset(static_cast<std::uint8_t*>(memory));
        if (huge) madvise(data_.get(), bytes / kHuge * kHuge, MADV_HUGEPAGE);
        capacity_ = bytes;
    }
    return data_.get();
}

std::size_t Slot::bytes() const {
    std::size_t total = 0;
    for (const auto& column : columns) total += column.bytes();
    return total;
}

std::shared_ptr<Slot> Ring::acquire(const std::shared_ptr<Ring>& ring) {
    std::unique_ptr<Slot> slot;
    {
        std::lock_guard lock(ring->mutex_);
        if (!ring->free_.empty()) {
            slot = std::move(ring->free_.back());
            ring->free_.pop_back();
        } else {
            ++ring->made_;
        }
    }
    if (!slot) {
        slot = std::make_unique<Slot>();
        slot->columns.resize(ring->columns_);
    }
    // The ring lives as long as any slot is out: batches may outlive the loader that made them.
    return {slot.release(), [ring](Slot* back) { ring->give_back(std::unique_ptr<Slot>(back)); }};
}

void Ring::give_back(std::unique_ptr<Slot> slot) {
    std::lock_guard lock(mutex_);
    if (free_.size() < kept_) free_.push_back(std::move(slot));
}

void Ring::keep(std::size_t slots) {
    std::vector<std::unique_ptr<Slot>> extra;  // freed without the lock
    std::lock_guard lock(mutex_);
    kept_ = slots;
    while (free_.size() > kept_) {
        extra.push_back(std::move(free_.back()));
        free_.pop_back();
    }
}

std::size_t Ring::made() const {
    std::lock_guard lock(mutex_);
    return made_;
}

std::size_t Ring::bytes_waiting() const {
    std::lock_guard lock(mutex_);
    std::size_t total = 0;
    for (const auto& slot : free_) total += slot->bytes();
    return total;
}

}  // namespace fl
