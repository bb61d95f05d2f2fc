// Batches made by threads that know no Python. A batch is submitted as (source, row) pairs and waited for by its ticket;
// in between, workers look up extents, read, check, decompress and decode every field straight into the batch's slot.
// Where bytes come from disk, a batch may be submitted long before it is filled: only its reads go ahead.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "elements.h"
#include "payloads.h"
#include "readahead.h"
#include "slot.h"
#include "sound_program.h"
#include "stopwatch.h"
#include "views.h"

namespace fl {

// What a field needs done.
struct ColumnPlan {
    enum class Kind : std::uint8_t {
        rows,    // its metadata rows are its values
        fixed,   // payloads of `row_bytes` each
        ragged,  // payloads of any size
        image,   // payloads to be decoded; the metadata row is an ImageShape
        padded,  // payloads made of elements, each in a row of one length; lengths stand for offsets
        program,  // payloads that chains make views of; the metadata row is what the chains need
        sound,    // sounds that a program makes rows of
    };
    Kind kind;
    std::size_t metadata_size = 0;
    std::size_t row_bytes = 0;
    ImageCoding image{};
    std::shared_ptr<const Views> views{};  // of kind `program`; row_bytes is that of all of them
    Elements elements{};  // of padded payloads; of ragged ones where they are to agree in it
    std::shared_ptr<const SoundProgram> sound{};  // of kind `sound`; row_bytes is that of its result
};

// Bytes that a slot has for so many samples of a field, all of them there; nothing where that depends on the samples.
std::optional<std::size_t> planned_bytes(const ColumnPlan& plan, std::size_t samples);

// The tables of one field in one file; null where the file has none. Images without metadata tell their shapes themselves.
struct ColumnSource {
    const Table* metadata = nullptr;
    const Table* validity = nullptr;
    const Payloads* payloads = nullptr;
    std::size_t file = 0;  // that its payloads are in: columns of one source may lie in several

    bool tells_shapes(const ColumnPlan& plan) const;
    bool has_value(std::uint64_t row) const;
};

struct BatchFailure {
    std::size_t column;
    Failure failure;  // its position is the row in the batch
};

// A finished batch: its slot, and what went wrong in it, by row.
struct FinishedBatch {
    std::size_t samples = 0;
    std::shared_ptr<Slot> slot;
    std::vector<BatchFailure> failures;
};

// What a field took, summed over threads: nanoseconds, and bytes. `lookup` and `read` are all the time that passed, of
// which the next three say what it was.
struct alignas(64) ColumnTimes {
    std::atomic<std::uint64_t> lookup{0};
    std::atomic<std::uint64_t> read{0};
    std::atomic<std::uint64_t> cpu{0};
    std::atomic<std::uint64_t> preempted{0};
    std::atomic<std::uint64_t> blocked{0};
    std::atomic<std::uint64_t> major_faults{0};
    std::atomic<std::uint64_t> stored_bytes{0};   // in the file
    std::atomic<std::uint64_t> decoded_bytes{0};  // in batches
    std::atomic<std::uint64_t> slot_bytes{0};     // of its memory in the largest slot

    void add(std::atomic<std::uint64_t>& what, const Lap& lap);
};

// A number of threads, summed up over time.
class ThreadTime {
public:
    void change(std::ptrdiff_t by);
    std::uint64_t sum() const;

private:
    std::ptrdiff_t count_ = 0;
    std::uint64_t sum_ = 0;
    std::uint64_t since_ = 0;
};

struct Usage {
    std::size_t threads = 0;
    std::uint64_t running = 0;  // nanoseconds from start to stop, summed up
    std::uint64_t hired = 0;    // nanoseconds of all threads together
    std::uint64_t idle = 0;     // those of them without work
    std::size_t most_in_one_batch = 0;
    std::size_t largest_batch = 0;  // bytes of its slot
    std::size_t kept = 0;           // bytes of slots that wait for reuse
};

class Engine {
public:
    // No more than `threads_a_batch` threads work on one batch at a time; 0 sets no limit.
    Engine(std::vector<ColumnPlan> columns, std::size_t threads, std::size_t slots, std::size_t threads_a_batch = 0,
           ReadOptions reads = {}, std::shared_ptr<Pinning> pinning = nullptr);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // A file that payloads are in; returns its number. Where everything comes from the mapping, nobody asks for it.
    std::size_t add_file(FileName file);
    // Rows that batches may name from now on, one ColumnSource a column; returns its number.
    std::size_t add_source(std::vector<ColumnSource> source);

    // `which` gives the source of each row; empty means source 0. Without `fill` only its bytes are brought near.
    // Programs draw by `epoch` and the samples' own numbers; without `samples` these are the rows.
    std::uint64_t submit(std::vector<std::int32_t> which, std::vector<std::int64_t> rows, bool fill = true,
                         std::uint64_t epoch = 0, std::vector<std::int64_t> samples = {});

    // The batch is wanted now: it gets a slot and is made.
    void fill(std::uint64_t ticket);

    // The batch, once it is done; nothing if `milliseconds` pass before. Each ticket is given out once.
    // With `help` the caller does work that waits for a thread, until the batch is done.
    std::optional<FinishedBatch> wait(std::uint64_t ticket, int milliseconds, bool help = false);

    // A batch that nobody will wait for: what is not done of it yet is left undone.
    void forget(std::uint64_t ticket);

    // The threads run from start to stop, and may be started again. Stopping forgets what is queued; batches given out
    // stay valid, and slots stay for the next start.
    void start();
    void stop();

    // How many threads there are from now on. Those too many end when they have done what they are doing.
    void set_threads(std::size_t threads);

    // How many slots wait for reuse at most.
    void set_slots(std::size_t slots) { ring_->keep(slots); }

    // In a forked child the threads are not there, nor whoever held the locks, nor the kernel's end of the reads: there
    // an engine must be left alone, and can't even be destroyed.
    bool usable() const;
    struct Abandon {
        void operator()(Engine* engine) const;
    };

    const std::vector<ColumnPlan>& columns() const { return columns_; }
    const ColumnTimes& times(std::size_t column) const { return times_[column]; }
    Usage usage() const;
    std::size_t slots_made() const { return ring_->made(); }
    std::size_t slot_bytes() const { return largest_batch_; }  // of the largest so far
    ReadAhead* reads() const { return reads_.get(); }

private:
    using SourceList = std::vector<std::vector<ColumnSource>>;
    struct Job;
    struct Task {
        std::shared_ptr<Job> job;
        std::size_t column = 0;  // columns_.size(): prepare the whole job; one more: look rows up before that
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    struct Worker {
        std::thread thread;
        bool left = false;
    };

    void hire();
    void work(std::size_t number);
    bool take(Task& task);
    template <class Ready>
    void lend_a_hand(std::unique_lock<std::mutex>& lock, Ready ready, int milliseconds);
    void run(const Task& task, Stopwatch& watch);
    void read_ahead(const std::shared_ptr<Job>& job, std::uint64_t turn, Stopwatch& watch);
    bool take_held(Job& job, std::vector<ReadAhead::Range>& ranges);
    void loaded(const std::shared_ptr<Job>& job);
    void enqueue(const std::shared_ptr<Job>& job);
    void share(std::span<const Task> tasks);
    std::vector<Task> split_lookups(const std::shared_ptr<Job>& job);
    bool is_strange(const Job& job) const;
    void find_rows(Job& job, std::size_t begin, std::size_t end, Stopwatch& watch);
    std::vector<Task> prepare(const std::shared_ptr<Job>& job, Stopwatch& watch);
    static bool present(Job& job, std::size_t column, std::size_t i, const ColumnSource& source);
    static void tell_shape(const ColumnPlan& plan, const Located& image, std::uint8_t* metadata);
    static void check_payload(const ColumnPlan& plan, const Extent& extent, const std::uint8_t* metadata);
    std::vector<Located> look_up(Job& job, std::size_t column, std::uint8_t* metadata);
    std::vector<Located> look_up_singly(Job& job, std::size_t column, std::uint8_t* metadata);
    void prepare_column(Job& job, std::size_t column);
    std::uint64_t agree_on_element(Job& job, std::size_t column, std::vector<Located>& located,
                                   const std::uint8_t* metadata);
    void drop_claims(Job& job, std::size_t column, std::vector<Located>& located, std::uint64_t element);
    void prepare_padded(Job& job, std::size_t column, std::vector<Located> located, std::uint64_t element);
    void fill_rows(Job& job, std::size_t column, std::size_t begin, std::size_t end);
    void account(const Job& job);
    void finish(const std::shared_ptr<Job>& job);

    const std::vector<ColumnPlan> columns_;
    std::unique_ptr<ColumnTimes[]> times_;
    std::shared_ptr<Ring> ring_;
    const long process_;
    const std::size_t threads_a_batch_;
    std::atomic<std::size_t> largest_batch_{0};

    std::mutex control_;  // starting, stopping and changing the number of threads, one at a time
    mutable std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable done_;
    std::shared_ptr<const SourceList> sources_;
    std::deque<std::shared_ptr<Job>> unread_;           // batches whose reads are not asked for yet; they come first
    std::map<std::uint64_t, std::vector<Task>> queue_;  // by ticket: the oldest batch comes first
    std::map<std::uint64_t, std::shared_ptr<Job>> jobs_;
    std::uint64_t next_ = 0;
    bool stopping_ = true;
    std::size_t threads_wanted_;
    std::vector<Worker> workers_;
    ThreadTime running_, hired_, idle_;
    std::size_t most_in_one_batch_ = 0;
    bool helping_ = false;
    std::thread::id helper_;
    std::unique_ptr<Stopwatch> helpers_watch_;
    std::atomic<std::size_t> files_{0};
    std::unique_ptr<ReadAhead> reads_;  // null where everything comes from the mapping
};

}  // namespace fl
