// Many small files read in one go: what a file system is asked for is then all that a file costs.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "bytes.h"

namespace fl {

// What is known of a file. All numbers are of 64 bits, so that Python takes them for one array.
struct FileFacts {
    std::int64_t size = 0;     // bytes of content
    std::int64_t offset = -1;  // where in the output it begins; -1: it was not read
    std::int64_t mtime = 0;    // nanoseconds since 1970
    std::int64_t mode = 0;
    std::int64_t device = 0;
    std::int64_t inode = 0;
    std::int64_t links = 0;
    std::int64_t error = 0;  // an errno; 0: none
};
static_assert(sizeof(FileFacts) == 64);

struct FilesRead {
    std::vector<FileFacts> facts;
    std::unique_ptr<std::uint8_t[], decltype(&std::free)> content{nullptr, &std::free};
    std::size_t size = 0;
};

// Reads regular files named relative to the open directory `folder`, one behind the other. Links are not followed. One
// larger than `limit` is only looked at. What can't be read has its errno, EINVAL where it is no regular file.
FilesRead read_files(int folder, std::span<const std::string> names, std::size_t limit);

}  // namespace fl
