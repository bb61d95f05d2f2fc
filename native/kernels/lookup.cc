#include "lookup.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "asking.h"
#include "jpeg_index.h"

namespace fl {
namespace {

// Tables up to this size are asked for whole: a quarter of a million files.
constexpr std::size_t kSmallTables = 16 << 20;
// A bit a file: asked for whole much longer.
constexpr std::size_t kSmallBits = 4 << 20;
// Slots asked for in all shards at once, where a key is looked for in one after the other.
constexpr std::size_t kMostSlots = 4096;
// Of what is larger, the beginning is asked for; it is read in large pieces anyway.
constexpr std::uint64_t kMostAsked = 4 << 20;
// Content that is asked for before its key is known to be the right one.
constexpr std::uint64_t kMostGuessed = 256 << 10;

// What takes longer than this may not have been in memory: 30 us, and time to copy it at 500 MB/s.
std::chrono::nanoseconds from_disk(std::uint64_t size) { return std::chrono::nanoseconds(30'000 + size * 2); }

// Whether this thread had to wait for pages from disk since it asked last; else others had the CPU.
bool waited_for_pages() {
    thread_local long before = 0;
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    return std::exchange(before, used.ru_majflt) < used.ru_majflt;
}

}  // namespace

bool ContentField::has(std::uint64_t row) const {
    return payloads && (!valid || (valid->at(row / 8)[0] >> (row % 8) & 1));
}

bool ArchiveShard::is_removed(std::uint64_t row) const {
    const auto after = std::upper_bound(removed.begin(), removed.end(), row,
                                        [](std::uint64_t value, const auto& range) { return value < range.first; });
    return after != removed.begin() && row < std::prev(after)->second;
}

ArchiveLookup::ArchiveLookup(std::vector<ArchiveShard> shards) : shards_(std::move(shards)) {
    for (const auto& shard : shards_) known_.emplace_back(shard.keys->size());
}

void ArchiveLookup::expect_tables() const {
    std::size_t total = 0;
    for (const auto& shard : shards_) {
        total += shard.keys->table_bytes();
        for (const auto* field : {&shard.images, &shard.data})
            if (field->payloads) total += field->payloads->extents().size();
    }
    for (const auto& shard : shards_) {
        if (total <= kSmallTables) shard.keys->expect_all();
        for (const auto* field : {&shard.images, &shard.data}) {
            if (field->valid && field->valid->size() <= kSmallBits) field->valid->expect_all();
            if (field->payloads && total <= kSmallTables) field->payloads->extents().expect_all();
        }
    }
}

void ArchiveLookup::find(std::span<Sought> sought) const {
    for (auto& one : sought) one.found = false, one.hash = xxh64(one.key);
    if (shards_.size() > 1 && shards_.size() * sought.size() <= kMostSlots && !KnownAlone::holds())
        for (const auto& shard : shards_)
            for (const auto& one : sought) shard.keys->expect_slot(shard.keys->home(one.hash));
    for (std::uint32_t number = 0; number < shards_.size(); ++number) {
        try {
            find_in(number, sought);
        } catch (Failure& failure) {
            failure.position = number;
            throw;
        }
    }
}

void ArchiveLookup::find_in(std::uint32_t number, std::span<Sought> sought) const {
    const auto& shard = shards_[number];
    const auto& keys = *shard.keys;
    const bool alone = sought.size() == 1;
    for (auto& one : sought) {
        one.open = !one.found;
        if (!one.open) continue;
        one.candidate.slot = keys.home(one.hash);
        keys.expect_slot(one.candidate.slot);
    }
    for (auto& one : sought) {
        if (!one.open) continue;
        const auto candidate = keys.candidate(one.hash, one.candidate.slot);
        one.open = candidate.has_value();
        if (!one.open) continue;
        one.candidate = *candidate;
        keys.expect_place(one.candidate.sample);
        one.file.is_image = shard.images.has(one.candidate.sample);
        const auto& field = one.file.is_image ? shard.images : shard.data;
        if (field.payloads) field.payloads->extents().expect(one.candidate.sample);
    }
    for (auto& one : sought) {
        if (!one.open) continue;
        one.place = keys.place(one.candidate.sample);
        keys.expect_key(one.place);
        guess(number, one, alone);
    }
    for (auto& one : sought)
        if (one.open) settle(number, one, alone);
}

// Asks for the content of a file that is most likely the right one. What is wrong with it will be found if it is.
void ArchiveLookup::guess(std::uint32_t number, Sought& one, bool alone) const {
    auto& file = one.file;
    file.shard = number;
    file.row = one.candidate.sample;
    file.known = known_[number].test(file.row);
    const auto& shard = shards_[number];
    const auto* payloads = (file.is_image ? shard.images : shard.data).payloads;
    one.guessed = false;
    if (!payloads) return;
    try {
        file.extent = payloads->unchecked_extent(file.row);
    } catch (const Failure&) {
        return;
    }
    one.guessed = true;
    // Of many that are in memory, the caches would not hold what is read last.
    if (payloads->inside(file.extent) && file.extent.size <= kMostGuessed && (alone || !file.known)) expect(file);
}

void ArchiveLookup::settle(std::uint32_t number, Sought& one, bool alone) const {
    const auto& shard = shards_[number];
    const auto& keys = *shard.keys;
    while (!keys.equals(one.place, one.key)) {
        const auto next = keys.candidate(one.hash, one.candidate.slot + 1);
        if (!next) return;
        one.candidate = *next;
        one.place = keys.place(next->sample);
        one.file.is_image = shard.images.has(next->sample);
        guess(number, one, alone);
    }
    if (shard.is_removed(one.candidate.sample)) return;
    auto& file = one.file;
    if (!file.is_image && !shard.data.has(file.row)) throw Failure("format", "a file of the archive has no content");
    if (!one.guessed) file.extent = source(file).unchecked_extent(file.row);
    // The sizes of what is compressed are checked against how it begins.
    if (file.extent.codec != Codec::none && !file.known) KnownAlone::check();
    source(file).check(file.extent);
    one.found = true;
}

std::size_t ArchiveLookup::read(const FoundFile& file, MutableBytes out, const FoundFile* next) const {
    const auto began = std::chrono::steady_clock::now();
    const bool follows = next && next->known;
    try {
        const auto soon = follows ? stored(*next) : stored(file).subspan(std::min(file.extent.size, Payloads::kPrefetched));
        source(file).read(file.extent, out, nullptr, soon);
    } catch (Failure& failure) {
        failure.position = file.shard;
        throw;
    }
    auto& known = known_[file.shard];
    const auto took = std::chrono::steady_clock::now() - began;
    if (!file.known)
        known.set(file.row);
    else if (took > from_disk(std::max(file.extent.size, file.extent.raw_size)) && waited_for_pages())
        known.clear_all();  // what the system took back of this shard is not known
    return file.is_image ? jpeg_split(out).jpeg.size() : out.size();
}

void ArchiveLookup::expect(const FoundFile& file) const {
    if (file.known)
        source(file).prefetch(file.extent);
    else if (!KnownAlone::holds())
        will_need(stored(file).first(std::min(file.extent.size, kMostAsked)));
}

void sort_keys(std::span<const std::uint64_t> offsets, Bytes bytes, std::span<std::uint64_t> out) {
    if (offsets.size() != out.size() + 1) throw Failure("format", "offsets and keys differ");
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
        if (offsets[i] > offsets[i + 1] || offsets[i + 1] > bytes.size())
            throw Failure("format", "the key offsets run backwards");
    const auto key = [&](std::uint64_t i) { return bytes.subspan(offsets[i], offsets[i + 1] - offsets[i]); };
    std::iota(out.begin(), out.end(), std::uint64_t{0});
    std::sort(out.begin(), out.end(), [&](std::uint64_t a, std::uint64_t b) {
        const auto one = key(a), other = key(b);
        const int order = std::memcmp(one.data(), other.data(), std::min(one.size(), other.size()));
        return order ? order < 0 : one.size() < other.size();
    });
}

}  // namespace fl
