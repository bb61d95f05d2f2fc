// What reading ahead keeps: files, the runs of their bytes that are in memory or on their way, and the memory of these.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "readahead.h"

namespace fl {

// Memory that segments share; it is free again when the last of them is gone.
struct ReadAhead::Block {
    std::uint8_t* memory;
    std::size_t size;
    std::size_t segments;
};

// A run of bytes of a file that is in memory or on its way there.
struct ReadAhead::Segment : Read {
    File* of = nullptr;
    Block* block = nullptr;
    std::size_t holders = 0;
    std::uint64_t payloads = 0;       // that are in it; 0: nobody knows
    std::uint64_t asked = 0;          // ranges in it that batches asked for
    bool over = false;
    bool idle = false;
    bool kept = false;                // its memory is the page cache's: it stays after its last batch
    Mirror::Holds mirrored{};         // or it is the mirror's, where who comes later will find it
    std::optional<AtomicBits> checked{};  // blocks that were found to be right, counted from where it begins
    Loan* waiter = nullptr;           // the first who waits for it; mostly there is no other
    std::vector<Loan*> more_waiters;
    std::list<Segment*>::iterator place;  // in idle_ or kept_, while it is idle

    std::uint64_t end() const { return offset + size; }
    // Nobody will want it again soon.
    bool used_up() const { return payloads && asked >= payloads; }
};

struct ReadAhead::File {
    explicit File(std::pmr::memory_resource* nodes) : segments(nodes) {}

    FileName name;
    int number = 0;
    int fd = -1;
    int plain = -1;  // for looking whether bytes are cached, where the kernel does not tell strangers by mincore
    bool hopeless = false;
    bool trusted = false;
    std::uint64_t unit = 512;
    std::size_t reading = 0;
    std::uint64_t used = 0;
    std::vector<bool> populated;  // by chunk
    std::unique_ptr<Mirror> mirror;
    std::pmr::map<std::uint64_t, Segment> segments;  // by where they begin; none overlap

    // The segment that reaches behind `at`, or the first after it.
    auto from(std::uint64_t at) {
        auto found = segments.upper_bound(at);
        if (found != segments.begin() && std::prev(found)->second.end() > at) --found;
        return found;
    }

    // Whether all of it is there or on its way.
    bool covers(std::uint64_t begin, std::uint64_t end) {
        for (auto next = from(begin); next != segments.end() && next->second.offset <= begin; ++next) {
            begin = std::max(begin, next->second.end());
            if (begin >= end) return true;
        }
        return false;
    }
};

}  // namespace fl
