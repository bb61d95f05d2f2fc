#include "program.h"

#include <atomic>
#include <cmath>
#include <unordered_map>

#include "program_steps.h"

namespace fl {
namespace {

StepRule rule_of(ProgramStep::Kind kind) {
    for (const auto rule : {geometry_rule(kind), affine_rule(kind), pixel_rule(kind), augment_rule(kind), telling_rule(kind)})
        if (rule.run) return rule;
    throw Failure("argument", "no such step");
}

std::size_t told_by(const ProgramStep& step) {
    if (!step.tells) return 0;
    const auto told = rule_of(step.kind).told;
    return step.kind == ProgramStep::Kind::rand_augment ? told * static_cast<std::size_t>(step.numbers[0]) : told;
}

// What a thread keeps of a program.
struct Prepared {
    std::unique_ptr<Cast> cast;
    std::vector<RunStep> steps;
    std::vector<std::size_t> told;
};
constexpr std::size_t kMostPrepared = 64;

}  // namespace

Program::Program() {
    static std::atomic<std::uint64_t> made{0};
    id = ++made;
}

void check_program(const Program& program) {
    check_side(program.height, "result");
    check_side(program.width, "result");
    if (program.upright_shapes && !program.upright) throw Failure("argument", "shapes of images that are not turned");
    if (program.stored == StoredKind::raw && program.upright)
        throw Failure("argument", "raw images say nothing to turn them by");
    if (program.cast.channels != 1 && program.cast.channels != 3) throw Failure("argument", "1 or 3 channels");
    if (program.parts) {
        require(program.stored == StoredKind::jpeg, "parts of what is no JPEG");
        require(program.cast.channels == 3 && program.cast.element == Element::uint8 && program.cast.layout == Layout::hwc,
                "parts beside pixels that are not bytes, a pixel's together");
        require(program.part_share >= 0 && program.part_share <= 1, "a share");
    }
    for (const auto& step : program.steps) {
        const auto rule = rule_of(step.kind);
        if (step.numbers.size() != rule.numbers)
            throw Failure("argument", "a step has " + std::to_string(step.numbers.size()) + " numbers, not " +
                                          std::to_string(rule.numbers));
        for (const double number : step.numbers) require(std::isfinite(number), "a number that is not finite");
        require(!step.tells || rule.told, "a step that draws nothing");
        rule.check(step);
    }
    Cast cast(program.cast);  // throws for what can't be cast
}

ImageKind kind_of(StoredKind stored) {
    switch (stored) {
        case StoredKind::jpeg: return ImageKind::jpeg;
        case StoredKind::png: return ImageKind::png;
        case StoredKind::webp: return ImageKind::webp;
        case StoredKind::runs: return ImageKind::runs;
        case StoredKind::labels: return ImageKind::labels;
        default: throw Failure("argument", "raw images are of no kind");
    }
}

std::size_t told_numbers(const Program& program) {
    std::size_t sum = 0;
    for (const auto& step : program.steps) sum += told_by(step);
    return sum;
}

// What changes nothing, and tells where the image is.
StepRule telling_rule(ProgramStep::Kind kind) {
    const auto always = [](const ProgramStep& step) { require(step.tells, "a step that does nothing"); };
    switch (kind) {
        case ProgramStep::Kind::tell_size:
            return {0, always, [](const ProgramStep&, ProgramImage& image, Random&, const Told& told) {
                        told({static_cast<double>(image.height()), static_cast<double>(image.width())});
                    }, 2};
        case ProgramStep::Kind::tell_geometry:
            return {0, always, [](const ProgramStep&, ProgramImage& image, Random&, const Told& told) {
                        const auto& m = image.geometry();
                        told({m[0], m[1], m[2], m[3], m[4], m[5]});
                    }, 6};
        default: return {};
    }
}

struct ProgramRunner::State {
    ProgramImage image;
    std::unordered_map<std::uint64_t, Prepared> prepared;  // by the id of the program

    const Prepared& of(const Program& program) {
        if (const auto found = prepared.find(program.id); found != prepared.end()) return found->second;
        if (prepared.size() == kMostPrepared) prepared.clear();
        Prepared made{std::make_unique<Cast>(program.cast), {}, {}};
        for (const auto& step : program.steps) {
            made.steps.push_back(rule_of(step.kind).run);
            made.told.push_back(told_by(step));
        }
        return prepared.emplace(program.id, std::move(made)).first->second;
    }
};

ProgramRunner::ProgramRunner() : state_(std::make_unique<State>()) {}
ProgramRunner::~ProgramRunner() = default;

Matrix ProgramRunner::run(const Program& program, Bytes payload, const ImageShape& shape, std::uint64_t epoch,
                          std::uint64_t sample, MutableBytes out, std::span<double> told, const Matrix& before) {
    auto& s = *state_;
    if (shape.bits != 8) throw Failure("decode", "a pipeline takes 8 bits a sample, the image has " + std::to_string(shape.bits));
    if (!shape.height || !shape.width) throw Failure("decode", "an image without pixels");
    if (program.stored != StoredKind::raw) check_claim(kind_of(program.stored), shape, payload.size());
    if (program.stored == StoredKind::raw && payload.size() != shape.bytes())
        throw Failure("size", "the payload has another size than the image");
    const auto& prepared = s.of(program);
    s.image.begin(program, payload, shape);
    s.image.moved(before);
    for (std::size_t i = 0; i < prepared.steps.size(); ++i) {
        const std::size_t mine = told.empty() ? 0 : prepared.told[i];
        Random random(program.seed, epoch, sample, program.steps[i].op);
        prepared.steps[i](program.steps[i], s.image, random, Told(told.first(mine)));
        told = told.subspan(mine);
    }
    if (program.parts) {
        Random random(program.seed, epoch, sample, program.part_op);
        if (random.uniform() < program.part_share && s.image.finish_as_part(out)) return s.image.geometry();
        store(out.data(), PartHeader{});
        out = out.subspan(sizeof(PartHeader), program.pixel_bytes());
    }
    s.image.finish(*prepared.cast, out);
    return s.image.geometry();
}

}  // namespace fl
