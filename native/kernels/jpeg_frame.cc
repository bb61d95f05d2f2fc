#include "jpeg_frame.h"

#include <algorithm>
#include <numeric>

namespace fl {
namespace {

constexpr const char* kBroken = "its markers are broken";
constexpr int kCategories = 12;  // of the DC differences of 8-bit samples: 0 to 11
constexpr std::int32_t kAllOnes = 0xFFFF;

std::uint32_t be16(const std::uint8_t* at) { return std::uint32_t{at[0]} << 8 | at[1]; }

bool begins_with(Bytes segment, const char* text, std::size_t size) {
    return segment.size() >= size && std::memcmp(segment.data(), text, size) == 0;
}

}  // namespace

int HuffmanTable::size() const { return std::accumulate(counts.begin(), counts.end(), 0); }

HuffmanTable::Look HuffmanTable::entry(std::uint8_t length, std::uint8_t symbol) {
    const auto bits = static_cast<std::uint8_t>(length + (symbol & 15));
    const auto step = static_cast<std::uint8_t>(symbol ? (symbol >> 4) + 1 : kEndOfBlock);
    return {length, symbol, bits, step};
}

bool HuffmanTable::build() {
    look.fill({});
    length.fill(0);
    std::int32_t next = 0;
    int at = 0;
    for (int bits = 1; bits <= 16; ++bits, next <<= 1) {
        offset[bits] = at - next;
        for (int i = 0; i < counts[bits - 1]; ++i, ++at, ++next) {
            if (next + 1 >= 1 << bits) return false;  // the code of all ones is not to be used
            const auto symbol = symbols[at];
            code[symbol] = static_cast<std::uint16_t>(next);
            length[symbol] = static_cast<std::uint8_t>(bits);
            if (bits > kLook) continue;
            const auto first = next << (kLook - bits);
            std::fill_n(look.begin() + first, 1 << (kLook - bits), entry(length[symbol], symbol));
        }
        end[bits] = next;
    }
    return true;
}

void HuffmanTable::add_missing_categories() {
    const int before = size();
    int now = before;
    for (int category = 0; category < kCategories && now < 256; ++category)
        if (!length[category]) symbols[now++] = static_cast<std::uint8_t>(category);
    if (now == before || end[16] + (now - before) > kAllOnes || counts[15] + (now - before) > 255) return;
    counts[15] = static_cast<std::uint8_t>(counts[15] + (now - before));
    build();
}

const char* JpegFrame::parse(Bytes jpeg) {
    if (jpeg.size() < 4 || jpeg[0] != 0xFF || jpeg[1] != 0xD8) return kBroken;
    for (std::size_t at = 2;;) {
        if (at >= jpeg.size() || jpeg[at] != 0xFF) return kBroken;
        while (at < jpeg.size() && jpeg[at] == 0xFF) ++at;  // a marker may have any number of these in front
        if (at + 3 > jpeg.size()) return kBroken;
        const auto kind = jpeg[at];
        const auto size = be16(&jpeg[at + 1]);
        if (size < 2 || size > jpeg.size() - at - 1) return kBroken;
        const auto segment = jpeg.subspan(at + 3, size - 2);
        at += 1 + size;
        const char* why = nullptr;
        if (kind == 0xC0 || kind == 0xC1) {
            if (marker) return kBroken;
            marker = kind;
            why = read_frame(segment);
        } else if (kind == 0xC4) {
            why = read_huffman(segment);
        } else if (kind == 0xC2) {
            return "it is progressive";
        } else if (kind == 0xC9 || kind == 0xCA) {
            return "it is arithmetic-coded";
        } else if (kind == 0xDB) {
            why = read_quantization(segment);
        } else if (kind == 0xDD) {
            if (segment.size() != 2) return kBroken;
            if (be16(segment.data())) return "it has restart intervals";
        } else if (kind == 0xDA) {
            scan = at;
            return marker ? read_scan(segment) : kBroken;
        } else if (kind == 0xE0 && begins_with(segment, "JFIF\0", 5) && segment.size() >= 14) {
            jfif = segment.first(14);
        } else if (kind == 0xEE && begins_with(segment, "Adobe", 5) && segment.size() >= 12) {
            adobe = segment.first(12);
        } else if (kind < 0xE0 && kind != 0xCC) {  // conditioning of arithmetic coding means nothing here
            return kBroken;
        }
        if (why) return why;
    }
}

const char* JpegFrame::read_frame(Bytes segment) {
    if (segment.size() < 6 || segment.size() != 6u + 3u * segment[5]) return kBroken;
    if (segment[0] != 8) return "its samples have other than 8 bits";
    height = be16(&segment[1]);
    width = be16(&segment[3]);
    components = segment[5];
    if (!height || !width) return kBroken;
    if (components != 1 && components != 3) return "it has neither one component nor three";
    std::uint32_t blocks = 0;
    for (std::uint32_t i = 0; i < components; ++i) {
        const auto* from = &segment[6 + 3 * i];
        auto& one = component[i];
        one = {from[0], static_cast<std::uint8_t>(from[1] >> 4), static_cast<std::uint8_t>(from[1] & 15), from[2], 0, 0};
        if (one.h < 1 || one.h > 4 || one.v < 1 || one.v > 4 || one.quantization > 3) return kBroken;
        for (std::uint32_t j = 0; j < i; ++j)
            if (component[j].id == one.id) return kBroken;
        // A scan of one component has MCUs of one block, whatever its factors say.
        if (components == 1) one.h = one.v = 1;
        max_h = std::max<std::uint32_t>(max_h, one.h);
        max_v = std::max<std::uint32_t>(max_v, one.v);
        blocks += one.h * one.v;
    }
    for (std::uint32_t i = 0; i < components; ++i)
        if (max_h % component[i].h || max_v % component[i].v) return "its sampling factors are not whole";
    if (blocks > 10) return kBroken;
    mcus_per_row = (width + 8 * max_h - 1) / (8 * max_h);
    mcu_rows = (height + 8 * max_v - 1) / (8 * max_v);
    return nullptr;
}

const char* JpegFrame::read_scan(Bytes segment) {
    if (segment.size() < 1 || segment.size() != 4u + 2u * segment[0]) return kBroken;
    if (segment[0] != components) return "it has several scans";
    for (std::uint32_t i = 0; i < components; ++i) {
        auto& one = component[i];
        const auto* from = &segment[1 + 2 * i];
        one.dc = from[1] >> 4;
        one.ac = from[1] & 15;
        if (from[0] != one.id || one.dc > 3 || one.ac > 3) return kBroken;
        if (!(dc_defined >> one.dc & 1) || !(ac_defined >> one.ac & 1) || quantization[one.quantization].empty())
            return "it lacks a table";
    }
    const auto* rest = &segment[1 + 2 * components];
    return rest[0] == 0 && rest[1] == 63 && rest[2] == 0 ? nullptr : kBroken;
}

const char* JpegFrame::read_quantization(Bytes segment) {
    while (!segment.empty()) {
        const auto number = segment[0] & 15, wide = segment[0] >> 4;
        const std::size_t size = wide ? 129 : 65;
        if (number > 3 || wide > 1 || segment.size() < size) return kBroken;
        quantization[number] = segment.first(size);
        segment = segment.subspan(size);
    }
    return nullptr;
}

const char* JpegFrame::read_huffman(Bytes segment) {
    while (!segment.empty()) {
        const auto number = segment[0] & 15, is_ac = segment[0] >> 4;
        if (number > 3 || is_ac > 1 || segment.size() < 17) return kBroken;
        auto& table = is_ac ? ac[number] : dc[number];
        std::copy_n(&segment[1], 16, table.counts.begin());
        const auto size = static_cast<std::size_t>(table.size());
        if (size > 256 || segment.size() - 17 < size) return kBroken;
        std::copy_n(segment.begin() + 17, size, table.symbols.begin());
        if (!table.build()) return kBroken;
        if (!is_ac && std::any_of(table.symbols.begin(), table.symbols.begin() + size, [](int s) { return s > 15; }))
            return kBroken;
        (is_ac ? ac_defined : dc_defined) |= static_cast<std::uint8_t>(1 << number);
        segment = segment.subspan(17 + size);
    }
    return nullptr;
}

}  // namespace fl
