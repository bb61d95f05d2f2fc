#include "reads.h"

#ifdef FASTLOADER_URING

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fl {
namespace {

constexpr std::size_t kRegisteredAtMost = std::size_t{1} << 30;  // the kernel's limit for one buffer

// One thread owns the ring. All that the kernel does for a read happens there, in as few calls as a loop that does
// nothing else would make; other threads only leave reads, and wake it where it sleeps with room for more.
class Uring : public ReadQueue {
public:
    Uring(unsigned depth, std::span<std::uint8_t> memory, Done done) : depth_(depth), done_(std::move(done)) {
        bell_ = eventfd(0, EFD_CLOEXEC);
        if (bell_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
        try {
            std::promise<int> opened;
            thread_ = std::thread([&] {
                const int failed = open_ring(memory);
                opened.set_value(failed);
                if (failed >= 0) work();
            });
            if (const int failed = opened.get_future().get(); failed < 0) {
                thread_.join();
                throw std::system_error(-failed, std::generic_category(), "io_uring");
            }
        } catch (...) {
            close(bell_);
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
        close(bell_);
    }

    void submit(std::span<Read* const> reads) override {
        bool asleep = false;
        {
            std::lock_guard lock(mutex_);
            queue_.insert(queue_.end(), reads.begin(), reads.end());
            asleep = std::exchange(room_, false);
        }
        work_.notify_one();
        const std::uint64_t ring = 1;
        if (asleep && write(bell_, &ring, sizeof ring) < 0) return;  // it is full of calls already
    }

    const char* name() const override { return "uring"; }

private:
    // By the thread that will use it, as the kernel remembers who that is. An error, negative, or 0.
    int open_ring(std::span<std::uint8_t> memory) {
        int failed = -EINVAL;
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
        // Completions are then settled when the thread asks for them, not whenever they interrupt it. Since Linux 6.1.
        failed = io_uring_queue_init(depth_ + 1, &ring_, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
#endif
        if (failed == -EINVAL) failed = io_uring_queue_init(depth_ + 1, &ring_, 0);
        if (failed < 0) return failed;
        if (!memory.empty() && memory.size() <= kRegisteredAtMost) {
            const iovec whole{memory.data(), memory.size()};
            registered_ = io_uring_register_buffers(&ring_, &whole, 1) == 0;  // else RLIMIT_MEMLOCK is too low
        }
        return 0;
    }

    void work() {
        pthread_setname_np(pthread_self(), "fl-uring");
        std::vector<Read*> finished;
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                if (!running_ && mine_.empty()) work_.wait(lock, [&] { return !queue_.empty() || ending_; });
                mine_.insert(mine_.end(), queue_.begin(), queue_.end());
                queue_.clear();
                if (!running_ && mine_.empty()) return;
                room_ = running_ + mine_.size() < depth_;
            }
            top_up();
            const int failed = io_uring_submit_and_wait(&ring_, 1);
            // What the kernel does not take now stays in the ring and goes with the next call.
            if (failed < 0 && failed != -EINTR && failed != -EAGAIN && failed != -EBUSY) std::this_thread::yield();
            settle_all(finished);
            if (!finished.empty()) done_(finished);
            finished.clear();
        }
    }

    void top_up() {
        if (!listening_) {
            if (io_uring_sqe* entry = io_uring_get_sqe(&ring_)) {
                io_uring_prep_read(entry, bell_, &calls_, sizeof calls_, 0);
                io_uring_sqe_set_data(entry, nullptr);
                listening_ = true;
            }
        }
        while (running_ < depth_ && !mine_.empty()) {
            io_uring_sqe* entry = io_uring_get_sqe(&ring_);
            if (!entry) break;
            Read* read = mine_.front();
            mine_.pop_front();
            const auto size = static_cast<unsigned>(std::min<std::size_t>(read->size - read->done, 1 << 30));
            if (registered_)
                io_uring_prep_read_fixed(entry, read->file, read->to + read->done, size, read->offset + read->done, 0);
            else
                io_uring_prep_read(entry, read->file, read->to + read->done, size, read->offset + read->done);
            io_uring_sqe_set_data(entry, read);
            ++running_;
        }
    }

    void settle_all(std::vector<Read*>& finished) {
        io_uring_cqe* entries[64];
        while (const unsigned count = io_uring_peek_batch_cqe(&ring_, entries, 64)) {
            for (unsigned i = 0; i < count; ++i) {
                auto* read = static_cast<Read*>(io_uring_cqe_get_data(entries[i]));
                if (!read) {
                    listening_ = false;
                    continue;
                }
                --running_;
                if (settle(*read, entries[i]->res))
                    finished.push_back(read);
                else
                    mine_.push_front(read);
            }
            io_uring_cq_advance(&ring_, count);
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
    int bell_ = -1;  // rung to wake the thread in the kernel
    std::uint64_t calls_ = 0;

    // The thread's own.
    std::deque<Read*> mine_;
    unsigned running_ = 0;
    bool listening_ = false;  // for the bell

    std::mutex mutex_;  // guards what follows
    std::condition_variable work_;
    std::vector<Read*> queue_;
    bool room_ = false;  // the thread sleeps, or is about to, with room for more
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
    static const bool there = make_uring(2, {}, [](std::span<Read* const>) {}) != nullptr;
    return there;
}

}  // namespace fl

#else

namespace fl {

std::unique_ptr<ReadQueue> make_uring(unsigned, std::span<std::uint8_t>, ReadQueue::Done) { return nullptr; }
bool has_uring() { return false; }

}  // namespace fl

#endif
