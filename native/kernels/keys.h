// From a key to its sample: a hash table that is mapped, never loaded (docs/reference/format.md, "Keys").
#pragma once

#include <algorithm>
#include <optional>

#include "hash.h"
#include "table.h"

namespace fl {

class Keys {
public:
    // `offsets`: num_samples + 1 u64 rows into `bytes` (rows of one byte); `slots`: u64 rows, the first of which is
    // the number of home slots.
    Keys(const Table& offsets, const Table& bytes, const Table& slots);

    std::uint64_t size() const { return offsets_.rows() - 1; }
    Bytes key(std::uint64_t sample) const;
    std::optional<std::uint64_t> find(Bytes key) const {
        return find(key, [](std::uint64_t) {});
    }
    // The same. `likely(sample)` is called before the sample's key is compared: it nearly always is the one.
    template <class Likely>
    std::optional<std::uint64_t> find(Bytes key, Likely likely) const;

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

template <class Likely>
std::optional<std::uint64_t> Keys::find(Bytes key, Likely likely) const {
    const auto homes = load<std::uint64_t>(slots_.at(0).data());
    const auto slots = slots_.rows() - 1;
    if (homes > slots) throw Failure("format", "the key index claims more slots than it has");
    const auto hash = xxh64(key);
    for (auto slot = home_slot(hash, homes); slot < slots; ++slot) {
        const auto content = load<std::uint64_t>(slots_.at(slot + 1).data());
        if (content == 0) return std::nullopt;
        if ((content >> 48) != (hash & 0xffff)) continue;
        const auto sample = (content & kIndexMask) - 1;
        if (sample >= size()) throw Failure("format", "the key index points past the last sample");
        likely(sample);
        const Bytes found = this->key(sample);
        if (std::equal(found.begin(), found.end(), key.begin(), key.end())) return sample;
    }
    return std::nullopt;
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
