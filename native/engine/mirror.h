// An object's blocks that a cache keeps as files, each mapped at its place: bytes that lie in several blocks lie in one
// piece of memory, as those of a local file do, and who wants them needs no lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace fl {

// A file as it was when its bytes were found to be right. Whoever writes to it changes that.
struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t written = 0;  // nanoseconds

    bool operator==(const Stamp&) const = default;
};

class Mirror {
    using State = std::atomic<std::uint32_t>;

public:
    // Blocks that stay where they are for as long as this lives; its mirror must live longer.
    class Holds {
    public:
        Holds() = default;
        Holds(Holds&& other) noexcept : held_(std::exchange(other.held_, {})) {}
        Holds& operator=(Holds&& other) noexcept {
            std::swap(held_, other.held_);
            return *this;
        }
        ~Holds() { clear(); }
        void clear();
        explicit operator bool() const { return !held_.empty(); }

    private:
        friend class Mirror;
        std::vector<State*> held_;
    };

    // `folder` has blocks of `block` bytes, the last of which ends at `end` or later, as files that their numbers name.
    Mirror(std::string folder, std::uint64_t end, std::uint64_t block);
    ~Mirror();
    Mirror(const Mirror&) = delete;
    Mirror& operator=(const Mirror&) = delete;

    // The object's bytes from `begin` on, or null unless all blocks up to `end` are here. One that was not used since the
    // last rest must be as it was: `found` is counted up for each such.
    const std::uint8_t* hold(std::uint64_t begin, std::uint64_t end, Holds& holds, std::atomic<std::uint64_t>& found);

    // Maps the block's file if it is the one that was stamped. No more blocks are mapped than the system has room for.
    void attach(std::uint64_t number, const Stamp& stamp);

    // Blocks whose files were removed or written to are unmapped, once nobody holds them.
    void look();

    // Nobody holds anything: from now on blocks are looked at when they are next used.
    void rest();

private:
    std::string path_of(std::uint64_t number) const;
    std::size_t size_of(std::uint64_t number) const;
    bool is_as_it_was(std::uint64_t number);
    void touch(std::uint64_t number);
    void leave(std::uint64_t number);
    bool reserve();
    void unmap(std::uint64_t number);

    const std::string folder_;
    const std::uint64_t end_;
    const std::uint64_t block_;
    const std::uint64_t blocks_;
    std::mutex mutex_;  // guards what follows, while blocks come and go
    std::uint8_t* reserved_ = nullptr;
    std::size_t reserved_size_ = 0;
    bool refused_ = false;
    std::vector<Stamp> stamps_;
    std::atomic<std::uint8_t*> base_{nullptr};
    std::unique_ptr<State[]> states_;
};

}  // namespace fl
