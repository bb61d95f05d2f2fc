// Where a thread's time went between two laps: on a CPU, ready but not given one, or blocked (a mapped page that had to
// come from disk, a read).
#pragma once

#include <cstdint>

namespace fl {

// Nanoseconds of a clock that only goes forward.
std::uint64_t monotonic_ns();

struct Lap {
    std::uint64_t wall = 0;
    std::uint64_t cpu = 0;
    std::uint64_t preempted = 0;
    std::uint64_t blocked = 0;
    std::uint64_t major_faults = 0;
};

// Belongs to the thread that made it.
class Stopwatch {
public:
    // `fresh`: the thread has no past, so that its counters begin at zero.
    explicit Stopwatch(bool fresh);
    ~Stopwatch();
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

    // What passed since the last lap is nobody's: the thread slept for want of work.
    void restart();

    // The same after no more than a look for work, which may have been held up by a lock. Costs next to nothing.
    void resume();

    Lap lap();

private:
    std::uint64_t run_delay();

    bool opened_ = false;
    int schedstat_ = -1;  // stays so where the kernel does not tell how long a thread was ready without running
    bool delay_known_;    // whether delay_ says what there was at the last lap
    std::uint64_t wall_ = 0;
    std::uint64_t cpu_ = 0;
    std::uint64_t delay_ = 0;
    std::int64_t switches_ = 0;
    std::int64_t faults_ = 0;
    bool slept_ = false;  // since the last time the counters were read
};

}  // namespace fl
