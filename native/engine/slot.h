// The memory of one batch, reused for later ones: page-aligned, grown when needed, never shrunk while in use.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "image.h"

namespace fl {

// Functions of CUDA's runtime that lock memory in its place, so that a GPU copies from it beside all else. Whoever has
// loaded it hands them over; we link to none.
struct Pinning {
    using Pin = int (*)(void*, std::size_t, unsigned);
    using Unpin = int (*)(void*);

    Pinning(Pin pin, Unpin unpin);
    bool pin(void* memory, std::size_t size);
    void unpin(void* memory);

    std::atomic<std::size_t> pinned{0};   // bytes, now
    std::atomic<std::size_t> refused{0};  // pieces that could not be

private:
    const Pin pin_;
    const Unpin unpin_;
    const long process_;
};

// Bytes aligned to 4 KiB whose content is given up when they grow.
class AlignedBytes {
public:
    // From now on memory is pinned when it is made.
    void use(const std::shared_ptr<Pinning>& pinning) { pinning_ = pinning; }

    std::uint8_t* reserve(std::size_t size);
    static std::size_t rounded(std::size_t size);  // what is reserved for so many
    std::uint8_t* data() const { return data_.get(); }
    std::size_t capacity() const { return capacity_; }

private:
    struct Free {
        Free() : size(0) {}
        Free(std::shared_ptr<Pinning> by, std::size_t bytes) : pinning(std::move(by)), size(bytes) {}
        void operator()(void* memory) const;
        std::shared_ptr<Pinning> pinning;  // where the memory is pinned
        std::size_t size;
    };
    std::shared_ptr<Pinning> pinning_;
    std::unique_ptr<std::uint8_t[], Free> data_;
    std::size_t capacity_ = 0;
};

// One field of a batch.
struct SlotColumn {
    AlignedBytes data;                  // rows one behind the other, or values between `offsets`
    AlignedBytes metadata;              // a metadata row a sample
    std::vector<std::int64_t> offsets;  // samples + 1, where samples vary in size; of views, where their areas lie
    std::vector<std::uint8_t> valid;    // 0 for what is missing or failed
    std::size_t size = 0;               // bytes of data in use
    bool any_missing = false;

    std::size_t bytes() const { return data.capacity() + metadata.capacity(); }
};

struct Slot {
    std::vector<SlotColumn> columns;
    std::size_t bytes() const;
};

// Hands out slots and takes them back. A consumer that holds on to batches gets fresh ones; only `kept` wait for reuse.
class Ring {
public:
    Ring(std::size_t columns, std::size_t kept, std::shared_ptr<Pinning> pinning = nullptr)
        : columns_(columns), pinning_(std::move(pinning)), kept_(kept) {}

    // The slot comes back by itself when the last user lets go of it.
    static std::shared_ptr<Slot> acquire(const std::shared_ptr<Ring>& ring);

    // From now on this many wait for reuse; those too many go.
    void keep(std::size_t slots);

    std::size_t made() const;
    std::size_t bytes_waiting() const;

private:
    void give_back(std::unique_ptr<Slot> slot);

    const std::size_t columns_;
    const std::shared_ptr<Pinning> pinning_;
    mutable std::mutex mutex_;
    std::size_t kept_;
    std::vector<std::unique_ptr<Slot>> free_;
    std::size_t made_ = 0;
};

}  // namespace fl
