#include "slot.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace fl {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHuge = 2 << 20;
constexpr unsigned kPortable = 1;  // cudaHostRegisterPortable: pinned for every GPU

}  // namespace

Pinning::Pinning(Pin pin, Unpin unpin) : pin_(pin), unpin_(unpin), process_(getpid()) {}

bool Pinning::pin(void* memory, std::size_t size) {
    // A forked child has no use of its parent's GPU.
    if (process_ != getpid() || pin_(memory, size, kPortable) != 0) {
        ++refused;
        return false;
    }
    pinned += size;
    return true;
}

void Pinning::unpin(void* memory) {
    if (process_ == getpid()) unpin_(memory);
}

void AlignedBytes::Free::operator()(void* memory) const {
    if (pinning) {
        pinning->unpin(memory);
        pinning->pinned -= size;
    }
    std::free(memory);
}

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
        if (huge) madvise(memory, bytes / kHuge * kHuge, MADV_HUGEPAGE);
        const bool pinned = pinning_ && pinning_->pin(memory, bytes);
        data_ = std::unique_ptr<std::uint8_t[], Free>(static_cast<std::uint8_t*>(memory),
                                                      Free(pinned ? pinning_ : nullptr, bytes));
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
        for (auto& column : slot->columns) {
            column.data.use(ring->pinning_);
            column.metadata.use(ring->pinning_);
        }
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
