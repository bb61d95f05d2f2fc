// A sound from its stored bytes to the finished row of a batch. Which part is wanted is decided before anything is read,
// so only that part is copied, decoded or unpacked. Random parameters are drawn by place, as in program.h.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "bitpack.h"
#include "mel.h"
#include "random.h"
#include "resample.h"
#include "sndfile.h"

namespace fl {

struct SoundStep {
    // With the numbers that each takes. `p` is how likely it happens; a length is followed by whether it is in seconds.
    enum class Kind : std::uint8_t {
        segment,   // length, whether a shorter sound is padded: a part from anywhere
        fit,       // length, 0 / 1 / 2 for start, centre or end, the value of what is added
        resample,  // rate
        mono,
        gain,   // p, range of decibels
        noise,  // p, range of decibels that the sound lies above it
        shift,  // p, length, whether it comes in again at the other end
        mel,
        mask,  // masks and greatest width over time, the same over bands, share of the time, value, whether the mean
    };
    static constexpr std::size_t kKinds = static_cast<std::size_t>(Kind::mask) + 1;
    Kind kind;
    std::uint32_t op = 0;  // its number among the user's, which keys its draws
    std::vector<double> numbers;
    std::shared_ptr<const Mel> mel{};
};

// How sounds are stored. Arrays are (frames, channels); a spectrogram's channels are its bands. `words` are tokens of
// text, one behind the other without a metadata row.
enum class SoundKind : std::uint8_t { float32, float16, int16, file, tokens, words };

struct SoundProgram {
    SoundKind stored = SoundKind::float32;
    std::uint32_t channels = 1;     // of arrays and tokens; 0: the metadata row says so
    std::uint32_t sample_rate = 0;  // 0: unknown, or of a file its own
    std::uint32_t bits = 0;         // of a token
    std::vector<SoundStep> steps;
    std::uint64_t frames = 0, width = 0;  // of the result: (frames, width), or (width, frames) where turned
    std::size_t item = 4;                 // bytes of one of its numbers; 2 of floats: halves
    bool turned = false;
    std::uint64_t seed = 0;

    std::size_t row_bytes() const { return frames * width * item; }
    bool has_tokens() const { return stored == SoundKind::tokens || stored == SoundKind::words; }
    // Rows begin with the number of frames; those of arrays with any number of channels are 9 words, as NDARRAY has
    // them, and those of files say rate and channels behind it.
    std::size_t metadata_bytes() const;
};

// Throws Failure "argument" for a program that can't be run.
void check_sound_program(const SoundProgram& program);

// Makes a row of a payload; keeps its memory from sound to sound, and belongs to one thread. `mapped` payloads are read
// under a guard. Throws Failure "decode", "format", or "short" for a sound that is too short.
class SoundRunner {
public:
    SoundRunner();
    ~SoundRunner();
    void run(const SoundProgram& program, Bytes payload, const std::uint8_t* metadata, std::uint64_t epoch,
             std::uint64_t sample, MutableBytes out);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fl
