#include "asking.h"

#include <sys/mman.h>
#include <unistd.h>

namespace fl {

thread_local bool detail::g_known_alone = false;

void will_need(Bytes mapped) {
    if (mapped.empty()) return;
    static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<std::uintptr_t>(mapped.data());
    const auto begin = first / page * page;
    // Where that is refused, they come when they are touched.
    ::madvise(reinterpret_cast<void*>(begin), first + mapped.size() - begin, MADV_WILLNEED);
}

}  // namespace fl
