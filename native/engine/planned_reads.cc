#include "planned_reads.h"

#include "guard.h"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace fl {

Bytes PlannedReads::Some::bytes(std::size_t range) const {
    if (range >= bytes_.size()) throw Failure("index", "no such range");
    if (failures_[range]) throw *failures_[range];
    return bytes_[range];
}

PlannedReads::PlannedReads(ReadOptions options) : process_(getpid()), reads_(std::make_unique<ReadAhead>(options)) {
    keep_guard();
}

// What nobody took goes first: the reads wait for all who hold some of their memory.
PlannedReads::~PlannedReads() {
    asked_.clear();
    reads_.reset();
}

// In a forked child the threads are not there, and nothing can be waited for: what there is, is left alone.
void PlannedReads::Abandon::operator()(PlannedReads* reads) const {
    if (reads->process_ == getpid()) delete reads;
}

std::shared_ptr<PlannedReads> PlannedReads::make(ReadOptions options) {
    return std::shared_ptr<PlannedReads>(new PlannedReads(options), Abandon());
}

std::size_t PlannedReads::add_file(FileName file) {
    std::lock_guard lock(mutex_);
    files_.push_back(file.mapped);
    return reads_->add_file(std::move(file));
}

void PlannedReads::drop_file(std::size_t file) {
    std::lock_guard lock(mutex_);
    if (file < files_.size()) files_[file] = {};
}

std::uint64_t PlannedReads::submit(std::vector<Range> ranges) {
    if (process_ != getpid()) throw Failure("process", "these reads belong to another process");
    const auto asked = std::make_shared<Asked>();
    {
        std::lock_guard lock(mutex_);
        for (const auto& range : ranges) {
            if (range.file >= files_.size() || range.begin > files_[range.file].size() ||
                range.size > files_[range.file].size() - range.begin)
                throw Failure("index", "outside the file");
            asked->mapped.push_back(files_[range.file].subspan(range.begin, range.size));
        }
    }
    asked->ranges = ranges;
    if (!ranges.empty() && reads_->looks() && reads_->worth_reading(ranges)) {
        // The loan outlives the call: it is ended before what it calls, by whoever takes or forgets the ticket.
        asked->loan = reads_->prepare(std::move(ranges), [this, weak = std::weak_ptr(asked)] {
            const auto there = weak.lock();
            if (!there) return;
            {
                std::lock_guard lock(mutex_);
                there->ready = true;
            }
            ready_.notify_all();
        });
    } else {
        asked->ready = true;
    }
    std::uint64_t ticket = 0;
    {
        std::lock_guard lock(mutex_);
        ticket = next_++;
        asked_[ticket] = asked;
    }
    if (asked->loan) reads_->ask(*asked->loan, reads_->expect());
    return ticket;
}

std::shared_ptr<PlannedReads::Some> PlannedReads::wait(std::uint64_t ticket, int milliseconds) {
    if (process_ != getpid()) throw Failure("process", "these reads belong to another process");
    std::shared_ptr<Asked> asked;
    {
        std::lock_guard lock(mutex_);
        const auto found = asked_.find(ticket);
        if (found == asked_.end()) throw Failure("index", "no such reads, or they were taken already");
        asked = found->second;
    }
    if (asked->loan) reads_->hurry(*asked->loan);
    {
        std::unique_lock lock(mutex_);
        if (!ready_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return asked->ready; })) return nullptr;
        if (!asked_.erase(ticket)) throw Failure("index", "no such reads, or they were taken already");
    }
    if (asked->loan) reads_->hand_over(*asked->loan);
    auto some = std::make_shared<Some>();
    some->reads_ = shared_from_this();
    some->loan_ = asked->loan;
    some->failures_.resize(asked->ranges.size());
    for (std::size_t i = 0; i < asked->ranges.size(); ++i) {
        const auto& range = asked->ranges[i];
        const std::uint8_t* there = nullptr;
        try {
            if (some->loan_ && range.size) there = some->loan_->bytes(i);
        } catch (const Failure& failure) {
            some->failures_[i] = std::make_shared<Failure>(failure);
        }
        some->bytes_.push_back(there ? Bytes(there, range.size) : asked->mapped[i]);
    }
    return some;
}

void PlannedReads::forget(std::uint64_t ticket) {
    std::shared_ptr<Asked> asked;  // ends after the lock
    std::lock_guard lock(mutex_);
    if (const auto found = asked_.find(ticket); found != asked_.end()) {
        asked = found->second;
        asked_.erase(found);
    }
}

}  // namespace fl
