#include "guard.h"

#include <csignal>
#include <mutex>

namespace fl::detail {

thread_local std::jmp_buf* g_bus_jump = nullptr;

namespace {

struct sigaction g_previous;

void on_bus(int signal, siginfo_t* info, void* context) {
    if (g_bus_jump) _longjmp(*g_bus_jump, 1);
    // Not ours: do what would have been done without us.
    if (g_previous.sa_flags & SA_SIGINFO) {
        g_previous.sa_sigaction(signal, info, context);
    } else if (g_previous.sa_handler != SIG_IGN && g_previous.sa_handler != SIG_DFL) {
        g_previous.sa_handler(signal);
    } else {
        std::signal(SIGBUS, SIG_DFL);
        std::raise(SIGBUS);
    }
}

}  // namespace

void install_bus_handler() {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action {};
        action.sa_sigaction = on_bus;
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;  // NODEFER: the jump leaves the signal unblocked
        sigemptyset(&action.sa_mask);
        sigaction(SIGBUS, &action, &g_previous);
    });
}

}  // namespace fl::detail
