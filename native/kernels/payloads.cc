#include "payloads.h"

#include <array>

#include "crc32c.h"
#include "guard.h"
#include "inflate.h"

namespace fl {
namespace {

constexpr std::uint64_t kBetween = 8 << 10;  // bytes between windows that cost little to read along

}  // namespace

std::uint64_t Windows::rows() const {
    const auto room = end - begin;
    return room < size ? 0 : (room - size) / step + 1;
}

Windows::Span Windows::checkable(Span bytes) const {
    if (!items) return bytes;
    const std::uint64_t block = items->block_size();
    const auto last = (bytes.end - begin + block - 1) / block * block;
    return {begin + (bytes.begin - begin) / block * block, begin + std::min<std::uint64_t>(last, items->size())};
}

Windows::Span Windows::together(Span bytes, std::uint64_t unit) const {
    const auto between = step > size ? step - size : 0;
    if (!unit || between > std::max<std::uint64_t>(kBetween, items ? items->block_size() : 0)) return checkable(bytes);
    const auto first = bytes.begin / unit * unit, last = first + unit - 1;
    const auto from = first <= begin ? 0 : (first - begin + step - 1) / step;
    const auto to = std::min((last - begin) / step, rows() - 1);
    return checkable({begin + from * step, begin + to * step + size});
}

std::uint64_t Windows::within(Span bytes) const {
    const auto count = rows();
    const auto begun = bytes.end <= begin ? 0 : std::min(count, (bytes.end - 1 - begin) / step + 1);
    const auto over = bytes.begin < begin + size ? 0 : std::min(count, (bytes.begin - size - begin) / step + 1);
    return begun - over;
}

Payloads::Payloads(Bytes file, const Table& extents, std::uint64_t data_begin, std::uint64_t data_end,
                   const Dictionary* dictionary, Foreign foreign)
    : file_(file), extents_(&extents), data_begin_(data_begin), data_end_(data_end), dictionary_(dictionary),
      foreign_(foreign) {
    if (extents.row_size() != sizeof(Extent)) throw Failure("format", "an extent has 32 bytes");
    if (data_begin > data_end || data_end > file.size()) throw Failure("format", "the data lies outside the file");
}

Payloads::Payloads(Bytes file, const Windows& windows)
    : file_(file), data_begin_(windows.begin), data_end_(windows.end), windows_(windows) {
    if (windows.begin > windows.end || windows.end > file.size())
        throw Failure("format", "the windows lie outside the file");
    if (!windows.size || !windows.step) throw Failure("format", "a window has a size, and a step to the next");
    if (windows.items) {
        const auto item = windows.items->row_size();
        if (windows.size % item || windows.step % item || windows.end - windows.begin > windows.items->rows() * item)
            throw Failure("format", "the windows are no rows of the table");
    }
}

std::uint64_t Payloads::rows() const {
    return extents_ ? extents_->rows() : windows_.rows();
}

Extent Payloads::window(std::uint64_t row) const {
    if (row >= rows()) throw Failure("index", "row outside the windows");
    return {data_begin_ + row * windows_.step, windows_.size, windows_.size, 0, Codec::none, {}};
}

// Whole blocks are checked when a window of them is first read. Bytes of a file that were read past the mapping are but the
// window's own; there is nothing to check them against. Those of an object were checked by who had them read.
void Payloads::check_items(const Extent& extent) const {
    if (!windows_.items) return;
    const auto item = windows_.items->row_size();
    windows_.items->at((extent.pointer - data_begin_) / item, extent.size / item);
}

Extent Payloads::unchecked_extent(std::uint64_t row) const {
    if (!extents_) return window(row);
    Extent extent;
    extents_->copy(row, 1, reinterpret_cast<std::uint8_t*>(&extent));
    return extent;
}

Extent Payloads::extent(std::uint64_t row) const {
    const auto extent = unchecked_extent(row);
    check(extent);
    return extent;
}

void Payloads::check(const Extent& extent, const std::uint8_t* there) const {
    if (!inside(extent))
        throw Failure("extent", "the payload's extent lies outside the data");
    if (extent.codec == Codec::none) {
        if (extent.raw_size != extent.size) throw Failure("extent", "an uncompressed payload with two sizes");
        return;
    }
    if (foreign_.zipped && extent.codec == Codec::deflate) {
        if (extent.raw_size / kDeflateRatio > extent.size) throw Failure("codec", "deflate: impossible raw size");
        return;
    }
    std::array<std::uint8_t, kHeadBytes> head;
    const auto known = std::min<std::size_t>(extent.size, head.size());
    guarded([&] { std::memcpy(head.data(), unchecked(extent, there).data(), known); });
    try {
        check_ratio({head.data(), known}, extent.size, extent.codec, extent.raw_size);
    } catch (const Failure&) {
        stored(extent, there);  // bytes that changed are told as that, not as a frame that never fitted
        throw;
    }
}

namespace {

void check_sum(const Extent& extent, std::uint32_t computed) {
    if (computed != extent.crc) throw Failure("checksum", "the payload is damaged", extent.crc, computed);
}

}  // namespace

Bytes Payloads::stored(const Extent& extent, const std::uint8_t* there) const {
    const Bytes bytes = unchecked(extent, there);
    if (has_windows()) {
        if (!there) check_items(extent);
        return bytes;
    }
    if (foreign_.unchecked) return bytes;
    std::uint32_t computed = 0;
    guarded([&] { computed = foreign_.zipped ? crc32(bytes) : crc32c(bytes); });
    check_sum(extent, computed);
    return bytes;
}

void Payloads::copy(const Extent& extent, std::uint8_t* out, const std::uint8_t* there, Upcoming* next) const {
    if (has_windows() || foreign_.unchecked) {
        if (!there) check_items(extent);
        guarded([&] { std::memcpy(out, unchecked(extent, there).data(), extent.size); });
        return;
    }
    std::uint32_t computed = 0;
    guarded([&] { computed = copy_crc32c(out, unchecked(extent, there), 0, next); });
    check_sum(extent, computed);
}

void Payloads::read_zipped(const Extent& extent, MutableBytes out, const std::uint8_t* there) const {
    if (extent.codec == Codec::deflate) {
        thread_local std::vector<std::uint8_t> packed;
        packed.resize(extent.size);
        guarded([&] { std::memcpy(packed.data(), unchecked(extent, there).data(), extent.size); });
        inflate_raw(packed, out);
    } else {
        guarded([&] { std::memcpy(out.data(), unchecked(extent, there).data(), extent.size); });
    }
    check_sum(extent, crc32(out));
}

void Payloads::read(const Extent& extent, MutableBytes out, const std::uint8_t* there, Upcoming* next) const {
    if (foreign_.zipped) return read_zipped(extent, out, there);
    if (extent.codec == Codec::none) return copy(extent, out.data(), there, next);
    thread_local std::vector<std::uint8_t> packed;
    packed.resize(extent.size);
    copy(extent, packed.data(), there, next);
    decompress(packed, extent.codec, out, dictionary_);
}

Bytes Payloads::load(const Extent& extent, std::vector<std::uint8_t>& scratch, const std::uint8_t* there) const {
    scratch.resize(extent.raw_size);
    read(extent, scratch, there);
    return scratch;
}

std::vector<Located> locate(Sources sources, const Picks& picks) {
    return locate_rows(picks.size(), [&](std::size_t i) -> PayloadRow {
        if (picks.rows[i] < 0) return {};
        if (picks.source(i) >= sources.size()) throw Failure("index", "no such source");
        return {sources[picks.source(i)], static_cast<std::uint64_t>(picks.rows[i])};
    });
}

bool detail::copy_plain(std::span<const Located> located, std::uint8_t* const* out) {
    bool right = true;
    try {
        guarded([&] {
            for (std::size_t i = 0; i < located.size(); ++i) {
                if (i + 2 < located.size())
                    located[i + 2].source->prefetch(located[i + 2].extent, located[i + 2].there);
                const auto& [source, extent, there] = located[i];
                const auto* const from = there ? there : source->file().data() + extent.pointer;
                right &= copy_crc32c(out[i], Bytes(from, extent.size)) == extent.crc;
            }
        });
    } catch (const Failure&) {
        return false;
    }
    return right;
}

void gather_fixed(std::span<const Located> located, std::size_t row_bytes, MutableBytes out) {
    if (row_bytes ? out.size() / row_bytes != located.size() || out.size() % row_bytes : !out.empty())
        throw Failure("format", "the output has the wrong size");
    if (copy_together(located, [&](std::size_t i) { return out.subspan(i * row_bytes, row_bytes); })) return;
    for_each(located, [&](std::size_t i, const Payloads* source, const Extent& extent) {
        const auto to = out.subspan(i * row_bytes, row_bytes);
        if (!source) {
            if (row_bytes) std::memset(to.data(), 0, row_bytes);
            return;
        }
        if (extent.raw_size != row_bytes)
            throw Failure("size", "the payload has " + std::to_string(extent.raw_size) + " bytes, not " +
                                      std::to_string(row_bytes));
        source->read(extent, to);
    });
}

void ragged_offsets(std::span<const Located> located, std::span<std::int64_t> offsets) {
    if (offsets.size() != located.size() + 1) throw Failure("format", "the offsets have the wrong size");
    offsets[0] = 0;
    for (std::size_t i = 0; i < located.size(); ++i)
        if (__builtin_add_overflow(offsets[i], static_cast<std::int64_t>(located[i].extent.raw_size), &offsets[i + 1]))
            throw Failure("size", "the batch is too large");
}

void gather_ragged(std::span<const Located> located, std::span<const std::int64_t> offsets, MutableBytes values) {
    if (offsets.size() != located.size() + 1) throw Failure("format", "the offsets have the wrong size");
    for_each(located, [&](std::size_t i, const Payloads* source, const Extent& extent) {
        if (!source) return;
        const auto begin = static_cast<std::uint64_t>(offsets[i]);
        if (begin > values.size() || extent.raw_size > values.size() - begin)
            throw Failure("size", "the payload outgrows its place");
        source->read(extent, values.subspan(begin, extent.raw_size));
    });
}

std::vector<Damage> check_payloads(const Payloads& source, std::uint64_t begin, std::uint64_t end) {
    std::vector<Damage> found;
    std::vector<std::uint8_t> scratch;
    for (std::uint64_t row = begin; row < end; ++row) {
        try {
            const auto extent = source.extent(row);
            source.load(extent, scratch);
        } catch (const Failure& failure) {
            found.push_back({row, failure.kind, failure.what(), failure.stored, failure.computed});
        }
    }
    return found;
}

}  // namespace fl
