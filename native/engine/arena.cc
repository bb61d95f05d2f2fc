#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace fl {
namespace {

constexpr std::size_t kHuge = 2 << 20;

std::size_t whole(std::size_t size) {
    return std::max<std::size_t>((size + Arena::kGrain - 1) / Arena::kGrain, 1) * Arena::kGrain;
}

}  // namespace

Arena::Arena(std::size_t capacity) : capacity_(whole(capacity)) {
    // In huge pages, where they are to be had, memory is there sooner and the kernel has fewer pages to pin.
    const std::size_t aligned = capacity_ >= kHuge ? kHuge : kGrain;
    mapped_ = capacity_ + aligned;
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    const auto begin = (reinterpret_cast<std::uintptr_t>(base_) + aligned - 1) / aligned * aligned;
    data_ = reinterpret_cast<std::uint8_t*>(begin);
    if (aligned == kHuge) madvise(data_, capacity_ / kHuge * kHuge, MADV_HUGEPAGE);
    add_gap(0, capacity_);
}

Arena::~Arena() { munmap(base_, mapped_); }

void Arena::add_gap(std::size_t at, std::size_t size) {
    gaps_[at] = size;
    by_size_.emplace(size, at);
}

void Arena::remove_gap(std::map<std::size_t, std::size_t>::iterator gap) {
    by_size_.erase({gap->second, gap->first});
    gaps_.erase(gap);
}

std::uint8_t* Arena::take(std::size_t size) {
    const auto wanted = whole(size);
    const auto fitting = by_size_.lower_bound({wanted, 0});
    if (fitting == by_size_.end()) return nullptr;
    const auto [room, at] = *fitting;
    remove_gap(gaps_.find(at));
    if (room > wanted) add_gap(at + wanted, room - wanted);
    used_ += wanted;
    return data_ + at;
}

void Arena::give_back(std::uint8_t* part, std::size_t size) {
    auto at = static_cast<std::size_t>(part - data_);
    auto room = whole(size);
    used_ -= room;
    const auto next = gaps_.lower_bound(at);
    if (next != gaps_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == at) {
            at = before->first;
            room += before->second;
            remove_gap(before);
        }
    }
    if (next != gaps_.end() && next->first == at + room) {
        room += next->second;
        remove_gap(next);
    }
    add_gap(at, room);
}

}  // namespace fl
