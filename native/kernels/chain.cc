#include "chain.h"

namespace fl {
namespace {

void lay_over(const Overlay& overlay, std::uint8_t* pixels) {
    for (std::size_t i = 0; i < overlay.mask.size(); ++i)
        pixels[i] = static_cast<std::uint8_t>(
            (pixels[i] * (65536 - overlay.share) + overlay.mask[i] * overlay.share + 32768) >> 16);
}

bool is_raw(const Program& program) { return program.stored == StoredKind::raw; }

// Frames of a video are raw too, and each video has its own shape: that of its metadata.
bool has_one_shape(const Program& program) { return is_raw(program) && program.raw.bytes() > 0; }

// Of the shapes that a program is given.
ImageCoding coding_of(const Program& program) { return {kind_of(program.stored), program.upright_shapes}; }

void begin(const Start& start, Bytes payload, Bytes metadata, MutableBytes out) {
    if (start.decode) {
        std::memset(out.data(), 0, out.size());
        if (start.decode(metadata.data(), payload.data(), payload.size(), out.data()))
            throw Failure("decoder", "the decoder " + start.name + " failed");
        return;
    }
    const std::size_t wanted = out.size() / (start.scaled ? sizeof(float) : 1);
    if (payload.size() != wanted)
        throw Failure("size", "the payload has " + std::to_string(payload.size()) + " bytes, not " +
                                  std::to_string(wanted));
    if (start.scaled) {
        const auto scale = load<float>(metadata.data());
        for (std::size_t i = 0; i < wanted; ++i)
            store(out.data() + i * sizeof(float), static_cast<float>(static_cast<std::int8_t>(payload[i])) * scale);
        return;
    }
    std::memcpy(out.data(), payload.data(), out.size());
}

}  // namespace

std::size_t Chain::metadata_size() const {
    if (first) return has_one_shape(*first) ? 0 : sizeof(ImageShape);
    return start.metadata_size;
}

bool Chain::begins_as(const Chain& other) const {
    if (first && other.first)
        return first->stored == other.first->stored && first->raw.bytes() == other.first->raw.bytes();
    return !first && !other.first && start.decode == other.start.decode && start.scaled == other.start.scaled &&
           start.row_bytes == other.start.row_bytes;
}

void Chain::add(Stage stage) {
    if (stage.program) {
        if (!is_raw(*stage.program) || stage.program->raw.bytes() != row_bytes())
            throw Failure("argument", "a program takes another image than comes before it");
        stage.row_bytes = stage.program->row_bytes();
        told += told_numbers(*stage.program);
    } else if (stage.overlay) {
        if (stage.overlay->mask.size() != row_bytes() || stage.overlay->share > 65536)
            throw Failure("argument", "the mask has another size than the image");
        stage.row_bytes = row_bytes();
    } else if (stage.conversion) {
        check_conversion(*stage.conversion);
        if (stage.conversion->given_bytes() != row_bytes())
            throw Failure("argument", "a conversion takes another array than comes before it");
        stage.row_bytes = stage.conversion->made_bytes();
    } else if (!stage.function || !stage.row_bytes || (stage.in_place && stage.row_bytes != row_bytes())) {
        throw Failure("argument", "no such operation");
    }
    stage.in_place = stage.overlay || (stage.in_place && stage.function);
    stages.push_back(std::move(stage));
}

void run_chain(const Chain& chain, ProgramRunner& runner, Bytes payload, Bytes metadata, std::uint64_t epoch,
               std::uint64_t sample, MutableBytes out, std::span<double> told) {
    // What works in place does so in the batch, where nothing behind it makes a row of its own.
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
    const auto part = [&](const Program& program) {
        const auto mine = told.first(told.empty() ? 0 : told_numbers(program));
        told = told.subspan(mine.size());
        return mine;
    };
    auto now = room(chain.first_bytes(), moves);
    Matrix geometry = kSame;
    if (const auto* program = chain.first.get()) {
        // Without a metadata row the image's own bytes tell its shape.
        const auto shape = has_one_shape(*program) ? program->raw
                           : metadata.empty()      ? image_info(coding_of(*program), payload)
                                                   : load<ImageShape>(metadata.data());
        geometry = runner.run(*program, payload, shape, epoch, sample, now, part(*program));
    } else {
        begin(chain.start, payload, metadata, now);
    }
    for (std::size_t i = 0; i < count; ++i) {
        const auto& stage = chain.stages[i];
        if (!stage.in_place) --moves;
        const auto next = stage.in_place ? now : room(stage.row_bytes, moves);
        if (stage.program) {
            geometry = runner.run(*stage.program, now, stage.program->raw, epoch, sample, next, part(*stage.program), geometry);
        } else if (stage.overlay) {
            if (stage.overlay->samples.contains(sample)) lay_over(*stage.overlay, now.data());
        } else if (stage.conversion) {
            convert(*stage.conversion, now, next);
        } else {
            const auto seed = chain.first ? chain.first->seed : chain.start.seed;
            std::uint64_t place[] = {seed, epoch, sample, stage.op};
            std::uint32_t words[kCustomWords] = {};
            // What a function leaves out must not be what was there before, which differs from run to run.
            if (!stage.in_place) std::memset(next.data(), 0, next.size());
            if (stage.function(now.data(), next.data(), place, words))
                throw Failure("operation", "the operation " + stage.name + " failed");
        }
        now = next;
    }
}

}  // namespace fl
