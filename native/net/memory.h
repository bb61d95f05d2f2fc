// Memory for what is fetched, used again: new memory of a process has to be cleared by the system first, which takes as
// long as fetching it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/types.h>

namespace fl::net {

class Memory : public std::enable_shared_from_this<Memory> {
public:
    using Clock = std::chrono::steady_clock;

    static std::shared_ptr<Memory> make() { return std::shared_ptr<Memory>(new Memory()); }
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    // At least so many bytes, with whatever is in them; null where there are none to be had. Whoever lets go of them last
    // gives them back, in any thread, in a forked process too.
    std::shared_ptr<std::uint8_t> get(std::size_t size);

    // Gives the system what nobody has wanted since then.
    void trim(Clock::time_point since);

    std::size_t idle_bytes() const;
    // Whether there is something to trim, or will be.
    bool in_use() const;

private:
    Memory();
    struct Idle {
        std::uint8_t* bytes;
        Clock::time_point since;
    };
    void put_back(std::uint8_t* bytes, std::size_t size) noexcept;

    const pid_t process_;
    mutable std::mutex mutex_;
    std::map<std::size_t, std::vector<Idle>> idle_;  // by size, those used last at the end
    std::size_t idle_bytes_ = 0;
    std::size_t lent_ = 0;  // pieces
};

}  // namespace fl::net
