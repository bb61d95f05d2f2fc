// The least that reading costs: io_uring with O_DIRECT, registered buffers and a fixed depth, and nothing else.
// bare_uring FILE SIZE DEPTH reads SIZE bytes from each offset given on standard input (8 bytes each, as this machine
// writes them) and prints the seconds from the first submission to the last completion.
#include <fcntl.h>
#include <liburing.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

[[noreturn]] void fail(const char* what, int error) {
    std::fprintf(stderr, "%s: %s\n", what, std::strerror(error));
    std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::fprintf(stderr, "usage: bare_uring FILE SIZE DEPTH < OFFSETS\n");
        return 2;
    }
    const auto size = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
    const auto depth = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
    const int file = open(argv[1], O_RDONLY | O_DIRECT);
    if (file < 0) fail(argv[1], errno);

    std::vector<std::uint64_t> offsets;
    for (std::uint64_t offset; std::fread(&offset, sizeof offset, 1, stdin) == 1;) offsets.push_back(offset);

    io_uring ring;
    if (const int failed = io_uring_queue_init(depth, &ring, 0)) fail("io_uring_queue_init", -failed);
    std::vector<iovec> buffers(depth);
    for (auto& buffer : buffers) {
        buffer = {std::aligned_alloc(4096, size), size};
        if (!buffer.iov_base) fail("aligned_alloc", ENOMEM);
        std::memset(buffer.iov_base, 0, size);
    }
    if (const int failed = io_uring_register_buffers(&ring, buffers.data(), depth)) fail("register_buffers", -failed);
    if (const int failed = io_uring_register_files(&ring, &file, 1)) fail("register_files", -failed);

    std::size_t begun = 0, done = 0;
    const auto begin = [&](unsigned buffer) {
        io_uring_sqe* const entry = io_uring_get_sqe(&ring);
        io_uring_prep_read_fixed(entry, 0, buffers[buffer].iov_base, size, offsets[begun++], static_cast<int>(buffer));
        entry->flags |= IOSQE_FIXED_FILE;
        entry->user_data = buffer;
    };
    const auto start = std::chrono::steady_clock::now();
    for (unsigned buffer = 0; buffer < depth && begun < offsets.size(); ++buffer) begin(buffer);
    while (done < offsets.size()) {
        if (const int failed = io_uring_submit_and_wait(&ring, 1); failed < 0) fail("submit", -failed);
        io_uring_cqe* entry;
        while (io_uring_peek_cqe(&ring, &entry) == 0) {
            if (entry->res != static_cast<int>(size)) fail("read", entry->res < 0 ? -entry->res : EIO);
            const auto buffer = static_cast<unsigned>(entry->user_data);
            io_uring_cqe_seen(&ring, entry);
            ++done;
            if (begun < offsets.size()) begin(buffer);
        }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("%.9f\n", took.count());
}
