// What stands in front of a baseline JPEG's entropy-coded data, as far as cutting a part out of it takes.
#pragma once

#include <array>

#include "bytes.h"

namespace fl {

// A Huffman table both ways: codes to symbols by a look at the next bits, symbols to codes.
struct HuffmanTable {
    static constexpr int kLook = 9;

    struct Look {
        std::uint8_t length = 0;  // of the code; 0: it is longer than kLook bits, or none
        std::uint8_t symbol = 0;
        // What an AC symbol means: bits in all, the value's included, and how many coefficients it stands for.
        std::uint8_t bits = 0;
        std::uint8_t step = 0;
    };
    static constexpr int kEndOfBlock = 128;  // as a step

    static Look entry(std::uint8_t length, std::uint8_t symbol);

    std::array<std::uint8_t, 16> counts{};  // of codes, by length - 1
    std::array<std::uint8_t, 256> symbols{};
    std::array<Look, 1 << kLook> look{};
    std::array<std::int32_t, 17> end{};     // by length: one past its last code; codes of a length ascend
    std::array<std::int32_t, 17> offset{};  // by length: from a code to its place in `symbols`
    std::array<std::uint16_t, 256> code{};
    std::array<std::uint8_t, 256> length{};  // by symbol; 0 where it has no code

    int size() const;
    // Builds everything but `counts` and `symbols` from those two. False where they are no prefix code.
    bool build();
    // Gives every DC category of 8-bit samples a code, behind the codes that are there. An encoder that fits its tables
    // to one image leaves out what that image lacks. Where no codes are left, it stays as it is.
    void add_missing_categories();
};

struct JpegFrame {
    struct Component {
        std::uint8_t id = 0;
        std::uint8_t h = 1;  // sampling factors
        std::uint8_t v = 1;
        std::uint8_t quantization = 0;
        std::uint8_t dc = 0;
        std::uint8_t ac = 0;
    };

    std::uint32_t width = 0;
    std::uint32_t height = 0;
    std::uint8_t marker = 0;  // C0 or C1
    std::uint32_t components = 0;
    std::array<Component, 3> component{};
    std::uint32_t max_h = 1;  // an MCU is max_h x max_v blocks of 8 x 8 pixels
    std::uint32_t max_v = 1;
    std::uint32_t mcus_per_row = 0;
    std::uint32_t mcu_rows = 0;
    std::size_t scan = 0;  // where the entropy-coded data begins
    std::array<Bytes, 4> quantization{};  // each table as stored, its first byte included
    Bytes jfif;                           // what the colour space is known by
    Bytes adobe;
    std::array<HuffmanTable, 4> dc{};
    std::array<HuffmanTable, 4> ac{};
    std::uint8_t dc_defined = 0;  // a bit a table
    std::uint8_t ac_defined = 0;

    // Reads the markers up to the scan. Null where this is a JPEG of one Huffman-coded sequential scan, else what it is
    // instead: such a file is left to libjpeg.
    const char* parse(Bytes jpeg);

private:
    const char* read_frame(Bytes segment);
    const char* read_scan(Bytes segment);
    const char* read_quantization(Bytes segment);
    const char* read_huffman(Bytes segment);
};

}  // namespace fl
