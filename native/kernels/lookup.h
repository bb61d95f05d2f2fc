// From the path of a file in an archive to its content, in all shards at once (docs/reference/format.md, "Archives").
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "keys.h"
#include "payloads.h"

namespace fl {

// One of an archive's two fields that hold content. Without a table of validity every sample has a value.
struct ContentField {
    const Payloads* payloads = nullptr;
    const Table* valid = nullptr;

    bool has(std::uint64_t row) const;
};

struct ArchiveShard {
    const Keys* keys;
    ContentField images;  // JPEG files, with an index behind each that is no part of the file
    ContentField data;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> removed;  // rows [first, end), ascending

    bool is_removed(std::uint64_t row) const;
};

// Where a file's content lies.
struct FoundFile {
    std::uint32_t shard;
    std::uint64_t row;
    bool is_image;
    Extent extent;
};

class ArchiveLookup {
public:
    explicit ArchiveLookup(std::vector<ArchiveShard> shards) : shards_(std::move(shards)) {}

    // Throws Failure where tables are damaged, with the shard as its position.
    std::optional<std::pair<std::uint32_t, std::uint64_t>> find(Bytes key) const;
    FoundFile locate(std::uint32_t shard, std::uint64_t row) const;

    // The content into `out`, of extent.raw_size bytes; returns how many of them are the file's own.
    std::size_t read(const FoundFile& file, MutableBytes out) const;
    void prefetch(const FoundFile& file) const { source(file).prefetch(file.extent); }
    // Asks the system to bring content that may be on disk.
    void will_need(const FoundFile& file) const;

private:
    const Payloads& source(const FoundFile& file) const {
        const auto& shard = shards_[file.shard];
        return *(file.is_image ? shard.images : shard.data).payloads;
    }

    std::vector<ArchiveShard> shards_;
};

// What takes longer than this was not in memory: 30 us, and time to copy it at 500 MB/s.
inline std::chrono::nanoseconds from_disk(std::uint64_t size) { return std::chrono::nanoseconds(30'000 + size * 2); }

// The numbers of keys in ascending order of their bytes: key i is bytes offsets[i] to offsets[i + 1].
void sort_keys(std::span<const std::uint64_t> offsets, Bytes bytes, std::span<std::uint64_t> out);

}  // namespace fl
