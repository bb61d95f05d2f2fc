// From a key to its sample: a hash table that is mapped, never loaded (docs/reference/format.md, "Keys").
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "hash.h"
#include "table.h"

namespace fl {

constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << 48) - 1;

// The slot where the search for a hash begins.
inline std::uint64_t home_slot(std::uint64_t hash, std::uint64_t homes) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * homes) >> 64);
}

class Keys {
public:
    // `offsets`: num_samples + 1 u64 rows into `bytes` (rows of one byte); `slots`: u64 rows, the first of which is
    // the number of home slots.
    Keys(const Table& offsets, const Table& bytes, const Table& slots);

    std::uint64_t size() const { return offsets_.rows() - 1; }
    Bytes key(std::uint64_t sample) const;
    std::optional<std::uint64_t> find(Bytes key) const;

    // What `find` does, in steps: many keys are taken through each of them together, and what the next step looks at is
    // asked for before.
    struct Candidate {
        std::uint64_t slot;
        std::uint64_t sample;
    };
    struct Place {  // of a key, in the bytes of all
        std::uint64_t begin;
        std::uint64_t size;
    };
    std::uint64_t home(std::uint64_t hash) const { return home_slot(hash, homes()); }
    // From a slot on, the first that may be the key's: it nearly always is.
    std::optional<Candidate> candidate(std::uint64_t hash, std::uint64_t slot) const;
    Place place(std::uint64_t sample) const;
    bool equals(const Place& place, Bytes key) const;
    std::string text(const Place& place) const;

    void expect_slot(std::uint64_t slot) const { slots_.expect(slot + 1); }
    void expect_place(std::uint64_t sample) const { offsets_.expect(sample, 2); }
    void expect_key(const Place& place) const { bytes_.expect(place.begin, place.size); }

    // The same steps through what was checked before alone, without a guard of their own. Where one would check, wait or
    // throw, it is false, and the steps above say what is the matter.
    bool seen_home(std::uint64_t hash, Candidate& candidate) const {
        const auto homes = homes_.load(std::memory_order_relaxed);
        candidate.slot = home_slot(hash, homes);
        slots_.prefetch(candidate.slot + 1);
        return homes;
    }
    bool seen_candidate(std::uint64_t hash, Candidate& candidate) const {
        for (;; ++candidate.slot) {
            const auto* const slot = slots_.seen_rows<8>(candidate.slot + 1);
            const auto content = slot ? load<std::uint64_t>(slot) : 0;
            if (!content) return false;
            if ((content >> 48) != (hash & 0xffff)) continue;
            candidate.sample = (content & kIndexMask) - 1;
            offsets_.prefetch(candidate.sample);
            return candidate.sample < size();
        }
    }
    bool seen_place(std::uint64_t sample, Place& place) const {
        const auto* const ends = offsets_.seen_rows<8>(sample, 2);
        if (!ends) return false;
        place.begin = load<std::uint64_t>(ends);
        place.size = load<std::uint64_t>(ends + 8) - place.begin;
        bytes_.prefetch(place.begin);
        return true;
    }
    bool seen_equals(const Place& place, Bytes key) const {
        if (place.size != key.size()) return false;
        const auto* const found = bytes_.seen_rows<1>(place.begin, place.size);
        return found && !std::memcmp(found, key.data(), key.size());
    }

    std::size_t table_bytes() const { return offsets_.size() + bytes_.size() + slots_.size(); }
    void expect_all() const;
    void check_all() const;

private:
    std::uint64_t homes() const;

    const Table& offsets_;
    const Table& bytes_;
    const Table& slots_;
    mutable std::atomic<std::uint64_t> homes_{0};  // once it is known
};

// A slot's content: the sample's number plus one (zero is an empty slot) and 16 bits of its hash.
inline std::uint64_t make_slot(std::uint64_t hash, std::uint64_t sample) {
    return (hash << 48) | ((sample + 1) & kIndexMask);
}

// Lays hashes (ascending, all at or above the previous call's) behind the slots already filled. `next` is the first
// free slot. Returns the new first free slot; `out` is zero before, indexed from slot `base`.
std::uint64_t lay_slots(std::span<const std::uint64_t> hashes, std::span<const std::uint64_t> samples,
                        std::uint64_t homes, std::uint64_t next, std::uint64_t base, std::span<std::uint64_t> out);

}  // namespace fl
