// The members of a tar: where their data lies and what their headers say, found by going through the headers alone. ustar,
// pax, GNU's long names and base-256 numbers. Python's tarfile is the slow twin.
#pragma once

#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "bytes.h"

namespace fl {

// One row a member, in the order of the file.
struct TarMembers {
    std::vector<std::int64_t> headers;  // where the member begins, with what precedes its own header
    std::vector<std::int64_t> offsets;  // of its data; of a hard link, that of what it names; -1: it has none
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> times;    // nanoseconds since 1970
    std::vector<std::uint32_t> modes;
    std::vector<std::uint8_t> types;    // as in the header; 0 and 7 and unknown ones as '0'
    std::string names, links;           // one behind the other
    std::vector<std::int64_t> name_ends, link_ends;

    std::size_t size() const { return headers.size(); }
};

class TarScanner {
public:
    static constexpr std::uint64_t kUnknown = std::numeric_limits<std::int64_t>::max();

    // `size` is that of the tar, where it is known.
    explicit TarScanner(std::uint64_t size = kUnknown) : size_(size) {}

    // Goes through the headers within these bytes, which lie at `base`. Throws Failure("format") with the offset.
    void feed(Bytes data, std::uint64_t base);

    // Where the next bytes are needed, and how many at least. They may lie within what was given, where it was too short.
    std::uint64_t next() const { return next_; }
    std::uint64_t needed() const { return needed_; }
    bool done() const { return done_; }
    const TarMembers& members() const { return members_; }

    // All of a local file. Throws Failure("io") too.
    void scan(int fd);

    // Nothing more follows: throws unless the end was seen; resolves hard links.
    const TarMembers& finish(std::uint64_t size);

private:
    using Records = std::unordered_map<std::string, std::string>;

    // Where the next member begins, or 0 where the bytes do not suffice.
    std::uint64_t member(Bytes data, std::uint64_t base);
    void add(const std::uint8_t* header, std::uint64_t at, std::uint64_t first, const Records& own,
             const std::string* name, const std::string* link, std::uint64_t& after);

    std::uint64_t size_;
    std::uint64_t next_ = 0;
    std::uint64_t needed_ = 512;
    bool done_ = false;
    Records global_;
    TarMembers members_;
};

// Members as samples, as WebDataset has it: what shares all up to the first dot of its last part is a sample, and what
// follows the dot is the name of a field, in lower case. Names are given one behind the other.
struct TarSamples {
    std::vector<std::int64_t> samples;  // by member, -1 where it belongs to none
    std::vector<std::int32_t> fields;   // by member
    std::vector<std::string> field_names;
    std::string keys;
    std::vector<std::int64_t> key_ends;
};

// `chosen` says which members have data. Throws Failure("format") where a sample has a field twice in a row; `position` is
// the member.
TarSamples tar_samples(Bytes names, std::span<const std::int64_t> ends, std::span<const std::uint8_t> chosen);

}  // namespace fl
