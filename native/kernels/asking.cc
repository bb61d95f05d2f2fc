#include "asking.h"

#include <sys/mman.h>
#include <unistd.h>

namespace fl {

thread_local bool detail::g_known_alone = false;

namespace {

const auto kPage = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));

bool is_there(const std::uint8_t* byte) {
    unsigned char there = 0;
    const auto page = reinterpret_cast<std::uintptr_t>(byte) / kPage * kPage;
    return ::mincore(reinterpret_cast<void*>(page), 1, &there) == 0 && (there & 1);
}

}  // namespace

void will_need_if_gone(Bytes mapped) {
    if (mapped.empty()) return;
    if (!is_there(&mapped.front()) || !is_there(&mapped[mapped.size() / 2]) || !is_there(&mapped.back())) will_need(mapped);
}

void will_need(Bytes mapped) {
    if (mapped.empty()) return;
    const auto first = reinterpret_cast<std::uintptr_t>(mapped.data());
    const auto begin = first / kPage * kPage;
    // Where that is refused, they come when they are touched.
    ::madvise(reinterpret_cast<void*>(begin), first + mapped.size() - begin, MADV_WILLNEED);
}

}  // namespace fl
