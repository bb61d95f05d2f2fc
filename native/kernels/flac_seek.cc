#include "flac_seek.h"

#include <algorithm>
#include <array>

namespace fl {
namespace {

constexpr std::array<std::uint8_t, 256> crc8_table() {
    std::array<std::uint8_t, 256> table{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        unsigned crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ (crc & 0x80 ? 0x107u : 0u);
        table[byte] = static_cast<std::uint8_t>(crc);
    }
    return table;
}
constexpr auto kCrc8 = crc8_table();

std::uint8_t crc8(Bytes bytes) {
    std::uint8_t crc = 0;
    for (const auto byte : bytes) crc = kCrc8[crc ^ byte];
    return crc;
}

constexpr std::array<std::uint16_t, 256> crc16_table() {
    std::array<std::uint16_t, 256> table{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        unsigned crc = byte << 8;
        for (int bit = 0; bit < 8; ++bit) crc = crc << 1 ^ (crc & 0x8000 ? 0x18005u : 0u);
        table[byte] = static_cast<std::uint16_t>(crc);
    }
    return table;
}
constexpr auto kCrc16 = crc16_table();

// Whether these bytes are a frame from its header to the checksum at its end.
bool is_whole(Bytes frame) {
    unsigned crc = 0;
    for (const auto byte : frame) crc = (crc << 8 & 0xFFFFu) ^ kCrc16[crc >> 8 ^ byte];
    return crc == 0;
}

struct Stream {
    std::size_t head = 0;
    std::uint32_t least_block = 0, most_block = 0, channels = 0;
    std::uint64_t samples = 0;
};

struct Frame {
    std::size_t at = 0, header = 0;
    std::uint64_t sample = 0;
    std::uint32_t block = 0;
    std::uint64_t end() const { return sample + block; }
};

std::optional<Stream> stream_of(Bytes file) {
    constexpr std::size_t kInfo = 34;
    if (file.size() < 8 + kInfo || std::memcmp(file.data(), "fLaC", 4) != 0 || (file[4] & 0x7F) != 0) return {};
    const auto* info = file.data() + 8;
    Stream stream;
    stream.least_block = static_cast<std::uint32_t>(info[0] << 8 | info[1]);
    stream.most_block = static_cast<std::uint32_t>(info[2] << 8 | info[3]);
    stream.channels = (info[12] >> 1 & 7u) + 1;
    stream.samples = std::uint64_t{info[13] & 15u} << 32 | std::uint64_t{info[14]} << 24 |
                     std::uint64_t{info[15]} << 16 | std::uint64_t{info[16]} << 8 | info[17];
    for (std::size_t at = 4; file.size() - at >= 4;) {
        const std::size_t size = std::size_t{file[at + 1]} << 16 | std::size_t{file[at + 2]} << 8 | file[at + 3];
        const bool last = file[at] & 0x80;
        if (file.size() - at - 4 < size) return {};
        at += 4 + size;
        if (last) {
            stream.head = at;
            return stream;
        }
    }
    return {};
}

// A number as UTF-8 would write it, of up to 36 bits: its length in bytes, 0 for what is none.
std::size_t coded_number(Bytes bytes, std::uint64_t& number) {
    if (bytes.empty()) return 0;
    const std::uint8_t first = bytes[0];
    if (first < 0x80) {
        number = first;
        return 1;
    }
    std::size_t length = 0;
    while (length < 8 && first & 0x80 >> length) ++length;
    if (length < 2 || length > 7 || bytes.size() < length) return 0;
    number = first & 0x7F >> length;
    for (std::size_t i = 1; i < length; ++i) {
        if ((bytes[i] & 0xC0) != 0x80) return 0;
        number = number << 6 | (bytes[i] & 0x3Fu);
    }
    return length;
}

// The frame whose header begins at `at`, if one does that this stream could have.
std::optional<Frame> frame_at(Bytes file, const Stream& stream, std::size_t at) {
    const Bytes rest = file.subspan(at, std::min<std::size_t>(file.size() - at, 16));
    if (rest.size() < 6 || rest[0] != 0xFF || (rest[1] & 0xFE) != 0xF8 || rest[3] & 1) return {};
    const bool varying = rest[1] & 1;
    const unsigned size_code = rest[2] >> 4, rate_code = rest[2] & 15, layout = rest[3] >> 4;
    const std::uint32_t channels = layout < 8 ? layout + 1 : 2;
    if (!size_code || rate_code == 15 || layout > 10 || channels != stream.channels) return {};
    std::uint64_t number = 0;
    const std::size_t length = coded_number(rest.subspan(4), number);
    if (!length) return {};
    std::size_t header = 4 + length;
    const std::size_t wide = size_code == 6 ? 1 : size_code == 7 ? 2 : 0;
    const std::size_t more = rate_code == 12 ? 1 : rate_code == 13 || rate_code == 14 ? 2 : 0;
    if (rest.size() < header + wide + more + 1) return {};
    std::uint32_t block = size_code == 1 ? 192 : size_code < 6 ? 576u << (size_code - 2) : 256u << (size_code & 7);
    if (wide == 1) block = rest[header] + 1u;
    if (wide == 2) block = (static_cast<std::uint32_t>(rest[header]) << 8 | rest[header + 1]) + 1u;
    header += wide + more;
    if (crc8(rest.first(header)) != rest[header]) return {};
    const std::uint64_t sample = varying ? number : number * stream.most_block;
    if (sample >= stream.samples || (!varying && stream.least_block != stream.most_block)) return {};
    if (block > stream.most_block || (block != stream.most_block && !varying && sample + block != stream.samples)) return {};
    return Frame{at, header + 1, sample, block};
}

// The first frame whose header begins in [from, to).
std::optional<Frame> next_frame(Bytes file, const Stream& stream, std::size_t from, std::size_t to) {
    while (from < to) {
        const void* found = std::memchr(file.data() + from, 0xFF, to - from);
        if (!found) return {};
        const auto at = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - file.data());
        if (const auto frame = frame_at(file, stream, at)) return frame;
        from = at + 1;
    }
    return {};
}

// The frame behind another: a header with just the number that is due.
std::optional<Frame> behind(Bytes file, const Stream& stream, const Frame& frame) {
    std::size_t from = frame.at + frame.header;
    while (const auto next = next_frame(file, stream, from, file.size())) {
        if (next->sample == frame.end()) return next;
        from = next->at + 1;
    }
    return {};
}

// Whether what begins there is a frame, and no bytes within one that look like the header of one.
bool is_frame(Bytes file, const Stream& stream, const Frame& frame) {
    const auto next = frame.end() < stream.samples ? behind(file, stream, frame) : std::nullopt;
    if (!next && frame.end() < stream.samples) return false;
    return is_whole(file.subspan(frame.at, (next ? next->at : file.size()) - frame.at));
}

}  // namespace

std::optional<FlacStart> flac_start(Bytes file, std::uint64_t sample) {
    constexpr int kGuesses = 32, kNear = 4;
    const auto stream = stream_of(file);
    if (!stream || sample >= stream->samples || !stream->most_block) return {};
    const auto first = frame_at(file, *stream, stream->head);
    if (!first || first->sample) return {};
    Frame low = *first;
    std::size_t high_at = file.size();
    std::uint64_t high = stream->samples;
    for (int i = 0; i < kGuesses && sample - low.sample > std::uint64_t{kNear} * stream->most_block; ++i) {
        const double each = static_cast<double>(high_at - low.at) / static_cast<double>(high - low.sample);
        const double ahead = each * (static_cast<double>(sample - low.sample) - 1.5 * stream->most_block);
        const std::size_t guess = low.at + static_cast<std::size_t>(std::max(ahead, 0.0));
        if (guess <= low.at + low.header || guess >= high_at) break;
        const auto found = next_frame(file, *stream, guess, high_at);
        if (!found || found->sample > sample || found->sample < low.sample) {
            high_at = guess;
            if (found && found->sample > sample) high = std::min(high, found->sample);
        } else {
            low = *found;
        }
    }
    while (low.end() <= sample) {
        const auto next = behind(file, *stream, low);
        if (!next) return {};
        low = *next;
    }
    if (!is_frame(file, *stream, low)) return {};
    return FlacStart{stream->head, low.at, low.sample};
}

}  // namespace fl
