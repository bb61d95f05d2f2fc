#include "runs.h"

#include <algorithm>

namespace fl {
namespace {

constexpr std::uint8_t kMagic[4] = {'F', 'L', 'M', 'R'};
constexpr std::size_t kHeader = 12;
constexpr int kLengthBytes = 3;
// Of short runs this many labels are written at once; what is too much, the next run overwrites.
constexpr std::size_t kAtOnce = 16;

[[noreturn]] void fail(const char* why) { throw Failure("decode", std::string("mask: ") + why); }

class Runs {
public:
    explicit Runs(Bytes encoded) : at_(encoded.data() + kHeader), end_(encoded.data() + encoded.size()) {}

    // The next label and how many pixels have it, at least one.
    std::uint32_t next(std::uint8_t& label) {
        if (end_ - at_ < 2) fail("truncated");
        label = *at_++;
        std::uint32_t less = 0;
        for (int i = 0; i < kLengthBytes; ++i) {
            if (at_ == end_) fail("truncated");
            const auto byte = *at_++;
            less |= std::uint32_t{byte & 0x7fu} << 7 * i;
            if (byte < 0x80) {
                if (less >= kLongestRun) break;
                return less + 1;
            }
        }
        fail("a run that is too long");
    }

    bool done() const { return at_ == end_; }

private:
    const std::uint8_t* at_;
    const std::uint8_t* end_;
};

void check_shape(Bytes encoded, const ImageShape& shape) {
    if (runs_info(encoded) != shape) fail("differs from its stored shape");
}

// The labels from pixel `begin` on, as many as `out` has room for. Whether the last run ends there.
bool decode_into(Runs& runs, std::uint64_t begin, MutableBytes out) {
    std::uint8_t label = 0;
    std::uint64_t passed = 0;
    while (passed <= begin) passed += runs.next(label);
    std::uint64_t length = passed - begin;  // what is left of a run that may begin before
    auto* to = out.data();
    auto* const end = to + out.size();
    while (true) {
        const auto room = static_cast<std::size_t>(end - to);
        if (length >= room) {
            std::memset(to, label, room);
            return length == room;
        }
        if (length <= kAtOnce && room >= kAtOnce)
            std::memset(to, label, kAtOnce);
        else
            std::memset(to, label, length);
        to += length;
        length = runs.next(label);
    }
}

}  // namespace

ImageShape runs_info(Bytes encoded) {
    if (encoded.size() < kHeader || !std::equal(kMagic, kMagic + sizeof kMagic, encoded.data())) fail("no runs");
    const ImageShape shape{load<std::uint32_t>(&encoded[4]), load<std::uint32_t>(&encoded[8]), 1, 8};
    if (!shape.height || !shape.width) fail("no pixels");
    try {
        check_claim(ImageKind::runs, shape, encoded.size());
    } catch (const Failure& failure) {
        fail(failure.what());
    }
    return shape;
}

void runs_decode(Bytes encoded, const ImageShape& shape, MutableBytes out) {
    check_shape(encoded, shape);
    Runs runs(encoded);
    if (!decode_into(runs, 0, out) || !runs.done()) fail("more labels than pixels");
}

void runs_decode_rows(Bytes encoded, const ImageShape& shape, std::uint32_t top, MutableBytes out) {
    check_shape(encoded, shape);
    const auto begin = std::uint64_t{top} * shape.width;
    if (begin + out.size() > shape.bytes()) throw Failure("format", "rows outside the mask");
    if (out.empty()) return;
    Runs runs(encoded);
    decode_into(runs, begin, out);
}

std::vector<std::uint8_t> runs_encode(Bytes labels, const ImageShape& shape) {
    if (labels.size() != shape.bytes()) throw Failure("encode", "mask: the labels do not have the stated shape");
    if (shape.channels != 1 || shape.bits != 8 || !shape.height || !shape.width)
        throw Failure("encode", "mask: one channel of 8 bits");
    std::vector<std::uint8_t> out(kHeader);
    std::copy_n(kMagic, sizeof kMagic, out.data());
    store(&out[4], shape.height);
    store(&out[8], shape.width);
    for (std::size_t at = 0; at < labels.size();) {
        const auto label = labels[at];
        const auto most = std::min<std::size_t>(labels.size() - at, kLongestRun);
        std::size_t length = 1;
        while (length < most && labels[at + length] == label) ++length;
        at += length;
        out.push_back(label);
        for (auto less = length - 1;; less >>= 7) {
            out.push_back(static_cast<std::uint8_t>((less & 0x7f) | (less > 0x7f ? 0x80 : 0)));
            if (less <= 0x7f) break;
        }
    }
    return out;
}

}  // namespace fl
