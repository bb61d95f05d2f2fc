#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <vector>

#include "reads.h"

namespace fl {
namespace {

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

constexpr std::size_t kStack = 512 << 10;

void read_all(Read& read) {
    if (read.populate) {
        // Before Linux 5.14 there is no such advice, and the pages come when they are touched.
        madvise(const_cast<std::uint8_t*>(read.populate), read.size, MADV_POPULATE_READ);
        return;
    }
    while (read.done < read.size) {
        const auto got = pread(read.file, read.to + read.done, read.size - read.done,
                               static_cast<off_t>(read.offset + read.done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) read.error = errno;
        if (got <= 0) return;
        read.done += static_cast<std::size_t>(got);
        if (got % 512) return;  // the end of the file: going on from here would break O_DIRECT's alignment
    }
}

class PreadPool : public ReadQueue {
public:
    PreadPool(unsigned threads, Done done) : done_(std::move(done)) {
        // They need little, and there are many: with the usual 8 MiB each they would take all of a limited address space.
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, kStack);
        const auto run = [](void* self) -> void* {
            static_cast<PreadPool*>(self)->work();
            return nullptr;
        };
        pthread_t thread{};
        while (threads_.size() < threads && pthread_create(&thread, &small, run, this) == 0) threads_.push_back(thread);
        pthread_attr_destroy(&small);
        // Fewer will do, where there may be no more.
        if (threads_.empty()) throw std::system_error(EAGAIN, std::generic_category(), "a thread that reads");
    }

    ~PreadPool() override {
        {
            std::lock_guard lock(mutex_);
            ending_ = true;
        }
        work_.notify_all();
        for (const auto thread : threads_) pthread_join(thread, nullptr);
    }

    void submit(std::span<Read* const> reads) override {
        {
            std::lock_guard lock(mutex_);
            queue_.insert(queue_.end(), reads.begin(), reads.end());
        }
        if (reads.size() == 1)
            work_.notify_one();
        else
            work_.notify_all();
    }

    const char* name() const override { return "pread"; }

private:
    void work() {
        pthread_setname_np(pthread_self(), "fl-pread");
        for (;;) {
            Read* read = nullptr;
            {
                std::unique_lock lock(mutex_);
                work_.wait(lock, [&] { return ending_ || !queue_.empty(); });
                if (queue_.empty()) return;
                read = queue_.front();
                queue_.pop_front();
                if (ending_ && read->populate) read->populate = nullptr, read->size = 0;  // nobody will want it
            }
            read_all(*read);
            done_({&read, 1});
        }
    }

    const Done done_;
    std::mutex mutex_;
    std::condition_variable work_;
    std::deque<Read*> queue_;
    bool ending_ = false;
    std::vector<pthread_t> threads_;
};

}  // namespace

std::unique_ptr<ReadQueue> make_pread_pool(unsigned threads, ReadQueue::Done done) {
    return std::make_unique<PreadPool>(threads, std::move(done));
}

}  // namespace fl
