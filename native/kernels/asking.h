// What may be on disk: asking for it before it is needed, and not waiting for it where others would have to wait too.
#pragma once

#include <cstdint>

#include "bytes.h"

namespace fl {

// Asks the system to bring mapped bytes into memory, these and no others, and does not wait for them. Who touches bytes
// that were never asked for waits for the megabytes around them.
void will_need(Bytes mapped);

// The same, unless they seem to be in memory: the first page, one in the middle and the last are. Asking for many that are
// there takes a look at each.
void will_need_if_gone(Bytes mapped);

namespace detail {
extern thread_local bool g_known_alone;
}

// Thrown in place of a wait. It is no failure: who may wait does all of it again.
struct Unread {};

// As long as it lives, this thread reads from tables only blocks that were read before; others throw Unread.
class KnownAlone {
public:
    KnownAlone() { detail::g_known_alone = true; }
    ~KnownAlone() { detail::g_known_alone = false; }
    KnownAlone(const KnownAlone&) = delete;
    KnownAlone& operator=(const KnownAlone&) = delete;

    static bool holds() { return detail::g_known_alone; }
    static void check() {
        if (holds()) throw Unread{};
    }
};

}  // namespace fl
