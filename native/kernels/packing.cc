#include "packing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace fl {

std::uint64_t best_fit(std::span<const std::int64_t> lengths, std::uint64_t room, std::span<std::int64_t> out) {
    if (out.size() != lengths.size()) throw Failure("format", "one place a document");
    for (const auto length : lengths)
        if (length < 1 || static_cast<std::uint64_t>(length) > room) throw Failure("size", "a document does not fit");
    std::uint64_t sequences = 0;
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
    std::set<std::pair<std::uint64_t, std::uint64_t>> open;  // the room left in a sequence, and its number
    for (const auto i : order) {
        const auto length = static_cast<std::uint64_t>(lengths[i]);
        const auto found = open.lower_bound({length, 0});
        std::uint64_t sequence = sequences, left = room;
        if (found != open.end()) {
            std::tie(left, sequence) = *found;
            open.erase(found);
        } else {
            ++sequences;
        }
        left -= length;
        if (left) open.emplace(left, sequence);
        out[i] = static_cast<std::int64_t>(sequence);
    }
    return sequences;
}

std::size_t unpack_sequences(Bytes values, std::span<const std::int64_t> offsets, std::span<const std::uint32_t> counts,
                             std::uint64_t length, Bytes pad, MutableBytes tokens, std::span<std::int32_t> positions,
                             std::span<std::int32_t> documents, std::span<std::int32_t> ends) {
    const std::size_t rows = counts.size() / 2, item = pad.size();
    std::uint64_t places = 0;
    if (__builtin_mul_overflow(rows, length, &places) || places > std::numeric_limits<std::int32_t>::max())
        throw Failure("size", "the batch is too large");
    std::uint64_t segments = 1 + rows;  // each row may end with padding
    for (std::size_t row = 0; row < rows; ++row) segments += counts[2 * row];
    if (!item || offsets.size() != rows + 1 || counts.size() != 2 * rows || tokens.size() != places * item ||
        positions.size() != places || documents.size() != places || ends.size() < segments)
        throw Failure("format", "an output has the wrong size");
    std::size_t written = 0;
    ends[written++] = 0;
    std::size_t at = 0;  // in the batch
    const auto segment = [&](std::size_t count, std::int32_t document) {
        std::iota(positions.begin() + at, positions.begin() + at + count, 0);
        std::fill_n(documents.begin() + at, count, document);
        at += count;
        ends[written++] = static_cast<std::int32_t>(at);
    };
    for (std::size_t row = 0; row < rows; ++row) {
        const std::uint64_t number = counts[2 * row], used = counts[2 * row + 1];
        const auto fail = [&](const char* why) {
            Failure failure("format", why);
            failure.position = static_cast<std::int64_t>(row);
            return failure;
        };
        if (offsets[row] < 0 || offsets[row + 1] < offsets[row] ||
            static_cast<std::uint64_t>(offsets[row + 1]) > values.size())
            throw fail("the payload lies outside the batch");
        const auto payload = values.subspan(static_cast<std::size_t>(offsets[row]),
                                            static_cast<std::size_t>(offsets[row + 1] - offsets[row]));
        if (used > length || payload.size() != 4 * number + item * used)
            throw fail("the numbers of documents and tokens do not fit the payload");
        std::uint64_t left = used;
        auto* const out = tokens.data() + at * item;
        for (std::uint64_t i = 0; i < number; ++i) {
            const auto count = load<std::uint32_t>(payload.data() + 4 * i);
            if (!count || count > left) throw fail("the lengths of the documents do not add up to the tokens");
            left -= count;
            segment(count, static_cast<std::int32_t>(i));
        }
        if (left) throw fail("the lengths of the documents do not add up to the tokens");
        if (used) std::memcpy(out, payload.data() + 4 * number, used * item);
        for (auto i = used; i < length; ++i) std::memcpy(out + i * item, pad.data(), item);
        if (used < length) segment(length - used, -1);
    }
    return written;
}

}  // namespace fl
