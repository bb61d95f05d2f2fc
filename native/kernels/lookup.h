// From the paths of files in an archive to their content, in all shards at once (docs/reference/format.md, "Archives").
//
// A lookup goes from table to table: slots, the places of keys, keys, extents, payloads. Keys that are looked up
// together take each step together, and whatever the next step needs is asked for before: of the CPU's caches where it
// is in memory, else of the disk, which gives many times as much when it is asked for many things at once. Only what is
// needed is asked for; a page that was merely touched would come with some megabytes around it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "atomic_bits.h"
#include "keys.h"
#include "payloads.h"

namespace fl {

// One of an archive's two fields that hold content. Without a table of validity every sample has a value.
struct ContentField {
    const Payloads* payloads = nullptr;
    const Table* valid = nullptr;

    bool has(std::uint64_t row) const;
    bool has_any() const;
    // The same from what was checked before; nothing where it was not.
    std::optional<bool> seen_has(std::uint64_t row) const {
        if (!payloads || !valid) return payloads != nullptr;
        const auto* const bits = valid->seen_rows<1>(row / 8);
        return bits ? std::optional<bool>(*bits >> (row % 8) & 1) : std::nullopt;
    }
};

struct ArchiveShard {
    const Keys* keys;
    ContentField images;  // JPEG files, with an index behind each that is no part of the file
    ContentField data;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> removed;  // rows [first, end), ascending
    const Table* order = nullptr;  // the rows in the order of their keys; none where that is how they lie

    bool is_removed(std::uint64_t row) const;
};

// Where a file's content lies.
struct FoundFile {
    std::uint32_t shard = 0;
    bool is_image = false;
    bool known = false;  // it was read before, so it is in memory, unless the system took it back
    mutable bool asked = false;  // the system was asked for it while it was looked up
    std::uint64_t row = 0;
    Extent extent{};
};

// A file that was found, a place for its extent.raw_size bytes, and how many of them turned out to be the file's own.
struct Reading {
    FoundFile file;
    std::uint8_t* out = nullptr;
    std::size_t size = 0;
};

// A path that is looked up, and what became of it.
struct Sought {
    Bytes key;
    bool found = false;
    FoundFile file;

    // On the way.
    bool open = false;    // it may be in the file's shard,
    bool passed = false;  // where it was looked for in vain
    std::uint64_t hash = 0;
    Keys::Candidate candidate{};
    Keys::Place place{};
    bool guessed = false;  // the extent is the candidate's
};

class ArchiveLookup {
public:
    explicit ArchiveLookup(std::vector<ArchiveShard> shards);
    ArchiveLookup(ArchiveLookup&&) = default;
    ArchiveLookup(const ArchiveLookup&) = delete;

    // To be called once, before all else. Asks for the tables, where they are small: who reads a few files then waits
    // for those alone. Of several shards, it finds out which paths each may hold.
    void prepare();

    // Checks the tables whole, where they are small: for who reads many files that is less than to check block after block.
    // What is damaged is told when it is read.
    void check_tables() const;

    // Looks all of them up. Throws Failure where tables are damaged, with the shard as its position. Where KnownAlone
    // holds, throws Unread rather than to touch what may be on disk.
    void find(std::span<Sought> sought) const;

    // The same through tables that were checked before on the whole way, which is most of the time. Returns whether all
    // were found; `find` tells of the others, and whether they are there at all. Never waits and never throws.
    bool find_seen(std::span<Sought> sought) const;

    // The content of files, one after the other; all are asked for before.
    void read(std::span<Reading> files) const;
    void read(Reading& file) const;

    // It will be read soon.
    void expect(const FoundFile& file) const;

private:
    const Payloads& source(const FoundFile& file) const {
        const auto& shard = shards_[file.shard];
        return *(file.is_image ? shard.images : shard.data).payloads;
    }
    Bytes stored(const FoundFile& file) const {
        return source(file).file().subspan(file.extent.pointer, file.extent.size);
    }
    void learn_bounds();
    bool may_hold(std::uint32_t shard, std::string_view key) const;
    void choose(Sought& one, std::uint32_t from) const;
    void find_once(std::span<Sought> sought) const;
    void guess(const ArchiveShard& shard, Sought& one, bool alone) const;
    void settle(const ArchiveShard& shard, Sought& one, bool alone) const;
    bool seen_row(const ArchiveShard& shard, Sought& one) const;
    bool seen_extent(const ArchiveShard& shard, Sought& one, bool alone) const;
    bool seen_file(const ArchiveShard& shard, const Sought& one) const;
    void read(Reading& file, Upcoming& next) const;

    // The first and the last path of a shard, where they are known.
    struct Bounds {
        bool known = false;
        std::string first;
        std::string last;
    };

    std::vector<ArchiveShard> shards_;
    std::vector<Bounds> bounds_;
    bool in_order_ = false;  // each shard ends before the next begins
    bool small_ = false;     // its tables were asked for whole
    mutable std::vector<AtomicBits> known_;  // of each shard, the rows that were read
};

// The numbers of keys in ascending order of their bytes: key i is bytes offsets[i] to offsets[i + 1].
void sort_keys(std::span<const std::uint64_t> offsets, Bytes bytes, std::span<std::uint64_t> out);

}  // namespace fl
