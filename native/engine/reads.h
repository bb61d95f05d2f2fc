// Reads that run beside each other: by io_uring where it is there, else by a pool of threads that call pread. Those of
// objects in a store are handed to whoever can fetch them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mirror.h"

namespace fl {

// One read. It and its memory must stay until it is done.
struct Read {
    int file = -1;  // a descriptor; of a remote read, the number of the object
    std::uint64_t offset = 0;
    std::size_t size = 0;
    std::uint8_t* to = nullptr;
    const std::uint8_t* populate = nullptr;  // instead of reading: mapped bytes to be brought into memory
    std::size_t done = 0;  // bytes that came; fewer than `size` at the end of the file
    int error = 0;         // errno, or 0
    std::string what{};    // went wrong, where the system has no number for it
    // Of a remote read: `to` is its memory, for as long as it is held.
    std::shared_ptr<const void> lender{};
    std::optional<Stamp> stamp{};  // that memory is of a cache's file, and the system's to take back
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

// Reads that somebody else does: they are taken from here, and come back with their bytes or with what went wrong.
// It outlives its queues; what is outstanding when one ends is given up, and comes back to nobody.
class RemoteReads {
public:
    struct Wanted {
        std::uint64_t ticket;
        int file;
        std::uint64_t offset;
        std::size_t size;
    };

    // At most `most` of what waits, the oldest first; nothing if `milliseconds` pass, or after `wake`.
    std::vector<Wanted> take(std::size_t most, int milliseconds);

    // All bytes of a read; fewer or more are a failure. They are not copied: `lender` is let go when nobody needs them
    // any more, by any thread. Who comes too late is ignored.
    void finish(std::uint64_t ticket, std::span<const std::uint8_t> bytes, std::shared_ptr<const void> lender,
                std::optional<Stamp> stamp);
    void fail(std::uint64_t ticket, std::string what);

    // Whoever waits in `take` comes back.
    void wake();

    std::unique_ptr<ReadQueue> open(ReadQueue::Done done);

private:
    class Queue;
    Read* settle(std::uint64_t ticket);
    void settled(Read* read);

    std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable quiet_;
    std::map<std::uint64_t, Read*> waiting_;
    std::map<std::uint64_t, Read*> taken_;
    std::size_t settling_ = 0;  // threads that are ending a read
    std::uint64_t next_ = 0;
    std::uint64_t wakes_ = 0;
    ReadQueue::Done done_;
};

}  // namespace fl
