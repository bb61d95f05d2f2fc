#include "program.h"

#include <atomic>
#include <cmath>

#include "program_steps.h"

namespace fl {
namespace {

StepRule rule_of(ProgramStep::Kind kind) {
    for (const auto rule : {geometry_rule(kind), affine_rule(kind), pixel_rule(kind), augment_rule(kind)})
        if (rule.run) return rule;
    throw Failure("argument", "no such step");
}

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
    for (const auto& step : program.steps) {
        const auto rule = rule_of(step.kind);
        if (step.numbers.size() != rule.numbers)
            throw Failure("argument", "a step has " + std::to_string(step.numbers.size()) + " numbers, not " +
                                          std::to_string(rule.numbers));
        for (const double number : step.numbers) require(std::isfinite(number), "a number that is not finite");
        rule.check(step);
    }
    Cast cast(program.cast);  // throws for what can't be cast
}

struct ProgramRunner::State {
    ProgramImage image;
    std::unique_ptr<Cast> cast;
    std::vector<RunStep> steps;
    std::uint64_t made_for = 0;  // id of the program
};

ProgramRunner::ProgramRunner() : state_(std::make_unique<State>()) {}
ProgramRunner::~ProgramRunner() = default;

void ProgramRunner::run(const Program& program, Bytes payload, const ImageShape& shape, std::uint64_t epoch,
                        std::uint64_t sample, MutableBytes out) {
    auto& s = *state_;
    if (shape.bits != 8) throw Failure("decode", "a pipeline takes 8 bits a sample, the image has " + std::to_string(shape.bits));
    if (program.stored == StoredKind::png) check_claim(ImageKind::png, shape, payload.size());
    if (program.stored == StoredKind::jpeg) check_claim(ImageKind::jpeg, shape, payload.size());
    if (program.stored == StoredKind::webp) check_claim(ImageKind::webp, shape, payload.size());
    if (program.stored == StoredKind::raw && payload.size() != shape.bytes())
        throw Failure("size", "the payload has another size than the image");
    if (s.made_for != program.id) {
        s.cast = std::make_unique<Cast>(program.cast);
        s.steps.clear();
        for (const auto& step : program.steps) s.steps.push_back(rule_of(step.kind).run);
        s.made_for = program.id;
    }
    s.image.begin(program, payload, shape);
    for (std::size_t i = 0; i < s.steps.size(); ++i) {
        Random random(program.seed, epoch, sample, program.steps[i].op);
        s.steps[i](program.steps[i], s.image, random);
    }
    s.image.finish(*s.cast, out);
}

}  // namespace fl
