#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace fl {
namespace {

class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }

private:
    int fd_;
};

// Room for `more` bytes behind those there.
void grow(FilesRead& read, std::size_t& room, std::size_t more) {
    if (read.size + more <= room) return;
    const auto wanted = std::max(read.size + more, room + room / 2 + 65536);
    auto* grown = static_cast<std::uint8_t*>(std::realloc(read.content.get(), wanted));
    if (!grown) throw std::bad_alloc();
    read.content.release();
    read.content.reset(grown);
    room = wanted;
}

FileFacts read_one(int folder, const std::string& name, std::size_t limit, FilesRead& read, std::size_t& room) {
    FileFacts facts;
    // A pipe that took the file's place must not make us wait.
    const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    struct stat status {};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
        facts.error = errno;
        return facts;
    }
    facts.size = status.st_size;
    facts.mtime = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    facts.mode = status.st_mode;
    facts.device = static_cast<std::int64_t>(status.st_dev);
    facts.inode = static_cast<std::int64_t>(status.st_ino);
    facts.links = static_cast<std::int64_t>(status.st_nlink);
    if (!S_ISREG(status.st_mode)) facts.error = EINVAL;
    if (facts.error || static_cast<std::size_t>(status.st_size) > limit) return facts;
    const auto size = static_cast<std::size_t>(status.st_size);
    grow(read, room, size);
    std::size_t done = 0;
    while (done < size) {
        const auto got = ::read(file.get(), read.content.get() + read.size + done, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            facts.error = errno;
            return facts;
        }
        if (got == 0) break;  // it became shorter meanwhile
        done += static_cast<std::size_t>(got);
    }
    facts.size = static_cast<std::int64_t>(done);
    facts.offset = static_cast<std::int64_t>(read.size);
    read.size += done;
    return facts;
}

}  // namespace

FilesRead read_files(int folder, std::span<const std::string> names, std::size_t limit) {
    FilesRead read;
    read.facts.reserve(names.size());
    std::size_t room = 0;
    grow(read, room, 1);
    for (const auto& name : names) read.facts.push_back(read_one(folder, name, limit, read, room));
    return read;
}

}  // namespace fl
