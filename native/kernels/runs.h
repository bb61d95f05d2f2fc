// Masks of labels as runs, row after row: docs/reference/format.md, MASK.
#pragma once

#include "image.h"

namespace fl {

std::vector<std::uint8_t> runs_encode(Bytes labels, const ImageShape& shape);

// The rows of labels from `top` on, into `out`, which says how many. What lies below them is not looked at, so damage
// there goes unnoticed.
void runs_decode_rows(Bytes encoded, const ImageShape& shape, std::uint32_t top, MutableBytes out);

}  // namespace fl
