#include "chain.h"

namespace fl {
namespace {

void lay_over(const Overlay& overlay, std::uint8_t* pixels) {
    for (std::size_t i = 0; i < overlay.mask.size(); ++i)
        pixels[i] = static_cast<std::uint8_t>(
            (pixels[i] * (65536 - overlay.share) + overlay.mask[i] * overlay.share + 32768) >> 16);
}

}  // namespace

void Chain::add(Stage stage) {
    if (stage.program) {
        if (stage.program->stored != StoredKind::raw || stage.program->raw.bytes() != row_bytes())
            throw Failure("argument", "a program takes another image than comes before it");
        stage.row_bytes = stage.program->row_bytes();
        told += told_numbers(*stage.program);
    } else if (stage.overlay) {
        if (stage.overlay->mask.size() != row_bytes() || stage.overlay->share > 65536)
            throw Failure("argument", "the mask has another size than the image");
        stage.row_bytes = row_bytes();
    } else if (!stage.function || !stage.row_bytes || (stage.in_place && stage.row_bytes != row_bytes())) {
        throw Failure("argument", "no such operation");
    }
    stage.in_place = stage.overlay || (stage.in_place && !stage.program);
    stages.push_back(std::move(stage));
}

void run_chain(const Chain& chain, ProgramRunner& runner, Bytes payload, const ImageShape& shape, std::uint64_t epoch,
               std::uint64_t sample, MutableBytes out, std::span<double> told) {
    // What works in place does so in the batch, where nothing behind it makes an image of its own.
    const std::size_t count = chain.stages.size();
    std::size_t moves = 0;
    for (const auto& stage : chain.stages) moves += !stage.in_place;
    thread_local std::vector<std::uint8_t> rooms[2];
    const auto room = [&](std::size_t bytes, std::size_t left) -> MutableBytes {
        if (left == 0) return out;
        auto& mine = rooms[left % 2];
        mine.resize(bytes);
        return mine;
    };
    auto now = room(chain.first->row_bytes(), moves);
    const auto part = [&](const Program& program) {
        const auto mine = told.first(told.empty() ? 0 : told_numbers(program));
        told = told.subspan(mine.size());
        return mine;
    };
    auto geometry = runner.run(*chain.first, payload, shape, epoch, sample, now, part(*chain.first));
    for (std::size_t i = 0; i < count; ++i) {
        const auto& stage = chain.stages[i];
        if (!stage.in_place) --moves;
        const auto next = stage.in_place ? now : room(stage.row_bytes, moves);
        if (stage.program) {
            geometry = runner.run(*stage.program, now, stage.program->raw, epoch, sample, next, part(*stage.program), geometry);
        } else if (stage.overlay) {
            if (stage.overlay->samples.contains(sample)) lay_over(*stage.overlay, now.data());
        } else {
            std::uint64_t place[] = {chain.first->seed, epoch, sample, stage.op};
            std::uint32_t words[kCustomWords] = {};
            if (stage.function(now.data(), next.data(), place, words))
                throw Failure("operation", "the operation " + stage.name + " failed");
        }
        now = next;
    }
}

}  // namespace fl
