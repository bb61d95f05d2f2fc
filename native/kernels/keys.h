// From a key to its sample: a hash table that is mapped, never loaded (docs/reference/format.md, "Keys").
#pragma once

#include <optional>

#include "table.h"

namespace fl {

class Keys {
public:
    // `offsets`: num_samples + 1 u64 rows into `bytes` (rows of one byte); `slots`: u64 rows, the first of which is
    // the number of home slots.
    Keys(const Table& offsets, const Table& bytes, const Table& slots);

    std::uint64_t size() const { return offsets_.rows() - 1; }
    Bytes key(std::uint64_t sample) const;
    std::optional<std::uint64_t> find(Bytes key) const;

private:
    const Table& offsets_;
    const Table& bytes_;
    const Table& slots_;
};

constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << 48) - 1;

// The slot where the search for a hash begins.
inline std::uint64_t home_slot(std::uint64_t hash, std::uint64_t homes) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * homes) >> 64);
}

// A slot's content: the sample's number plus one (zero is an empty slot) and 16 bits of its hash.
inline std::uint64_t make_slot(std::uint64_t hash, std::uint64_t sample) {
    return (hash << 48) | ((sample + 1) & kIndexMask);
}

// Lays hashes (ascending, all at or above the previous call's) behind the slots already filled. `next` is the first
// free slot. Returns the new first free slot; `out` is zero before, indexed from slot `base`.
std::uint64_t lay_slots(std::span<const std::uint64_t> hashes, std::span<const std::uint64_t> samples,
                        std::uint64_t homes, std::uint64_t next, std::uint64_t base, std::span<std::uint64_t> out);

}  // namespace fl
