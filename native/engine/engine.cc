#include "engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "crc32c.h"

namespace fl {
namespace {

constexpr std::size_t kTaskBytes = 1 << 20;  // payloads copied a task
constexpr std::size_t kTaskImages = 4;       // images decoded a task

}  // namespace

struct Engine::Job {
    std::uint64_t ticket = 0;
    std::vector<std::int32_t> which;
    std::vector<std::int64_t> rows;
    std::shared_ptr<const SourceList> sources;
    std::shared_ptr<Slot> slot;
    std::vector<std::vector<Located>> located;
    std::atomic<std::size_t> pending{1};
    std::atomic<std::size_t> threads{0};  // working on it now; goes up under the engine's lock only
    std::mutex mutex;  // guards failures
    std::vector<BatchFailure> failures;
    bool done = false;

    std::size_t source(std::size_t i) const { return which.empty() ? 0 : static_cast<std::size_t>(which[i]); }

    void fail(std::size_t column, std::size_t row, Failure failure) {
        failure.position = static_cast<std::int64_t>(row);
        slot->columns[column].valid[row] = 0;
        std::lock_guard lock(mutex);
        failures.push_back({column, std::move(failure)});
    }
};

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

Engine::Engine(std::vector<ColumnPlan> columns, std::size_t threads, std::size_t slots, std::size_t threads_a_batch)
    : columns_(std::move(columns)),
      times_(std::make_unique<ColumnTimes[]>(columns_.size())),
      ring_(std::make_shared<Ring>(columns_.size(), slots)),
      process_(getpid()),
      threads_a_batch_(threads_a_batch),
      sources_(std::make_shared<const SourceList>()),
      threads_wanted_(std::max<std::size_t>(threads, 1)) {}

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
            worker.thread = std::thread([this, i] { work(i); });
            worker.left = false;
            hired_.change(1);
        }
    }
}

Engine::~Engine() {
    if (usable()) {
        stop();
        return;
    }
    for (auto& worker : workers_)
        if (worker.thread.joinable()) worker.thread.detach();  // they exist in the parent alone
}

Usage Engine::usage() const {
    std::lock_guard lock(mutex_);
    return {threads_wanted_,    running_.sum(),        hired_.sum(), idle_.sum(),
            most_in_one_batch_, largest_batch_.load(), ring_->bytes_waiting()};
}

bool Engine::usable() const { return getpid() == process_; }

std::size_t Engine::add_source(std::vector<ColumnSource> source) {
    if (source.size() != columns_.size()) throw Failure("format", "one source a column");
    std::lock_guard lock(mutex_);
    auto grown = std::make_shared<SourceList>(*sources_);
    grown->push_back(std::move(source));
    sources_ = grown;
    return grown->size() - 1;
}

std::uint64_t Engine::submit(std::vector<std::int32_t> which, std::vector<std::int64_t> rows) {
    if (!usable()) throw Failure("process", "this engine's threads are in another process");
    auto job = std::make_shared<Job>();
    job->which = std::move(which);
    job->rows = std::move(rows);
    if (!job->which.empty() && job->which.size() != job->rows.size())
        throw Failure("format", "'which' and 'rows' have different lengths");
    {
        std::lock_guard lock(mutex_);
        if (stopping_) throw Failure("stopped", "the engine is not running");
        job->sources = sources_;
        for (std::size_t i = 0; i < job->rows.size(); ++i)
            if (job->source(i) >= sources_->size()) throw Failure("index", "no such source");
        job->ticket = next_++;
        jobs_[job->ticket] = job;
        queue_[job->ticket].push_back({job, columns_.size(), 0, 0});
    }
    work_.notify_one();
    return job->ticket;
}

std::optional<FinishedBatch> Engine::wait(std::uint64_t ticket, int milliseconds) {
    if (!usable()) throw Failure("process", "this engine's threads are in another process");
    std::unique_lock lock(mutex_);
    const auto found = jobs_.find(ticket);
    if (found == jobs_.end()) throw Failure("index", "no such batch, or it was taken already");
    const auto job = found->second;
    const auto ready = [&] { return job->done || stopping_; };
    if (!done_.wait_for(lock, std::chrono::milliseconds(milliseconds), ready)) return std::nullopt;
    if (!job->done) throw Failure("stopped", "the engine was stopped");
    jobs_.erase(ticket);
    std::sort(job->failures.begin(), job->failures.end(), [](const BatchFailure& a, const BatchFailure& b) {
        return std::pair(a.failure.position, a.column) < std::pair(b.failure.position, b.column);
    });
    return FinishedBatch{job->rows.size(), std::move(job->slot), std::move(job->failures)};
}

void Engine::forget(std::uint64_t ticket) {
    std::lock_guard lock(mutex_);
    queue_.erase(ticket);
    jobs_.erase(ticket);  // the slot goes back when the last running task lets go of the job
}

void Engine::stop() {
    std::lock_guard control(control_);
    bool ran = false;
    {
        std::lock_guard lock(mutex_);
        ran = !std::exchange(stopping_, true);
        queue_.clear();
    }
    work_.notify_all();
    done_.notify_all();
    for (auto& worker : workers_)
        if (worker.thread.joinable()) worker.thread.join();
    std::lock_guard lock(mutex_);
    if (ran) running_.change(-1);
    workers_.clear();
    jobs_.clear();
}

void Engine::work(std::size_t number) {
    pthread_setname_np(pthread_self(), "fl-engine");
    Stopwatch watch;
    for (;;) {
        Task task;
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
                if (take(task)) break;
                rested = true;
                idle_.change(1);
                work_.wait(lock);
                idle_.change(-1);
            }
        }
        rested ? watch.restart() : watch.resume();
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
        auto tasks = prepare(job, watch);
        if (!tasks.empty()) {
            job->pending += tasks.size();
            {
                std::lock_guard lock(mutex_);
                if (!stopping_ && jobs_.contains(job->ticket)) {
                    // Taken from the back: reversed, so that the first rows are filled first.
                    std::reverse(tasks.begin(), tasks.end());
                    auto& mine = queue_[job->ticket];
                    mine.insert(mine.end(), tasks.begin(), tasks.end());
                }
            }
            work_.notify_all();
        }
    }
    if (--job->pending == 0) finish(job);
}

void Engine::account(const Job& job) {
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        const auto metadata = job.rows.size() * columns_[column].metadata_size;
        std::size_t stored = metadata;
        for (const auto& one : job.located[column])
            if (one.source) stored += one.extent.size;
        times_[column].stored_bytes += stored;
        times_[column].decoded_bytes += metadata + job.slot->columns[column].size;
    }
    const auto bytes = job.slot->bytes();
    auto largest = largest_batch_.load();
    while (bytes > largest && !largest_batch_.compare_exchange_weak(largest, bytes)) {
    }
}

void Engine::finish(const std::shared_ptr<Job>& job) {
    account(*job);
    {
        std::lock_guard lock(mutex_);
        job->done = true;
    }
    done_.notify_all();
}

std::vector<Engine::Task> Engine::prepare(const std::shared_ptr<Job>& job, Stopwatch& watch) {
    job->slot = Ring::acquire(ring_);
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
        const bool image = columns_[column].kind == ColumnPlan::Kind::image;
        std::size_t begin = 0, bytes = 0;
        for (std::size_t i = 0; i < samples; ++i) {
            bytes += located[i].extent.raw_size;
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
    if (!source.validity) return true;
    const auto row = static_cast<std::uint64_t>(job.rows[i]);
    std::uint8_t bits = 0;
    source.validity->copy(row / 8, 1, &bits);
    if ((bits >> (row % 8)) & 1) return true;
    auto& out = job.slot->columns[column];
    out.valid[i] = 0;
    out.any_missing = true;
    return false;
}

// What a payload must be like before room is made for it.
void Engine::check_payload(const ColumnPlan& plan, const Extent& extent, const std::uint8_t* metadata) {
    if (plan.kind == ColumnPlan::Kind::fixed && extent.raw_size != plan.row_bytes)
        throw Failure("size", "the payload has " + std::to_string(extent.raw_size) + " bytes, not " +
                                  std::to_string(plan.row_bytes));
    if (plan.kind == ColumnPlan::Kind::image) check_claim(plan.image, load<ImageShape>(metadata), extent.raw_size);
}

// Metadata rows and extents of all rows at once; throws at the first that is bad.
std::vector<Located> Engine::look_up(Job& job, std::size_t column, std::uint8_t* metadata) {
    const auto& plan = columns_[column];
    const std::size_t samples = job.rows.size();
    const auto source = [&](std::size_t i) -> const ColumnSource& { return (*job.sources)[job.source(i)][column]; };
    const auto row = [&](std::size_t i) { return static_cast<std::uint64_t>(job.rows[i]); };
    auto& valid = job.slot->columns[column].valid;
    for (std::size_t i = 0; i < samples; ++i) present(job, column, i, source(i));
    if (metadata)
        gather_rows(samples, plan.metadata_size,
                    [&](std::size_t i) { return valid[i] ? TableRow{source(i).metadata, row(i)} : TableRow{}; },
                    metadata);
    if (plan.kind == ColumnPlan::Kind::rows) return {};
    auto located = locate_rows(
        samples, [&](std::size_t i) { return valid[i] ? PayloadRow{source(i).payloads, row(i)} : PayloadRow{}; });
    for (std::size_t i = 0; i < samples; ++i)
        if (valid[i]) check_payload(plan, located[i].extent, metadata + i * plan.metadata_size);
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
            if (mine) source.metadata->copy(row, 1, mine);
            if (!payloads) continue;
            const auto extent = source.payloads->extent(row);
            check_payload(plan, extent, mine);
            located[i] = {source.payloads, extent};
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
    std::size_t size = 0;
    if (plan.kind == ColumnPlan::Kind::fixed) {
        // What no payload bears out gets no memory: options can claim any shape.
        const bool any = std::any_of(located.begin(), located.end(), [](const Located& one) { return one.source; });
        size = any ? samples * plan.row_bytes : 0;
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

void Engine::fill_rows(Job& job, std::size_t column, std::size_t begin, std::size_t end) {
    const auto& plan = columns_[column];
    auto& out = job.slot->columns[column];
    const auto& located = job.located[column];
    thread_local std::vector<std::uint8_t> scratch;
    for (std::size_t i = begin; i < end; ++i) {
        if (i + 2 < end && located[i + 2].source) located[i + 2].source->prefetch(located[i + 2].extent);
        const bool fixed = plan.kind == ColumnPlan::Kind::fixed;
        const auto from = fixed ? i * plan.row_bytes : static_cast<std::size_t>(out.offsets[i]);
        const auto size = fixed ? plan.row_bytes : static_cast<std::size_t>(out.offsets[i + 1]) - from;
        const MutableBytes to(out.data.data() + from, size);
        const auto* source = located[i].source;
        try {
            if (!source) {
                if (size) std::memset(to.data(), 0, size);
            } else if (plan.kind == ColumnPlan::Kind::image) {
                const auto shape = load<ImageShape>(out.metadata.data() + i * plan.metadata_size);
                image_decode(plan.image, source->load(located[i].extent, scratch), shape, to);
            } else {
                source->read(located[i].extent, to);
            }
        } catch (const Failure& failure) {
            if (size) std::memset(to.data(), 0, size);
            job.fail(column, i, failure);
        } catch (const std::exception& error) {
            if (size) std::memset(to.data(), 0, size);
            job.fail(column, i, Failure("memory", error.what()));
        }
    }
}

}  // namespace fl
