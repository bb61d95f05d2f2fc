#include "keys.h"

#include <algorithm>

#include "guard.h"

namespace fl {
namespace {

constexpr std::uint64_t kSlotsAtOnce = 8;  // most searches end before

}  // namespace

Keys::Keys(const Table& offsets, const Table& bytes, const Table& slots)
    : offsets_(offsets), bytes_(bytes), slots_(slots) {
    if (offsets.row_size() != 8 || slots.row_size() != 8 || bytes.row_size() != 1 || offsets.rows() == 0)
        throw Failure("format", "the key tables have the wrong row sizes");
}

std::uint64_t Keys::homes() const {
    if (const auto known = homes_.load(std::memory_order_relaxed)) return known;
    std::uint64_t homes = 0;
    slots_.copy(0, 1, reinterpret_cast<std::uint8_t*>(&homes));
    if (homes > slots_.rows() - 1) throw Failure("format", "the key index claims more slots than it has");
    homes_.store(homes, std::memory_order_relaxed);
    return homes;
}

std::optional<Keys::Candidate> Keys::candidate(std::uint64_t hash, std::uint64_t slot) const {
    for (const auto slots = slots_.rows() - 1; slot < slots;) {
        const auto some = std::min(kSlotsAtOnce, slots - slot);
        const auto* const rows = slots_.at(slot + 1, some).data();
        std::uint64_t passed = 0, content = 0;
        guarded([&] {
            for (; passed < some; ++passed) {
                content = load<std::uint64_t>(rows + passed * 8);
                if (content == 0 || (content >> 48) == (hash & 0xffff)) return;
            }
        });
        slot += passed;
        if (passed == some) continue;
        if (content == 0) return std::nullopt;
        const auto sample = (content & kIndexMask) - 1;
        if (sample >= size()) throw Failure("format", "the key index points past the last sample");
        return Candidate{slot, sample};
    }
    return std::nullopt;
}

Keys::Place Keys::place(std::uint64_t sample) const {
    std::uint64_t ends[2];
    offsets_.copy(sample, 2, reinterpret_cast<std::uint8_t*>(ends));
    if (ends[1] < ends[0]) throw Failure("format", "the key offsets run backwards");
    return {ends[0], ends[1] - ends[0]};
}

bool Keys::equals(const Place& place, Bytes key) const {
    const Bytes found = bytes_.at(place.begin, place.size);
    if (found.size() != key.size()) return false;
    bool same = false;
    guarded([&] { same = std::equal(found.begin(), found.end(), key.begin()); });
    return same;
}

std::string Keys::text(const Place& place) const {
    const Bytes found = bytes_.at(place.begin, place.size);
    std::string text(found.size(), '\0');
    guarded([&] { std::copy(found.begin(), found.end(), text.begin()); });
    return text;
}

Bytes Keys::key(std::uint64_t sample) const {
    const auto where = place(sample);
    return bytes_.at(where.begin, where.size);
}

std::optional<std::uint64_t> Keys::find(Bytes key) const {
    const auto hash = xxh64(key);
    auto found = candidate(hash, home(hash));
    while (found && !equals(place(found->sample), key)) found = candidate(hash, found->slot + 1);
    return found ? std::optional(found->sample) : std::nullopt;
}

void Keys::expect_all() const {
    for (const auto* table : {&slots_, &offsets_, &bytes_}) table->expect_all();
}

void Keys::check_all() const {
    for (const auto* table : {&slots_, &offsets_, &bytes_}) table->check_all();
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
