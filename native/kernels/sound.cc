#include "sound.h"

#include <algorithm>

#include "guard.h"
#include "half.h"

namespace fl {
namespace {

constexpr std::uint8_t kSoundCodecs = 5;  // WAV, FLAC, Ogg Vorbis, Ogg Opus, MP3

std::size_t item_of(SoundKind kind) { return kind == SoundKind::float32 ? 4 : 2; }

// Numbers as floats, whatever they are stored as; under a guard, for they may lie in a mapping.
void convert(SoundKind kind, const std::uint8_t* from, std::size_t count, float* out) {
    guarded([&] {
        if (kind == SoundKind::float32) {
            std::memcpy(out, from, count * 4);
        } else if (kind == SoundKind::int16) {
            for (std::size_t i = 0; i < count; ++i)
                out[i] = static_cast<float>(load<std::int16_t>(from + 2 * i)) * 0x1p-15f;
        } else {
            for (std::size_t i = 0; i < count; ++i) out[i] = from_half(load<std::uint16_t>(from + 2 * i));
        }
    });
}

}  // namespace

void Sound::begin(const SoundProgram& program, Bytes payload, const std::uint8_t* metadata) {
    program_ = &program;
    payload_ = payload;
    stored_ = true;
    mono_ = false;
    left_ = right_ = begin_ = 0;
    value_ = 0;
    end_ = program.stored == SoundKind::words ? payload.size() * 8 / program.bits : load<std::uint64_t>(metadata);
    channels_ = program.channels;
    rate_ = program.sample_rate;
    if (program.stored == SoundKind::file) {
        info_ = {end_, load<std::uint32_t>(metadata + 8), load<std::uint16_t>(metadata + 12), 0};
        if (metadata[14] >= kSoundCodecs)
            throw Failure("format", "a sound of codec " + std::to_string(metadata[14]) + ": none is known");
        if (info_.channels == 0 || info_.sample_rate == 0 || (program.channels && info_.channels != program.channels) ||
            (program.sample_rate && info_.sample_rate != program.sample_rate))
            throw Failure("format", "the metadata row does not fit the field's options");
        channels_ = info_.channels;
        rate_ = info_.sample_rate;
        return;
    }
    if (program.has_tokens()) {
        if (TokenShape{program.channels, program.bits}.bytes(end_) != payload.size())
            throw Failure("format", std::to_string(end_) + " frames do not fit a payload of " + std::to_string(payload.size()) + " bytes");
        return;
    }
    if (!program.channels) {  // the row states a shape
        const auto word = [&](int i) { return load<std::uint64_t>(metadata + 8 * i); };
        end_ = word(1);
        if (word(0) != 2 || word(2) == 0 || word(2) > 0xFFFF) throw Failure("format", "the metadata row is no sound's");
        channels_ = static_cast<std::uint32_t>(word(2));
    }
    std::uint64_t bytes;
    if (__builtin_mul_overflow(end_, std::uint64_t{channels_} * item_of(program.stored), &bytes) || bytes != payload.size())
        throw Failure("format", std::to_string(end_) + " frames do not fit a payload of " + std::to_string(payload.size()) + " bytes");
}

void Sound::narrow(std::uint64_t from, std::uint64_t to) {
    const std::uint64_t middle = end_ - begin_, size = to - from;
    const auto part = [&](std::uint64_t at, std::uint64_t length) {  // what is left of a stretch of the window
        const std::uint64_t low = std::max(at, from), high = std::min(at + length, to);
        return std::pair(low, high > low ? high - low : 0);
    };
    const auto [low, kept] = part(left_, middle);
    const std::uint64_t before = part(0, left_).second;
    begin_ += kept ? low - left_ : 0;
    end_ = begin_ + kept;
    left_ = before;
    right_ = size - before - kept;
}

void Sound::widen(std::uint64_t before, std::uint64_t behind, double value) {
    if ((left_ || right_) && value != value_) samples();
    value_ = value;
    left_ += before;
    right_ += behind;
}

void Sound::fetch(std::vector<float>& out) {
    const std::size_t count = (end_ - begin_) * channels_;
    if (!stored_) {
        out.assign(memory_.begin() + static_cast<std::ptrdiff_t>(begin_ * channels_),
                   memory_.begin() + static_cast<std::ptrdiff_t>(end_ * channels_));
    } else if (program_->stored == SoundKind::file) {
        sound_decode(payload_, info_, begin_, end_, out);
    } else {
        out.resize(count);
        const std::size_t item = item_of(program_->stored);
        if (count) convert(program_->stored, payload_.data() + begin_ * channels_ * item, count, out.data());
    }
}

std::vector<float>& Sound::samples() {
    const bool whole = !stored_ && !mono_ && !left_ && !right_ && begin_ == 0 && end_ * channels_ == memory_.size();
    if (whole) return memory_;
    fetch(spare_);
    if (mono_ && channels_ > 1) {
        const std::size_t count = spare_.size() / channels_;
        for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (std::size_t c = 0; c < channels_; ++c) sum += spare_[i * channels_ + c];
            spare_[i] = sum / static_cast<float>(channels_);
        }
        spare_.resize(count);
    }
    if (mono_) channels_ = 1;
    mono_ = false;
    const auto value = static_cast<float>(value_);
    if (left_) spare_.insert(spare_.begin(), left_ * channels_, value);
    if (right_) spare_.insert(spare_.end(), right_ * channels_, value);
    memory_.swap(spare_);
    stored_ = false;
    left_ = right_ = begin_ = 0;
    end_ = memory_.size() / channels_;
    return memory_;
}

void Sound::replace(std::vector<float>&& numbers, std::uint32_t channels, std::uint32_t rate) {
    memory_ = std::move(numbers);
    stored_ = mono_ = false;
    channels_ = channels;
    rate_ = rate;
    left_ = right_ = begin_ = 0;
    end_ = memory_.size() / channels;
}

void Sound::finish(MutableBytes out) {
    const auto& program = *program_;
    const std::size_t count = program.frames, width = program.width;
    if (frames() != count || channels() != width)
        throw Failure("decode", "became " + std::to_string(frames()) + " frames of " + std::to_string(channels()) +
                                    ", not " + std::to_string(count) + " of " + std::to_string(width));
    if (program.has_tokens()) {  // (codebooks, frames), with what was added on both sides
        const std::size_t middle = end_ - begin_, item = program.item;
        thread_local std::vector<std::uint8_t> room;
        room.resize(middle * width * item);
        const TokenShape shape{program.channels, program.bits};
        guarded([&] { unpack_tokens(shape, payload_, begin_, middle, item, room); });
        const auto added = static_cast<std::uint32_t>(value_);
        for (std::size_t book = 0; book < width; ++book) {
            std::uint8_t* row = out.data() + book * count * item;
            for (std::size_t i = 0; i < count; ++i) std::memcpy(row + i * item, &added, item);
            if (middle) std::memcpy(row + left_ * item, room.data() + book * middle * item, middle * item);
        }
        return;
    }
    const auto& numbers = samples();
    const auto put = [&](std::size_t at, float value) {
        if (program.item == 2)
            store(out.data() + 2 * at, to_half(value));
        else
            store(out.data() + 4 * at, value);
    };
    if (program.item == 4 && !program.turned) {
        std::memcpy(out.data(), numbers.data(), out.size());
    } else if (program.turned) {
        for (std::size_t c = 0; c < width; ++c)
            for (std::size_t i = 0; i < count; ++i) put(c * count + i, numbers[i * width + c]);
    } else {
        for (std::size_t i = 0; i < numbers.size(); ++i) put(i, numbers[i]);
    }
}

}  // namespace fl
