// The files that are read ahead: opened and closed, looked at, and brought into the page cache.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "segments.h"

namespace fl {
namespace {

constexpr std::uint64_t kRemoteUnit = 64;
constexpr std::size_t kOpenFiles = 128;      // twice as many while all are being read from
constexpr std::uint64_t kChunk = 2 << 20;     // populated at once: one huge page, where the kernel makes them
constexpr unsigned kPopulating = 4;          // threads that do so
constexpr std::size_t kLooks = 16;           // ranges looked at to see whether a batch is in memory
constexpr std::size_t kLongestStreak = 6;    // then every 2^6th batch is looked at

// What offsets, sizes and memory of direct reads must be multiples of.
std::uint64_t direct_alignment(int fd) {
#ifdef STATX_DIOALIGN
    struct statx found {};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) &&
        found.stx_dio_offset_align && found.stx_dio_mem_align <= Arena::kGrain)
        return std::max<std::uint64_t>({found.stx_dio_offset_align, found.stx_dio_mem_align, 512});
#else
    (void)fd;
#endif
    return 4096;
}

}  // namespace

std::size_t ReadAhead::add_file(FileName name) {
    auto file = std::make_unique<File>(&nodes_);
    struct stat status {};
    if (!is_remote() && stat(name.path.c_str(), &status) == 0)
        file->trusted = geteuid() == 0 || status.st_uid == geteuid() || access(name.path.c_str(), W_OK) == 0;
    file->name = std::move(name);
    // Windows are checked when they are read, so they are read.
    if (is_remote() && options_.apart && !file->name.blocks.empty() && !file->name.windows)
        file->mirror = std::make_unique<Mirror>(file->name.blocks, file->name.end, options_.unit);
    if (options_.mode == ReadMode::populate) {  // what lies behind the payloads, nobody asks for
        file->populated.resize((std::min<std::uint64_t>(file->name.end, file->name.mapped.size()) + kChunk - 1) / kChunk);
        untouched_ += file->populated.size();
    }
    std::lock_guard lock(mutex_);
    file->number = static_cast<int>(files_.size());
    files_.push_back(std::move(file));
    return files_.size() - 1;
}

bool ReadAhead::open(File& file) {
    file.used = ++clock_;
    if (is_remote()) {
        file.unit = std::max<std::uint64_t>(options_.unit, kRemoteUnit);
        return true;
    }
    if (file.fd >= 0) return true;
    if (file.hopeless) return false;
    if (open_files_ >= kOpenFiles) {
        File* oldest = nullptr;
        for (auto& other : files_)
            if (other->fd >= 0 && !other->reading && (!oldest || other->used < oldest->used)) oldest = other.get();
        if (oldest)
            close(*oldest);
        else if (open_files_ >= 2 * kOpenFiles)
            return false;
    }
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    file.fd = ::open(file.name.path.c_str(), flags | O_DIRECT);
    const bool direct = file.fd >= 0;
    if (!direct) file.fd = ::open(file.name.path.c_str(), flags);  // some file systems have no direct reads
    struct stat status {};
    if (file.fd >= 0) ++open_files_;
    if (file.fd < 0 || fstat(file.fd, &status) != 0 || status.st_dev != file.name.device ||
        status.st_ino != file.name.inode) {
        close(file);
        file.hopeless = true;
        return false;
    }
    file.unit = std::max(options_.unit, direct ? direct_alignment(file.fd) : 512);
    return true;
}

void ReadAhead::close(File& file) {
    if (file.plain >= 0) ::close(file.plain);
    file.plain = -1;
    if (file.fd < 0) return;
    ::close(file.fd);
    file.fd = -1;
    --open_files_;
}

bool ReadAhead::open_queue() {
    if (queue_ || hopeless_) return queue_ != nullptr;
    try {
        if (options_.mode == ReadMode::populate) {
            queue_ = make_pread_pool(kPopulating, [](std::span<Read* const> reads) {
                for (const auto* read : reads) delete read;
            });
        } else if (const auto done = [this](std::span<Read* const> reads) { finished(reads); }; is_remote()) {
            queue_ = remote_.open(done);
        } else {
            arena_ = std::make_unique<Arena>(options_.memory);
            if (options_.mode != ReadMode::pread)
                queue_ = make_uring(options_.depth, {arena_->data(), arena_->capacity()}, done);
            if (!queue_) queue_ = make_pread_pool(options_.threads, done);
        }
        counts_.by = queue_->name();
    } catch (const std::exception&) {
        hopeless_ = true;
    }
    return queue_ != nullptr;
}

bool ReadAhead::resident(File& file, std::uint64_t at) {
    if (at >= file.name.mapped.size()) return true;
    if (file.trusted) {
        constexpr std::uint64_t page = 4096;
        const auto address = reinterpret_cast<std::uintptr_t>(file.name.mapped.data() + at) / page * page;
        unsigned char there = 1;
        return mincore(reinterpret_cast<void*>(address), 1, &there) != 0 || (there & 1);
    }
    if (file.plain < 0) file.plain = ::open(file.name.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char byte = 0;
    const iovec to{&byte, 1};
    return file.plain < 0 || preadv2(file.plain, &to, 1, static_cast<off_t>(at), RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

bool ReadAhead::looks() {
    const bool all = options_.mode == ReadMode::populate && untouched_ == 0;
    if (!all && (options_.mode != ReadMode::automatic || !streak_ || ++unseen_ >= std::size_t{1} << streak_)) {
        unseen_ = 0;
        return true;
    }
    ++counts_.mapped;
    return false;
}

bool ReadAhead::worth_reading(const std::vector<Range>& ranges) {
    if (options_.mode == ReadMode::populate) {
        populate(ranges);
        return false;
    }
    if (options_.mode != ReadMode::automatic) return true;
    std::lock_guard lock(mutex_);
    const auto step = std::max<std::size_t>(ranges.size() / kLooks, 1);
    std::size_t looks = 0, there = 0;
    for (std::size_t i = 0; i < ranges.size(); i += step, ++looks)
        there += resident(*files_[ranges[i].file], ranges[i].begin);
    if (there * 8 < looks * 7) {
        streak_ = 0;
        return true;
    }
    streak_ = std::min<std::size_t>(streak_ + 1, kLongestStreak);
    ++counts_.mapped;
    return false;
}

void ReadAhead::populate(const std::vector<Range>& ranges) {
    std::vector<Read*> reads;
    std::lock_guard lock(mutex_);
    if (!open_queue()) return;
    for (const auto& range : ranges) {
        File& file = *files_[range.file];
        const auto last = std::min<std::uint64_t>((range.begin + range.size - 1) / kChunk + 1, file.populated.size());
        for (auto chunk = range.begin / kChunk; chunk < last; ++chunk) {
            if (file.populated[chunk]) continue;
            file.populated[chunk] = true;
            --untouched_;
            const auto part = file.name.mapped.subspan(chunk * kChunk);
            auto read = std::make_unique<Read>();
            read->populate = part.data();
            read->size = std::min<std::size_t>(part.size(), kChunk);
            counts_.reads += 1;
            counts_.bytes += read->size;
            reads.push_back(read.release());
        }
    }
    if (!reads.empty()) queue_->submit(reads);
}

}  // namespace fl
