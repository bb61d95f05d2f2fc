#include "sound_program.h"

#include <algorithm>
#include <cmath>

#include "portable_math.h"
#include "sound.h"

namespace fl {
namespace {

constexpr double kLn10 = 2.30258509299404568402;
constexpr std::uint64_t kMost = std::uint64_t{1} << 40;  // frames

double between(Random& random, double least, double most) { return least + (most - least) * random.uniform(); }

// A length in frames: numbers[at] of them, or of seconds where the number behind it is 1.
std::uint64_t length_of(const SoundStep& step, std::size_t at, const Sound& sound) {
    const double given = step.numbers[at];
    if (step.numbers[at + 1] == 0) return static_cast<std::uint64_t>(given);
    return static_cast<std::uint64_t>(std::floor(given * sound.rate() + 0.5));
}

void segment(const SoundStep& step, Sound& sound, Random& random) {
    const std::uint64_t wanted = length_of(step, 0, sound), have = sound.frames();
    if (have >= wanted) {
        const std::uint64_t from = random.below(have - wanted + 1);
        return sound.narrow(from, from + wanted);
    }
    if (step.numbers[2] == 0)
        throw Failure("short", "has " + std::to_string(have) + " frames, and a segment of " + std::to_string(wanted) +
                                   " is wanted");
    sound.widen(0, wanted - have, 0);
}

void fit(const SoundStep& step, Sound& sound, Random&) {
    const std::uint64_t wanted = length_of(step, 0, sound), have = sound.frames();
    const auto share = [&](std::uint64_t spare) {  // of what is cut or added, what is so at the beginning
        return step.numbers[2] == 0 ? 0 : step.numbers[2] == 1 ? spare / 2 : spare;
    };
    if (have > wanted) {
        const std::uint64_t from = share(have - wanted);
        sound.narrow(from, from + wanted);
    } else if (have < wanted) {
        const std::uint64_t before = share(wanted - have);
        sound.widen(before, wanted - have - before, step.numbers[3]);
    }
}

// Weights are costly to make, and a dataset has few rates.
std::shared_ptr<const Resampler> resampler(std::uint32_t from, std::uint32_t to) {
    static std::mutex mutex;
    static std::map<std::pair<std::uint32_t, std::uint32_t>, std::shared_ptr<const Resampler>> made;
    std::lock_guard lock(mutex);
    auto& one = made[{from, to}];
    if (!one) {
        if (made.size() > 64) {  // a file may claim any rate
            made.clear();
            return made[{from, to}] = std::make_shared<const Resampler>(from, to);
        }
        one = std::make_shared<const Resampler>(from, to);
    }
    return one;
}

void resample(const SoundStep& step, Sound& sound, Random&) {
    const auto to = static_cast<std::uint32_t>(step.numbers[0]);
    if (sound.rate() == to) return;
    std::shared_ptr<const Resampler> way;
    try {
        way = resampler(sound.rate(), to);
    } catch (const Failure& failure) {
        throw Failure("decode", failure.what());
    }
    const auto& in = sound.samples();
    const auto channels = sound.channels();
    std::vector<float> out(way->length(in.size() / channels) * channels);
    way->run(in, channels, out);
    sound.replace(std::move(out), channels, to);
}

void mono(const SoundStep&, Sound& sound, Random&) { sound.make_mono(); }

void gain(const SoundStep& step, Sound& sound, Random& random) {
    if (!(random.uniform() < step.numbers[0])) return;
    const auto factor = static_cast<float>(portable_exp(between(random, step.numbers[1], step.numbers[2]) * (kLn10 / 20)));
    for (auto& value : sound.samples()) value *= factor;
}

// White and normal: Box and Muller's two at a time.
void noise(const SoundStep& step, Sound& sound, Random& random) {
    if (!(random.uniform() < step.numbers[0])) return;
    const double above = between(random, step.numbers[1], step.numbers[2]);
    auto& samples = sound.samples();
    double power = 0;
    for (const float value : samples) power += static_cast<double>(value) * value;
    if (!(power > 0) || !std::isfinite(power)) return;  // silence has no level to lie above
    const double size = std::sqrt(power / static_cast<double>(samples.size()) * portable_exp(-above * (kLn10 / 10)));
    for (std::size_t i = 0; i < samples.size(); i += 2) {
        const double radius = size * std::sqrt(-2 * portable_log(1 - random.uniform()));
        const double turn = 2 * random.uniform();
        samples[i] += static_cast<float>(radius * cos_pi(turn));
        if (i + 1 < samples.size()) samples[i + 1] += static_cast<float>(radius * sin_pi(turn));
    }
}

void shift(const SoundStep& step, Sound& sound, Random& random) {
    if (!(random.uniform() < step.numbers[0])) return;
    const std::uint64_t most = length_of(step, 1, sound), frames = sound.frames();
    const auto by = static_cast<std::int64_t>(random.below(2 * most + 1)) - static_cast<std::int64_t>(most);
    if (frames == 0 || by == 0) return;
    const auto far = static_cast<std::uint64_t>(by < 0 ? -by : by);
    if (step.numbers[3] != 0) {
        auto& samples = sound.samples();
        const std::uint64_t left = by < 0 ? far % frames : (frames - far % frames) % frames;
        std::rotate(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(left * sound.channels()), samples.end());
        return;
    }
    const std::uint64_t moved = std::min(far, frames);
    if (by > 0) {  // later: silence comes first
        sound.narrow(0, frames - moved);
        sound.widen(moved, 0, 0);
    } else {
        sound.narrow(moved, frames);
        sound.widen(0, moved, 0);
    }
}

void mel(const SoundStep& step, Sound& sound, Random&) {
    const auto& maker = *step.mel;
    if (sound.channels() != 1) throw Failure("decode", "has " + std::to_string(sound.channels()) + " channels, and a spectrogram takes one");
    maker.check(sound.frames());
    const auto& samples = sound.samples();
    std::vector<float> out(maker.frames(samples.size()) * maker.spec().bands);
    maker.run(samples, out);
    sound.replace(std::move(out), maker.spec().bands, 0);
}

void mask(const SoundStep& step, Sound& sound, Random& random) {
    auto& values = sound.samples();
    const std::uint64_t bands = sound.channels(), frames = sound.frames();
    const auto number = [&](std::size_t i) { return static_cast<std::uint64_t>(step.numbers[i]); };
    auto fill = static_cast<float>(step.numbers[5]);
    if (step.numbers[6] != 0 && !values.empty()) {
        double sum = 0;
        for (const float value : values) sum += value;
        fill = static_cast<float>(sum / static_cast<double>(values.size()));
    }
    // The paper's: a width from 0 to the greatest, then a place where it fits.
    const auto place = [&](std::uint64_t widest, std::uint64_t size) {
        const std::uint64_t width = random.below(std::min(widest, size) + 1);
        const std::uint64_t from = random.below(size - width + 1);
        return std::pair(from, from + width);
    };
    const auto share = static_cast<std::uint64_t>(std::floor(step.numbers[4] * static_cast<double>(frames)));
    for (std::uint64_t i = 0; i < number(0); ++i) {
        const auto [from, to] = place(std::min(number(1), share), frames);
        std::fill(values.begin() + static_cast<std::ptrdiff_t>(from * bands), values.begin() + static_cast<std::ptrdiff_t>(to * bands), fill);
    }
    for (std::uint64_t i = 0; i < number(2); ++i) {
        const auto [from, to] = place(number(3), bands);
        for (std::uint64_t frame = 0; frame < frames; ++frame)
            std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(frame * bands + from), to - from, fill);
    }
}

void require(bool holds, const char* what) {
    if (!holds) throw Failure("argument", what);
}

}  // namespace

SoundRule sound_rule(SoundStep::Kind kind) {
    using Kind = SoundStep::Kind;
    switch (kind) {
        case Kind::segment: return {3, segment};
        case Kind::fit: return {4, fit};
        case Kind::resample: return {1, resample};
        case Kind::mono: return {0, mono};
        case Kind::gain: return {3, gain};
        case Kind::noise: return {3, noise};
        case Kind::shift: return {4, shift};
        case Kind::mel: return {0, mel};
        case Kind::mask: return {7, mask};
    }
    throw Failure("argument", "no such step");
}

std::size_t SoundProgram::metadata_bytes() const {
    if (stored == SoundKind::file) return 16;
    if (stored == SoundKind::words) return 0;
    return channels ? 8 : 72;
}

void check_sound_program(const SoundProgram& program) {
    require(program.item == 4 || program.item == 2 || (program.item == 1 && program.has_tokens()), "an item");
    require(program.frames <= kMost && program.width >= 1 && program.width <= (1u << 20), "a result");
    if (program.has_tokens()) {
        const TokenShape shape{program.channels, program.bits};
        shape.check();
        require(program.item * 8 >= program.bits && !program.turned, "tokens");
        // They are unpacked last, so all that is added to them has one value.
        std::vector<double> added;
        for (const auto& step : program.steps)
            if (step.kind == SoundStep::Kind::fit && step.numbers.size() == 4) added.push_back(step.numbers[3]);
            else if (step.kind == SoundStep::Kind::segment && step.numbers.size() == 3 && step.numbers[2] != 0) added.push_back(0);
        for (const double value : added)
            require(value == added[0] && value >= 0 && value < std::ldexp(1.0, static_cast<int>(8 * program.item)), "the value of added tokens");
    }
    for (const auto& step : program.steps) {
        require(step.numbers.size() == sound_rule(step.kind).numbers, "as many numbers as the step takes");
        using Kind = SoundStep::Kind;
        if (program.has_tokens()) require(step.kind == Kind::segment || step.kind == Kind::fit, "no such step on tokens");
        require((step.kind == Kind::mel) == (step.mel != nullptr), "a spectrogram is described");
        for (const double number : step.numbers) require(std::isfinite(number), "a number that is not finite");
        const auto within = [&](std::size_t at, double low, double high) {
            require(step.numbers[at] >= low && step.numbers[at] <= high, "a number out of bounds");
        };
        switch (step.kind) {
            case Kind::segment: case Kind::fit: within(0, 0, static_cast<double>(kMost)); break;
            case Kind::resample: within(0, 1, 4e9); break;
            case Kind::gain: case Kind::noise:
                within(0, 0, 1);
                within(1, -300, 300);
                within(2, step.numbers[1], 300);
                break;
            case Kind::shift: within(0, 0, 1); within(1, 0, static_cast<double>(kMost)); break;
            case Kind::mask:
                for (std::size_t i = 0; i < 4; ++i) within(i, 0, 1e6);
                within(4, 0, 1);
                break;
            default: break;
        }
    }
}

struct SoundRunner::State {
    Sound sound;
};

SoundRunner::SoundRunner() : state_(std::make_unique<State>()) {}
SoundRunner::~SoundRunner() = default;

void SoundRunner::run(const SoundProgram& program, Bytes payload, const std::uint8_t* metadata, std::uint64_t epoch,
                      std::uint64_t sample, MutableBytes out) {
    auto& sound = state_->sound;
    sound.begin(program, payload, metadata);
    for (const auto& step : program.steps) {
        Random random(program.seed, epoch, sample, step.op);
        sound_rule(step.kind).run(step, sound, random);
    }
    sound.finish(out);
}

}  // namespace fl
