#include "keys.h"

#include <algorithm>

namespace fl {

Keys::Keys(const Table& offsets, const Table& bytes, const Table& slots)
    : offsets_(offsets), bytes_(bytes), slots_(slots) {
    if (offsets.row_size() != 8 || slots.row_size() != 8 || bytes.row_size() != 1 || offsets.rows() == 0)
        throw Failure("format", "the key tables have the wrong row sizes");
}

Bytes Keys::key(std::uint64_t sample) const {
    const Bytes pair = offsets_.at(sample, 2);
    const auto begin = load<std::uint64_t>(pair.data());
    const auto end = load<std::uint64_t>(pair.data() + 8);
    if (end < begin) throw Failure("format", "the key offsets run backwards");
    return bytes_.at(begin, end - begin);
}

std::uint64_t lay_slots(std::span<const std::uint64_t> hashes, std::span<const std::uint64_t> samples,
                        std::uint64_t homes, std::uint64_t next, std::uint64_t base, std::span<std::uint64_t> out) {
    if (hashes.size() != samples.size()) throw Failure("format", "hashes and samples differ");
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        const auto slot = std::max(next, home_slot(hashes[i], homes));
        if (slot < base || slot - base >= out.size()) throw Failure("format", "the key slots overflow");
        out[slot - base] = make_slot(hashes[i], samples[i]);
        next = slot + 1;
    }
    return next;
}

}  // namespace fl
