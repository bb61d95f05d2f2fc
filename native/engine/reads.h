// Reads that run beside each other: by io_uring where it is there, else by a pool of threads that call pread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace fl {

// One read. It and its memory must stay until it is done.
struct Read {
    int file = -1;
    std::uint64_t offset = 0;
    std::size_t size = 0;
    std::uint8_t* to = nullptr;
    const std::uint8_t* populate = nullptr;  // instead of reading: mapped bytes to be brought into memory
    std::size_t done = 0;  // bytes that came; fewer than `size` at the end of the file
    int error = 0;         // errno, or 0
};

class ReadQueue {
public:
    // Called from a thread of the queue with reads that are over; each comes once.
    using Done = std::function<void(std::span<Read* const>)>;

    virtual ~ReadQueue() = default;  // waits for what was submitted
    virtual void submit(std::span<Read* const> reads) = 0;
    virtual const char* name() const = 0;
};

// `memory` is where the reads will go: it is registered with the kernel where that is allowed. Null where io_uring was
// not there when this was built, or is refused by this machine.
std::unique_ptr<ReadQueue> make_uring(unsigned depth, std::span<std::uint8_t> memory, ReadQueue::Done done);
std::unique_ptr<ReadQueue> make_pread_pool(unsigned threads, ReadQueue::Done done);

// Whether io_uring can be used here.
bool has_uring();

}  // namespace fl
