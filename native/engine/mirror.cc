#include "mirror.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace fl {
namespace {

// Of a block: what it is, and beside that how many hold it.
constexpr std::uint32_t kAway = 0, kResting = 1u << 30, kHere = 2u << 30, kLeaving = 3u << 30, kWhat = 3u << 30;
constexpr std::uint32_t kHolders = ~kWhat;

constexpr std::uint64_t kHuge = 2 << 20;
constexpr std::size_t kMost = 16 << 10;              // blocks mapped by all; a process may have some 65,000 mappings
constexpr std::int64_t kTouched = 60'000'000'000;    // nanoseconds after which a use is told anew: so does the cache

std::atomic<std::size_t> g_mapped{0};

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

Stamp stamp_of(const struct stat& status) { return {status.st_ino, nanoseconds(status.st_mtim)}; }

std::size_t whole_pages(std::size_t size) { return (size + 4095) / 4096 * 4096; }

}  // namespace

void Mirror::Holds::clear() {
    for (auto* state : held_) state->fetch_sub(1, std::memory_order_release);
    held_.clear();
}

Mirror::Mirror(std::string folder, std::uint64_t end, std::uint64_t block)
    : folder_(std::move(folder)), end_(end), block_(block), blocks_((end + block - 1) / block) {}

Mirror::~Mirror() {
    if (!reserved_) return;
    for (std::uint64_t i = 0; i < blocks_; ++i) g_mapped -= states_[i] != kAway;
    munmap(reserved_, reserved_size_);
}

std::string Mirror::path_of(std::uint64_t number) const { return folder_ + "/" + std::to_string(number) + ".block"; }

std::size_t Mirror::size_of(std::uint64_t number) const { return std::min(block_, end_ - number * block_); }

const std::uint8_t* Mirror::hold(std::uint64_t begin, std::uint64_t end, Holds& holds,
                                 std::atomic<std::uint64_t>& found) {
    auto* const base = base_.load(std::memory_order_acquire);
    if (!base || begin >= end || end > end_) return nullptr;
    const auto before = holds.held_.size();
    for (auto number = begin / block_; number <= (end - 1) / block_; ++number) {
        auto& state = states_[number];
        auto now = state.load(std::memory_order_acquire);
        while ((now & kWhat) == kHere || (now & kWhat) == kResting) {
            if ((now & kWhat) == kResting) {
                if (!is_as_it_was(number)) {
                    leave(number);
                } else if (state.compare_exchange_strong(now, kHere | (now & kHolders))) {
                    ++found;  // by one of those who look at the same time
                    touch(number);
                }
                now = state.load(std::memory_order_acquire);
            } else if (state.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) {
                holds.held_.push_back(&state);
                break;
            }
        }
        if ((now & kWhat) != kHere) {
            while (holds.held_.size() > before) {
                holds.held_.back()->fetch_sub(1, std::memory_order_release);
                holds.held_.pop_back();
            }
            return nullptr;
        }
    }
    return base + begin;
}

bool Mirror::is_as_it_was(std::uint64_t number) {
    struct stat status {};
    std::lock_guard lock(mutex_);
    return stat(path_of(number).c_str(), &status) == 0 && stamp_of(status) == stamps_[number] &&
           static_cast<std::uint64_t>(status.st_size) >= size_of(number);
}

// The cache removes first what was not used for the longest time, as the time of the file says.
void Mirror::touch(std::uint64_t number) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    std::lock_guard lock(mutex_);
    if (nanoseconds(now) - stamps_[number].written <= kTouched) return;
    const timespec times[] = {now, now};
    struct stat status {};
    const auto path = path_of(number);
    if (utimensat(AT_FDCWD, path.c_str(), times, 0) == 0 && stat(path.c_str(), &status) == 0 &&
        status.st_ino == stamps_[number].inode)
        stamps_[number] = stamp_of(status);
}

void Mirror::leave(std::uint64_t number) {
    auto& state = states_[number];
    auto now = state.load();
    while ((now & kWhat) == kHere || (now & kWhat) == kResting)
        if (state.compare_exchange_weak(now, kLeaving | (now & kHolders))) return;
}

// Addresses for all of the object, none of them in use yet. A block begins where a huge page may.
bool Mirror::reserve() {
    if (reserved_ || refused_) return reserved_;
    reserved_size_ = whole_pages(end_) + kHuge;
    void* const found = mmap(nullptr, reserved_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    refused_ = found == MAP_FAILED;
    if (refused_) return false;
    reserved_ = static_cast<std::uint8_t*>(found);
    stamps_.resize(blocks_);
    states_ = std::make_unique<State[]>(blocks_);
    const auto address = reinterpret_cast<std::uintptr_t>(found);
    base_.store(reserved_ + (kHuge - address % kHuge) % kHuge, std::memory_order_release);
    return true;
}

void Mirror::attach(std::uint64_t number, const Stamp& stamp) {
    if (number >= blocks_ || block_ % 4096) return;
    std::lock_guard lock(mutex_);
    if (!reserve() || states_[number].load() != kAway || g_mapped >= kMost) return;
    const int file = ::open(path_of(number).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (file < 0) return;
    struct stat status {};
    const auto size = size_of(number);
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && stamp_of(status) == stamp &&
        static_cast<std::uint64_t>(status.st_size) >= size) {
        auto* const place = base_.load() + number * block_;
        if (mmap(place, size, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED) {
            madvise(place, size, MADV_HUGEPAGE);
            stamps_[number] = stamp;
            ++g_mapped;
            states_[number].store(kHere, std::memory_order_release);
        }
    }
    close(file);
}

// The lock is held, and nobody holds the block.
void Mirror::unmap(std::uint64_t number) {
    const auto flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(base_.load() + number * block_, whole_pages(size_of(number)), PROT_NONE, flags, -1, 0) == MAP_FAILED) return;
    --g_mapped;
    states_[number].store(kAway, std::memory_order_release);
}

void Mirror::look() {
    if (!base_.load(std::memory_order_acquire)) return;
    for (std::uint64_t i = 0; i < blocks_; ++i) {
        const auto now = states_[i].load() & kWhat;
        if (now == kAway) continue;
        if (now != kLeaving && !is_as_it_was(i)) leave(i);
        std::lock_guard lock(mutex_);
        if (states_[i].load(std::memory_order_acquire) == kLeaving) unmap(i);  // that nobody holds it is part of that
    }
}

void Mirror::rest() {
    if (!base_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(mutex_);
    for (std::uint64_t i = 0; i < blocks_; ++i) {
        auto now = kHere;
        states_[i].compare_exchange_strong(now, kResting);
        if (now == kLeaving) unmap(i);
    }
}

}  // namespace fl
