// XXH64, the hash of the key index (the algorithm is public; https://xxhash.com describes it).
#pragma once

#include "bytes.h"

namespace fl {

std::uint64_t xxh64(Bytes data, std::uint64_t seed = 0);

}  // namespace fl
