// What happens to an image behind its first program: functions that were compiled from the user's Python, other images
// laid over it, and further programs on what became of it. Each takes the whole image in memory and leaves a whole one.
#pragma once

#include <string>
#include <unordered_set>

#include "program.h"

namespace fl {

// Compiled elsewhere; needs no GIL. `place` is seed, epoch, sample and op; `words` are for its random numbers. Where it
// works in place, `given` and `out` are the same. Anything but 0 means that it failed.
using CustomFunction = std::int32_t (*)(std::uint8_t* given, std::uint8_t* out, std::uint64_t* place,
                                        std::uint32_t* words);
constexpr std::size_t kCustomWords = 16;

// `share` of 65536ths of `mask` over the samples that are named.
struct Overlay {
    std::vector<std::uint8_t> mask;
    std::uint32_t share = 0;
    std::unordered_set<std::uint64_t> samples;
};

// One of the three.
struct Stage {
    std::shared_ptr<const Program> program{};  // its images are raw
    std::shared_ptr<const Overlay> overlay{};
    CustomFunction function = nullptr;
    std::string name{};          // of the function, for who reads of its failure
    std::uint32_t op = 0;        // its number among the user's
    std::size_t row_bytes = 0;   // of what it makes
    bool in_place = false;
};

struct Chain {
    std::shared_ptr<const Program> first;
    std::vector<Stage> stages;
    std::size_t told = 0;  // numbers that its programs tell

    std::size_t row_bytes() const { return stages.empty() ? first->row_bytes() : stages.back().row_bytes; }
    // Throws Failure "argument" where the stage can't take what comes before it.
    void add(Stage stage);
};

// As ProgramRunner::run; also throws Failure "operation". Functions and overlays count as moving nothing.
void run_chain(const Chain& chain, ProgramRunner& runner, Bytes payload, const ImageShape& shape, std::uint64_t epoch,
               std::uint64_t sample, MutableBytes out, std::span<double> told = {});

}  // namespace fl
