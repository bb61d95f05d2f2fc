#include "lookup.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "jpeg_index.h"

namespace fl {

bool ContentField::has(std::uint64_t row) const {
    return payloads && (!valid || (valid->at(row / 8)[0] >> (row % 8) & 1));
}

bool ArchiveShard::is_removed(std::uint64_t row) const {
    const auto after = std::upper_bound(removed.begin(), removed.end(), row,
                                        [](std::uint64_t value, const auto& range) { return value < range.first; });
    return after != removed.begin() && row < std::prev(after)->second;
}

std::optional<std::pair<std::uint32_t, std::uint64_t>> ArchiveLookup::find(Bytes key) const {
    for (std::uint32_t number = 0; number < shards_.size(); ++number) {
        try {
            const auto& shard = shards_[number];
            const auto row = shard.keys->find(key, [&](std::uint64_t likely) {
                for (const auto* field : {&shard.images, &shard.data})
                    if (field->payloads) field->payloads->place(likely).prefetch();
            });
            if (row && !shard.is_removed(*row)) return std::pair(number, *row);
        } catch (Failure& failure) {
            failure.position = number;
            throw;
        }
    }
    return std::nullopt;
}

FoundFile ArchiveLookup::locate(std::uint32_t number, std::uint64_t row) const {
    try {
        const auto& shard = shards_[number];
        const bool is_image = shard.images.has(row);
        if (!is_image && !shard.data.has(row)) throw Failure("format", "a file of the archive has no content");
        return {number, row, is_image, (is_image ? shard.images : shard.data).payloads->extent(row)};
    } catch (Failure& failure) {
        failure.position = number;
        throw;
    }
}

std::size_t ArchiveLookup::read(const FoundFile& file, MutableBytes out) const {
    try {
        source(file).read(file.extent, out);
    } catch (Failure& failure) {
        failure.position = file.shard;
        throw;
    }
    return file.is_image ? jpeg_split(out).jpeg.size() : out.size();
}

void ArchiveLookup::will_need(const FoundFile& file) const {
    static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto* data = source(file).file().data() + file.extent.pointer;
    const auto begin = reinterpret_cast<std::uintptr_t>(data) / page * page;
    const auto end = reinterpret_cast<std::uintptr_t>(data) + file.extent.size;
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);  // a hint: that it fails does not matter
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
