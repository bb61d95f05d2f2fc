// Programs of pipelines.
#include "bind.h"

#include "bound_program.h"

namespace bind {

void bind_programs(nb::module_& m) {
    nb::class_<BoundProgram>(m, "Program")
        .def(nb::init<int, bool, std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, const std::vector<StepTuple>&,
                      std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, int, int, std::array<float, 4>,
                      std::array<float, 4>, std::uint64_t, const std::vector<std::size_t>&>(),
             "stored"_a, "seekable"_a, "raw"_a, "steps"_a, "result"_a, "element"_a, "layout"_a, "scale"_a, "bias"_a,
             "seed"_a, "tells"_a = std::vector<std::size_t>{})
        .def_static("rows", [](std::size_t row_bytes, std::uint64_t seed) {
            return BoundProgram({.row_bytes = row_bytes, .seed = seed});
        }, "row_bytes"_a, "seed"_a)
        .def_static("scaled", [](std::size_t count, std::uint64_t seed) {
            return BoundProgram({.scaled = true, .metadata_size = sizeof(float), .row_bytes = count * sizeof(float),
                                 .seed = seed});
        }, "count"_a, "seed"_a)
        .def_static("decoder", [](std::uintptr_t address, std::string name, std::size_t metadata_size,
                                  std::size_t row_bytes, std::uint64_t seed) {
            if (!address) throw nb::value_error("no such function");
            return BoundProgram({.decode = reinterpret_cast<fl::DecodeFunction>(address), .name = std::move(name),
                                 .metadata_size = metadata_size, .row_bytes = row_bytes, .seed = seed});
        }, "address"_a, "name"_a, "metadata_size"_a, "row_bytes"_a, "seed"_a)
        .def_prop_ro("row_bytes", [](const BoundProgram& p) { return p.chain.row_bytes(); })
        .def_prop_ro("told", [](const BoundProgram& p) { return p.chain.told; })
        .def("with_parts", &BoundProgram::with_parts, "share"_a, "op"_a)
        .def("then", [](const BoundProgram& p, const BoundProgram& next) {
            if (!next.chain.first || !next.chain.stages.empty()) throw nb::value_error("a program alone");
            return p.then({.program = next.chain.first});
        }, "program"_a)
        .def("then_function", [](const BoundProgram& p, std::uintptr_t address, std::string name, std::uint32_t op,
                                 std::size_t row_bytes, bool in_place) {
            return p.then({.function = reinterpret_cast<fl::CustomFunction>(address), .name = std::move(name), .op = op,
                           .row_bytes = row_bytes, .in_place = in_place});
        }, "address"_a, "name"_a, "op"_a, "row_bytes"_a, "in_place"_a)
        .def("then_overlay", [](const BoundProgram& p, nb::object mask, std::uint32_t share,
                                const std::vector<std::uint64_t>& samples) {
            Buffer data(mask);
            auto overlay = std::make_shared<fl::Overlay>();
            overlay->mask.assign(data.bytes().begin(), data.bytes().end());
            overlay->share = share;
            overlay->samples.insert(samples.begin(), samples.end());
            return p.then({.overlay = overlay});
        }, "mask"_a, "share"_a, "samples"_a,
           nb::sig("def then_overlay(self, mask: Buffer, share: int, samples: list[int]) -> Program"))
        .def("then_conversion", [](const BoundProgram& p, int from, int to, std::tuple<std::size_t, std::size_t> sides,
                                   int given, int made, std::vector<float> scale, std::vector<float> bias) {
            if (from < 0 || from >= fl::kNumbers) throw nb::value_error("no such number");
            if (to < 0 || to > static_cast<int>(fl::Element::float32)) throw nb::value_error("no such element");
            for (const int layout : {given, made})
                if (layout < 0 || layout > static_cast<int>(fl::Layout::chw)) throw nb::value_error("no such layout");
            return p.then({.conversion = std::make_shared<const fl::Conversion>(fl::Conversion{
                static_cast<fl::Number>(from), static_cast<fl::Element>(to), std::get<0>(sides), std::get<1>(sides),
                static_cast<fl::Layout>(given), static_cast<fl::Layout>(made), std::move(scale), std::move(bias)})});
        }, "number"_a, "element"_a, "sides"_a, "given"_a, "made"_a, "scale"_a, "bias"_a)
        .def("run", [](const BoundProgram& p, nb::object payload, nb::object metadata, std::uint64_t epoch,
                       std::uint64_t sample, nb::object out, nb::object told) {
            Buffer data(payload), row(metadata);
            MutableBuffer to(out);
            std::optional<MutableBuffer> numbers;
            if (!told.is_none()) numbers.emplace(told);
            const auto room = numbers ? numbers->as<double>() : std::span<double>{};
            if (numbers && room.size() != p.chain.told) throw nb::value_error("another number of numbers is told");
            const auto needed = p.chain.metadata_size();
            if (needed && row.bytes().size() != needed) throw nb::value_error("the metadata has the wrong size");
            if (to.bytes().size() != p.chain.row_bytes()) throw nb::value_error("the output has the wrong size");
            nb::gil_scoped_release release;
            thread_local fl::ProgramRunner runner;
            fl::run_chain(p.chain, runner, data.bytes(), row.bytes(), epoch, sample, to.bytes(), room);
        }, "payload"_a, "metadata"_a, "epoch"_a, "sample"_a, "out"_a, "told"_a.none() = nb::none(),
           nb::sig("def run(self, payload: Buffer, metadata: Buffer, epoch: int, sample: int, out: Buffer, "
                   "told: Buffer | None = None) -> None"))
        .def("run_rows", [](const BoundProgram& p, nb::object metadata, nb::object chosen, std::uint64_t epoch,
                            nb::object samples, nb::object out) {
            Buffer rows(metadata), names(samples), wanted(chosen);
            MutableBuffer to(out);
            const auto numbers = names.as<std::int64_t>();
            const auto which = wanted.bytes();
            const auto width = p.chain.metadata_size(), row_bytes = p.chain.row_bytes();
            const auto count = numbers.size();
            const auto holds = [&](std::size_t bytes, std::size_t each) {
                return each ? bytes / each == count && bytes % each == 0 : bytes == 0;
            };
            if (!holds(rows.bytes().size(), width) || which.size() != count || !holds(to.bytes().size(), row_bytes))
                throw nb::value_error("a metadata row, a sample, a choice and a row of the output for each");
            std::vector<std::tuple<std::size_t, std::string>> failed;
            {
                nb::gil_scoped_release release;
                thread_local fl::ProgramRunner runner;
                for (std::size_t i = 0; i < count; ++i) {
                    const auto row = to.bytes().subspan(i * row_bytes, row_bytes);
                    try {
                        if (which[i])
                            fl::run_chain(p.chain, runner, {}, rows.bytes().subspan(i * width, width), epoch,
                                          static_cast<std::uint64_t>(numbers[i]), row);
                    } catch (const fl::Failure& failure) {
                        std::memset(row.data(), 0, row.size());
                        failed.emplace_back(i, failure.what());
                    }
                }
            }
            return failed;
        }, "metadata"_a, "chosen"_a, "epoch"_a, "samples"_a, "out"_a,
           nb::sig("def run_rows(self, metadata: Buffer, chosen: Buffer, epoch: int, samples: Buffer, out: Buffer) "
                   "-> list[tuple[int, str]]"));
}

}  // namespace bind
