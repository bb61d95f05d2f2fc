#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "reads.h"

namespace fl {

class RemoteReads::Queue : public ReadQueue {
public:
    explicit Queue(RemoteReads& reads) : reads_(reads) {}

    // Nobody is waited for: who fetches may be stuck for long. But whoever is at a read just now must be done.
    ~Queue() override {
        std::vector<Read*> left;
        Done done;
        {
            std::unique_lock lock(reads_.mutex_);
            for (auto* reads : {&reads_.waiting_, &reads_.taken_}) {
                for (const auto& [ticket, read] : *reads) left.push_back(read);
                reads->clear();
            }
            reads_.quiet_.wait(lock, [&] { return reads_.settling_ == 0; });
            done = reads_.done_;
        }
        for (auto* read : left) read->error = ECANCELED;
        if (!left.empty()) done(left);
        std::lock_guard lock(reads_.mutex_);
        reads_.done_ = nullptr;
    }

    void submit(std::span<Read* const> reads) override {
        {
            std::lock_guard lock(reads_.mutex_);
            for (auto* read : reads) reads_.waiting_.emplace_hint(reads_.waiting_.end(), reads_.next_++, read);
        }
        reads_.work_.notify_all();
    }

    const char* name() const override { return "remote"; }

private:
    RemoteReads& reads_;
};

std::unique_ptr<ReadQueue> RemoteReads::open(ReadQueue::Done done) {
    std::lock_guard lock(mutex_);
    done_ = std::move(done);
    return std::make_unique<Queue>(*this);
}

std::vector<RemoteReads::Wanted> RemoteReads::take(std::size_t most, int milliseconds) {
    std::vector<Wanted> wanted;
    std::unique_lock lock(mutex_);
    const auto before = wakes_;
    work_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                   [&] { return wakes_ != before || !waiting_.empty(); });
    while (!waiting_.empty() && wanted.size() < most) {
        const auto first = waiting_.extract(waiting_.begin());
        const auto* read = first.mapped();
        wanted.push_back({first.key(), read->file, read->offset, read->size});
        taken_.emplace(first.key(), first.mapped());
    }
    return wanted;
}

void RemoteReads::wake() {
    {
        std::lock_guard lock(mutex_);
        ++wakes_;
    }
    work_.notify_all();
}

Read* RemoteReads::settle(std::uint64_t ticket) {
    std::lock_guard lock(mutex_);
    const auto found = taken_.find(ticket);
    if (found == taken_.end()) return nullptr;
    auto* read = found->second;
    taken_.erase(found);
    ++settling_;
    return read;
}

void RemoteReads::settled(Read* read) {
    ReadQueue::Done done;
    {
        std::lock_guard lock(mutex_);
        done = done_;
    }
    done({&read, 1});
    {
        std::lock_guard lock(mutex_);
        --settling_;
    }
    quiet_.notify_all();
}

void RemoteReads::finish(std::uint64_t ticket, std::span<const std::uint8_t> bytes,
                         std::shared_ptr<const void> lender, std::optional<Stamp> stamp) {
    auto* read = settle(ticket);
    if (!read) return;
    if (bytes.size() == read->size) {
        read->to = const_cast<std::uint8_t*>(bytes.data());  // nobody writes to what was read
        read->done = bytes.size();
        read->lender = std::move(lender);
        read->stamp = stamp;
    } else {
        read->error = EIO;
        read->what = "a read of " + std::to_string(read->size) + " bytes gave " + std::to_string(bytes.size());
    }
    settled(read);
}

void RemoteReads::fail(std::uint64_t ticket, std::string what) {
    auto* read = settle(ticket);
    if (!read) return;
    read->error = EIO;
    read->what = std::move(what);
    settled(read);
}

}  // namespace fl
