#include "inflate.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

namespace fl {
namespace {

constexpr std::size_t kMost = std::numeric_limits<uInt>::max() / 2;  // zlib counts with 32 bits

struct Stream {
    z_stream z{};
    Stream() {
        if (inflateInit2(&z, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    }
    ~Stream() { inflateEnd(&z); }
};

}  // namespace

void inflate_raw(Bytes data, MutableBytes out) {
    Stream stream;
    auto& z = stream.z;
    std::size_t taken = 0, made = 0;
    for (;;) {
        const auto in = std::min(data.size() - taken, kMost), room = std::min(out.size() - made, kMost);
        std::uint8_t nothing = 0;
        z.next_in = const_cast<Bytef*>(data.data() + taken);
        z.avail_in = static_cast<uInt>(in);
        z.next_out = room ? out.data() + made : &nothing;
        z.avail_out = static_cast<uInt>(room);
        const int told = inflate(&z, Z_NO_FLUSH);
        taken += in - z.avail_in;
        made += room - z.avail_out;
        if (told == Z_STREAM_END) break;
        if (told != Z_OK || (in == z.avail_in && room == z.avail_out))
            throw Failure("codec", std::string("deflate: ") + (z.msg ? z.msg : "the stream has another length"));
    }
    if (made != out.size() || taken != data.size()) throw Failure("codec", "deflate: the stream has another length");
}

std::uint32_t crc32(Bytes data) {
    uLong value = ::crc32(0, nullptr, 0);
    for (std::size_t at = 0; at < data.size(); at += kMost)
        value = ::crc32(value, data.data() + at, static_cast<uInt>(std::min(data.size() - at, kMost)));
    return static_cast<std::uint32_t>(value);
}

}  // namespace fl
