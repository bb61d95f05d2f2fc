// The index that makes a JPEG seekable: where in its entropy-coded data every few MCUs begin, and the DC predictors there.
// It lies behind the JPEG in a payload (docs/reference/format.md, "IMAGE_JPEG").
#pragma once

#include <vector>

#include "jpeg_bits.h"

namespace fl {

struct JpegPayload {
    Bytes jpeg;
    Bytes index;  // empty where there is none
};

// A payload's two parts. Looks at the last bytes only: whoever reads the index checks it.
JpegPayload jpeg_split(Bytes payload);

struct JpegIndexed {
    std::vector<std::uint8_t> index;  // what is to be laid behind the JPEG
    const char* why_not = nullptr;    // why it leads nowhere, if so: the file is then read by slower ways
};

// An anchor every `interval` MCUs of a row, 1 to 128; fewer where the index would be large beside the file.
JpegIndexed jpeg_make_index(Bytes jpeg, std::uint32_t interval);

// A run of MCUs that follow each other in the data.
struct JpegRun {
    BitPlace begin;
    BitPlace end;
    std::array<std::int32_t, 3> dc_begin;  // predictors at either end
    std::array<std::int32_t, 3> dc_end;
};

class JpegIndex {
public:
    // Throws Failure "decode" where the bytes are no index of this JPEG. `there()` says whether it has anchors.
    JpegIndex(Bytes index, const JpegFrame& frame, Bytes jpeg);

    bool there() const { return interval_ != 0; }
    std::uint32_t interval() const { return interval_; }

    // The data of MCU rows [first_row, end_row) between two anchors of a row: `first` and `end` count anchors, where
    // `end` may be the number of them in a row. Throws Failure "decode" where places do not ascend within the data.
    void runs(std::uint32_t first_row, std::uint32_t end_row, std::uint32_t first, std::uint32_t end,
              std::vector<JpegRun>& out) const;
    // Anchors in a row.
    std::uint32_t per_row() const { return per_row_; }

private:
    std::uint32_t interval_ = 0;
    std::uint32_t per_row_ = 0;
    std::uint32_t rows_ = 0;
    BitPlace scan_ = 0;
    BitPlace end_ = 0;
    std::array<int, 4> widths_{};  // bits of a place's difference and of three predictors'
    const std::uint8_t* packed_ = nullptr;
};

}  // namespace fl
