// Reading a mapping of a file that has meanwhile become shorter raises SIGBUS. Inside a guard that becomes a Failure.
#pragma once

#include <atomic>
#include <csetjmp>

#include "bytes.h"

namespace fl {

namespace detail {
extern constinit thread_local std::jmp_buf* g_bus_jump;
extern std::atomic<bool> g_bus_handled;
void install_bus_handler();
void renew_bus_handler();
}  // namespace detail

// To be called now and then, before many reads: others in the process may have taken the signal for themselves, as
// Python's faulthandler does when it is turned on or off.
inline void keep_guard() { detail::renew_bus_handler(); }

// Runs `read`, which must only read mapped memory and write plain memory: it may be left by a jump, so nothing in it
// may own anything.
template <class Read>
void guarded(Read read) {
    if (!detail::g_bus_handled.load(std::memory_order_relaxed)) detail::install_bus_handler();
    std::jmp_buf jump;
    std::jmp_buf* const outer = detail::g_bus_jump;
    if (_setjmp(jump)) {
        detail::g_bus_jump = outer;
        throw Failure("io", "the file became shorter while it was read");
    }
    detail::g_bus_jump = &jump;
    read();
    detail::g_bus_jump = outer;
}

}  // namespace fl
