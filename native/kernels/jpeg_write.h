// JPEG files made from others without loss.
#pragma once

#include <optional>
#include <vector>

#include "bytes.h"

namespace fl {

// A file of several scans, as progressive ones are, with the same coefficients in a single one and all its markers kept.
// Nothing where it has one scan already, or where its scans leave coefficients out: decoders smooth over that, and would
// give other pixels. Throws Failure "decode" for a file that is damaged.
std::optional<std::vector<std::uint8_t>> jpeg_make_baseline(Bytes jpeg);

}  // namespace fl
