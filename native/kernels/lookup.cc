#include "lookup.h"

#include <sys/resource.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "asking.h"
#include "guard.h"
#include "jpeg_index.h"
#include "ticks.h"

namespace fl {
namespace {

// Tables up to this size are asked for whole: a quarter of a million files.
constexpr std::size_t kSmallTables = 16 << 20;
// A bit a file: asked for whole much longer.
constexpr std::size_t kSmallBits = 4 << 20;
// Of what is larger, the beginning is asked for; it is read in large pieces anyway.
constexpr std::uint64_t kMostAsked = 4 << 20;
// Content that is asked for before its key is known to be the right one.
constexpr std::uint64_t kMostGuessed = 256 << 10;

// Of many files, the bytes that the system is asked for before their turn, and those that are loaded into the caches.
constexpr std::uint64_t kAskedAhead = 32 << 20;
constexpr std::uint64_t kLoadedAhead = 8 << 10;

// What takes more ticks than this may not have been in memory: 10 to 50 us, and time to copy it at some GB/s.
std::uint64_t from_disk(std::uint64_t size) { return 50'000 + size * 2; }

// This thread read what may have been on disk, so that it may have waited for good reason.
constinit thread_local bool g_may_have_waited = true;

// Whether this thread had to wait for pages from disk since it asked last; else others had the CPU.
bool waited_for_pages() {
    thread_local long before = 0;
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    const bool more = std::exchange(before, used.ru_majflt) < used.ru_majflt;
    return !std::exchange(g_may_have_waited, false) && more;
}

}  // namespace

bool ContentField::has(std::uint64_t row) const {
    return payloads && (!valid || (valid->at(row / 8)[0] >> (row % 8) & 1));
}

bool ContentField::has_any() const {
    if (!payloads || !valid) return payloads;
    try {
        const auto bits = valid->at(0, valid->rows());
        bool any = false;
        guarded([&] { any = std::any_of(bits.begin(), bits.end(), [](std::uint8_t byte) { return byte; }); });
        return any;
    } catch (const Failure&) {
        return true;  // what is wrong is told when a file is read
    }
}

bool ArchiveShard::is_removed(std::uint64_t row) const {
    const auto after = std::upper_bound(removed.begin(), removed.end(), row,
                                        [](std::uint64_t value, const auto& range) { return value < range.first; });
    return after != removed.begin() && row < std::prev(after)->second;
}

ArchiveLookup::ArchiveLookup(std::vector<ArchiveShard> shards) : shards_(std::move(shards)), bounds_(shards_.size()) {
    for (const auto& shard : shards_) known_.emplace_back(shard.keys->size());
}

void ArchiveLookup::prepare() {
    std::size_t total = 0;
    for (const auto& shard : shards_) {
        total += shard.keys->table_bytes();
        for (const auto* field : {&shard.images, &shard.data})
            if (field->payloads) total += field->payloads->extents().size();
    }
    for (const auto& shard : shards_)
        for (const auto* field : {&shard.images, &shard.data})
            if (field->valid && field->valid->size() <= kSmallBits) field->valid->expect_all();
    small_ = total <= kSmallTables;
    if (small_) {
        for (const auto& shard : shards_) shard.keys->expect_all();
        // Of a field that no file has, often that of images, the extents are zeros; the bits that tell are here by now.
        for (const auto& shard : shards_)
            for (const auto* field : {&shard.data, &shard.images})
                if (field->has_any()) field->payloads->extents().expect_all();
    }
    if (shards_.size() > 1) learn_bounds();
}

void ArchiveLookup::check_tables() const {
    if (!small_) return;
    for (const auto& shard : shards_) {
        shard.keys->check_all();
        for (const auto* field : {&shard.data, &shard.images}) {
            if (field->valid) field->valid->check_all();
            if (field->has_any()) field->payloads->extents().check_all();
        }
    }
}

void ArchiveLookup::learn_bounds() {
    struct End {
        const ArchiveShard* shard;
        std::uint64_t row;
        std::string* key;
        Keys::Place place{};
    };
    std::vector<End> ends;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
        bounds_[i].known = true;
        if (const auto files = shards_[i].keys->size()) {
            ends.push_back({&shards_[i], 0, &bounds_[i].first});
            ends.push_back({&shards_[i], files - 1, &bounds_[i].last});
        }
    }
    // Of all shards together, as everything that may be on disk. A shard that does not tell may hold any path.
    const auto step = [&](auto take) {
        for (auto& end : ends) try {
                take(end);
            } catch (const Failure&) {
                bounds_[static_cast<std::size_t>(end.shard - shards_.data())].known = false;
            }
        std::erase_if(ends, [&](const End& end) {
            return !bounds_[static_cast<std::size_t>(end.shard - shards_.data())].known;
        });
    };
    step([](End& end) {
        if (end.shard->order) end.shard->order->expect(end.row);
    });
    step([](End& end) {
        if (end.shard->order) end.shard->order->copy(end.row, 1, reinterpret_cast<std::uint8_t*>(&end.row));
        end.shard->keys->expect_place(end.row);
    });
    step([](End& end) {
        end.place = end.shard->keys->place(end.row);
        end.shard->keys->expect_key(end.place);
    });
    step([](End& end) { *end.key = end.shard->keys->text(end.place); });
    in_order_ = true;
    for (std::size_t i = 0; i < shards_.size(); ++i)
        in_order_ = in_order_ && bounds_[i].known && shards_[i].keys->size() &&
                    (!i || bounds_[i - 1].last < bounds_[i].first);
}

bool ArchiveLookup::may_hold(std::uint32_t number, std::string_view key) const {
    const auto& bounds = bounds_[number];
    return !bounds.known || (shards_[number].keys->size() && bounds.first <= key && key <= bounds.last);
}

void ArchiveLookup::choose(Sought& one, std::uint32_t from) const {
    const std::string_view key(reinterpret_cast<const char*>(one.key.data()), one.key.size());
    one.open = false;
    if (in_order_) {
        if (from) return;
        const auto before = [](std::string_view text, const Bounds& bounds) { return text < bounds.first; };
        const auto after = std::upper_bound(bounds_.begin(), bounds_.end(), key, before);
        if (after == bounds_.begin()) return;
        from = static_cast<std::uint32_t>(after - bounds_.begin() - 1);
    }
    for (; from < shards_.size() && !one.open; ++from) {
        if (!may_hold(from, key)) {
            if (in_order_) return;
            continue;
        }
        one.open = true;
        one.file.shard = from;
    }
}

void ArchiveLookup::find(std::span<Sought> sought) const {
    bool left = false;
    for (auto& one : sought) {
        one.found = false;
        one.hash = xxh64(one.key);
        choose(one, 0);
        left = left || one.open;
    }
    while (left) {
        find_once(sought);
        left = false;
        for (auto& one : sought) {
            if (!one.open) continue;
            if (one.found)
                one.open = false;
            else
                choose(one, one.file.shard + 1);
            left = left || one.open;
        }
    }
}

void ArchiveLookup::find_once(std::span<Sought> sought) const {
    const bool alone = sought.size() == 1;
    const auto step = [&](auto take) {
        for (auto& one : sought) {
            if (!one.open || one.passed) continue;
            try {
                take(shards_[one.file.shard], one);
            } catch (Failure& failure) {
                failure.position = one.file.shard;
                throw;
            }
        }
    };
    for (auto& one : sought) one.passed = false;
    step([](const ArchiveShard& shard, Sought& one) {
        one.candidate.slot = shard.keys->home(one.hash);
        shard.keys->expect_slot(one.candidate.slot);
    });
    step([](const ArchiveShard& shard, Sought& one) {
        const auto candidate = shard.keys->candidate(one.hash, one.candidate.slot);
        one.passed = !candidate;
        if (one.passed) return;
        one.candidate = *candidate;
        shard.keys->expect_place(one.candidate.sample);
        one.file.is_image = shard.images.has(one.candidate.sample);
        const auto& field = one.file.is_image ? shard.images : shard.data;
        if (field.payloads) field.payloads->extents().expect(one.candidate.sample);
    });
    step([&](const ArchiveShard& shard, Sought& one) {
        one.place = shard.keys->place(one.candidate.sample);
        shard.keys->expect_key(one.place);
        guess(shard, one, alone);
    });
    step([&](const ArchiveShard& shard, Sought& one) { settle(shard, one, alone); });
}

// Asks for the content of a file that is most likely the right one. What is wrong with it will be found if it is.
void ArchiveLookup::guess(const ArchiveShard& shard, Sought& one, bool alone) const {
    auto& file = one.file;
    file.row = one.candidate.sample;
    file.known = known_[file.shard].test(file.row);
    file.asked = false;
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

void ArchiveLookup::settle(const ArchiveShard& shard, Sought& one, bool alone) const {
    const auto& keys = *shard.keys;
    while (!keys.equals(one.place, one.key)) {
        const auto next = keys.candidate(one.hash, one.candidate.slot + 1);
        if (!next) return;
        one.candidate = *next;
        one.place = keys.place(next->sample);
        one.file.is_image = shard.images.has(next->sample);
        guess(shard, one, alone);
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

bool ArchiveLookup::find_seen(std::span<Sought> sought) const {
    const bool alone = sought.size() == 1;
    for (auto& one : sought) {
        one.found = false;
        one.hash = xxh64(one.key);
        choose(one, 0);
    }
    const auto step = [&](auto take) {
        for (auto& one : sought)
            if (one.open) one.open = take(shards_[one.file.shard], one);
    };
    try {
        guarded([&] {
            step([](const ArchiveShard& shard, Sought& one) { return shard.keys->seen_home(one.hash, one.candidate); });
            step([&](const ArchiveShard& shard, Sought& one) { return seen_row(shard, one); });
            step([&](const ArchiveShard& shard, Sought& one) { return seen_extent(shard, one, alone); });
            step([&](const ArchiveShard& shard, Sought& one) { return seen_file(shard, one); });
        });
        bool all = true;
        for (auto& one : sought) {
            one.found = one.open;
            all = all && one.found;
            if (one.found && one.file.extent.codec != Codec::none) source(one.file).check(one.file.extent);
        }
        return all;
    } catch (const Failure&) {
        return false;
    }
}

bool ArchiveLookup::seen_row(const ArchiveShard& shard, Sought& one) const {
    if (!shard.keys->seen_candidate(one.hash, one.candidate)) return false;
    auto& file = one.file;
    file.row = one.candidate.sample;
    const auto is_image = shard.images.seen_has(file.row);
    if (!is_image) return false;
    file.is_image = *is_image;
    const auto* const payloads = (file.is_image ? shard.images : shard.data).payloads;
    if (payloads) payloads->extents().prefetch(file.row);
    return payloads;
}

bool ArchiveLookup::seen_extent(const ArchiveShard& shard, Sought& one, bool alone) const {
    auto& file = one.file;
    const auto& payloads = source(file);
    const auto* const extent = payloads.extents().seen_rows<sizeof(Extent)>(file.row);
    if (!extent || !shard.keys->seen_place(file.row, one.place)) return false;
    file.extent = load<Extent>(extent);
    if (!payloads.inside(file.extent)) return false;
    file.known = known_[file.shard].test(file.row);
    payloads.prefetch_pages(file.extent);
    // Of many, the caches would not hold what is read last.
    if (alone && file.known) payloads.prefetch(file.extent);
    return true;
}

bool ArchiveLookup::seen_file(const ArchiveShard& shard, const Sought& one) const {
    const auto& file = one.file;
    if (!shard.keys->seen_equals(one.place, one.key) || shard.is_removed(file.row)) return false;
    if (!file.is_image && !shard.data.seen_has(file.row).value_or(false)) return false;
    // The sizes of what is compressed are checked against how it begins.
    return file.extent.codec == Codec::none ? file.extent.raw_size == file.extent.size : file.known;
}

void ArchiveLookup::read(Reading& one, Upcoming& next) const {
    const auto began = ticks();
    const auto& file = one.file;
    const MutableBytes out(one.out, file.extent.raw_size);
    try {
        source(file).read(file.extent, out, nullptr, &next);
    } catch (Failure& failure) {
        failure.position = file.shard;
        throw;
    }
    auto& known = known_[file.shard];
    const auto took = ticks() - began;
    if (!file.known) {
        known.set(file.row);
        g_may_have_waited = true;
    } else if (took > from_disk(std::max(file.extent.size, file.extent.raw_size)) && waited_for_pages()) {
        known.clear_all();  // what the system took back of this shard is not known
    }
    one.size = file.is_image ? jpeg_split(out).jpeg.size() : out.size();
}

void ArchiveLookup::read(Reading& one) const {
    const Bytes rest = stored(one.file).subspan(std::min(one.file.extent.size, Payloads::kPrefetched));
    Upcoming next({&rest, 1});
    read(one, next);
}

void ArchiveLookup::read(std::span<Reading> files) const {
    std::vector<Bytes> contents;
    contents.reserve(files.size());
    for (const auto& one : files) contents.push_back(stored(one.file));
    Upcoming next(contents);
    std::size_t asked = 0;
    std::uint64_t ahead = 0, done = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
        for (; asked < files.size() && (asked <= i || ahead < kAskedAhead); ++asked) {
            ahead += files[asked].file.extent.size;
            if (!files[asked].file.known) expect(files[asked].file);
        }
        next.reach(done + kLoadedAhead);
        read(files[i], next);
        ahead -= files[i].file.extent.size;
        done += files[i].file.extent.size;
    }
}

void ArchiveLookup::expect(const FoundFile& file) const {
    if (file.known) return source(file).prefetch(file.extent);
    if (file.asked || KnownAlone::holds()) return;
    will_need(stored(file).first(std::min(file.extent.size, kMostAsked)));
    file.asked = true;
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
