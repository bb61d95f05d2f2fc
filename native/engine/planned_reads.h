// Ranges of files read ahead of whoever planned them, without a batch around them: what a script asks for, row by row.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "readahead.h"

namespace fl {

class PlannedReads : public std::enable_shared_from_this<PlannedReads> {
public:
    using Range = ReadAhead::Range;

    // Ranges that were asked for together. Their bytes stay for as long as this is held, whoever else is gone.
    class Some {
    public:
        std::size_t size() const { return bytes_.size(); }
        const Failure* failure(std::size_t range) const { return failures_[range].get(); }
        // Throws Failure where they could not be read.
        Bytes bytes(std::size_t range) const;

    private:
        friend class PlannedReads;
        std::shared_ptr<PlannedReads> reads_;  // goes last: the loan needs it
        std::shared_ptr<ReadAhead::Loan> loan_;
        std::vector<Bytes> bytes_;
        std::vector<std::shared_ptr<Failure>> failures_;
    };

    static std::shared_ptr<PlannedReads> make(ReadOptions options);
    PlannedReads(const PlannedReads&) = delete;
    PlannedReads& operator=(const PlannedReads&) = delete;

    // Its mapping must stay until the file is dropped and whatever was submitted of it is let go of.
    std::size_t add_file(FileName file);
    // Nothing more will be asked of it.
    void drop_file(std::size_t file);

    // Begins to read, unless all is in memory; every range must lie in its file.
    std::uint64_t submit(std::vector<Range> ranges);

    // What was submitted, once it is there; nothing if `milliseconds` pass before. Each ticket is given out once.
    std::shared_ptr<Some> wait(std::uint64_t ticket, int milliseconds);
    void forget(std::uint64_t ticket);

    RemoteReads& remote() { return reads_->remote(); }
    const ReadCounts& counts() const { return reads_->counts(); }

private:
    struct Asked {
        std::vector<Range> ranges;
        std::vector<Bytes> mapped;
        std::shared_ptr<ReadAhead::Loan> loan;  // none where the mapping has it all
        bool ready = false;
    };
    struct Abandon {
        void operator()(PlannedReads* reads) const;
    };

    explicit PlannedReads(ReadOptions options);
    ~PlannedReads();

    const long process_;
    std::mutex mutex_;
    std::condition_variable ready_;
    std::vector<Bytes> files_;
    std::map<std::uint64_t, std::shared_ptr<Asked>> asked_;
    std::uint64_t next_ = 0;
    std::unique_ptr<ReadAhead> reads_;
};

}  // namespace fl
