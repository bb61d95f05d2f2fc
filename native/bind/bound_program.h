// A pipeline's program as Python holds it: it makes them, and the engine takes them.
#pragma once

#include "bind.h"

#include <array>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "views.h"

namespace bind {

// A step of a program: kind, number of the op, height, width, filter, as many numbers as its kind takes.
using StepTuple = std::tuple<int, std::uint32_t, std::uint32_t, std::uint32_t, int, std::vector<double>>;
// How images are stored (with kUpright and kUprightShapes added or not), whether seekable, the shape of raw ones, the
// steps, height, width and channels of the result, its element and layout, scale and bias of each channel, the seed, and
// which of the steps tell what they drew.
struct BoundProgram {
    BoundProgram(int stored, bool seekable, std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> raw,
                 const std::vector<StepTuple>& steps,
                 std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> result, int element, int layout,
                 std::array<float, 4> scale, std::array<float, 4> bias, std::uint64_t seed,
                 const std::vector<std::size_t>& tells) {
        auto made = std::make_shared<fl::Program>();
        made->upright = (stored & kUpright) != 0;
        made->upright_shapes = (stored & kUprightShapes) != 0;
        stored &= ~(kUpright | kUprightShapes);
        if (stored < 0 || stored > static_cast<int>(fl::StoredKind::labels)) throw nb::value_error("no such kind of image");
        if (element < 0 || element > static_cast<int>(fl::Element::float32)) throw nb::value_error("no such element");
        if (layout < 0 || layout > static_cast<int>(fl::Layout::chw)) throw nb::value_error("no such layout");
        made->stored = static_cast<fl::StoredKind>(stored);
        made->seekable = seekable;
        made->raw = {std::get<0>(raw), std::get<1>(raw), std::get<2>(raw), 8};
        for (const auto& [kind, op, height, width, filter, numbers] : steps) {
            if (kind < 0 || kind >= static_cast<int>(fl::ProgramStep::kKinds)) throw nb::value_error("no such step");
            if (filter < 0 || filter > static_cast<int>(fl::Filter::lanczos)) throw nb::value_error("no such filter");
            fl::ProgramStep step;
            step.kind = static_cast<fl::ProgramStep::Kind>(kind);
            step.op = op;
            step.height = height;
            step.width = width;
            step.filter = static_cast<fl::Filter>(filter);
            step.numbers = numbers;
            made->steps.push_back(step);
        }
        for (const auto step : tells) made->steps.at(step).tells = true;
        made->height = std::get<0>(result);
        made->width = std::get<1>(result);
        made->cast = {static_cast<fl::Element>(element), static_cast<fl::Layout>(layout), std::get<2>(result), scale, bias, false};
        made->seed = seed;
        fl::check_program(*made);
        chain.first = made;
        chain.told = fl::told_numbers(*made);
    }

    explicit BoundProgram(fl::Start start) {
        if (!start.row_bytes) throw nb::value_error("a row has bytes");
        chain.start = std::move(start);
    }

    // Itself with one more stage, so that engines that have it are not changed.
    BoundProgram then(fl::Stage stage) const {
        BoundProgram longer(*this);
        longer.chain.add(std::move(stage));
        return longer;
    }

    // Itself with rows that may hold JPEGs instead of pixels.
    BoundProgram with_parts(double share, std::uint32_t op) const {
        if (!chain.first || !chain.stages.empty()) throw nb::value_error("a program alone");
        auto made = std::make_shared<fl::Program>();
        const auto id = made->id;
        *made = *chain.first;
        made->id = id;
        made->parts = true;
        made->part_share = share;
        made->part_op = op;
        fl::check_program(*made);
        BoundProgram other(*this);
        other.chain.first = made;
        return other;
    }

    fl::Chain chain;
};

}  // namespace bind
