// Which pieces of files are read for a batch, and the memory they are read into.
#include <algorithm>
#include <iterator>
#include <utility>

#include "segments.h"

namespace fl {
namespace {

constexpr std::uint64_t kLongest = 1 << 20;  // neighbours are read together up to this size
constexpr std::uint64_t kLongestRemote = 8 << 20;  // the same for objects, where a request costs far more
constexpr std::uint64_t kGap = 8 << 10;      // what may lie between neighbours: less costs nothing to read along

std::size_t up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

}  // namespace

const FileName::Span* FileName::span_at(std::uint64_t at) const {
    const auto behind = std::upper_bound(spans.begin(), spans.end(), at,
                                         [](std::uint64_t place, const Span& span) { return place < span.begin; });
    return behind == spans.begin() ? nullptr : &*std::prev(behind);
}

// What is read for the sake of a range. What windows of several units have in common may be gone when only some of them are
// still to come: it is not read again for these. A cache has units of its own, which are read whole.
std::pair<std::uint64_t, std::uint64_t> ReadAhead::widened(File& file, const Range& wanted, const Loan::Part& part) const {
    const auto unit = file.unit, last = wanted.begin + wanted.size;
    if (part.windows && !options_.apart) {
        if (file.covers(wanted.begin, last)) return {wanted.begin, last};
        const auto all = part.windows->together({part.begin, part.end}, options_.unit);
        return {all.begin, all.end};
    }
    if (const auto* span = file.name.span_at(wanted.begin); span && last <= span->end) return {span->begin, span->end};
    const auto end = (last + unit - 1) / unit * unit;
    return {wanted.begin / unit * unit, is_remote() ? std::min(end, std::max(file.name.end, last)) : end};
}

// The runs of bytes that nobody has yet; what is there already is held by `pins` meanwhile. `order` loses the ranges
// that have to do without. A range within one piece has its number, counted from 1, in `covers`.
std::vector<ReadAhead::Piece> ReadAhead::missing_pieces(Loan& loan, std::vector<std::size_t>& order,
                                                        std::vector<std::size_t>& covers, std::vector<Segment*>& pins) {
    std::vector<Piece> pieces;
    pieces.reserve(order.size());
    std::size_t total = 0;
    const auto longest = is_remote() ? kLongestRemote : kLongest;
    const auto add = [&](File& file, std::uint64_t begin, std::uint64_t end) {
        if (!pieces.empty() && !options_.apart) {
            auto& last = pieces.back();
            if (last.file == &file && begin >= last.begin && begin <= last.end + kGap && end - last.begin <= longest) {
                const auto between = file.from(last.end);
                const bool free = between == file.segments.end() || between->second.offset >= begin;
                if (begin <= last.end || free) {
                    total += std::max(end, last.end) - last.end;
                    last.end = std::max(end, last.end);
                    return;
                }
            }
        }
        pieces.push_back({&file, begin, end});
        ++file.reading;  // so that it stays open
        total += end - begin;
    };
    std::size_t kept = 0;
    for (const auto range : order) {
        const auto& wanted = loan.ranges_[range];
        File& file = *files_[wanted.file];
        if (!wanted.size) continue;
        const auto unit = file.fd >= 0 || open(file) ? file.unit : 0;
        if (!unit || (!is_remote() && total + wanted.size + 2 * unit > arena_->capacity() / 2)) {
            ++counts_.given_up;
            continue;
        }
        file.used = ++clock_;
        auto [at, end] = widened(file, wanted, loan.parts_[range]);
        if (!pieces.empty() && pieces.back().file == &file) at = std::max(at, pieces.back().end);
        for (auto next = file.from(at); at < end; ++next) {
            const bool more = next != file.segments.end() && next->second.offset < end;
            const auto until = more ? next->second.offset : end;
            while (at < until) {
                const auto stop = options_.apart ? std::min(until, at / unit * unit + unit) : until;
                add(file, at, stop);
                at = stop;
            }
            if (!more) break;
            hold(next->second);
            pins.push_back(&next->second);
            at = next->second.end();
        }
        const bool one = !pieces.empty() && pieces.back().file == &file && pieces.back().begin <= wanted.begin &&
                         wanted.begin + wanted.size <= pieces.back().end;
        covers[kept] = one ? pieces.size() : 0;
        order[kept++] = range;
    }
    order.resize(kept);
    return pieces;
}

// One block for all pieces, where bytes are let go with the batch they were read for; else, or where none is large
// enough, a block each.
bool ReadAhead::find_memory(std::vector<Piece>& pieces, bool beyond, bool may_drop) {
    if (is_remote()) return find_budget(pieces, beyond, may_drop);
    if (!options_.unit && pieces.size() > 1) {
        std::size_t total = 0;
        for (const auto& piece : pieces) total = up(total, piece.file->unit) + (piece.end - piece.begin);
        if (auto* memory = arena_->take(total)) {
            auto* block = new Block{memory, total, pieces.size()};
            std::size_t at = 0;
            for (auto& piece : pieces) {
                at = up(at, piece.file->unit);
                piece.block = block;
                piece.memory = memory + at;
                at += piece.end - piece.begin;
            }
            return true;
        }
    }
    for (auto& piece : pieces) {
        const auto size = piece.end - piece.begin;
        while (!(piece.memory = arena_->take(size))) {
            if (may_drop && drop_idle()) continue;
            for (auto& taken : pieces) --taken.file->reading;
            for (auto& taken : pieces) {
                if (taken.memory) give_back(taken.block);
            }
            return false;
        }
        piece.block = new Block{piece.memory, size, 1};
    }
    return true;
}

// Leave to fetch all pieces. A batch larger than all the memory for reads is made all the same, since there is nowhere
// else to take it from. Nothing is dropped in vain.
bool ReadAhead::find_budget(std::vector<Piece>& pieces, bool beyond, bool may_drop) {
    std::size_t total = 0, room = options_.memory;
    for (const auto& piece : pieces) total += piece.end - piece.begin;
    if (!beyond && lent_ + total > room) {
        for (const auto* idle : idle_) room += may_drop && idle->over ? idle->block->size : 0;
        if (lent_ + total > room) {
            for (auto& piece : pieces) --piece.file->reading;
            return false;
        }
    }
    while (lent_ + total > options_.memory && drop_idle()) continue;
    for (auto& piece : pieces) piece.block = new Block{nullptr, piece.end - piece.begin, 1};
    lent_ += total;
    return true;
}

// What is still on its way can't be dropped, though nobody holds it. What a batch that waits for memory will want goes
// last: it would be read a second time. Of several such, that goes which is wanted last.
bool ReadAhead::drop_idle() {
    Segment* chosen = nullptr;
    std::size_t latest = 0;
    for (auto* const idle : idle_) {
        if (!idle->over) continue;
        const auto turn = turn_of(*idle);
        if (turn == waiting_.size()) {
            chosen = idle;
            break;
        }
        if (!chosen || turn > latest) chosen = idle, latest = turn;
    }
    if (!chosen) return false;
    drop(*chosen);
    return true;
}

// The place among those who wait for memory of the first who wants something in it; behind the last where nobody does.
std::size_t ReadAhead::turn_of(const Segment& segment) const {
    const auto file = static_cast<std::size_t>(segment.of->number);
    std::size_t turn = 0;
    for (const auto* loan : waiting_) {
        const auto& ranges = loan->ranges_;
        // Of those that begin before its end, the last: where ranges lie within others, a longer one may be missed.
        const auto behind = std::lower_bound(
            loan->order_.begin(), loan->order_.end(), std::pair(file, segment.end()),
            [&](std::size_t range, const auto& place) {
                return std::pair(ranges[range].file, ranges[range].begin) < place;
            });
        if (behind != loan->order_.begin()) {
            const auto& last = ranges[*std::prev(behind)];
            if (last.file == file && last.begin + last.size > segment.offset) return turn;
        }
        ++turn;
    }
    return turn;
}

void ReadAhead::give_back(Block* block) {
    if (is_remote())
        lent_ -= block->size;
    else
        arena_->give_back(block->memory, block->size);
    delete block;
}

}  // namespace fl
