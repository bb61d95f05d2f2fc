#include "guard.h"

#include <atomic>
#include <csignal>
#include <mutex>

namespace fl::detail {

constinit thread_local std::jmp_buf* g_bus_jump = nullptr;
std::atomic<bool> g_bus_handled{false};

namespace {

struct sigaction g_previous;
std::atomic<bool> g_passed_on{false};

void on_bus(int signal, siginfo_t* info, void* context) {
    if (g_bus_jump) _longjmp(*g_bus_jump, 1);
    // Not ours: do what would have been done without us. Who had the signal before may hand it back to us; that is the end.
    const bool handed_back = g_passed_on.exchange(true);
    if (!handed_back && (g_previous.sa_flags & SA_SIGINFO)) {
        g_previous.sa_sigaction(signal, info, context);
    } else if (!handed_back && g_previous.sa_handler != SIG_IGN && g_previous.sa_handler != SIG_DFL) {
        g_previous.sa_handler(signal);
    } else {
        std::signal(SIGBUS, SIG_DFL);
        std::raise(SIGBUS);
    }
    g_passed_on = false;
}

}  // namespace

void install_bus_handler() {
    static std::once_flag once;
    std::call_once(once, [] { renew_bus_handler(); });
    g_bus_handled = true;
}

void renew_bus_handler() {
    static std::mutex mutex;
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock) return;  // another thread is about it
    struct sigaction now {};
    sigaction(SIGBUS, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus) return;
    g_previous = now;
    struct sigaction action {};
    action.sa_sigaction = on_bus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;  // NODEFER: the jump leaves the signal unblocked
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace fl::detail
