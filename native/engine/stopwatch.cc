#include "stopwatch.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace fl {
namespace {

// Nothing that matters happens in less: neither a disk nor a scheduler is that quick. A lap this short is taken for work
// and spares the system calls, which cost half a microsecond each.
constexpr std::uint64_t kBrief = 20'000;

std::uint64_t read_clock(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

std::uint64_t monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }

// What the scheduler tells is asked for when it is first needed: that takes longer than a small batch.
Stopwatch::Stopwatch(bool fresh) : delay_known_(fresh) {
    if (!fresh) {
        rusage usage{};  // a past that is none of ours
        getrusage(RUSAGE_THREAD, &usage);
        switches_ = usage.ru_nvcsw;
        faults_ = usage.ru_majflt;
    }
    restart();
}

Stopwatch::~Stopwatch() {
    if (schedstat_ >= 0) close(schedstat_);
}

std::uint64_t Stopwatch::run_delay() {
    if (!std::exchange(opened_, true)) schedstat_ = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    char text[96];
    const auto size = schedstat_ < 0 ? -1 : pread(schedstat_, text, sizeof text - 1, 0);
    if (size <= 0) return 0;
    text[size] = 0;
    unsigned long long ran = 0, delayed = 0;
    return std::sscanf(text, "%llu %llu", &ran, &delayed) == 2 ? delayed : 0;
}

// Threads of small batches sleep and wake all the time, so the dearer counters are left as they are: falling asleep
// faults in no page, and what a thread waits for a CPU when woken is little.
void Stopwatch::restart() {
    slept_ = true;
    cpu_ = read_clock(CLOCK_THREAD_CPUTIME_ID);
    wall_ = monotonic_ns();
}

void Stopwatch::resume() {
    const auto wall = monotonic_ns();
    if (wall - wall_ < kBrief) cpu_ += wall - wall_;
    wall_ = wall;
}

Lap Stopwatch::lap() {
    Lap lap;
    auto wall = monotonic_ns();
    if (wall - wall_ < kBrief) {
        lap.wall = lap.cpu = wall - wall_;
        wall_ = wall;
        cpu_ += lap.wall;  // so that the next long lap does not count it again
        return lap;
    }
    // Asking for its CPU time is where the kernel finds that a thread's turn is over: it may come back much later.
    const auto cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
    wall = monotonic_ns();
    lap.wall = wall - wall_;
    wall_ = wall;
    lap.cpu = cpu > cpu_ ? std::min(cpu - cpu_, lap.wall) : 0;
    cpu_ = cpu;
    const auto waited = lap.wall - lap.cpu;
    if (waited < kBrief) {
        lap.preempted = waited;
        return lap;
    }
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    const auto delay = run_delay();
    // A thread that never gave up its CPU of its own accord was not blocked.
    const bool stayed = !slept_ && usage.ru_nvcsw == switches_;
    lap.major_faults = static_cast<std::uint64_t>(std::max<std::int64_t>(usage.ru_majflt - faults_, 0));
    if (stayed || (!delay_known_ && !lap.major_faults))
        lap.preempted = waited;
    else if (delay_known_)
        lap.preempted = std::min(waited, delay - std::min(delay, delay_));
    lap.blocked = waited - lap.preempted;
    delay_known_ = true;
    switches_ = usage.ru_nvcsw;
    faults_ = usage.ru_majflt;
    delay_ = delay;
    slept_ = false;
    return lap;
}

}  // namespace fl
