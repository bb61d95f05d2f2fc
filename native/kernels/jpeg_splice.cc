#include "jpeg_splice.h"

#include <bit>
#include <cstdlib>

namespace fl {
namespace {

constexpr std::size_t kHeader = 8192;  // more than all tables take

class HeaderWriter {
public:
    HeaderWriter(const JpegFrame& frame, BitWriter& out) : frame_(frame), out_(out) {}

    void write(std::uint32_t width, std::uint32_t height) {
        marker(0xD8);
        if (!frame_.jfif.empty()) segment(0xE0, frame_.jfif);
        if (!frame_.adobe.empty()) segment(0xEE, frame_.adobe);
        std::uint32_t quantization = 0, dc = 0, ac = 0;
        for (std::uint32_t i = 0; i < frame_.components; ++i) {
            const auto& one = frame_.component[i];
            if (!(quantization >> one.quantization & 1)) segment(0xDB, frame_.quantization[one.quantization]);
            if (!(dc >> one.dc & 1)) huffman(one.dc, frame_.dc[one.dc]);
            if (!(ac >> one.ac & 1)) huffman(0x10 | one.ac, frame_.ac[one.ac]);
            quantization |= 1u << one.quantization;
            dc |= 1u << one.dc;
            ac |= 1u << one.ac;
        }
        marker(frame_.marker, 6 + 3 * frame_.components);
        out_.byte(8);
        two(height);
        two(width);
        out_.byte(frame_.components);
        for (std::uint32_t i = 0; i < frame_.components; ++i) {
            const auto& one = frame_.component[i];
            out_.byte(one.id);
            out_.byte(one.h << 4 | one.v);
            out_.byte(one.quantization);
        }
        marker(0xDA, 4 + 2 * frame_.components);
        out_.byte(frame_.components);
        for (std::uint32_t i = 0; i < frame_.components; ++i) {
            out_.byte(frame_.component[i].id);
            out_.byte(frame_.component[i].dc << 4 | frame_.component[i].ac);
        }
        out_.byte(0);
        out_.byte(63);
        out_.byte(0);
    }

private:
    void two(std::uint32_t value) {
        out_.byte(value >> 8);
        out_.byte(value);
    }
    void marker(std::uint32_t kind) {
        out_.byte(0xFF);
        out_.byte(kind);
    }
    void marker(std::uint32_t kind, std::size_t size) {
        marker(kind);
        two(static_cast<std::uint32_t>(size + 2));
    }
    void segment(std::uint32_t kind, Bytes content) {
        marker(kind, content.size());
        out_.bytes(content);
    }
    void huffman(std::uint32_t number, const HuffmanTable& table) {
        const auto size = static_cast<std::size_t>(table.size());
        marker(0xC4, 17 + size);
        out_.byte(number);
        out_.bytes(table.counts);
        out_.bytes(Bytes(table.symbols).first(size));
    }

    const JpegFrame& frame_;
    BitWriter& out_;
};

// A DC difference in the table's code. False where it has none.
bool put_difference(const HuffmanTable& table, int difference, BitWriter& out) {
    const int category = std::bit_width(static_cast<unsigned>(std::abs(difference)));
    if (category > 15 || !table.length[category]) return false;
    out.put(table.code[category], table.length[category]);
    const auto raw = static_cast<unsigned>(difference < 0 ? difference - 1 : difference);
    if (category) out.put(raw & ((1u << category) - 1), category);
    return true;
}

// Each component's first difference in a run is one to the run before; all other bits stay as they are.
bool put_run(const JpegFrame& frame, Bytes jpeg, const JpegRun& run, const std::array<std::int32_t, 3>& before,
             BitWriter& out) {
    const auto fail = [] { throw Failure("decode", "JPEG: the index does not fit the data"); };
    if (run.begin >= run.end) fail();
    out.reserve((run.end - run.begin) / 8 + 64);
    // No further than the run: behind the last one comes a marker, which is no data.
    BitReader bits(jpeg.first((run.end + 7) / 8), run.begin);
    auto from = run.begin;
    for (std::uint32_t i = 0; i < frame.components; ++i) {
        const auto& one = frame.component[i];
        const auto& table = frame.dc[one.dc];
        bits.fill();
        if (i && !out.carry(jpeg, from, bits.place())) fail();
        int category = bits.category(table);
        if (category < 0) fail();
        const int difference = run.dc_begin[i] + bits.difference(category) - before[i];
        if (bits.past_end() || bits.place() > run.end) fail();
        from = bits.place();
        if (!put_difference(table, difference, out)) return false;
        if (i + 1 == frame.components) break;
        for (int block = 0; block < one.h * one.v; ++block) {
            bits.fill();
            if (block) {
                category = bits.category(table);
                if (category < 0) fail();
                bits.drop(category);
            }
            if (!bits.skip_ac(frame.ac[one.ac])) fail();
        }
        if (bits.past_end() || bits.place() > run.end) fail();
    }
    if (!out.carry(jpeg, from, run.end)) fail();
    return true;
}

}  // namespace

bool jpeg_splice(JpegFrame& frame, Bytes jpeg, std::span<const JpegRun> runs, std::uint32_t width, std::uint32_t height,
                 BitWriter& out) {
    for (std::uint32_t i = 0; i < frame.components; ++i) frame.dc[frame.component[i].dc].add_missing_categories();
    out.clear();
    out.reserve(kHeader);
    HeaderWriter(frame, out).write(width, height);
    std::array<std::int32_t, 3> before{};
    for (const auto& run : runs) {
        if (!put_run(frame, jpeg, run, before, out)) return false;
        before = run.dc_end;
    }
    out.reserve(kSpliceTail);
    out.finish();
    out.byte(0xFF);
    out.byte(0xD9);
    out.zeros(kSpliceTail);
    return true;
}

}  // namespace fl
