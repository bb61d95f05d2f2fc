#include "jpeg_bits.h"

#include <algorithm>

namespace fl {

void BitReader::fill_slowly() {
    while (count_ < 56) {
        std::uint64_t byte = 0;
        if (at_ < data_.size()) {
            byte = data_[at_++];
            if (byte == 0xFF && at_ < data_.size()) ++at_;  // the zero behind it
        } else {
            ++made_up_;
        }
        bits_ |= byte << (56 - count_);
        count_ += 8;
    }
}

HuffmanTable::Look BitReader::find_long(const HuffmanTable& table) const {
    const auto next = static_cast<std::int32_t>(look(16));
    for (int bits = HuffmanTable::kLook + 1; bits <= 16; ++bits) {
        const auto code = next >> (16 - bits);
        if (code < table.end[bits])
            return HuffmanTable::entry(static_cast<std::uint8_t>(bits),
                                       table.symbols[static_cast<std::size_t>(code + table.offset[bits])]);
    }
    return {};
}

void BitWriter::reserve(std::size_t size) {
    const auto needed = at_ + 2 * size + 16;  // each byte may be stuffed, and pending bits are written too
    if (needed <= capacity_) return;
    const auto larger = std::max(needed, capacity_ + capacity_ / 2);
    auto memory = std::make_unique_for_overwrite<std::uint8_t[]>(larger);
    if (at_) std::memcpy(memory.get(), memory_.get(), at_);
    memory_ = std::move(memory);
    capacity_ = larger;
}

void BitWriter::emit_stuffed(std::uint64_t word) {
    for (int i = 0; i < 8; ++i, word >>= 8) {
        memory_[at_++] = static_cast<std::uint8_t>(word);
        if ((word & 0xFF) == 0xFF) memory_[at_++] = 0;
    }
}

void BitWriter::finish() {
    if (count_ % 8) put((1u << (8 - count_ % 8)) - 1, 8 - count_ % 8);
    for (; count_; count_ -= 8) {
        const auto value = static_cast<std::uint8_t>(bits_ >> (count_ - 8));
        byte(value);
        if (value == 0xFF) byte(0);
    }
}

bool BitWriter::carry(Bytes data, BitPlace from, BitPlace to) {
    auto at = from / 8;
    const auto end = to / 8;
    const auto* bytes = data.data();
    std::uint32_t behind = 0;  // bytes that follow an FF: all are zero, or one of them makes a marker of it
    const auto pass_ff = [&](std::size_t next) { behind |= next < data.size() ? bytes[next] : 0u; };
    if (const int begun = static_cast<int>(from % 8)) {
        const int left = 8 - begun;
        const std::uint32_t value = bytes[at] & ((1u << left) - 1);
        if (at == end) {  // all of it within one byte
            const int take = static_cast<int>(to - from);
            put(value >> (left - take), take);
            return true;
        }
        put(value, left);
        if (bytes[at++] == 0xFF) pass_ff(at++);
    }
    while (at + 8 <= end) {
        const auto word = load<std::uint64_t>(bytes + at);
        const auto swapped = swap_bytes(word);
        if (const auto ff = find_ff(word)) {
            const int count = (std::countr_zero(ff) / 8 + 1) * 8;  // up to the FF; the zero behind it is left out
            if (count > 32) {
                put(static_cast<std::uint32_t>(swapped >> 32), 32);
                put(static_cast<std::uint32_t>(swapped << 32 >> (96 - count)), count - 32);
            } else {
                put(static_cast<std::uint32_t>(swapped >> (64 - count)), count);
            }
            at += static_cast<std::size_t>(count) / 8;
            pass_ff(at++);
        } else {
            emit(count_ ? bits_ << (64 - count_) | swapped >> count_ : swapped);
            bits_ = swapped;
            at += 8;
        }
    }
    while (at < end) {
        put(bytes[at], 8);
        if (bytes[at++] == 0xFF) pass_ff(at++);
    }
    if (at == end && to % 8) {
        put(static_cast<std::uint32_t>(bytes[end] >> (8 - to % 8)), static_cast<int>(to % 8));
        if (bytes[end] == 0xFF) pass_ff(end + 1);
    }
    return behind == 0;
}

}  // namespace fl
