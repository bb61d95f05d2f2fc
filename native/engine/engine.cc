#include "engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "guard.h"
#include "job.h"

namespace fl {
namespace {

template <class T>
void raise_to(std::atomic<T>& most, T value) {
    auto known = most.load();
    while (value > known && !most.compare_exchange_weak(known, value)) {
    }
}

}  // namespace

std::optional<std::size_t> planned_bytes(const ColumnPlan& plan, std::size_t samples) {
    std::size_t bytes = AlignedBytes::rounded(samples * plan.metadata_size);
    switch (plan.kind) {
        case ColumnPlan::Kind::rows: return bytes;
        case ColumnPlan::Kind::sound:
        case ColumnPlan::Kind::fixed: bytes += AlignedBytes::rounded(std::max<std::size_t>(samples * plan.row_bytes, 1)); break;
        case ColumnPlan::Kind::program:
            bytes += AlignedBytes::rounded(static_cast<std::size_t>(plan.views->places(samples).back()));
            break;
        default: return std::nullopt;
    }
    return bytes;
}

void ColumnTimes::add(std::atomic<std::uint64_t>& what, const Lap& lap) {
    what += lap.wall;
    cpu += lap.cpu;
    if (lap.preempted) preempted += lap.preempted;
    if (lap.blocked) blocked += lap.blocked;
    if (lap.major_faults) major_faults += lap.major_faults;
}

void ThreadTime::change(std::ptrdiff_t by) {
    const auto now = monotonic_ns();
    sum_ += static_cast<std::uint64_t>(count_) * (now - since_);
    since_ = now;
    count_ += by;
}

std::uint64_t ThreadTime::sum() const {
    return sum_ + static_cast<std::uint64_t>(count_) * (monotonic_ns() - since_);
}

Engine::Engine(std::vector<ColumnPlan> columns, std::size_t threads, std::size_t slots, std::size_t threads_a_batch,
               ReadOptions reads, std::shared_ptr<Pinning> pinning)
    : columns_(std::move(columns)),
      times_(std::make_unique<ColumnTimes[]>(columns_.size())),
      ring_(std::make_shared<Ring>(columns_.size(), slots, std::move(pinning))),
      process_(getpid()),
      threads_a_batch_(threads_a_batch),
      sources_(std::make_shared<const SourceList>()),
      threads_wanted_(std::max<std::size_t>(threads, 1)) {
    const bool payloads = std::any_of(columns_.begin(), columns_.end(),
                                      [](const ColumnPlan& plan) { return plan.kind != ColumnPlan::Kind::rows; });
    if (reads.mode != ReadMode::mmap && payloads) reads_ = std::make_unique<ReadAhead>(reads);
}

void Engine::start() {
    if (!usable()) throw Failure("process", "this engine belongs to another process");
    std::lock_guard control(control_);
    std::lock_guard lock(mutex_);
    if (!stopping_) return;
    stopping_ = false;
    running_.change(1);
    hire();
}

void Engine::set_threads(std::size_t threads) {
    if (!usable()) throw Failure("process", "this engine belongs to another process");
    {
        std::lock_guard control(control_);
        std::lock_guard lock(mutex_);
        threads_wanted_ = std::max<std::size_t>(threads, 1);
        if (!stopping_) hire();
    }
    work_.notify_all();
}

// Threads for all places without one. Who has left does not lock again, so it may be waited for under the lock.
void Engine::hire() {
    for (std::size_t i = 0; i < threads_wanted_; ++i) {
        if (i == workers_.size()) workers_.emplace_back();
        auto& worker = workers_[i];
        if (worker.left) worker.thread.join();
        if (!worker.thread.joinable()) {
            worker.thread = std::thread([this, i] {
                pthread_setname_np(pthread_self(), "fl-engine");  // of another thread that takes three system calls
                work(i);
            });
            worker.left = false;
            hired_.change(1);
        }
    }
}

Engine::~Engine() { stop(); }

void Engine::Abandon::operator()(Engine* engine) const {
    if (engine->usable()) delete engine;
}

Usage Engine::usage() const {
    std::lock_guard lock(mutex_);
    return {threads_wanted_,    running_.sum(),        hired_.sum(), idle_.sum(),
            most_in_one_batch_, largest_batch_.load(), ring_->bytes_waiting()};
}

bool Engine::usable() const { return getpid() == process_; }

std::size_t Engine::add_file(FileName file) {
    if (!reads_) return files_++;
    const auto number = reads_->add_file(std::move(file));
    files_ = number + 1;
    return number;
}

std::size_t Engine::add_source(std::vector<ColumnSource> source) {
    if (source.size() != columns_.size()) throw Failure("format", "one source a column");
    for (const auto& column : source)
        if (column.payloads && !column.payloads->in_memory() && column.file >= files_)
            throw Failure("index", "no such file");
    std::lock_guard lock(mutex_);
    auto grown = std::make_shared<SourceList>(*sources_);
    grown->push_back(std::move(source));
    sources_ = grown;
    return grown->size() - 1;
}

std::uint64_t Engine::submit(std::vector<std::int32_t> which, std::vector<std::int64_t> rows, bool fill,
                             std::uint64_t epoch, std::vector<std::int64_t> samples) {
    if (!usable()) throw Failure("process", "this engine's threads are in another process");
    keep_guard();
    auto job = std::make_shared<Job>();
    job->which = std::move(which);
    job->rows = std::move(rows);
    job->epoch = epoch;
    job->samples = std::move(samples);
    if (!job->which.empty() && job->which.size() != job->rows.size())
        throw Failure("format", "'which' and 'rows' have different lengths");
    if (!job->samples.empty() && job->samples.size() != job->rows.size())
        throw Failure("format", "'samples' and 'rows' have different lengths");
    {
        std::lock_guard lock(mutex_);
        if (stopping_) throw Failure("stopped", "the engine is not running");
        job->sources = sources_;
        for (std::size_t i = 0; i < job->rows.size(); ++i)
            if (job->source(i) >= sources_->size()) throw Failure("index", "no such source");
        job->ticket = next_++;
        jobs_[job->ticket] = job;
        job->wanted = fill;
        job->near = !reads_ || !reads_->looks();
        if (!job->near)
            unread_.push_back(job);
        else
            enqueue(job);
    }
    work_.notify_one();
    return job->ticket;
}

// Ready to be prepared, once it is both wanted and near; the lock is held.
void Engine::enqueue(const std::shared_ptr<Job>& job) {
    if (job->wanted && job->near) queue_[job->ticket].push_back({job, columns_.size(), 0, 0});
}

void Engine::fill(std::uint64_t ticket) {
    std::shared_ptr<ReadAhead::Loan> loan;
    {
        std::lock_guard lock(mutex_);
        const auto found = jobs_.find(ticket);
        if (found == jobs_.end()) throw Failure("index", "no such batch, or it was taken already");
        const auto& job = found->second;
        if (job->wanted) return;
        job->wanted = true;
        loan = job->loan;
        enqueue(job);
    }
    work_.notify_one();
    if (loan) reads_->hurry(*loan);
}

// Asks for the stored bytes of all payloads of a batch. What can't be looked up here is found out again, and told, when
// the batch is prepared.
void Engine::read_ahead(const std::shared_ptr<Job>& job, std::uint64_t turn, Stopwatch& watch) {
    std::vector<ReadAhead::Range> ranges;
    const std::size_t samples = job->rows.size();
    std::vector<std::vector<Near>> bytes(columns_.size());
    job->extents.resize(columns_.size());
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        if (columns_[column].kind == ColumnPlan::Kind::rows) continue;
        const auto source = [&](std::size_t i) { return (*job->sources)[job->source(i)][column].payloads; };
        std::vector<Extent> extents(samples);
        try {
            gather_rows(samples, sizeof(Extent),
                        [&](std::size_t i) { return source(i)->place(static_cast<std::uint64_t>(job->rows[i])); },
                        reinterpret_cast<std::uint8_t*>(extents.data()));
            for (std::size_t i = 0; i < samples; ++i)
                if (source(i)->has_windows()) extents[i] = source(i)->window(static_cast<std::uint64_t>(job->rows[i]));
        } catch (const Failure&) {
            continue;
        }
        bytes[column].resize(samples);
        for (std::size_t i = 0; i < samples; ++i) {
            if (!extents[i].size || source(i)->in_memory() || !source(i)->inside(extents[i])) continue;
            bytes[column][i] = {extents[i].pointer, extents[i].size, ranges.size() + 1, nullptr, nullptr};
            ranges.push_back({(*job->sources)[job->source(i)][column].file, extents[i].pointer, extents[i].size});
        }
        job->extents[column] = std::move(extents);
        times_[column].add(times_[column].lookup, watch.lap());
    }
    if (ranges.empty() || !reads_->worth_reading(ranges)) return loaded(job);
    job->bytes = std::move(bytes);
    if (take_held(*job, ranges)) return loaded(job);
    const auto loan = reads_->prepare(std::move(ranges), [this, weak = std::weak_ptr(job)] {
        if (const auto there = weak.lock()) loaded(there);
    });
    bool urgent = false;
    {
        std::lock_guard lock(mutex_);
        job->loan = loan;
        urgent = job->wanted;
    }
    if (urgent) reads_->hurry(*loan);
    reads_->ask(*loan, turn);
}

// Takes what is in memory already out of the ranges to be asked for. Returns whether that is all.
bool Engine::take_held(Job& job, std::vector<ReadAhead::Range>& ranges) {
    const auto held = reads_->hold(ranges, job.holds);
    std::size_t left = 0;
    for (auto& column : job.bytes)
        for (auto& one : column) {
            if (!one.range) continue;
            const auto range = one.range - 1;
            one.bytes = held[range];
            one.range = 0;
            if (one.bytes) continue;
            ranges[left] = ranges[range];
            one.range = ++left;
        }
    ranges.resize(left);
    return left == 0;
}

void Engine::loaded(const std::shared_ptr<Job>& job) {
    {
        std::lock_guard lock(mutex_);
        if (std::exchange(job->near, true)) return;
        if (!stopping_ && jobs_.contains(job->ticket)) enqueue(job);
    }
    work_.notify_one();
}

std::optional<FinishedBatch> Engine::wait(std::uint64_t ticket, int milliseconds, bool help) {
    if (!usable()) throw Failure("process", "this engine's threads are in another process");
    fill(ticket);
    std::unique_lock lock(mutex_);
    const auto found = jobs_.find(ticket);
    if (found == jobs_.end()) throw Failure("index", "no such batch, or it was taken already");
    const auto job = found->second;
    const auto ready = [&] { return job->done || stopping_; };
    if (help && !ready()) lend_a_hand(lock, ready, milliseconds);
    if (!done_.wait_for(lock, std::chrono::milliseconds(milliseconds), ready)) return std::nullopt;
    if (!job->done) throw Failure("stopped", "the engine was stopped");
    jobs_.erase(ticket);
    std::sort(job->failures.begin(), job->failures.end(), [](const BatchFailure& a, const BatchFailure& b) {
        return std::pair(a.failure.position, a.column) < std::pair(b.failure.position, b.column);
    });
    return FinishedBatch{job->rows.size(), std::move(job->slot), std::move(job->failures)};
}

// What a worker does, for as long as the batch is not ready and there is something to do.
template <class Ready>
void Engine::lend_a_hand(std::unique_lock<std::mutex>& lock, Ready ready, int milliseconds) {
    if (std::exchange(helping_, true)) return;  // one helper is enough
    if (!helpers_watch_ || helper_ != std::this_thread::get_id()) helpers_watch_ = std::make_unique<Stopwatch>(false);
    helper_ = std::this_thread::get_id();
    auto& watch = *helpers_watch_;
    const auto end = monotonic_ns() + static_cast<std::uint64_t>(milliseconds) * 1'000'000;
    while (!ready()) {
        Task task;
        if (!take(task)) break;
        hired_.change(1);
        lock.unlock();
        watch.restart();
        run(task, watch);
        --task.job->threads;
        task = {};
        lock.lock();
        hired_.change(-1);
        if (monotonic_ns() > end) break;  // signals are looked for in between
    }
    helping_ = false;
    if (stopping_) done_.notify_all();  // whoever stops waits for this
}

void Engine::forget(std::uint64_t ticket) {
    if (!usable()) return;
    std::shared_ptr<Job> job;  // ends after the lock: giving up a loan may wake other batches
    std::vector<Task> tasks;
    std::lock_guard lock(mutex_);
    if (const auto found = queue_.find(ticket); found != queue_.end()) {
        tasks = std::move(found->second);
        queue_.erase(found);
    }
    std::erase_if(unread_, [&](const auto& one) { return one->ticket == ticket; });
    if (const auto found = jobs_.find(ticket); found != jobs_.end()) {
        job = found->second;  // the slot goes back when the last running task lets go of the job
        jobs_.erase(found);
    }
}

void Engine::stop() {
    std::lock_guard control(control_);
    bool ran = false;
    decltype(queue_) queue;
    decltype(jobs_) jobs;
    {
        std::lock_guard lock(mutex_);
        ran = !std::exchange(stopping_, true);
        queue.swap(queue_);
        unread_.clear();
    }
    work_.notify_all();
    done_.notify_all();
    for (auto& worker : workers_)
        if (worker.thread.joinable()) worker.thread.join();
    {
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return !helping_; });
        if (ran) running_.change(-1);
        workers_.clear();
        helpers_watch_.reset();
        jobs.swap(jobs_);
    }
    queue.clear();
    // A thread that waits for a batch may hold on to it a little longer, but not to what was read for it.
    for (auto& [ticket, job] : jobs) {
        job->loan.reset();
        job->holds.clear();
    }
    jobs.clear();
    if (reads_) reads_->stop();
}

void Engine::work(std::size_t number) {
    Stopwatch watch(true);
    for (;;) {
        Task task;
        std::shared_ptr<Job> unread;
        std::uint64_t turn = 0;
        bool rested = false;
        {
            std::unique_lock lock(mutex_);
            for (;;) {
                if (stopping_ || number >= threads_wanted_) {
                    workers_[number].left = true;
                    hired_.change(-1);
                    work_.notify_one();  // a call that woke this thread may have been meant for another
                    return;
                }
                if (!unread_.empty()) {
                    unread = std::move(unread_.front());
                    unread_.pop_front();
                    turn = reads_->expect();
                    break;
                }
                if (take(task)) break;
                rested = true;
                idle_.change(1);
                work_.wait(lock);
                idle_.change(-1);
            }
        }
        rested ? watch.restart() : watch.resume();
        if (unread) {
            try {
                read_ahead(unread, turn, watch);
            } catch (const std::exception&) {  // no memory: the mapping needs none
                loaded(unread);
            }
            reads_->pass(turn);
            continue;
        }
        run(task, watch);
        --task.job->threads;
    }
}

// The next task of the oldest batch that not too many threads work on. Nobody needs to be woken when a thread lets go
// of a batch: it is here itself right after.
bool Engine::take(Task& task) {
    for (auto place = queue_.begin(); place != queue_.end(); ++place) {
        auto& tasks = place->second;
        auto& working = tasks.back().job->threads;
        if (threads_a_batch_ && working >= threads_a_batch_) continue;
        most_in_one_batch_ = std::max<std::size_t>(most_in_one_batch_, ++working);
        task = std::move(tasks.back());
        tasks.pop_back();
        if (tasks.empty()) queue_.erase(place);
        return true;
    }
    return false;
}

void Engine::run(const Task& task, Stopwatch& watch) {
    const auto& job = task.job;
    if (task.column < columns_.size()) {
        fill_rows(*job, task.column, task.begin, task.end);
        auto& times = times_[task.column];
        times.add(times.read, watch.lap());
    } else {
        if (task.column > columns_.size()) {
            find_rows(*job, task.begin, task.end, watch);
            if (--job->looking) return;
        } else if (const auto lookups = split_lookups(job); !lookups.empty()) {
            share(lookups);
            return run(lookups.front(), watch);
        }
        auto tasks = prepare(job, watch);
        job->pending += tasks.size();
        share(tasks);
        if (!tasks.empty()) run(tasks.front(), watch);  // a small batch is made in one go, and wakes nobody
    }
    if (--job->pending == 0) finish(job);
}

// All tasks of a batch but the first, for whoever comes.
void Engine::share(std::span<const Task> tasks) {
    if (tasks.size() < 2) return;
    {
        std::lock_guard lock(mutex_);
        const auto ticket = tasks.front().job->ticket;
        if (!stopping_ && jobs_.contains(ticket)) {
            // Taken from the back: reversed, so that the first rows come first.
            auto& mine = queue_[ticket];
            mine.insert(mine.end(), tasks.rbegin(), tasks.rend() - 1);
        }
    }
    work_.notify_all();
}

void Engine::account(const Job& job) {
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        const auto metadata = job.rows.size() * columns_[column].metadata_size;
        std::size_t stored = metadata;
        for (const auto& one : job.located[column])
            if (one.source) stored += one.extent.size;
        times_[column].stored_bytes += stored;
        times_[column].decoded_bytes += metadata + job.slot->columns[column].size;
        raise_to(times_[column].slot_bytes, job.slot->columns[column].bytes());
    }
    raise_to(largest_batch_, job.slot->bytes());
}

void Engine::finish(const std::shared_ptr<Job>& job) {
    account(*job);
    job->loan.reset();
    job->holds.clear();
    {
        std::lock_guard lock(mutex_);
        job->done = true;
    }
    done_.notify_all();
}

}  // namespace fl
