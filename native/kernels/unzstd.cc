#include "unzstd.h"

#include <zstd.h>

#include <new>

namespace fl {

struct Unzstd::State {
    ZSTD_DStream* stream = ZSTD_createDStream();
    std::vector<std::uint8_t> room = std::vector<std::uint8_t>(ZSTD_DStreamOutSize());
    ~State() { ZSTD_freeDStream(stream); }
};

Unzstd::Unzstd() : state_(std::make_unique<State>()) {
    if (!state_->stream) throw std::bad_alloc();
}

Unzstd::~Unzstd() = default;

void Unzstd::feed(Bytes data, std::vector<std::uint8_t>& out) {
    ZSTD_inBuffer from{data.data(), data.size(), 0};
    bool more = !data.empty();
    while (more) {
        ZSTD_outBuffer to{state_->room.data(), state_->room.size(), 0};
        const auto left = ZSTD_decompressStream(state_->stream, &to, &from);
        if (ZSTD_isError(left)) throw Failure("codec", std::string("the zstd stream is damaged: ") + ZSTD_getErrorName(left));
        out.insert(out.end(), state_->room.begin(), state_->room.begin() + static_cast<std::ptrdiff_t>(to.pos));
        whole_ = left == 0;
        // A full room means that there may be more to come, though all was taken.
        more = from.pos < from.size || (left && to.pos == to.size);
    }
}

}  // namespace fl
