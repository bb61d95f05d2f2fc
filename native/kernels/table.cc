#include "table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "asking.h"
#include "crc32c.h"
#include "guard.h"

namespace fl {
namespace {

constexpr std::uint32_t kLargestRead = 16 << 10;  // a block that is read lies on the stack
// Blocks are asked for with those beside them, so many bytes: that takes a disk hardly longer, and others are there soon.
constexpr std::size_t kAskedTogether = 16 << 10;

void compare(std::size_t block, std::uint32_t stored, std::uint32_t computed) {
    if (stored != computed)
        throw Failure("table", "block " + std::to_string(block) + " is damaged", stored, computed);
}

}  // namespace

Table::Table(Bytes rows, std::uint32_t row_size, std::uint32_t block_size, Bytes crcs, std::shared_ptr<const Table> list)
    : data_(rows), crcs_(crcs), list_(std::move(list)), row_size_(row_size), block_size_(block_size) {
    if (row_size == 0 || block_size == 0) throw Failure("format", "a table needs a row size and a block size");
    if (rows.size() % row_size) throw Failure("format", "a table's size is not a multiple of its row size");
    rows_ = rows.size() / row_size;
    block_shift_ = std::has_single_bit(block_size) ? std::countr_zero(block_size) : -1;
    blocks_ = rows.size() / block_size + (rows.size() % block_size != 0);
    if (crcs.size() != blocks_ * 4) throw Failure("format", "a table's checksums do not match its size");
    if (list_) {
        if (list_->data_.data() != crcs.data() || list_->data_.size() != crcs.size() || list_->block_size_ % 4)
            throw Failure("format", "a table's checksums are not those in its list");
        will_need_if_gone(crcs);
    }
    unseen_ = blocks_;
    seen_ = AtomicBits(blocks_, true);
    asked_ = AtomicBits(blocks_);
}

void Table::read_from(const char* path, std::uint64_t device, std::uint64_t inode, std::uint64_t offset) {
    if (block_size_ > kLargestRead || block_size_ % row_size_) return;
    const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return;
    const auto file = std::shared_ptr<const int>(new int(descriptor), [](const int* fd) {
        ::close(*fd);
        delete fd;
    });
    struct stat status {};
    if (::fstat(descriptor, &status) || status.st_dev != device || status.st_ino != inode) return;
    file_ = file;
    file_offset_ = offset;
}

// Throws unless the part of the list that has this block's checksum is what was written.
void Table::check_list(std::size_t block) const {
    const std::size_t part = list_->block_of(block * 4);
    if (list_->seen(part)) return;
    std::uint32_t stored = 0, computed = 0;
    if (!list_->check_block(part, stored, computed)) {
        const auto first = part * list_->block_size_ / 4, behind = (part + 1) * list_->block_size_ / 4;
        throw Failure("table", "checksums of blocks " + std::to_string(first) + " to " +
                                   std::to_string(std::min<std::size_t>(behind, blocks_) - 1) + " are damaged",
                      stored, computed);
    }
    list_->see(part, stored, computed);
}

std::uint32_t Table::stored_crc(std::size_t block) const {
    if (list_) check_list(block);
    std::uint32_t stored = 0;
    guarded([&] { stored = load<std::uint32_t>(crcs_.data() + block * 4); });
    return stored;
}

bool Table::check_block(std::size_t block, std::uint32_t& stored, std::uint32_t& computed) const {
    stored = stored_crc(block);
    guarded([&] { computed = crc32c(this->block(block)); });
    return stored == computed;
}

void Table::ask(std::size_t begin, std::size_t last) const {
    if (KnownAlone::holds()) return;
    const std::size_t together = std::max<std::size_t>(kAskedTogether / block_size_, 1);
    for (std::size_t one = begin; one <= last; ++one) {
        if (seen(one) || asked_.test(one)) continue;
        const auto first = one / together * together, end = std::min(first + together, blocks_);
        for (auto i = first; i < end; ++i) asked_.set(i);
        will_need(data_.subspan(first * block_size_, std::min(end * block_size_, data_.size()) - first * block_size_));
    }
}

void Table::expect_all() const {
    asked_.set_all();
    will_need(data_);
}

void Table::check_all() const {
    for (std::size_t block = 0; block < blocks_; ++block) try {
            check(block);
        } catch (const Failure&) {
        }
}

void Table::check_now(std::size_t block) const {
    KnownAlone::check();
    std::uint32_t stored = 0, computed = 0;
    check_block(block, stored, computed);
    see(block, stored, computed);
}

void Table::see(std::size_t block, std::uint32_t stored, std::uint32_t computed) const {
    compare(block, stored, computed);
    if (!seen_.set(block)) std::atomic_ref(unseen_).fetch_sub(1, std::memory_order_relaxed);
}

void Table::check_copy(std::size_t block, Bytes bytes) const {
    std::uint32_t computed = 0;
    guarded([&] { computed = crc32c(bytes); });
    compare(block, stored_crc(block), computed);
}

void Table::read(std::uint64_t row, std::size_t width, std::uint8_t* out) const {
    alignas(64) std::array<std::uint8_t, kLargestRead> bytes;
    const auto block = block_of(row * row_size_);
    const auto begin = block * block_size_;
    const auto length = std::min<std::size_t>(block_size_, data_.size() - begin);
    for (std::size_t got = 0; got < length;) {
        const auto some = pread(*file_, bytes.data() + got, length - got, static_cast<off_t>(file_offset_ + begin + got));
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) throw Failure("io", std::strerror(errno));
        if (some == 0) throw Failure("io", "the file became shorter while it was read");
        got += static_cast<std::size_t>(some);
    }
    see(block, stored_crc(block), crc32c(Bytes(bytes.data(), length)));
    std::memcpy(out, bytes.data() + (row * row_size_ - begin), std::min<std::size_t>(width, row_size_));
}

Bytes Table::at(std::uint64_t first, std::uint64_t count) const {
    if (first > rows_ || count > rows_ - first) throw Failure("index", "row outside the table");
    const Bytes wanted = data_.subspan(first * row_size_, count * row_size_);
    if (wanted.empty()) return wanted;
    const std::size_t begin = block_of(first * row_size_);
    const std::size_t last = block_of((first + count) * row_size_ - 1);
    for (std::size_t block = begin; block <= last; ++block) check(block);
    return wanted;
}

void Table::copy(std::uint64_t first, std::uint64_t count, std::uint8_t* out) const {
    const Bytes rows = at(first, count);
    guarded([&] { std::memcpy(out, rows.data(), rows.size()); });
}

namespace {

const Table& source_of(std::span<const Table* const> tables, const Picks& picks, std::size_t i) {
    const auto source = picks.source(i);
    if (source >= tables.size()) throw Failure("index", "no such source");
    return *tables[source];
}

}  // namespace

void copy_rows(const std::uint8_t* const* rows, std::size_t count, std::size_t width, std::uint8_t* out) {
    guarded([&] {
        for (std::size_t i = 0; i < count; ++i) {
            std::uint8_t* const to = out + i * width;
            if (rows[i] == to)
                continue;
            else if (!rows[i])
                std::memset(to, 0, width);
            else if (width == 8)
                std::memcpy(to, rows[i], 8);
            else if (width == 32)
                std::memcpy(to, rows[i], 32);
            else
                std::memcpy(to, rows[i], width);
        }
    });
}

void take(std::span<const Table* const> tables, const Picks& picks, MutableBytes out) {
    const std::size_t width = tables.empty() ? 0 : tables[0]->row_size();
    for (const Table* table : tables)
        if (table->row_size() != width) throw Failure("format", "tables of different row sizes");
    if (out.size() != picks.size() * width) throw Failure("format", "the output has the wrong size");
    const auto row_of = [&](std::size_t i) -> TableRow {
        if (picks.rows[i] < 0) return {};
        return {&source_of(tables, picks, i), static_cast<std::uint64_t>(picks.rows[i])};
    };
    gather_rows(picks.size(), width, row_of, out.data());
}

void take_bits(std::span<const Table* const> tables, const Picks& picks, MutableBytes out) {
    for (const Table* table : tables)
        if (table->row_size() != 1) throw Failure("format", "bits come in rows of one byte");
    if (out.size() != picks.size()) throw Failure("format", "the output has the wrong size");
    for (std::size_t i = 0; i < picks.size(); ++i) {
        if (picks.rows[i] < 0) {
            out[i] = 0;
            continue;
        }
        const auto row = static_cast<std::uint64_t>(picks.rows[i]);
        try {
            source_of(tables, picks, i).copy(row / 8, 1, &out[i]);
            out[i] = (out[i] >> (row % 8)) & 1;
        } catch (Failure& failure) {
            failure.position = static_cast<std::int64_t>(i);
            throw;
        }
    }
}

std::vector<std::uint32_t> block_crcs(Bytes data, std::uint32_t block_size) {
    if (block_size == 0) throw Failure("format", "a block size of zero");
    std::vector<std::uint32_t> crcs;
    crcs.reserve(data.size() / block_size + 1);
    for (std::size_t at = 0; at < data.size(); at += block_size)
        crcs.push_back(crc32c(data.subspan(at, std::min<std::size_t>(block_size, data.size() - at))));
    return crcs;
}

}  // namespace fl
