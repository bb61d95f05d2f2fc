// A sound while a program runs over it: a window over what is stored, then numbers in memory, then a window over those.
#pragma once

#include "sound_program.h"

namespace fl {

class Sound {
public:
    // Throws Failure "format" where payload and metadata row contradict each other.
    void begin(const SoundProgram& program, Bytes payload, const std::uint8_t* metadata);

    std::uint64_t frames() const { return left_ + (end_ - begin_) + right_; }
    std::uint32_t channels() const { return mono_ ? 1 : channels_; }
    std::uint32_t rate() const { return rate_; }

    // Only frames [from, to) are wanted; so many are added on both sides.
    void narrow(std::uint64_t from, std::uint64_t to);
    void widen(std::uint64_t before, std::uint64_t behind, double value);
    void make_mono() { mono_ = true; }

    // The numbers, (frames, channels): what is wanted is fetched now.
    std::vector<float>& samples();
    // Other numbers in their place.
    void replace(std::vector<float>&& numbers, std::uint32_t channels, std::uint32_t rate);

    void finish(MutableBytes out);

private:
    void fetch(std::vector<float>& out);

    const SoundProgram* program_ = nullptr;
    Bytes payload_;
    SoundInfo info_;
    bool stored_ = true;  // the window is over the payload, not over memory_
    std::uint64_t begin_ = 0, end_ = 0, left_ = 0, right_ = 0;
    double value_ = 0;  // of what was added
    std::uint32_t channels_ = 1, rate_ = 0;
    bool mono_ = false;
    std::vector<float> memory_, spare_;
};

using RunSoundStep = void (*)(const SoundStep& step, Sound& sound, Random& random);
struct SoundRule {
    std::size_t numbers;
    RunSoundStep run;
};
SoundRule sound_rule(SoundStep::Kind kind);

}  // namespace fl
