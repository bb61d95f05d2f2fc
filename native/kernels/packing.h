// Documents packed into sequences of one length: which goes where, and a batch of sequences laid out for attention.
#pragma once

#include <span>

#include "bytes.h"

namespace fl {

// The sequence that each document goes into, in `out`; returns how many sequences there are. Lengths are from 1 to `room`.
// The longest come first, and each goes where it leaves the least room, into the first such sequence.
std::uint64_t best_fit(std::span<const std::int64_t> lengths, std::uint64_t room, std::span<std::int64_t> out);

// Stored sequences as rows of `length` tokens. A payload is the lengths of its documents, as u4, and then their tokens;
// `counts` states both numbers for each, documents and tokens, as u4. A row without documents is all padding.
// `tokens` gets the tokens and then `pad`, one token's bytes; `positions` a token's place in its document (padding counts
// as one); `documents` the document's number in its row, -1 for padding; `ends` where segments of all rows end, from 0
// on, padding being a segment of its own. Returns how many of `ends` were written. Throws Failure with the row.
std::size_t unpack_sequences(Bytes values, std::span<const std::int64_t> offsets, std::span<const std::uint32_t> counts,
                             std::uint64_t length, Bytes pad, MutableBytes tokens, std::span<std::int32_t> positions,
                             std::span<std::int32_t> documents, std::span<std::int32_t> ends);

}  // namespace fl
