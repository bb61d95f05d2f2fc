#include "codec.h"

#include <lz4.h>
#include <lz4hc.h>
#include <zdict.h>
#include <zstd.h>

#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <new>

namespace fl {
namespace {

struct FreeContext {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
    void operator()(ZSTD_CDict* dictionary) const { ZSTD_freeCDict(dictionary); }
    void operator()(ZSTD_DDict* dictionary) const { ZSTD_freeDDict(dictionary); }
};

ZSTD_CCtx* compressor() {
    thread_local std::unique_ptr<ZSTD_CCtx, FreeContext> context{ZSTD_createCCtx()};
    if (!context) throw std::bad_alloc();
    return context.get();
}

ZSTD_DCtx* decompressor() {
    thread_local std::unique_ptr<ZSTD_DCtx, FreeContext> context{ZSTD_createDCtx()};
    if (!context) throw std::bad_alloc();
    return context.get();
}

// An lz4 block spends a byte on at most 255 bytes of output; a zstd block spends 4 on at most 128 KiB.
constexpr std::uint64_t kLz4Ratio = 255;
constexpr std::uint64_t kZstdRatio = kMostRatio;

Failure broken(const std::string& why) { return Failure("codec", why); }

std::size_t checked(std::size_t result) {
    if (ZSTD_isError(result)) throw broken(std::string("zstd: ") + ZSTD_getErrorName(result));
    return result;
}

}  // namespace

// Digesting for compression takes a while and depends on the level, so it is done once for each level asked for.
struct Dictionary::Digested {
    std::vector<std::uint8_t> data;
    std::unique_ptr<ZSTD_DDict, FreeContext> expanding;
    mutable std::mutex mutex;
    mutable std::map<int, std::unique_ptr<ZSTD_CDict, FreeContext>> compressing;

    const ZSTD_CDict* at(int level) const {
        std::lock_guard lock(mutex);
        auto& found = compressing[level];
        if (!found) found.reset(ZSTD_createCDict(data.data(), data.size(), level));
        if (!found) throw broken("zstd: the dictionary can't be used");
        return found.get();
    }
};

Dictionary::Dictionary(Bytes data) : digested_(std::make_unique<Digested>()) {
    if (data.empty()) throw broken("zstd: an empty dictionary");  // which libzstd takes, and then falls over
    digested_->data.assign(data.begin(), data.end());
    digested_->expanding.reset(ZSTD_createDDict(data.data(), data.size()));
    if (!digested_->expanding) throw broken("zstd: the dictionary is broken");
}

Dictionary::~Dictionary() = default;

std::vector<std::uint8_t> train_dictionary(Bytes samples, std::span<const std::size_t> sizes, std::size_t capacity) {
    std::size_t total = 0;
    for (const auto size : sizes)
        if (__builtin_add_overflow(total, size, &total) || total > samples.size()) throw broken("more samples than bytes");
    std::vector<std::uint8_t> out(capacity);
    const auto size = ZDICT_trainFromBuffer(out.data(), out.size(), samples.data(), sizes.data(),
                                            static_cast<unsigned>(sizes.size()));
    out.resize(ZDICT_isError(size) ? 0 : size);
    return out;
}

std::vector<std::uint8_t> compress(Bytes data, Codec codec, int level, const Dictionary* dictionary) {
    std::vector<std::uint8_t> out;
    if (codec == Codec::zstd_dictionary) {
        if (!dictionary) throw broken("zstd: no dictionary is given");
        auto* const context = compressor();
        out.resize(ZSTD_compressBound(data.size()));
        // The field has one dictionary, so no payload needs to name it.
        checked(ZSTD_CCtx_setParameter(context, ZSTD_c_dictIDFlag, 0));
        checked(ZSTD_CCtx_refCDict(context, dictionary->digested().at(level)));
        const auto size = ZSTD_compress2(context, out.data(), out.size(), data.data(), data.size());
        ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);  // the dictionary may end before this thread does
        out.resize(checked(size));
        return out;
    }
    if (codec == Codec::zstd) {
        out.resize(ZSTD_compressBound(data.size()));
        const auto size = ZSTD_compressCCtx(compressor(), out.data(), out.size(), data.data(), data.size(), level);
        if (ZSTD_isError(size)) throw broken(std::string("zstd: ") + ZSTD_getErrorName(size));
        out.resize(size);
        return out;
    }
    if (codec != Codec::lz4) throw broken("no such compression");
    if (data.size() > LZ4_MAX_INPUT_SIZE) throw broken("lz4 takes at most 2 GiB a payload; use zstd");
    const auto size = static_cast<int>(data.size());
    out.resize(static_cast<std::size_t>(LZ4_compressBound(size)));
    const auto* from = reinterpret_cast<const char*>(data.data());
    auto* to = reinterpret_cast<char*>(out.data());
    const int room = static_cast<int>(out.size());
    const int written = level <= 1 ? LZ4_compress_default(from, to, size, room)
                                   : LZ4_compress_HC(from, to, size, room, level);
    if (written <= 0) throw broken("lz4: compression failed");
    out.resize(static_cast<std::size_t>(written));
    return out;
}

void check_ratio(Bytes head, std::uint64_t stored, Codec codec, std::uint64_t raw) {
    if (codec == Codec::lz4) {
        if (raw > LZ4_MAX_INPUT_SIZE || raw / kLz4Ratio > stored) throw broken("lz4: impossible raw size");
    } else if (codec == Codec::zstd || codec == Codec::zstd_dictionary) {
        const auto claimed = ZSTD_getFrameContentSize(head.data(), head.size());
        if (claimed != raw || raw / kZstdRatio > stored) throw broken("zstd: raw size differs from the frame's");
    } else {
        throw broken("unknown compression id " + std::to_string(static_cast<int>(codec)));
    }
}

void decompress(Bytes data, Codec codec, MutableBytes out, const Dictionary* dictionary) {
    check_ratio(data, data.size(), codec, out.size());
    if (codec == Codec::zstd_dictionary) {
        if (!dictionary) throw broken("zstd: it was compressed with a dictionary, and the file has none for the field");
        const auto size = ZSTD_decompress_usingDDict(decompressor(), out.data(), out.size(), data.data(), data.size(),
                                                     dictionary->digested().expanding.get());
        if (checked(size) != out.size()) throw broken("zstd: wrong length");
        return;
    }
    if (codec == Codec::zstd) {
        const auto size = ZSTD_decompressDCtx(decompressor(), out.data(), out.size(), data.data(), data.size());
        if (ZSTD_isError(size)) throw broken(std::string("zstd: ") + ZSTD_getErrorName(size));
        if (size != out.size()) throw broken("zstd: wrong length");
        return;
    }
    if (data.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) throw broken("lz4: block too long");
    const int size = LZ4_decompress_safe(reinterpret_cast<const char*>(data.data()),
                                         reinterpret_cast<char*>(out.data()), static_cast<int>(data.size()),
                                         static_cast<int>(out.size()));
    if (size < 0 || static_cast<std::size_t>(size) != out.size()) throw broken("lz4: damaged block");
}

}  // namespace fl
