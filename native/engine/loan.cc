// The bytes of a batch, out of the segments they were read into.
#include <cerrno>
#include <cstring>
#include <memory>

#include "guard.h"
#include "segments.h"

namespace fl {

ReadAhead::Loan::~Loan() {
    if (owner_) owner_->release(*this);
}

// A block within a segment is checked once while that lasts; one that lies in two, each time. So it is but where a cache
// cuts objects into blocks of its own.
void ReadAhead::Loan::check_blocks(const Part& part) {
    const auto& windows = *part.windows;
    const std::uint64_t size = windows.items->block_size();
    const auto last = (part.end - 1 - windows.begin) / size;
    for (auto block = (part.begin - windows.begin) / size; block <= last; ++block) {
        const auto begin = windows.begin + block * size;
        const auto end = std::min(begin + size, windows.begin + windows.items->size());
        std::vector<std::uint8_t> whole;
        for (std::size_t i = part.first; i < part.first + part.count; ++i) {
            auto& segment = *segments_[i];
            const auto from = std::max(begin, segment.offset), to = std::min(end, segment.end());
            if (from >= to) continue;
            const auto* there = segment.to + (from - segment.offset);
            if (from == begin && to == end) {
                const auto bit = (begin - segment.offset) / size;
                if (segment.checked->test(bit)) break;
                windows.items->check_copy(block, Bytes(there, end - begin));
                segment.checked->set(bit);
                break;
            }
            whole.resize(end - begin);
            guarded([&] { std::memcpy(whole.data() + (from - begin), there, to - from); });
        }
        if (!whole.empty()) windows.items->check_copy(block, whole);
    }
}

const std::uint8_t* ReadAhead::Loan::bytes(std::size_t range) {
    const auto& part = parts_[range];
    const auto& wanted = ranges_[range];
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const auto& segment = *segments_[i];
        if (segment.error && owner_->is_remote())
            throw Failure("remote", segment.what.empty() ? "reading was given up" : segment.what);
        if (segment.error == EINVAL || segment.error == EOPNOTSUPP) return nullptr;  // no direct reads here after all
        if (segment.error) throw Failure("io", std::string("reading failed: ") + std::strerror(segment.error));
        // Short reads are left to the mapping, which knows whether the file became shorter.
        if (segment.offset + segment.done < std::min(segment.end(), wanted.begin + wanted.size)) return nullptr;
    }
    if (part.count == 0 && owner_->is_remote()) throw Failure("memory", "no memory to read into");
    if (part.count == 0) return nullptr;
    if (part.windows && part.windows->items) check_blocks(part);
    if (part.count == 1) return segments_[part.first]->to + (part.begin - segments_[part.first]->offset);
    auto whole = std::make_unique_for_overwrite<std::uint8_t[]>(part.end - part.begin);
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
        const auto& segment = *segments_[i];
        const auto begin = std::max(segment.offset, part.begin);
        const auto end = std::min(segment.end(), part.end);
        if (begin >= end) continue;
        guarded([&] {
            std::memcpy(whole.get() + (begin - part.begin), segment.to + (begin - segment.offset), end - begin);
        });
    }
    joined_.push_back(std::move(whole));
    return joined_.back().get();
}

}  // namespace fl
