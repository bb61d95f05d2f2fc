// The compressions a payload may be stored with. The numbers are on disk.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bytes.h"

namespace fl {

// `deflate` is in zip files alone, never in ours.
enum class Codec : std::uint8_t { none = 0, lz4 = 1, zstd = 2, zstd_dictionary = 3, deflate = 255 };

// What many small payloads have in common, so that each is stored without it. May be used by many threads at once.
class Dictionary {
public:
    // Throws Failure("codec") for no bytes, and for bytes that begin as a dictionary of zstd does and are none.
    explicit Dictionary(Bytes data);
    ~Dictionary();
    Dictionary(const Dictionary&) = delete;
    Dictionary& operator=(const Dictionary&) = delete;

    struct Digested;
    const Digested& digested() const { return *digested_; }

private:
    std::unique_ptr<Digested> digested_;
};

// A dictionary of at most `capacity` bytes for what is like these samples, which lie one behind the other. Empty where
// they are too few to learn from.
std::vector<std::uint8_t> train_dictionary(Bytes samples, std::span<const std::size_t> sizes, std::size_t capacity);

// Level: lz4 1 is the fast mode and 2..12 the high-compression one; zstd takes its own levels.
std::vector<std::uint8_t> compress(Bytes data, Codec codec, int level, const Dictionary* dictionary = nullptr);

// Fills `out` exactly, or throws Failure("codec").
void decompress(Bytes data, Codec codec, MutableBytes out, const Dictionary* dictionary = nullptr);

// Throws Failure("codec") unless `stored` compressed bytes could hold `raw` bytes at all: checked before `raw` bytes
// are allocated, so a hostile size costs nothing. `head` is the beginning of them, kHeadBytes or all there are.
constexpr std::size_t kHeadBytes = 32;
constexpr std::uint64_t kMostRatio = 32768;  // no compression makes more of a byte
void check_ratio(Bytes head, std::uint64_t stored, Codec codec, std::uint64_t raw);

}  // namespace fl
