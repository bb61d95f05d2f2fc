// Bits of entropy-coded JPEG data, in which a zero byte follows each FF: read, written, and carried from one to the other.
#pragma once

#include <bit>
#include <memory>

#include "jpeg_frame.h"

namespace fl {

// Which bytes of a word are FF: the lowest bit set belongs to the first of them in memory order.
inline std::uint64_t find_ff(std::uint64_t word) {
    constexpr std::uint64_t kOnes = 0x0101010101010101u;
    const auto inverted = ~word;
    return (inverted - kOnes) & word & (kOnes << 7);
}

inline std::uint64_t swap_bytes(std::uint64_t word) { return __builtin_bswap64(word); }

// A place in the data, stuffed zeros included: eight times the byte, plus the bits of it that lie before.
using BitPlace = std::uint64_t;

class BitReader {
public:
    // Reads data[from / 8 ..], beginning at that bit; behind the data all bits are zero. `from` lies inside.
    BitReader(Bytes data, BitPlace from) : data_(data), at_(from / 8) {
        fill();
        drop(static_cast<int>(from % 8));
    }

    // After this at least 32 bits are there to be looked at and dropped.
    void fill() {
        if (count_ >= 32) return;
        if (at_ + 8 <= data_.size()) {
            const auto word = fl::load<std::uint64_t>(data_.data() + at_);
            if (!find_ff(word)) {
                bits_ |= swap_bytes(word) >> count_;
                at_ += static_cast<std::size_t>(63 - count_) >> 3;
                count_ |= 56;
                return;
            }
        }
        fill_slowly();
    }

    // The next `count` bits, 1 to 32.
    std::uint32_t look(int count) const { return static_cast<std::uint32_t>(bits_ >> (64 - count)); }
    void drop(int count) {
        bits_ <<= count;
        count_ -= count;
    }

    // The next symbol, still to be dropped; of length 0 where the bits are no code of the table. Needs 16 bits.
    HuffmanTable::Look find(const HuffmanTable& table) const {
        const auto found = table.look[look(HuffmanTable::kLook)];
        return found.length ? found : find_long(table);
    }

    // The next DC category, -1 where the bits are none.
    int category(const HuffmanTable& table) {
        const auto found = find(table);
        drop(found.length);
        return found.length ? found.symbol : -1;
    }

    // A DC difference: its category is known. Needs 16 bits.
    int difference(int category) {
        if (!category) return 0;
        const auto raw = static_cast<int>(look(category));
        drop(category);
        return raw < 1 << (category - 1) ? raw - (1 << category) + 1 : raw;
    }

    // Passes over the 63 AC coefficients of a block. False where they are no such thing.
    bool skip_ac(const HuffmanTable& table) {
        int k = 1;
        while (k < 64) {
            fill();
            const auto found = find(table);
            if (!found.length) return false;
            drop(found.bits);
            k += found.step;
        }
        return k == 64 || k > HuffmanTable::kEndOfBlock;
    }

    bool past_end() const { return count_ < 8 * made_up_; }

    // Where the next bit lies; only while not past the end.
    BitPlace place() const {
        const int left = count_ - 8 * made_up_;
        auto byte = at_;
        for (int i = 0; i < (left + 7) / 8; ++i) byte -= byte >= 2 && !data_[byte - 1] && data_[byte - 2] == 0xFF ? 2 : 1;
        return byte * 8 + static_cast<unsigned>(-left & 7);
    }

private:
    void fill_slowly();
    HuffmanTable::Look find_long(const HuffmanTable& table) const;

    Bytes data_;
    std::size_t at_;          // the next byte to take
    std::uint64_t bits_ = 0;  // from the top
    int count_ = 0;           // of bits that count in `bits_`
    int made_up_ = 0;         // bytes taken from behind the end
};

// Writes into memory of its own that grows and is kept from one use to the next.
class BitWriter {
public:
    void clear() {
        at_ = 0;
        bits_ = 0;
        count_ = 0;
    }
    // Room for `size` more bytes of data before stuffing.
    void reserve(std::size_t size);

    // Bytes as they are. Only while no bits are pending.
    void bytes(Bytes data) {
        std::memcpy(memory_.get() + at_, data.data(), data.size());
        at_ += data.size();
    }
    void byte(std::uint32_t value) { memory_[at_++] = static_cast<std::uint8_t>(value); }
    void zeros(std::size_t size) {
        std::memset(memory_.get() + at_, 0, size);
        at_ += size;
    }

    // The lower `count` bits of `value`, up to 32.
    void put(std::uint32_t value, int count) {
        if (count_ + count < 64) {
            bits_ = bits_ << count | value;
            count_ += count;
            return;
        }
        const int left = count_ + count - 64;
        emit(bits_ << (64 - count_) | value >> left);
        bits_ = value;
        count_ = left;
    }
    // Ones up to a whole byte, and out with it.
    void finish();

    // The bits of `data` from one place to another, which lie inside it. False where there is a marker among them.
    bool carry(Bytes data, BitPlace from, BitPlace to);

    Bytes written() const { return {memory_.get(), at_}; }

private:
    // 64 bits, the first at the top.
    void emit(std::uint64_t word) {
        word = swap_bytes(word);
        if (!find_ff(word)) [[likely]] {
            store(memory_.get() + at_, word);
            at_ += 8;
        } else {
            emit_stuffed(word);
        }
    }
    void emit_stuffed(std::uint64_t word);

    std::unique_ptr<std::uint8_t[]> memory_;
    std::size_t capacity_ = 0;
    std::size_t at_ = 0;
    std::uint64_t bits_ = 0;  // the lower `count_` of them are pending; what is above has been written
    int count_ = 0;
};

}  // namespace fl
