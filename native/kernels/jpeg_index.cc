#include "jpeg_index.h"

#include <algorithm>
#include <limits>

namespace fl {
namespace {

constexpr std::size_t kHead = 12;
constexpr std::size_t kTrailer = 8;
constexpr std::uint8_t kNone = 0, kAnchors = 1;
constexpr std::uint8_t kMagic[4] = {'F', 'L', 'J', 'X'};
constexpr std::uint32_t kLargestInterval = 128;
constexpr int kLargestPlace = 32, kLargestPredictor = 17;  // bits of a difference

struct Anchor {
    BitPlace place;
    std::array<std::int32_t, 3> dc;
};

std::uint32_t zigzag(std::int32_t value) {
    return static_cast<std::uint32_t>(value) << 1 ^ static_cast<std::uint32_t>(value >> 31);
}
std::int32_t unzigzag(std::uint32_t value) {
    return static_cast<std::int32_t>(value >> 1) ^ -static_cast<std::int32_t>(value & 1);
}

// Where the scan's data ends, if it ends with the image; 0 else.
std::size_t end_of_scan(Bytes jpeg, std::size_t begin) {
    for (auto at = begin; at < jpeg.size();) {
        const auto* found = static_cast<const std::uint8_t*>(std::memchr(&jpeg[at], 0xFF, jpeg.size() - at));
        if (!found) return 0;
        const auto first = static_cast<std::size_t>(found - jpeg.data());
        at = first + 1;
        while (at < jpeg.size() && jpeg[at] == 0xFF) ++at;
        if (at == jpeg.size()) return 0;
        if (jpeg[at] == 0xD9) return first;
        if (jpeg[at] != 0 || at != first + 1) return 0;
        ++at;
    }
    return 0;
}

// Walks the scan and notes every `interval`-th MCU of each row, and the end. Null, or what is wrong.
const char* walk(const JpegFrame& frame, Bytes jpeg, std::uint32_t interval, std::vector<Anchor>& anchors) {
    const auto end = end_of_scan(jpeg, frame.scan);
    if (!end) return "its data does not end with the image";
    BitReader bits(jpeg.first(end), BitPlace{frame.scan} * 8);
    Anchor now{};
    for (std::uint32_t row = 0; row < frame.mcu_rows; ++row) {
        for (std::uint32_t column = 0; column < frame.mcus_per_row; ++column) {
            if (column % interval == 0) {
                now.place = bits.place();
                anchors.push_back(now);
            }
            for (std::uint32_t i = 0; i < frame.components; ++i) {
                const auto& one = frame.component[i];
                for (int block = 0; block < one.h * one.v; ++block) {
                    bits.fill();
                    const int category = bits.category(frame.dc[one.dc]);
                    if (category < 0) return "its data is damaged";
                    now.dc[i] += bits.difference(category);
                    if (now.dc[i] != static_cast<std::int16_t>(now.dc[i])) return "its data is damaged";
                    if (!bits.skip_ac(frame.ac[one.ac])) return "its data is damaged";
                }
            }
            if (bits.past_end()) return "its data ends early";
        }
    }
    now.place = bits.place();
    anchors.push_back(now);
    const auto last = now.place / 8;
    const auto next = now.place % 8 ? last + (jpeg[last] == 0xFF ? 2 : 1) : last;
    return next == end ? nullptr : "there is more data than image";
}

// Every `step`-th anchor of each row, as differences in as few bits as the largest needs.
std::vector<std::uint8_t> pack(const JpegFrame& frame, const std::vector<Anchor>& anchors, std::uint32_t interval,
                               std::uint32_t step) {
    const auto per_row = (frame.mcus_per_row + interval - 1) / interval;
    std::vector<std::array<std::uint32_t, 4>> differences;
    std::array<std::uint32_t, 4> largest{};
    const auto* before = &anchors[0];
    for (std::size_t i = 1; i < anchors.size(); ++i) {
        if (i % per_row % step && i + 1 != anchors.size()) continue;
        auto& one = differences.emplace_back();
        one[0] = static_cast<std::uint32_t>(anchors[i].place - before->place);
        for (int c = 0; c < 3; ++c) one[c + 1] = zigzag(anchors[i].dc[c] - before->dc[c]);
        for (int k = 0; k < 4; ++k) largest[k] |= one[k];
        before = &anchors[i];
    }
    std::array<int, 4> widths{};
    for (int k = 0; k < 4; ++k) widths[k] = std::bit_width(largest[k]);
    const std::size_t bits = differences.size() * static_cast<std::size_t>(widths[0] + widths[1] + widths[2] + widths[3]);
    std::vector<std::uint8_t> out(kHead + (bits + 7) / 8 + kTrailer);
    out[2] = kAnchors;
    out[3] = static_cast<std::uint8_t>(interval * step);
    for (int k = 0; k < 4; ++k) out[4 + k] = static_cast<std::uint8_t>(widths[k]);
    store(&out[8], static_cast<std::uint32_t>(frame.scan));
    std::size_t at = kHead * 8;
    for (const auto& one : differences) {
        for (int k = 0; k < 4; ++k) {  // the trailer, which is written last, makes room for the eight bytes
            auto* to = &out[at / 8];
            store(to, load<std::uint64_t>(to) | std::uint64_t{one[k]} << at % 8);
            at += static_cast<std::size_t>(widths[k]);
        }
    }
    return out;
}

std::vector<std::uint8_t> finished(std::vector<std::uint8_t> out) {
    out[0] = 0xFF;
    out[1] = 0xD9;
    store(&out[out.size() - 8], static_cast<std::uint32_t>(out.size()));
    std::copy(std::begin(kMagic), std::end(kMagic), out.end() - 4);
    return out;
}

[[noreturn]] void fail(const char* why) { throw Failure("decode", std::string("JPEG: the index ") + why); }

}  // namespace

JpegPayload jpeg_split(Bytes payload) {
    if (payload.size() < 4 + kTrailer || !std::equal(std::begin(kMagic), std::end(kMagic), payload.end() - 4))
        return {payload, {}};
    const auto size = load<std::uint32_t>(&payload[payload.size() - 8]);
    if (size < 4 + kTrailer || size > payload.size()) return {payload, {}};
    const auto jpeg = payload.first(payload.size() - size);
    const auto index = payload.last(size);
    if (index[0] != 0xFF || index[1] != 0xD9) return {payload, {}};
    return {jpeg, index};
}

JpegIndexed jpeg_make_index(Bytes jpeg, std::uint32_t interval) {
    if (interval < 1 || interval > kLargestInterval) throw Failure("format", "an interval is 1 to 128 MCUs");
    const auto none = [](const char* why) { return JpegIndexed{finished(std::vector<std::uint8_t>(4 + kTrailer)), why}; };
    JpegFrame frame;
    if (const char* why = frame.parse(jpeg)) return none(why);
    // Places in bits fit 32 bits then; and the claimed size is one that the bytes could hold.
    if (jpeg.size() >= std::numeric_limits<std::uint32_t>::max() / 8) return none("it is too large");
    if (std::uint64_t{frame.width} * frame.height / 1024 > jpeg.size()) return none("its data ends early");
    std::vector<Anchor> anchors;
    if (const char* why = walk(frame, jpeg, interval, anchors)) return none(why);
    // A picture of few colours has many MCUs a byte.
    for (std::uint32_t step = 1;; step *= 2) {
        auto packed = pack(frame, anchors, interval, step);
        const bool coarsest = 2 * interval * step > kLargestInterval || interval * step >= frame.mcus_per_row;
        if (packed.size() <= jpeg.size() / 32) return {finished(std::move(packed)), nullptr};
        if (!coarsest) continue;
        if (packed.size() > jpeg.size() / 8) return none("an index would be large beside it");
        return {finished(std::move(packed)), nullptr};
    }
}

JpegIndex::JpegIndex(Bytes index, const JpegFrame& frame, Bytes jpeg) {
    if (index.size() < 4 + kTrailer || index[2] == kNone) return;
    if (index[2] != kAnchors) return;  // of a kind to come
    if (index.size() < kHead + kTrailer) fail("is too short");
    const std::uint32_t interval = index[3];
    if (interval < 1 || interval > kLargestInterval) fail("has no such interval");
    for (int k = 0; k < 4; ++k) {
        widths_[k] = index[4 + k];
        if (widths_[k] > (k ? kLargestPredictor : kLargestPlace)) fail("has numbers that are too wide");
    }
    if (load<std::uint32_t>(&index[8]) != frame.scan) fail("is of another image");
    per_row_ = (frame.mcus_per_row + interval - 1) / interval;
    rows_ = frame.mcu_rows;
    const auto bits = std::uint64_t{per_row_} * rows_ * static_cast<unsigned>(widths_[0] + widths_[1] + widths_[2] + widths_[3]);
    if ((bits + 7) / 8 != index.size() - kHead - kTrailer) fail("is of another image");
    interval_ = interval;
    scan_ = BitPlace{frame.scan} * 8;
    end_ = BitPlace{jpeg.size()} * 8;
    packed_ = index.data() + kHead;
}

void JpegIndex::runs(std::uint32_t first_row, std::uint32_t end_row, std::uint32_t first, std::uint32_t end,
                     std::vector<JpegRun>& out) const {
    if (first_row >= end_row || end_row > rows_ || first >= end || end > per_row_)
        throw Failure("format", "no such part of the index");
    out.clear();
    Anchor now{scan_, {}};
    std::uint64_t at = 0;
    const auto next = [&](int k) {
        const auto word = load<std::uint64_t>(packed_ + at / 8) >> at % 8;  // the trailer is behind the last number
        at += static_cast<unsigned>(widths_[k]);
        return static_cast<std::uint32_t>(word & ((std::uint64_t{1} << widths_[k]) - 1));
    };
    const auto step = [&] {
        now.place += next(0);
        for (int c = 0; c < 3; ++c) {
            now.dc[c] += unzigzag(next(c + 1));
            if (now.dc[c] != static_cast<std::int16_t>(now.dc[c])) fail("has predictors that are none");
        }
        if (now.place > end_) fail("leads out of the image");
    };
    for (std::uint32_t i = 0; i < first_row * per_row_; ++i) step();
    const bool whole = first == 0 && end == per_row_;  // one row then goes on in the next
    for (std::uint32_t row = first_row; row < end_row; ++row) {
        for (std::uint32_t i = 0; i < per_row_; ++i) {
            if (i == first && (!whole || row == first_row)) out.push_back({now.place, 0, now.dc, {}});
            if (i == end) {
                out.back().end = now.place;
                out.back().dc_end = now.dc;
            }
            step();
        }
        if (end == per_row_) {
            out.back().end = now.place;
            out.back().dc_end = now.dc;
        }
    }
}

}  // namespace fl
