#include "engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "crc32c.h"
#include "guard.h"

namespace fl {
namespace {

constexpr std::size_t kTaskBytes = 1 << 20;  // payloads copied a task
constexpr std::size_t kTaskImages = 4;       // images decoded a task
constexpr std::size_t kTaskLookups = 16;     // rows of tables looked up a task, where each is a read of its own
constexpr std::size_t kLooks = 16;           // rows of a batch that tell whether they are

template <class T>
void raise_to(std::atomic<T>& most, T value) {
    auto known = most.load();
    while (value > known && !most.compare_exchange_weak(known, value)) {
    }
}

}  // namespace

// A payload's stored bytes that were read ahead: where they lie in the file, and the number of their range.
struct Near {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::size_t range = 0;
    const std::uint8_t* bytes = nullptr;
    std::shared_ptr<Failure> failure;
};

// Rows of a column that tasks have looked up: metadata rows are in the slot. Where one failed, all is done again.
struct Found {
    std::vector<Extent> extents;
    std::atomic<bool> failed{false};
};

struct Engine::Job {
    std::uint64_t ticket = 0;
    std::vector<std::int32_t> which;
    std::vector<std::int64_t> rows;
    std::uint64_t epoch = 0;
    std::vector<std::int64_t> samples;  // empty: the same as rows
    std::shared_ptr<const SourceList> sources;
    std::shared_ptr<Slot> slot;
    std::vector<std::vector<Located>> located;
    std::vector<Found> found;            // by column; empty where nobody has looked rows up yet
    std::atomic<std::size_t> looking{0};  // tasks that look up rows
    bool wanted = false;  // a slot may be filled
    bool near = false;    // its bytes were read, or need not be
    std::shared_ptr<ReadAhead::Loan> loan;
    std::vector<std::vector<Near>> bytes;  // by column and row; empty where nothing was read
    std::atomic<std::size_t> pending{1};
    std::atomic<std::size_t> threads{0};  // working on it now; goes up under the engine's lock only
    std::mutex mutex;  // guards failures
    std::vector<BatchFailure> failures;
    bool done = false;

    std::size_t source(std::size_t i) const { return which.empty() ? 0 : static_cast<std::size_t>(which[i]); }

    // The payload of this row, with the bytes that were read ahead. Throws what went wrong with reading them.
    PayloadRow payload(std::size_t column, std::size_t i) const {
        const PayloadRow row{(*sources)[source(i)][column].payloads, static_cast<std::uint64_t>(rows[i])};
        if (bytes.empty() || bytes[column].empty()) return row;
        const auto& near = bytes[column][i];
        if (near.failure) throw *near.failure;
        if (!near.bytes) return row;
        return {row.source, row.row, Bytes(near.bytes, near.size), near.offset};
    }

    void fail(std::size_t column, std::size_t row, Failure failure) {
        failure.position = static_cast<std::int64_t>(row);
        slot->columns[column].valid[row] = 0;
        std::lock_guard lock(mutex);
        failures.push_back({column, std::move(failure)});
    }
};

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
void Engine::read_ahead(const std::shared_ptr<Job>& job, Stopwatch& watch) {
    std::vector<ReadAhead::Range> ranges;
    const std::size_t samples = job->rows.size();
    std::vector<std::vector<Near>> bytes(columns_.size());
    std::vector<Extent> extents(samples);
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        if (columns_[column].kind == ColumnPlan::Kind::rows) continue;
        const auto source = [&](std::size_t i) { return (*job->sources)[job->source(i)][column].payloads; };
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
        times_[column].add(times_[column].lookup, watch.lap());
    }
    if (ranges.empty() || !reads_->worth_reading(ranges)) return loaded(job);
    job->bytes = std::move(bytes);
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
    reads_->ask(*loan);
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
    for (auto& [ticket, job] : jobs) job->loan.reset();
    jobs.clear();
    if (reads_) reads_->stop();
}

void Engine::work(std::size_t number) {
    Stopwatch watch(true);
    for (;;) {
        Task task;
        std::shared_ptr<Job> unread;
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
                read_ahead(unread, watch);
            } catch (const std::exception&) {  // no memory: the mapping needs none
                loaded(unread);
            }
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

// Where blocks of tables were never read, a row costs a read: then several threads look rows up. Nothing otherwise.
std::vector<Engine::Task> Engine::split_lookups(const std::shared_ptr<Job>& job) {
    const std::size_t samples = job->rows.size();
    if (threads_a_batch_ == 1 || samples < 2 * kTaskLookups || !is_strange(*job)) return {};
    job->slot = Ring::acquire(ring_);
    std::vector<Found> found(columns_.size());
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        if (columns_[column].kind != ColumnPlan::Kind::rows) found[column].extents.resize(samples);
        try {
            if (const auto size = columns_[column].metadata_size) job->slot->columns[column].metadata.reserve(samples * size);
        } catch (const std::bad_alloc&) {  // told when the batch is prepared
            return {};
        }
    }
    job->found = std::move(found);
    std::vector<Task> tasks;
    for (std::size_t begin = 0; begin < samples; begin += kTaskLookups)
        tasks.push_back({job, columns_.size() + 1, begin, std::min(begin + kTaskLookups, samples)});
    job->looking = tasks.size();
    return tasks;
}

// Whether a good part of the rows lie in blocks that nobody has read, told from some of them.
bool Engine::is_strange(const Job& job) const {
    std::size_t strange = 0;
    for (std::size_t look = 0; look < kLooks; ++look) {
        const auto i = look * job.rows.size() / kLooks;
        const auto row = static_cast<std::uint64_t>(job.rows[i]);
        for (const auto& column : (*job.sources)[job.source(i)]) {
            const auto extent = column.payloads ? column.payloads->place(row) : TableRow{};
            if ((column.metadata && column.metadata->strange(row)) || (extent.table && extent.table->strange(row))) {
                ++strange;
                break;
            }
        }
    }
    return strange * 4 >= kLooks;
}

// Metadata rows and extents of some rows of a batch, in all columns. What is wrong with them is found out again, and
// told, when the batch is prepared.
void Engine::find_rows(Job& job, std::size_t begin, std::size_t end, Stopwatch& watch) {
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        const auto width = columns_[column].metadata_size;
        auto& found = job.found[column];
        const auto source = [&](std::size_t i) -> const ColumnSource& {
            return (*job.sources)[job.source(begin + i)][column];
        };
        const auto row = [&](std::size_t i) { return static_cast<std::uint64_t>(job.rows[begin + i]); };
        try {
            std::array<bool, kTaskLookups> there;
            for (std::size_t i = 0; i < end - begin; ++i)
                if (source(i).metadata) source(i).metadata->prefetch_checksum(row(i));
            for (std::size_t i = 0; i < end - begin; ++i) there[i] = source(i).has_value(row(i));
            if (width)
                gather_rows(end - begin, width,
                            [&](std::size_t i) {
                                return there[i] && source(i).metadata ? TableRow{source(i).metadata, row(i)} : TableRow{};
                            },
                            job.slot->columns[column].metadata.data() + begin * width);
            if (!found.extents.empty())
                gather_rows(end - begin, sizeof(Extent),
                            [&](std::size_t i) {
                                return there[i] && source(i).payloads ? source(i).payloads->place(row(i)) : TableRow{};
                            },
                            reinterpret_cast<std::uint8_t*>(found.extents.data() + begin));
        } catch (const Failure&) {
            found.failed = true;
        }
        times_[column].add(times_[column].lookup, watch.lap());
    }
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
    {
        std::lock_guard lock(mutex_);
        job->done = true;
    }
    done_.notify_all();
}

std::vector<Engine::Task> Engine::prepare(const std::shared_ptr<Job>& job, Stopwatch& watch) {
    for (auto& column : job->bytes)
        for (auto& one : column) {
            if (!one.range) continue;
            try {
                one.bytes = job->loan->bytes(one.range - 1);
            } catch (const Failure& failure) {
                one.failure = std::make_shared<Failure>(failure);
            }
        }
    if (!job->slot) job->slot = Ring::acquire(ring_);
    job->located.resize(columns_.size());
    std::vector<Task> tasks;
    const std::size_t samples = job->rows.size();
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        try {
            prepare_column(*job, column);
        } catch (const std::exception& error) {  // memory, most likely: the whole field of this batch is lost
            job->slot->columns[column].valid.assign(samples, 0);
            for (std::size_t i = 0; i < samples; ++i) job->fail(column, i, Failure("memory", error.what()));
            job->located[column].clear();
        }
        times_[column].add(times_[column].lookup, watch.lap());
        const auto& located = job->located[column];
        if (located.empty()) continue;
        const bool image =
            columns_[column].kind == ColumnPlan::Kind::image || columns_[column].kind == ColumnPlan::Kind::program ||
            columns_[column].kind == ColumnPlan::Kind::sound;
        const bool padded = columns_[column].kind == ColumnPlan::Kind::padded;
        const std::size_t least = padded ? job->slot->columns[column].size / samples : 0;
        std::size_t begin = 0, bytes = 0;
        for (std::size_t i = 0; i < samples; ++i) {
            bytes += std::max(least, static_cast<std::size_t>(located[i].extent.raw_size));
            if (i + 1 < samples && (image ? i + 1 - begin < kTaskImages : bytes < kTaskBytes)) continue;
            tasks.push_back({job, column, begin, i + 1});
            begin = i + 1;
            bytes = 0;
        }
    }
    return tasks;
}

// Whether the row has a value; missing ones are marked.
bool Engine::present(Job& job, std::size_t column, std::size_t i, const ColumnSource& source) {
    if (source.has_value(static_cast<std::uint64_t>(job.rows[i]))) return true;
    auto& out = job.slot->columns[column];
    out.valid[i] = 0;
    out.any_missing = true;
    return false;
}

bool ColumnSource::has_value(std::uint64_t row) const {
    if (!validity) return true;
    std::uint8_t bits = 0;
    validity->copy(row / 8, 1, &bits);
    return (bits >> (row % 8)) & 1;
}

bool ColumnSource::tells_shapes(const ColumnPlan& plan) const {
    return !metadata && plan.kind == ColumnPlan::Kind::image;
}

// The shape of an image that nothing but its own bytes tells.
void Engine::tell_shape(const ColumnPlan& plan, const Located& image, std::uint8_t* metadata) {
    thread_local std::vector<std::uint8_t> scratch;
    store(metadata, image_info(plan.image, image.source->load(image.extent, scratch, image.there)));
}

// What a payload must be like before room is made for it.
void Engine::check_payload(const ColumnPlan& plan, const Extent& extent, const std::uint8_t* metadata) {
    const auto bytes = plan.views ? plan.views->first().payload_bytes() : plan.row_bytes;
    if ((plan.kind == ColumnPlan::Kind::fixed || (plan.views && bytes)) && extent.raw_size != bytes)
        throw Failure("size", "the payload has " + std::to_string(extent.raw_size) + " bytes, not " +
                                  std::to_string(bytes));
    if (plan.kind == ColumnPlan::Kind::image) check_claim(plan.image.kind, load<ImageShape>(metadata), extent.raw_size);
    if (plan.elements) element_bytes(plan.elements, extent, metadata);
}

// Metadata rows and extents of all rows at once; throws at the first that is bad.
std::vector<Located> Engine::look_up(Job& job, std::size_t column, std::uint8_t* metadata) {
    const auto& plan = columns_[column];
    const std::size_t samples = job.rows.size();
    const auto source = [&](std::size_t i) -> const ColumnSource& { return (*job.sources)[job.source(i)][column]; };
    const auto row = [&](std::size_t i) { return static_cast<std::uint64_t>(job.rows[i]); };
    auto& valid = job.slot->columns[column].valid;
    for (std::size_t i = 0; i < samples; ++i) present(job, column, i, source(i));
    const bool found = !job.found.empty() && !job.found[column].failed;
    if (metadata && !found)
        gather_rows(samples, plan.metadata_size,
                    [&](std::size_t i) {
                        return valid[i] && source(i).metadata ? TableRow{source(i).metadata, row(i)} : TableRow{};
                    },
                    metadata);
    if (plan.kind == ColumnPlan::Kind::rows) return {};
    auto located = locate_rows(
        samples, [&](std::size_t i) { return valid[i] ? job.payload(column, i) : PayloadRow{}; },
        found ? job.found[column].extents.data() : nullptr);
    for (std::size_t i = 0; i < samples; ++i) {
        if (!valid[i]) continue;
        auto* const mine = metadata + i * plan.metadata_size;
        if (source(i).tells_shapes(plan)) tell_shape(plan, located[i], mine);
        check_payload(plan, located[i].extent, mine);
    }
    return located;
}

// The same a row at a time, so that each bad one is marked and the others are kept.
std::vector<Located> Engine::look_up_singly(Job& job, std::size_t column, std::uint8_t* metadata) {
    const auto& plan = columns_[column];
    auto& out = job.slot->columns[column];
    const std::size_t samples = job.rows.size();
    out.valid.assign(samples, 1);
    const bool payloads = plan.kind != ColumnPlan::Kind::rows;
    std::vector<Located> located(payloads ? samples : 0);
    for (std::size_t i = 0; i < samples; ++i) {
        const auto& source = (*job.sources)[job.source(i)][column];
        const auto row = static_cast<std::uint64_t>(job.rows[i]);
        std::uint8_t* const mine = metadata ? metadata + i * plan.metadata_size : nullptr;
        if (mine) std::memset(mine, 0, plan.metadata_size);
        try {
            if (!present(job, column, i, source)) continue;
            if (mine && source.metadata) source.metadata->copy(row, 1, mine);
            if (!payloads) continue;
            const auto payload = job.payload(column, i);
            const auto extent = source.payloads->unchecked_extent(row);
            source.payloads->check(extent, payload.of(extent));
            const Located found{source.payloads, extent, payload.of(extent)};
            if (source.tells_shapes(plan)) tell_shape(plan, found, mine);
            check_payload(plan, extent, mine);
            located[i] = found;
        } catch (const Failure& failure) {
            if (mine) std::memset(mine, 0, plan.metadata_size);
            job.fail(column, i, failure);
        }
    }
    return located;
}

void Engine::prepare_column(Job& job, std::size_t column) {
    const auto& plan = columns_[column];
    auto& out = job.slot->columns[column];
    const std::size_t samples = job.rows.size();
    out.valid.assign(samples, 1);
    out.any_missing = false;
    out.size = 0;
    auto* metadata = plan.metadata_size ? out.metadata.reserve(samples * plan.metadata_size) : nullptr;
    std::vector<Located> located;
    try {
        located = look_up(job, column, metadata);
    } catch (const Failure&) {
        located = look_up_singly(job, column, metadata);
    }
    if (plan.kind == ColumnPlan::Kind::rows) return;
    if (plan.elements) {
        const auto element = agree_on_element(job, column, located, metadata);
        if (plan.kind == ColumnPlan::Kind::padded) return prepare_padded(job, column, std::move(located), element);
    }
    std::size_t size = 0;
    if (plan.kind == ColumnPlan::Kind::fixed || plan.kind == ColumnPlan::Kind::program ||
        plan.kind == ColumnPlan::Kind::sound) {
        // What no payload bears out gets no memory: options can claim any shape.
        const bool any = std::any_of(located.begin(), located.end(), [](const Located& one) { return one.source; });
        if (plan.views) out.offsets = plan.views->places(samples);
        size = !any ? 0 : plan.views ? static_cast<std::size_t>(out.offsets.back()) : samples * plan.row_bytes;
        if (!any) located.clear();
    } else {
        out.offsets.assign(samples + 1, 0);
        for (std::size_t i = 0; i < samples; ++i) {
            std::uint64_t mine = located[i].extent.raw_size;
            if (plan.kind == ColumnPlan::Kind::image && located[i].source)
                mine = load<ImageShape>(metadata + i * plan.metadata_size).bytes();
            out.offsets[i + 1] = out.offsets[i] + static_cast<std::int64_t>(mine);
        }
        size = static_cast<std::size_t>(out.offsets[samples]);
    }
    out.data.reserve(std::max<std::size_t>(size, 1));
    out.size = size;
    job.located[column] = std::move(located);
}

// Bytes of one element in this batch. What the first payload has decides; the others must have the same.
std::uint64_t Engine::agree_on_element(Job& job, std::size_t column, std::vector<Located>& located,
                                       const std::uint8_t* metadata) {
    const auto& plan = columns_[column];
    if (plan.elements.stated != Elements::Stated::shape) return plan.elements.bytes;
    const auto row = [&](std::size_t i) { return metadata + i * plan.metadata_size; };
    std::size_t first = 0;
    while (first < located.size() && !located[first].source) ++first;
    if (first == located.size()) return plan.elements.bytes;
    for (std::size_t i = first + 1; i < located.size(); ++i) {
        if (!located[i].source || same_element(row(first), row(i))) continue;
        located[i] = {};
        job.fail(column, i, Failure("shape", "has the shape " + stated_shape(row(i)) + ", and the first of its batch has " +
                                             stated_shape(row(first)) + ": they may differ in their length alone"));
    }
    return element_bytes(plan.elements, located[first].extent, row(first));
}

// Leaves out payloads, the largest first, until the others bear out what the batch claims: rows as long as the longest,
// or where the length was given, rows of one element each, as that alone is the file's word.
void Engine::drop_claims(Job& job, std::size_t column, std::vector<Located>& located, std::uint64_t element) {
    std::uint64_t stored = 0;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < located.size(); ++i) {
        stored += located[i].extent.size;
        if (located[i].extent.raw_size) order.push_back(i);
    }
    const auto larger = [&](std::size_t a, std::size_t b) {
        return located[a].extent.raw_size > located[b].extent.raw_size;
    };
    const bool given = columns_[column].elements.length != 0;
    std::uint64_t longest = 0;
    for (const auto i : order) longest = std::max(longest, located[i].extent.raw_size);
    if (borne_out(located.size(), given ? element : longest, stored)) return;
    std::stable_sort(order.begin(), order.end(), larger);
    for (const auto i : order) {
        const auto extent = located[i].extent;
        if (borne_out(located.size(), given ? element : extent.raw_size, stored)) return;
        stored -= extent.size;
        located[i] = {};
        job.fail(column, i,
                 Failure("size", "claims " + std::to_string(extent.raw_size) + " bytes of " +
                                     std::to_string(extent.size) + " stored ones: more than a batch is padded to"));
    }
}

void Engine::prepare_padded(Job& job, std::size_t column, std::vector<Located> located, std::uint64_t element) {
    const auto& elements = columns_[column].elements;
    auto& out = job.slot->columns[column];
    const std::size_t samples = located.size();
    out.offsets.assign(samples, 0);
    if (!samples) return;
    drop_claims(job, column, located, element);
    std::size_t longest = 0;
    std::uint64_t stored = 0;
    for (std::size_t i = 0; i < samples; ++i) {
        const auto length = located[i].extent.raw_size / element;
        out.offsets[i] = static_cast<std::int64_t>(elements.length ? std::min(length, elements.length) : length);
        if (out.offsets[i] > out.offsets[longest]) longest = i;
        stored += located[i].extent.size;
    }
    // Nothing is there, and an element is so large that nothing is believed: no memory, as all of it would be filling.
    if (!borne_out(samples, element, stored)) return;
    auto width = elements.length ? elements.length : static_cast<std::uint64_t>(out.offsets[longest]);
    std::size_t size = 0;
    bool fits = elements.length || !(width % elements.multiple) ||
                !__builtin_add_overflow(width, elements.multiple - width % elements.multiple, &width);
    fits = fits && !__builtin_mul_overflow(width, element, &size) && !__builtin_mul_overflow(size, samples, &size) &&
           size <= std::numeric_limits<std::size_t>::max() / 4;
    try {
        if (!fits) throw std::bad_alloc();
        out.data.reserve(std::max<std::size_t>(size, 1));
    } catch (const std::bad_alloc&) {
        return job.fail(column, longest, Failure("memory", "there is no memory for a batch padded to the length " +
                                                               std::to_string(width)));
    }
    out.size = size;
    job.located[column] = std::move(located);
}

void Engine::fill_rows(Job& job, std::size_t column, std::size_t begin, std::size_t end) {
    const auto& plan = columns_[column];
    auto& out = job.slot->columns[column];
    const auto& located = job.located[column];
    thread_local std::vector<std::uint8_t> scratch;
    thread_local ProgramRunner runner;
    thread_local SoundRunner sound_runner;
    const bool padded = plan.kind == ColumnPlan::Kind::padded;
    const bool program = plan.kind == ColumnPlan::Kind::program;
    const bool sound = plan.kind == ColumnPlan::Kind::sound;
    const bool equal = padded || sound || plan.kind == ColumnPlan::Kind::fixed;
    const std::size_t row_bytes = padded ? out.size / located.size() : plan.row_bytes;
    for (std::size_t i = begin; i < end; ++i) {
        if (i + 2 < end && located[i + 2].source)
            located[i + 2].source->prefetch(located[i + 2].extent, located[i + 2].there);
        const auto from = program ? 0 : equal ? i * row_bytes : static_cast<std::size_t>(out.offsets[i]);
        const auto size = program ? out.size : equal ? row_bytes : static_cast<std::size_t>(out.offsets[i + 1]) - from;
        const MutableBytes to(out.data.data() + from, size);
        const auto* source = located[i].source;
        const auto blank = [&] {
            if (program) {
                plan.views->blank(to.data(), out.offsets, i);
            } else if (padded) {
                out.offsets[i] = 0;
                fill_items(to, plan.elements.fill);
            } else if (size) {
                std::memset(to.data(), 0, size);
            }
        };
        try {
            if (!source) {
                blank();
            } else if (padded && located[i].extent.raw_size > size) {
                // The checksum is that of all of it.
                const auto whole = source->load(located[i].extent, scratch, located[i].there);
                std::memcpy(to.data(), whole.data(), size);
            } else if (padded) {
                const auto mine = static_cast<std::size_t>(located[i].extent.raw_size);
                source->read(located[i].extent, to.first(mine), located[i].there);
                fill_items(to.subspan(mine), plan.elements.fill);
            } else if (program) {
                const bool known = (*job.sources)[job.source(i)][column].metadata;
                const Bytes metadata(out.metadata.data() + i * plan.metadata_size, known ? plan.metadata_size : 0);
                const auto sample = static_cast<std::uint64_t>(job.samples.empty() ? job.rows[i] : job.samples[i]);
                plan.views->run(runner, source->load(located[i].extent, scratch, located[i].there), metadata, job.epoch,
                                sample, to.data(), out.offsets, i);
            } else if (sound) {
                // Of an array only a part is copied, from where it lies; its checksum is that of all of it.
                const bool as_it_lies = located[i].extent.codec == Codec::none && plan.sound->stored != SoundKind::file;
                const auto payload = as_it_lies ? source->stored(located[i].extent, located[i].there)
                                                : source->load(located[i].extent, scratch, located[i].there);
                const auto sample = static_cast<std::uint64_t>(job.samples.empty() ? job.rows[i] : job.samples[i]);
                sound_runner.run(*plan.sound, payload, out.metadata.data() + i * plan.metadata_size, job.epoch, sample, to);
            } else if (plan.kind == ColumnPlan::Kind::image) {
                const auto shape = load<ImageShape>(out.metadata.data() + i * plan.metadata_size);
                image_decode(plan.image, source->load(located[i].extent, scratch, located[i].there), shape, to);
            } else {
                source->read(located[i].extent, to, located[i].there);
            }
        } catch (const Failure& failure) {
            blank();
            job.fail(column, i, failure);
        } catch (const std::exception& error) {
            blank();
            job.fail(column, i, Failure("memory", error.what()));
        }
    }
}

}  // namespace fl
