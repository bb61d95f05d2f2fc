// Who gets memory for reading, and when it is free again. What is read of a file stands in reading_files.cc and
// reading_pieces.cc, what a batch has of it in loan.cc.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <utility>

#include "segments.h"

namespace fl {
namespace {

constexpr std::size_t kKept = 4096;          // mapped pieces of files that nobody holds; a process may have 65,530

std::uint64_t now() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

}  // namespace

ReadAhead::ReadAhead(ReadOptions options) : options_(options) {}

ReadAhead::~ReadAhead() { stop(); }

std::vector<const std::uint8_t*> ReadAhead::hold(const std::vector<Range>& ranges, Mirror::Holds& holds) {
    std::vector<const std::uint8_t*> there(ranges.size());
    if (!is_remote() || !options_.apart) return there;
    std::vector<Mirror*> mirrors(ranges.size());
    {
        std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < ranges.size(); ++i) mirrors[i] = files_[ranges[i].file]->mirror.get();
    }
    std::uint64_t held = 0;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const auto& range = ranges[i];
        if (mirrors[i]) there[i] = mirrors[i]->hold(range.begin, range.begin + range.size, holds, counts_.found);
        if (there[i]) held += range.size;
    }
    counts_.asked += held;
    return there;
}

void ReadAhead::look_at_blocks() {
    std::vector<Mirror*> mirrors;
    {
        std::lock_guard lock(mutex_);
        for (const auto& file : files_)
            if (file->mirror) mirrors.push_back(file->mirror.get());
    }
    for (auto* one : mirrors) one->look();
}

// Who wants these bytes from now on finds them in the mirror; so do those who wait, and they have them mapped but once.
void ReadAhead::mirror(Segment& segment) {
    auto* const mirror = segment.of->mirror.get();
    if (!mirror || !segment.stamp || segment.error) return;
    mirror->attach(segment.offset / options_.unit, *segment.stamp);
    if (const auto* there = mirror->hold(segment.offset, segment.end(), segment.mirrored, counts_.found))
        segment.to = const_cast<std::uint8_t*>(there);
}

void ReadAhead::run(Todo& todo) {
    if (!todo.reads.empty()) queue_->submit(todo.reads);
    for (auto& call : todo.calls) call();
}

std::shared_ptr<ReadAhead::Loan> ReadAhead::prepare(std::vector<Range> ranges, std::function<void()> ready) {
    auto loan = std::make_shared<Loan>();
    loan->owner_ = this;
    loan->ranges_ = std::move(ranges);
    loan->ready_ = std::move(ready);
    loan->parts_.resize(loan->ranges_.size());
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < loan->ranges_.size(); ++i) {
        auto& range = loan->ranges_[i];
        auto& part = loan->parts_[i];
        part.begin = range.begin, part.end = range.begin + range.size;
        const auto& windows = files_[range.file]->name.windows;
        if (!is_remote() || !windows || part.begin < windows->begin || part.end > windows->end) continue;
        part.windows = &*windows;
        const auto around = windows->checkable({part.begin, part.end});
        range.begin = around.begin, range.size = around.end - around.begin;
    }
    loan->order_.resize(loan->ranges_.size());
    std::iota(loan->order_.begin(), loan->order_.end(), std::size_t{0});
    std::sort(loan->order_.begin(), loan->order_.end(), [&](std::size_t a, std::size_t b) {
        return std::pair(loan->ranges_[a].file, loan->ranges_[a].begin) <
               std::pair(loan->ranges_[b].file, loan->ranges_[b].begin);
    });
    ++loans_;
    return loan;
}

std::uint64_t ReadAhead::expect() {
    std::lock_guard lock(mutex_);
    expected_.insert(++turns_);
    return turns_;
}

void ReadAhead::pass(std::uint64_t turn) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        if (expected_.erase(turn) && !waiting_.empty()) serve(todo);
    }
    run(todo);
}

bool ReadAhead::may_drop(const Loan& loan) const { return expected_.empty() || loan.turn_ < *expected_.begin(); }

void ReadAhead::ask(Loan& loan, std::uint64_t turn) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        loan.asked_at_ = now();
        loan.turn_ = turn;
        expected_.erase(turn);
        if (open_queue()) {
            const auto before = std::find_if(waiting_.rbegin(), waiting_.rend(),
                                             [&](const Loan* one) { return one->turn_ < turn; });
            waiting_.insert(before.base(), &loan);
            serve(todo);
        } else {
            give_up(loan, todo);
        }
    }
    run(todo);
}

void ReadAhead::hurry(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        if (loan.urgent_) return;
        loan.urgent_ = true;
        if (loan.served_)
            ++running_;
        else
            serve(todo);
    }
    run(todo);
}

void ReadAhead::hand_over(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        if (!std::exchange(loan.urgent_, false) || !loan.served_) return;
        --running_;
        if (!waiting_.empty()) serve(todo);
    }
    run(todo);
}

// Gives memory to those who wait for it: first to the urgent, then in order. Who can't hope for any goes without.
void ReadAhead::serve(Todo& todo) {
    for (const bool urgent : {true, false}) {
        for (auto next = waiting_.begin(); next != waiting_.end();) {
            Loan& loan = **next;
            if (urgent && !loan.urgent_) {
                ++next;
                continue;
            }
            if (!try_serve(loan, todo)) {
                if ((urgent ? running_ : holding_) || !may_drop(loan)) break;
                if (!is_remote() || !try_serve(loan, todo, true)) give_up(loan, todo);
            }
            next = waiting_.erase(next);
        }
    }
}

bool ReadAhead::try_serve(Loan& loan, Todo& todo, bool beyond) {
    auto order = loan.order_;
    std::vector<Segment*> pins;
    std::vector<std::size_t> covers(order.size());
    auto pieces = missing_pieces(loan, order, covers, pins);
    const bool found = find_memory(pieces, beyond, may_drop(loan));
    if (found) {
        todo.reads.reserve(todo.reads.size() + pieces.size());
        for (auto& piece : pieces) {
            auto& segment = piece.file->segments[piece.begin];
            segment.file = is_remote() ? piece.file->number : piece.file->fd;
            segment.offset = piece.begin;
            segment.size = piece.end - piece.begin;
            segment.to = piece.memory;
            segment.of = piece.file;
            segment.block = piece.block;
            const auto* span = piece.file->name.span_at(piece.begin);
            if (span && span->begin == piece.begin && span->end == piece.end) segment.payloads = span->payloads;
            if (const auto& windows = piece.file->name.windows; windows && is_remote()) {
                segment.payloads = windows->within({piece.begin, piece.end});
                if (windows->items) segment.checked.emplace(segment.size / windows->items->block_size() + 1);
            }
            piece.segment = &segment;
            todo.reads.push_back(&segment);
            counts_.bytes += segment.size;
        }
        counts_.reads += pieces.size();
        loan.segments_.reserve(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) {
            auto& part = loan.parts_[order[i]];
            part.first = loan.segments_.size(), part.count = 0;
            counts_.asked += part.end - part.begin;
            if (covers[i])
                attach(loan, order[i], *pieces[covers[i] - 1].segment);
            else
                link(loan, order[i]);
        }
        loan.served_ = true;
        ++holding_;
        running_ += loan.urgent_;
        if (loan.missing_ == 0) complete(loan, todo);
    }
    for (auto* segment : pins) let_go(*segment);
    return found;
}

void ReadAhead::hold(Segment& segment) {
    ++segment.holders;
    if (std::exchange(segment.idle, false)) (segment.kept ? kept_ : idle_).erase(segment.place);
}

void ReadAhead::attach(Loan& loan, std::size_t range, Segment& segment) {
    hold(segment);
    ++segment.asked;
    if (!segment.over) {
        const auto* last = segment.more_waiters.empty() ? segment.waiter : segment.more_waiters.back();
        if (last != &loan) {
            if (segment.waiter)
                segment.more_waiters.push_back(&loan);
            else
                segment.waiter = &loan;
            ++loan.missing_;
        }
    }
    loan.segments_.push_back(&segment);
    ++loan.parts_[range].count;
}

// Notes which segments hold a range; by now all of it is covered.
void ReadAhead::link(Loan& loan, std::size_t range) {
    const auto& wanted = loan.ranges_[range];
    File& file = *files_[wanted.file];
    for (auto next = file.from(wanted.begin);
         next != file.segments.end() && next->second.offset < wanted.begin + wanted.size; ++next)
        attach(loan, range, next->second);
}

void ReadAhead::give_up(Loan& loan, Todo& todo) {
    counts_.given_up += loan.ranges_.size();
    complete(loan, todo);
}

void ReadAhead::complete(Loan& loan, Todo& todo) {
    counts_.waiting += now() - loan.asked_at_;
    todo.calls.push_back(std::move(loan.ready_));
    loan.ready_ = nullptr;
}

void ReadAhead::finished(std::span<Read* const> reads) {
    Todo todo;
    for (auto* read : reads) mirror(static_cast<Segment&>(*read));
    {
        std::lock_guard lock(mutex_);
        bool freed = false;
        for (auto* read : reads) {
            auto& segment = static_cast<Segment&>(*read);
            segment.over = true;
            --segment.of->reading;
            if (segment.error == EINVAL || segment.error == EOPNOTSUPP) segment.of->hopeless = true;
            const auto tell = [&](Loan* loan) {
                if (--loan->missing_ == 0) complete(*loan, todo);
            };
            if (segment.waiter) tell(std::exchange(segment.waiter, nullptr));
            for (auto* loan : segment.more_waiters) tell(loan);
            segment.more_waiters = {};
            if (segment.stamp) {
                segment.kept = true;  // and counts no more
                lent_ -= std::exchange(segment.block->size, 0);
                freed = true;
                if (segment.idle) kept_.splice(kept_.end(), idle_, segment.place);
            }
            if (segment.holders) continue;
            freed = true;
            if (segment.error || segment.mirrored || !(options_.unit || segment.kept)) drop(segment);
        }
        if (freed && !waiting_.empty()) serve(todo);
    }
    run(todo);
}

void ReadAhead::release(Loan& loan) {
    Todo todo;
    {
        std::lock_guard lock(mutex_);
        waiting_.remove(&loan);
        for (auto* segment : loan.segments_) {
            if (segment->waiter == &loan) segment->waiter = nullptr;
            std::erase(segment->more_waiters, &loan);
            let_go(*segment);
        }
        holding_ -= loan.served_;
        running_ -= loan.served_ && loan.urgent_;
        if (!waiting_.empty()) serve(todo);
        if (--loans_ == 0) gone_.notify_all();
    }
    run(todo);
}

// Whole units are kept for batches to come, until the memory is needed. Of others, what nobody asked for ahead is
// unlikely to be asked for soon; and memory that is used again at once is still in the CPU's cache. What was fetched and
// used up goes, too: its memory is the next one's, where new memory would cost as much as fetching.
void ReadAhead::let_go(Segment& segment) {
    if (--segment.holders) return;
    const bool wanted = options_.unit && !(is_remote() && segment.used_up());
    if (segment.over && (segment.error || segment.mirrored || !(wanted || segment.kept))) return drop(segment);
    segment.idle = true;
    auto& list = segment.kept ? kept_ : idle_;
    segment.place = list.insert(list.end(), &segment);
    if (kept_.size() > kKept) drop(*kept_.front());
}

void ReadAhead::drop(Segment& segment) {
    if (segment.idle) (segment.kept ? kept_ : idle_).erase(segment.place);
    auto* const block = segment.block;
    if (--block->segments == 0) give_back(block);
    segment.of->segments.erase(segment.offset);
}

void ReadAhead::stop() {
    std::unique_ptr<ReadQueue> ending;
    {
        std::unique_lock lock(mutex_);
        gone_.wait(lock, [&] { return loans_ == 0; });
        ending = std::move(queue_);
    }
    ending.reset();  // without the lock: what is still being read wants it
    std::lock_guard lock(mutex_);
    for (auto& file : files_) {
        while (!file->segments.empty()) drop(file->segments.begin()->second);
        close(*file);
        if (file->mirror) file->mirror->rest();
    }
    arena_.reset();
    streak_ = 0;
}

std::size_t ReadAhead::memory_used() {
    std::lock_guard lock(mutex_);
    return arena_ ? arena_->used() : lent_;
}

}  // namespace fl
