#include "sndfile.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

#include "flac_seek.h"

namespace fl {
namespace {

// What libsndfile's header declares.
struct Info {
    std::int64_t frames;
    int samplerate, channels, format, sections, seekable;
};
struct VirtualIo {
    std::int64_t (*length)(void*);
    std::int64_t (*seek)(std::int64_t, int, void*);
    std::int64_t (*read)(void*, std::int64_t, void*);
    std::int64_t (*write)(const void*, std::int64_t, void*);
    std::int64_t (*tell)(void*);
};
constexpr int kReadMode = 0x10;
constexpr std::uint32_t kSubtype = 0xFFFF, kVorbis = 0x60;

struct Functions {
    void* (*open)(VirtualIo*, int, Info*, void*) = nullptr;
    int (*close)(void*) = nullptr;
    std::int64_t (*seek)(void*, std::int64_t, int) = nullptr;
    std::int64_t (*read)(void*, float*, std::int64_t) = nullptr;
    const char* (*describe)(void*) = nullptr;
};
Functions g_functions;
std::atomic<bool> g_set{false};

// A file of one piece, or of its head and a later part.
struct Memory {
    Bytes head, rest;
    std::int64_t at = 0;
};
std::int64_t memory_length(void* user) {
    const auto& memory = *static_cast<Memory*>(user);
    return static_cast<std::int64_t>(memory.head.size() + memory.rest.size());
}
std::int64_t memory_tell(void* user) { return static_cast<Memory*>(user)->at; }
std::int64_t memory_write(const void*, std::int64_t, void*) { return 0; }
std::int64_t memory_seek(std::int64_t offset, int from, void* user) {
    auto& memory = *static_cast<Memory*>(user);
    const std::int64_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? memory.at : memory_length(user);
    std::int64_t to;
    if (__builtin_add_overflow(base, offset, &to) || to < 0) return -1;
    return memory.at = to;
}
std::int64_t memory_read(void* out, std::int64_t count, void* user) {
    auto& memory = *static_cast<Memory*>(user);
    const std::int64_t left = std::max<std::int64_t>(memory_length(user) - memory.at, 0);
    const std::int64_t size = std::clamp<std::int64_t>(count, 0, left);
    if (!size) return 0;
    const auto from = static_cast<std::size_t>(memory.at), wanted = static_cast<std::size_t>(size);
    const std::size_t border = memory.head.size();
    const std::size_t before = from < border ? std::min(wanted, border - from) : 0;
    if (before) std::memcpy(out, memory.head.data() + from, before);
    if (wanted > before)
        std::memcpy(static_cast<std::uint8_t*>(out) + before, memory.rest.data() + (from + before - border), wanted - before);
    memory.at += size;
    return size;
}

class File {
public:
    explicit File(Bytes head, Bytes rest = {}) : memory_{head, rest, 0} {
        if (!g_set) throw Failure("missing", "the library that decodes sound was not loaded");
        file_ = g_functions.open(&io_, kReadMode, &info_, &memory_);
        if (!file_) throw Failure("decode", std::string("is no sound that can be decoded: ") + g_functions.describe(nullptr));
        if (info_.frames < 0 || info_.samplerate <= 0 || info_.channels <= 0) {
            g_functions.close(file_);
            throw Failure("decode", "is no sound that can be decoded: it does not say its size");
        }
    }
    ~File() { g_functions.close(file_); }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    SoundInfo info() const {
        return {static_cast<std::uint64_t>(info_.frames), static_cast<std::uint32_t>(info_.samplerate),
                static_cast<std::uint32_t>(info_.channels), static_cast<std::uint32_t>(info_.format)};
    }
    bool seek(std::uint64_t frame) {
        return g_functions.seek(file_, static_cast<std::int64_t>(frame), SEEK_SET) == static_cast<std::int64_t>(frame);
    }
    std::uint64_t read(float* out, std::uint64_t frames) {
        return static_cast<std::uint64_t>(std::max<std::int64_t>(g_functions.read(file_, out, static_cast<std::int64_t>(frames)), 0));
    }

private:
    VirtualIo io_{memory_length, memory_seek, memory_read, memory_write, memory_tell};
    Memory memory_;
    Info info_{};
    void* file_ = nullptr;
};

// Frames decoded before those that are wanted. What a lossy codec makes of a frame rests on those before it: on one
// block in Vorbis, on the bit reservoir of up to nine frames in MP3, on the predictors' memory in Opus, which RFC 7845
// says has faded after 80 ms.
std::uint64_t lead(std::uint32_t format, std::uint32_t rate) {
    switch (format & kSubtype) {
        case kVorbis: return 16384;         // two of its longest blocks
        case 0x64: return rate * 4 / 10;    // Opus
        case 0x80: case 0x81: case 0x82: return 20 * 1152;  // MPEG audio
        default: return 0;
    }
}

// The frame at which the last page of an Ogg file begins, 0 where that can't be told. In that page libsndfile (1.2) finds
// other places than it was asked for, off by what is cut from the last block.
std::uint64_t last_page(Bytes ogg) {
    constexpr std::size_t kHeader = 27, kLargest = kHeader + 255 + 255 * 255;
    std::size_t end = ogg.size();
    bool last = true;
    for (std::size_t at = ogg.size(); at-- > 0 && end - at <= kLargest;) {
        if (ogg[at] != 'O' || end - at < kHeader || std::memcmp(ogg.data() + at, "OggS", 4) != 0) continue;
        const std::size_t segments = ogg[at + 26];
        if (end - at < kHeader + segments) continue;
        std::size_t size = kHeader + segments;
        for (std::size_t i = 0; i < segments; ++i) size += ogg[at + kHeader + i];
        if (at + size != end) continue;  // bytes that only look like the beginning of a page
        const auto granule = load<std::int64_t>(ogg.data() + at + 6);
        if (!last && granule >= 0) return static_cast<std::uint64_t>(granule);
        last = false;
        end = at;
    }
    return 0;
}

}  // namespace

void set_sndfile(const SndfileFunctions& given) {
    if (!given.open || !given.close || !given.seek || !given.read || !given.describe)
        throw Failure("argument", "an address is missing");
    if (g_set) return;  // it stays loaded, so the first addresses remain good
    g_functions.open = reinterpret_cast<decltype(g_functions.open)>(given.open);
    g_functions.close = reinterpret_cast<decltype(g_functions.close)>(given.close);
    g_functions.seek = reinterpret_cast<decltype(g_functions.seek)>(given.seek);
    g_functions.read = reinterpret_cast<decltype(g_functions.read)>(given.read);
    g_functions.describe = reinterpret_cast<decltype(g_functions.describe)>(given.describe);
    g_set = true;
}

bool has_sndfile() { return g_set; }

SoundInfo sound_info(Bytes file) { return File(file).info(); }

void sound_decode(Bytes bytes, const SoundInfo& claimed, std::uint64_t begin, std::uint64_t end, std::vector<float>& out) {
    constexpr std::uint64_t kAtOnce = 1 << 16;
    out.clear();
    const auto start = begin ? flac_start(bytes, begin) : std::nullopt;
    File file(start ? bytes.first(start->head) : bytes, start ? bytes.subspan(start->at) : Bytes{});
    const auto info = file.info();
    if (info.frames != claimed.frames || info.sample_rate != claimed.sample_rate || info.channels != claimed.channels)
        throw Failure("decode", "has " + std::to_string(info.frames) + " frames of " +
                                    std::to_string(info.channels) + " channels at " + std::to_string(info.sample_rate) +
                                    " Hz, not those stored here");
    if (begin > end || end > info.frames) throw Failure("argument", "the sound has " + std::to_string(info.frames) + " frames");
    std::uint64_t from = begin;
    if ((info.format & kSubtype) == kVorbis && begin) from = std::min(begin, last_page(bytes));
    std::uint64_t at = start ? start->sample : from - std::min(from, lead(info.format, info.sample_rate));
    if (at && !start && !file.seek(at)) throw Failure("decode", "can't be decoded from frame " + std::to_string(at) + " on");
    const std::size_t channels = info.channels;
    while (at < end) {
        const bool wanted = at >= begin;
        const std::uint64_t count = std::min(kAtOnce, (wanted ? end : begin) - at);
        const std::size_t before = out.size();
        out.resize(before + count * channels);
        const std::uint64_t got = file.read(out.data() + before, count);
        if (got < count)
            throw Failure("decode", "ends after " + std::to_string(at + got) + " of " + std::to_string(info.frames) + " frames");
        if (!wanted) out.resize(before);
        at += count;
    }
}

}  // namespace fl
