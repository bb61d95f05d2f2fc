// A part of a baseline JPEG as a small JPEG of its own, without decoding it: the same tables, and the bits of the MCUs
// that are wanted, one run behind the other.
#pragma once

#include <span>

#include "jpeg_index.h"

namespace fl {

// Zeros behind a spliced JPEG: libjpeg-turbo's fast decoder wants 512 bytes a block in front of it before each MCU.
constexpr std::size_t kSpliceTail = 512 * 10;

// Writes the JPEG of `width` x `height` pixels made of `runs`, each of which begins an MCU row. What is written is the
// JPEG and as many zeros behind it as let libjpeg-turbo use its fast Huffman decoder to the end. False where a Huffman
// table has no code for a difference that is needed. Throws Failure "decode" where the runs do not fit the data.
bool jpeg_splice(JpegFrame& frame, Bytes jpeg, std::span<const JpegRun> runs, std::uint32_t width, std::uint32_t height,
                 BitWriter& out);

}  // namespace fl
