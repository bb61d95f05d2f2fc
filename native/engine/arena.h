// A fixed piece of page-aligned memory, lent out in parts: what reads from disk go into.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace fl {

class Arena {
public:
    static constexpr std::size_t kGrain = 4096;

    explicit Arena(std::size_t capacity);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    // Null when there is no gap of that size. Parts begin at multiples of kGrain.
    std::uint8_t* take(std::size_t size);
    void give_back(std::uint8_t* part, std::size_t size);

    std::uint8_t* data() const { return data_; }
    std::size_t capacity() const { return capacity_; }
    std::size_t used() const { return used_; }

private:
    void add_gap(std::size_t at, std::size_t size);
    void remove_gap(std::map<std::size_t, std::size_t>::iterator gap);

    void* base_;  // of the mapping, which may begin before the memory
    std::size_t mapped_;
    std::uint8_t* data_;
    std::size_t capacity_;
    std::size_t used_ = 0;
    std::map<std::size_t, std::size_t> gaps_;                   // where each begins, and its size
    std::set<std::pair<std::size_t, std::size_t>> by_size_;     // the same, smallest first
};

}  // namespace fl
