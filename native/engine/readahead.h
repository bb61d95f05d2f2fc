// Brings the bytes of coming batches into memory along their plan. A batch asks for ranges of files; neighbours are
// read together, and what another batch already has or waits for is shared, so nothing is read twice while it is held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "arena.h"
#include "bytes.h"
#include "mirror.h"
#include "payloads.h"
#include "reads.h"

namespace fl {

// `populate` fills the page cache along the plan and leaves the bytes to the mapping: for files that fit into memory.
// `remote` is for objects in a store: there is no mapping of their payloads, so every range is read, within the memory
// there is for reads or, where that will never do, beyond it. The memory is that of whoever fetches: it is counted, and
// borrowed until no batch needs it.
enum class ReadMode : std::uint8_t { mmap, uring, pread, automatic, populate, remote };

struct ReadOptions {
    ReadMode mode = ReadMode::mmap;
    std::size_t memory = 0;  // for what is read
    std::uint64_t unit = 0;  // ranges are widened to multiples of it; 0: as little as the files allow
    bool apart = false;      // each unit is a read of its own
    unsigned depth = 128;    // reads at once by io_uring
    unsigned threads = 32;   // reads at once by pread
};

// A file as it was mapped. Reads go to that same file; if its name now means another, its bytes come from the mapping.
struct FileName {
    std::string path;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    Bytes mapped;
    std::uint64_t end = 0;  // of its payloads: of a remote object nothing is read beyond
    // Where payloads that are worth reading together begin and end, in order, and how many they are at most. A range
    // within one is widened to all of it rather than to whole units: these have padding, and a payload may lie in two
    // of them.
    struct Span {
        std::uint64_t begin, end, payloads;
    };
    std::vector<Span> spans{};
    // Where payloads are windows. Of an object, whole blocks of what has checksums are read, and a block is checked before
    // any of its bytes are given out.
    std::optional<Windows> windows{};
    std::string blocks{};  // the folder where a cache keeps an object's blocks, if one does

    // The span that begins at or before `at`.
    const Span* span_at(std::uint64_t at) const;
};

struct ReadCounts {
    std::atomic<std::uint64_t> reads{0};
    std::atomic<std::uint64_t> bytes{0};    // read, neighbours and padding included
    std::atomic<std::uint64_t> asked{0};    // bytes of the ranges asked for
    std::atomic<std::uint64_t> mapped{0};   // batches whose bytes were found in memory, and so left to the mapping
    std::atomic<std::uint64_t> found{0};    // blocks of a cache that were there from before
    std::atomic<std::uint64_t> given_up{0};  // ranges left to the mapping for want of memory or of the file
    std::atomic<std::uint64_t> waiting{0};  // nanoseconds from asking to having, summed over batches
    std::atomic<const char*> by{nullptr};   // who reads: not always who was asked for; null before the first read
};

class ReadAhead {
    struct Block;
    struct File;
    struct Segment;

public:
    struct Range {
        std::size_t file;
        std::uint64_t begin;
        std::uint64_t size;
    };

    // Ranges in memory, for as long as the loan lives.
    class Loan {
    public:
        Loan() = default;
        ~Loan();
        Loan(const Loan&) = delete;
        Loan& operator=(const Loan&) = delete;

        // The range's bytes; null where they have to come from the mapping. Throws Failure "io" where the disk failed,
        // "remote" where a store did, "table" where a block of an object's windows is damaged.
        // Only once the loan is ready, from one thread at a time.
        const std::uint8_t* bytes(std::size_t range);

    private:
        friend class ReadAhead;
        struct Part {
            std::size_t first = 0;  // of the segments that hold it
            std::size_t count = 0;
            std::uint64_t begin = 0;  // what was asked for, of a range that may have more around it
            std::uint64_t end = 0;
            const Windows* windows = nullptr;  // of an object: those it is one of
        };
        void check_blocks(const Part& part);

        ReadAhead* owner_ = nullptr;
        std::vector<Range> ranges_;
        std::vector<Part> parts_;  // one a range
        std::vector<std::size_t> order_;  // the ranges, by where they begin
        std::vector<Segment*> segments_;
        std::vector<std::unique_ptr<std::uint8_t[]>> joined_;  // ranges that lie in several segments
        std::function<void()> ready_;
        std::size_t missing_ = 0;  // segments still being read
        bool urgent_ = false;
        bool served_ = false;
        std::uint64_t turn_ = 0;
        std::uint64_t asked_at_ = 0;
    };

    explicit ReadAhead(ReadOptions options);
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    // The number by which ranges name the file.
    std::size_t add_file(FileName file);

    // Whether the next batch is worth a look: less often the longer all bytes were found in memory.
    bool looks();
    // Whether the ranges should be read, or are in memory already, as some of them show. When populating, they are on
    // their way now.
    bool worth_reading(const std::vector<Range>& ranges);

    // Where these ranges lie, of objects whose blocks a cache has, and null for others: these have to be asked for.
    std::vector<const std::uint8_t*> hold(const std::vector<Range>& ranges, Mirror::Holds& holds);
    // Blocks that the cache has no more are let go.
    void look_at_blocks();

    // Ranges to be asked for. `ready` is called once, from any thread, when all are there or given up.
    std::shared_ptr<Loan> prepare(std::vector<Range> ranges, std::function<void()> ready);
    void ask(Loan& loan, std::uint64_t turn);

    // Batches are looked up by several threads, one of which may be held up. A turn is taken before, in order, and ends
    // when the batch has asked, or is passed. Until then nothing is dropped for those behind it: it may be what this one
    // wants.
    std::uint64_t expect();
    void pass(std::uint64_t turn);

    // Somebody waits for this batch: from now on it depends on none that ends only when it is consumed.
    void hurry(Loan& loan);
    // Whoever has the bytes may keep them for as long as they like: nobody counts on having their memory back.
    void hand_over(Loan& loan);

    // Ends the threads and frees the memory; both come back when something is asked for. Waits for loans to be gone.
    void stop();

    const ReadCounts& counts() const { return counts_; }
    const ReadOptions& options() const { return options_; }
    RemoteReads& remote() { return remote_; }
    std::size_t memory_used();

private:
    // What is to be done once the lock is open again.
    struct Todo {
        std::vector<std::function<void()>> calls;
        std::vector<Read*> reads;
    };
    struct Piece {
        File* file;
        std::uint64_t begin;
        std::uint64_t end;
        std::uint8_t* memory = nullptr;
        Block* block = nullptr;
        Segment* segment = nullptr;
    };

    void run(Todo& todo);
    void serve(Todo& todo);
    bool try_serve(Loan& loan, Todo& todo, bool beyond = false);
    std::vector<Piece> missing_pieces(Loan& loan, std::vector<std::size_t>& order, std::vector<std::size_t>& covers,
                                      std::vector<Segment*>& pins);
    bool find_memory(std::vector<Piece>& pieces, bool beyond, bool may_drop);
    bool find_budget(std::vector<Piece>& pieces, bool beyond, bool may_drop);
    bool may_drop(const Loan& loan) const;
    bool drop_idle();
    std::size_t turn_of(const Segment& segment) const;
    void give_back(Block* block);
    void mirror(Segment& segment);
    bool is_remote() const { return options_.mode == ReadMode::remote; }
    void hold(Segment& segment);
    void attach(Loan& loan, std::size_t range, Segment& segment);
    void link(Loan& loan, std::size_t range);
    std::pair<std::uint64_t, std::uint64_t> widened(File& file, const Range& wanted, const Loan::Part& part) const;
    void give_up(Loan& loan, Todo& todo);
    void complete(Loan& loan, Todo& todo);
    void finished(std::span<Read* const> reads);
    void release(Loan& loan);
    void let_go(Segment& segment);
    void drop(Segment& segment);
    bool open(File& file);
    void close(File& file);
    bool resident(File& file, std::uint64_t at);
    void populate(const std::vector<Range>& ranges);
    bool open_queue();

    const ReadOptions options_;
    ReadCounts counts_;
    std::mutex mutex_;
    std::pmr::unsynchronized_pool_resource nodes_;  // of the files' segments
    std::vector<std::unique_ptr<File>> files_;
    std::unique_ptr<Arena> arena_;
    RemoteReads remote_;
    std::unique_ptr<ReadQueue> queue_;
    std::size_t lent_ = 0;        // bytes of remote reads, on their way or there
    std::list<Segment*> idle_;    // held by nobody, the longest idle first
    std::list<Segment*> kept_;    // the same, of those whose memory is the page cache's
    std::list<Loan*> waiting_;    // for memory, in the order of their turns
    std::set<std::uint64_t> expected_;  // turns of those that have not asked yet
    std::uint64_t turns_ = 0;
    std::size_t loans_ = 0;       // that exist
    std::condition_variable gone_;
    std::size_t holding_ = 0;     // loans that hold memory
    std::size_t running_ = 0;     // those of them that are urgent: they end by themselves
    std::size_t open_files_ = 0;
    bool hopeless_ = false;       // no memory or no thread to be had for reading
    std::atomic<std::size_t> untouched_{0};  // chunks of files that were not populated yet
    std::uint64_t clock_ = 0;
    std::atomic<std::size_t> streak_{0};  // looks that found everything in memory
    std::atomic<std::size_t> unseen_{0};  // batches since the last look
};

}  // namespace fl
