// What will be read soon, piece after piece: it is loaded into the caches while something else is read.
#pragma once

#include <algorithm>

#include "bytes.h"

namespace fl {

class Upcoming {
public:
    explicit Upcoming(std::span<const Bytes> pieces) : pieces_(pieces) {}

    // Begins to load so many bytes more. To be called a little at a time: asked for much, the CPU waits for room.
    void load(std::size_t bytes) {
        while (bytes && !pieces_.empty()) {
            const Bytes piece = pieces_.front().subspan(at_);
            const auto some = std::min(bytes, piece.size());
            for (std::size_t i = 0; i < some; i += 64) __builtin_prefetch(piece.data() + i, 0, 2);
            bytes -= some;
            at_ += some;
            loaded_ += some;
            if (some < piece.size()) continue;
            pieces_ = pieces_.subspan(1);
            at_ = 0;
        }
    }

    // The same, until it is so many bytes in all.
    void reach(std::uint64_t bytes) {
        if (loaded_ < bytes) load(bytes - loaded_);
    }

private:
    std::span<const Bytes> pieces_;
    std::size_t at_ = 0;  // in the first of them
    std::uint64_t loaded_ = 0;
};

}  // namespace fl
