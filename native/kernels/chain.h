// What becomes of a payload on its way to a row of a batch. It begins as an image that a program makes of it, as a row that
// the user's decoder makes, or as an array that is stored as it is. Behind that come functions that were compiled from the
// user's Python, other images laid over it, conversions, and further programs. Each takes the whole row in memory and
// leaves a whole one.
#pragma once

#include <string>
#include <unordered_set>

#include "convert.h"
#include "program.h"

namespace fl {

// Both are compiled elsewhere and need no GIL. Anything but 0 means that it failed.

// `place` is seed, epoch, sample and op; `words` are for its random numbers. Where it works in place, `given` and `out`
// are the same.
using CustomFunction = std::int32_t (*)(std::uint8_t* given, std::uint8_t* out, std::uint64_t* place,
                                        std::uint32_t* words);
constexpr std::size_t kCustomWords = 16;

// Fills `out`, which is all zeros before, from a sample's metadata row and its payload.
using DecodeFunction = std::int32_t (*)(const std::uint8_t* metadata, const std::uint8_t* payload, std::uint64_t size,
                                        std::uint8_t* out);

// `share` of 65536ths of `mask` over the samples that are named.
struct Overlay {
    std::vector<std::uint8_t> mask;
    std::uint32_t share = 0;
    std::unordered_set<std::uint64_t> samples;
};

// One of the four.
struct Stage {
    std::shared_ptr<const Program> program{};  // its images are raw
    std::shared_ptr<const Overlay> overlay{};
    std::shared_ptr<const Conversion> conversion{};
    CustomFunction function = nullptr;
    std::string name{};          // of the function, for who reads of its failure
    std::uint32_t op = 0;        // its number among the user's
    std::size_t row_bytes = 0;   // of what it makes
    bool in_place = false;
};

// What a chain begins with where that is no program.
struct Start {
    DecodeFunction decode = nullptr;  // null: payloads are rows, and have row_bytes each
    bool scaled = false;              // or bytes from -128 to 127, times the float that is the metadata row, as floats
    std::string name{};               // of the decoder
    std::size_t metadata_size = 0;
    std::size_t row_bytes = 0;
    std::uint64_t seed = 0;
};

struct Chain {
    std::shared_ptr<const Program> first{};
    Start start{};  // where there is no first program
    std::vector<Stage> stages{};
    std::size_t told = 0;  // numbers that its programs tell

    std::size_t first_bytes() const { return first ? first->row_bytes() : start.row_bytes; }
    std::size_t row_bytes() const { return stages.empty() ? first_bytes() : stages.back().row_bytes; }
    // Of the metadata row that it needs.
    std::size_t metadata_size() const;
    // What each payload must have; 0: that depends on the payload.
    std::size_t payload_bytes() const {
        return first || start.decode ? 0 : start.row_bytes / (start.scaled ? sizeof(float) : 1);
    }
    // Whether the other takes the same payloads.
    bool begins_as(const Chain& other) const;
    // Throws Failure "argument" where the stage can't take what comes before it.
    void add(Stage stage);
};

// As ProgramRunner::run, with the metadata row for the shape; also throws Failure "operation" and "decoder". All but
// programs count as moving nothing.
void run_chain(const Chain& chain, ProgramRunner& runner, Bytes payload, Bytes metadata, std::uint64_t epoch,
               std::uint64_t sample, MutableBytes out, std::span<double> told = {});

}  // namespace fl
