#include "reads.h"

#ifdef FASTLOADER_URING

#include <liburing.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace fl {
namespace {

constexpr std::size_t kRegisteredAtMost = std::size_t{1} << 30;  // the kernel's limit for one buffer

// Whoever submits fills the submission ring; one thread waits for completions and tops the ring up.
class Uring : public ReadQueue {
public:
    Uring(unsigned depth, std::span<std::uint8_t> memory, Done done) : depth_(depth), done_(std::move(done)) {
        const int failed = io_uring_queue_init(depth, &ring_, 0);
        if (failed < 0) throw std::system_error(-failed, std::generic_category(), "io_uring");
        if (!memory.empty() && memory.size() <= kRegisteredAtMost) {
            const iovec whole{memory.data(), memory.size()};
            registered_ = io_uring_register_buffers(&ring_, &whole, 1) == 0;  // else RLIMIT_MEMLOCK is too low
        }
        try {
            thread_ = std::thread([this] { work(); });
        } catch (...) {
            io_uring_queue_exit(&ring_);
            throw;
        }
    }

    ~Uring() override {
        {
            std::lock_guard lock(mutex_);
            ending_ = true;
        }
        work_.notify_all();
        thread_.join();
        io_uring_queue_exit(&ring_);
    }

    void submit(std::span<Read* const> reads) override {
        {
            std::lock_guard lock(mutex_);
            queue_.insert(queue_.end(), reads.begin(), reads.end());
            top_up();
        }
        work_.notify_one();
    }

    const char* name() const override { return "uring"; }

private:
    // Moves reads from the queue to the kernel; the lock is held.
    void top_up() {
        bool any = false;
        while (running_ < depth_ && !queue_.empty()) {
            io_uring_sqe* entry = io_uring_get_sqe(&ring_);
            if (!entry) break;
            Read* read = queue_.front();
            queue_.pop_front();
            const auto size = static_cast<unsigned>(std::min<std::size_t>(read->size - read->done, 1 << 30));
            if (registered_)
                io_uring_prep_read_fixed(entry, read->file, read->to + read->done, size, read->offset + read->done, 0);
            else
                io_uring_prep_read(entry, read->file, read->to + read->done, size, read->offset + read->done);
            io_uring_sqe_set_data(entry, read);
            ++running_;
            any = true;
        }
        // What the kernel does not take now stays in the ring and goes with the next call.
        if (any) io_uring_submit(&ring_);
    }

    void work() {
        pthread_setname_np(pthread_self(), "fl-uring");
        std::vector<Read*> finished;
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                work_.wait(lock, [&] { return running_ > 0 || ending_; });
                if (running_ == 0) return;
                io_uring_submit(&ring_);  // what the kernel refused before, if anything
            }
            io_uring_cqe* first = nullptr;
            const int failed = io_uring_wait_cqe(&ring_, &first);
            if (failed == -EINTR || failed == -EAGAIN) continue;
            {
                std::lock_guard lock(mutex_);
                io_uring_cqe* entries[64];
                const unsigned count = io_uring_peek_batch_cqe(&ring_, entries, 64);
                for (unsigned i = 0; i < count; ++i) {
                    auto* read = static_cast<Read*>(io_uring_cqe_get_data(entries[i]));
                    if (settle(*read, entries[i]->res))
                        finished.push_back(read);
                    else
                        queue_.push_front(read);
                }
                io_uring_cq_advance(&ring_, count);
                running_ -= count;
                top_up();
            }
            for (auto* read : finished) done_(*read);
            finished.clear();
        }
    }

    // Takes note of a result; whether the read is over.
    static bool settle(Read& read, int result) {
        if (result == -EAGAIN || result == -EINTR) return false;
        if (result < 0) {
            read.error = -result;
            return true;
        }
        read.done += static_cast<std::size_t>(result);
        return result == 0 || result % 512 || read.done >= read.size;  // an odd size is the end of the file
    }

    const unsigned depth_;
    const Done done_;
    io_uring ring_{};
    bool registered_ = false;
    std::mutex mutex_;
    std::condition_variable work_;
    std::deque<Read*> queue_;
    unsigned running_ = 0;
    bool ending_ = false;
    std::thread thread_;
};

}  // namespace

std::unique_ptr<ReadQueue> make_uring(unsigned depth, std::span<std::uint8_t> memory, ReadQueue::Done done) {
    try {
        return std::make_unique<Uring>(depth, memory, std::move(done));
    } catch (const std::system_error&) {  // an old kernel, a sandbox that forbids it, or too many rings
        return nullptr;
    }
}

bool has_uring() {
    static const bool there = make_uring(2, {}, [](Read&) {}) != nullptr;
    return there;
}

}  // namespace fl

#else

namespace fl {

std::unique_ptr<ReadQueue> make_uring(unsigned, std::span<std::uint8_t>, ReadQueue::Done) { return nullptr; }
bool has_uring() { return false; }

}  // namespace fl

#endif
