// Encoded sound through libsndfile, which comes with a Python package and not with us: whoever loads it hands over the
// addresses of five of its functions, whose types have been the same for twenty years. No link, no header.
#pragma once

#include <span>
#include <vector>

#include "bytes.h"

namespace fl {

struct SoundInfo {
    std::uint64_t frames = 0;
    std::uint32_t sample_rate = 0, channels = 0;
    std::uint32_t format = 0;  // libsndfile's own number
};

// sf_open_virtual, sf_close, sf_seek, sf_readf_float, sf_strerror; the same for the whole process.
struct SndfileFunctions {
    std::uintptr_t open = 0, close = 0, seek = 0, read = 0, describe = 0;
};
void set_sndfile(const SndfileFunctions& functions);
bool has_sndfile();

// In what follows: Failure "decode" for what is no sound, "missing" where nobody handed over the functions.
SoundInfo sound_info(Bytes file);

// Frames [begin, end) of a file, channels interleaved, into `out`, which grows as they come: what a file claims to hold is
// not believed. Decoding starts shortly before `begin`. A file that ends before `end` is Failure "decode".
void sound_decode(Bytes file, const SoundInfo& claimed, std::uint64_t begin, std::uint64_t end, std::vector<float>& out);

}  // namespace fl
