// Where to begin decoding a FLAC file for a frame in its middle. libFLAC finds the place by decoding what it lands on; the
// headers of FLAC frames, a dozen bytes each with a checksum and a number, tell as much.
#pragma once

#include <optional>

#include "bytes.h"

namespace fl {

struct FlacStart {
    std::size_t head = 0;      // bytes of metadata at the beginning of the file
    std::size_t at = 0;        // where a FLAC frame begins
    std::uint64_t sample = 0;  // its first sample; the one asked for is in it
};

// Nothing where the file is in another container, or its headers do not add up: then whoever decodes must seek.
std::optional<FlacStart> flac_start(Bytes file, std::uint64_t sample);

}  // namespace fl
