// The engine.
#include "bind.h"

#include <variant>

#include <nanobind/stl/variant.h>

#include "bound_program.h"
#include "bound_sound.h"
#include "engine.h"

namespace bind {

namespace {

// How the engine reads: the mode, memory for it, the unit of a read, and whether each unit is a read of its own.
using IoOptions = std::tuple<int, std::size_t, std::uint64_t, bool>;

fl::ReadOptions read_options(const IoOptions& given) {
    const auto [mode, memory, unit, apart] = given;
    if (mode < 0 || mode > static_cast<int>(fl::ReadMode::remote)) throw nb::value_error("no such way to read");
    if (unit & (unit - 1)) throw nb::value_error("a unit is a power of two");
    if (apart && !unit) throw nb::value_error("what is apart has a unit");
    return {static_cast<fl::ReadMode>(mode), memory, unit, apart};
}

// Payloads as elements: bytes of one, what metadata states, length, multiple, whether to truncate, the item that fills.
using ElementsTuple = std::tuple<std::size_t, int, std::uint64_t, std::uint64_t, bool, nb::bytes>;
// Kind, metadata's size, row's size, kind of image, elements, and what runs: programs of views and whether each lies beside
// the one before, or the program of a sound.
using ViewTuple = std::tuple<const BoundProgram*, bool>;
using PlanTuple = std::tuple<int, std::size_t, std::size_t, int, std::optional<ElementsTuple>,
                             std::variant<std::vector<ViewTuple>, const BoundSound*>>;

fl::Elements elements_of(const ElementsTuple& given, std::size_t metadata_size) {
    const auto& [bytes, stated, length, multiple, truncate, fill] = given;
    using Stated = fl::Elements::Stated;
    if (stated < 0 || stated > static_cast<int>(Stated::shape)) throw nb::value_error("no such statement");
    const auto states = static_cast<Stated>(stated);
    const auto* item = static_cast<const std::uint8_t*>(fill.data());
    fl::Elements elements{bytes, states, length, multiple, truncate, {item, item + fill.size()}};
    if (states == Stated::length && metadata_size < sizeof(std::uint64_t)) throw nb::value_error("no room for a length");
    if (states == Stated::shape && metadata_size != fl::Elements::kShapeBytes)
        throw nb::value_error("the metadata is no shape");
    if (!bytes || !multiple || elements.fill.empty() || bytes % elements.fill.size())
        throw nb::value_error("an element is made of items");
    return elements;
}

struct BoundPinning {
    BoundPinning(std::uintptr_t pin, std::uintptr_t unpin) {
        if (!pin || !unpin) throw nb::value_error("two functions are needed");
        pinning = std::make_shared<fl::Pinning>(reinterpret_cast<fl::Pinning::Pin>(pin),
                                                reinterpret_cast<fl::Pinning::Unpin>(unpin));
    }
    std::shared_ptr<fl::Pinning> pinning;
};

struct BoundEngine {
    BoundEngine(const std::vector<PlanTuple>& columns, std::size_t threads, std::size_t slots,
                std::size_t threads_a_batch, const IoOptions& io, const BoundPinning* pinning)
        : owned(new fl::Engine(plans(columns), threads, slots, threads_a_batch, read_options(io),
                               pinning ? pinning->pinning : nullptr)),
          engine(*owned) {}

    static std::vector<fl::ColumnPlan> plans(const std::vector<PlanTuple>& columns) {
        using Kind = fl::ColumnPlan::Kind;
        std::vector<fl::ColumnPlan> plans;
        for (const auto& [kind, metadata_size, row_bytes, image, elements, runs] : columns) {
            const auto* const* sounds = std::get_if<const BoundSound*>(&runs);
            const BoundSound* const sound = sounds ? *sounds : nullptr;
            const auto programs = sounds ? std::vector<ViewTuple>() : std::get<std::vector<ViewTuple>>(runs);
            if (kind < 0 || kind > static_cast<int>(Kind::sound)) throw nb::value_error("no such plan");
            const auto plan = static_cast<Kind>(kind);
            if (plan == Kind::image && metadata_size != sizeof(fl::ImageShape))
                throw nb::value_error("an image's metadata is its shape");
            if (elements ? plan != Kind::ragged && plan != Kind::padded : plan == Kind::padded)
                throw nb::value_error("elements are padded or ragged");
            if ((plan == Kind::program) == programs.empty()) throw nb::value_error("programs have a plan of their own");
            if ((plan == Kind::sound) != (sound != nullptr)) throw nb::value_error("sounds have a plan of their own");
            plans.push_back({plan, metadata_size, row_bytes, coding_of(image), {}, {}, {}});
            if (sound) {
                plans.back().sound = sound->program;
                plans.back().row_bytes = sound->program->row_bytes();
                if (metadata_size != sound->program->metadata_bytes()) throw nb::value_error("a sound's metadata has another size");
            }
            if (!programs.empty()) {
                auto views = std::make_shared<fl::Views>();
                for (const auto& [program, beside] : programs) {
                    if (metadata_size != program->chain.metadata_size())
                        throw nb::value_error("the metadata is not what the program takes");
                    views->add(program->chain, beside);
                    if (!program->chain.begins_as(views->first())) throw nb::value_error("views are of one value");
                }
                plans.back().row_bytes = views->row_bytes();
                plans.back().views = std::move(views);
            }
            if (elements) plans.back().elements = elements_of(*elements, metadata_size);
        }
        return plans;
    }

    // What the engine points into; both outlive it, as members end in reverse order.
    std::vector<nb::object> held;
    std::shared_ptr<Returned> returned = std::make_shared<Returned>();
    std::unique_ptr<fl::Engine, fl::Engine::Abandon> owned;
    fl::Engine& engine;
};

// An array over a slot's memory that keeps the slot out of the ring.
template <class T>
nb::object slot_array(const std::shared_ptr<fl::Slot>& slot, T* data, std::size_t size) {
    auto* lease = new std::shared_ptr<fl::Slot>(slot);
    nb::capsule owner(lease, [](void* p) noexcept { delete static_cast<std::shared_ptr<fl::Slot>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner));
}

nb::tuple to_python(const fl::FinishedBatch& batch, const std::vector<fl::ColumnPlan>& plans) {
    nb::list columns;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        auto& column = batch.slot->columns[i];
        const auto& plan = plans[i];
        const bool rows = plan.kind == fl::ColumnPlan::Kind::rows;
        const bool all = std::find(column.valid.begin(), column.valid.end(), 0) == column.valid.end();
        const nb::object none = nb::none();
        columns.append(nb::make_tuple(
            plan.metadata_size ? slot_array(batch.slot, column.metadata.data(), batch.samples * plan.metadata_size)
                               : none,
            rows ? none : slot_array(batch.slot, column.data.data(), column.size),
            rows || plan.kind == fl::ColumnPlan::Kind::fixed || plan.kind == fl::ColumnPlan::Kind::sound
                ? none
                : slot_array(batch.slot, column.offsets.data(), column.offsets.size()),
            all ? none : slot_array(batch.slot, column.valid.data(), column.valid.size())));
    }
    nb::list failures;
    for (const auto& [column, failure] : batch.failures)
        failures.append(nb::make_tuple(column, failure.kind, failure.what(), failure.position, failure.stored,
                                       failure.computed));
    return nb::make_tuple(columns, failures);
}

fl::RemoteReads& remote_of(BoundEngine& e) {
    auto* reads = e.engine.reads();
    if (!reads || reads->options().mode != fl::ReadMode::remote) throw nb::value_error("this engine reads no objects");
    return reads->remote();
}

double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

}  // namespace

void bind_engine(nb::module_& m) {
    m.def("planned_bytes", [](const PlanTuple& plan, std::size_t samples) {
        return fl::planned_bytes(BoundEngine::plans({plan}).front(), samples);
    }, "plan"_a, "samples"_a);
    nb::class_<BoundPinning>(m, "Pinning")
        .def(nb::init<std::uintptr_t, std::uintptr_t>(), "pin"_a, "unpin"_a)
        .def_prop_ro("pinned", [](const BoundPinning& p) { return p.pinning->pinned.load(); })
        .def_prop_ro("refused", [](const BoundPinning& p) { return p.pinning->refused.load(); });
    nb::class_<BoundEngine>(m, "Engine")
        .def(nb::init<const std::vector<PlanTuple>&, std::size_t, std::size_t, std::size_t, const IoOptions&,
                      const BoundPinning*>(),
             "columns"_a, "threads"_a, "slots"_a, "threads_a_batch"_a = 0, "io"_a = IoOptions{0, 0, 0, false},
             "pinning"_a.none() = nb::none())
        .def("add_file", [](BoundEngine& e, const std::tuple<std::string, std::uint64_t, std::uint64_t>& file,
                            nb::list payloads, nb::object spans, std::string blocks) {
            fl::FileName name{std::get<0>(file), std::get<1>(file), std::get<2>(file), {}, 0};
            for (nb::handle one : payloads) {
                const auto& found = nb::cast<const BoundPayloads&>(one).payloads;
                if (!found.in_memory()) name.mapped = found.file(), name.end = std::max(name.end, found.data_end());
                if (found.has_windows()) name.windows = found.windows();
            }
            e.held.push_back(nb::borrow(payloads));
            if (!spans.is_none()) {
                Buffer buffer(spans);
                const auto numbers = buffer.as<std::uint64_t>();
                // One that is none, overlaps, or would be read beyond the payloads, is not gone by.
                for (std::size_t i = 0; i + 2 < numbers.size(); i += 3) {
                    const fl::FileName::Span span{numbers[i], numbers[i + 1], numbers[i + 2]};
                    const auto before = name.spans.empty() ? 0 : name.spans.back().end;
                    if (before <= span.begin && span.begin < span.end && span.end <= name.end) name.spans.push_back(span);
                }
            }
            name.blocks = std::move(blocks);
            return e.engine.add_file(std::move(name));
        }, "file"_a, "payloads"_a, "spans"_a.none() = nb::none(), "blocks"_a = "",
           nb::sig("def add_file(self, file: tuple[str, int, int], payloads: list[Payloads], "
                   "spans: Buffer | None = None, blocks: str = '') -> int"))
        .def("add_source", [](BoundEngine& e, nb::list columns) {
            std::vector<fl::ColumnSource> source;
            for (nb::handle one : columns) {
                const auto tables = nb::cast<nb::tuple>(one);
                fl::ColumnSource column;
                if (!tables[0].is_none()) column.metadata = &nb::cast<const BoundTable&>(tables[0]).table;
                if (!tables[1].is_none()) column.validity = &nb::cast<const BoundTable&>(tables[1]).table;
                if (!tables[2].is_none()) column.payloads = &nb::cast<const BoundPayloads&>(tables[2]).payloads;
                if (!nb::try_cast(tables[3], column.file)) throw nb::value_error("a file is named by its number");
                const auto& plan = e.engine.columns().at(source.size());
                const bool tells = plan.kind == fl::ColumnPlan::Kind::image ||
                                   (plan.views && plan.views->first().first && plan.metadata_size == sizeof(fl::ImageShape));
                if ((plan.kind != fl::ColumnPlan::Kind::rows && !column.payloads) ||
                    (column.validity && column.validity->row_size() != 1) ||
                    (column.metadata ? plan.metadata_size && column.metadata->row_size() != plan.metadata_size
                                     : plan.metadata_size && !tells))
                    throw nb::value_error("a source lacks a table its plan needs");
                source.push_back(column);
            }
            e.held.push_back(nb::borrow(columns));
            return e.engine.add_source(std::move(source));
        }, "columns"_a,
           nb::sig("def add_source(self, columns: list[tuple[Table | None, Table | None, Payloads | None, int]]) -> int"))
        .def("submit", [](BoundEngine& e, nb::object which, nb::object rows, bool fill, std::uint64_t epoch,
                          nb::object samples) {
            Buffer given(rows);
            const auto numbers = given.as<std::int64_t>();
            std::vector<std::int32_t> sources;
            if (!which.is_none()) {
                Buffer buffer(which);
                const auto span = buffer.as<std::int32_t>();
                sources.assign(span.begin(), span.end());
            }
            std::vector<std::int64_t> names;
            if (!samples.is_none()) {
                Buffer buffer(samples);
                const auto span = buffer.as<std::int64_t>();
                names.assign(span.begin(), span.end());
            }
            return e.engine.submit(std::move(sources), {numbers.begin(), numbers.end()}, fill, epoch, std::move(names));
        }, "which"_a.none(), "rows"_a, "fill"_a = true, "epoch"_a = 0, "samples"_a.none() = nb::none(),
           nb::sig("def submit(self, which: Buffer | None, rows: Buffer, fill: bool = True, epoch: int = 0, "
                   "samples: Buffer | None = None) -> int"))
        .def("fill", [](BoundEngine& e, std::uint64_t ticket) {
            nb::gil_scoped_release release;
            e.engine.fill(ticket);
        }, "ticket"_a)
        .def("wait", [](BoundEngine& e, std::uint64_t ticket, bool help) {
            for (;;) {
                std::optional<fl::FinishedBatch> batch;
                {
                    nb::gil_scoped_release release;
                    batch = e.engine.wait(ticket, 50, help);
                }
                e.returned->let_go();
                if (batch) return to_python(*batch, e.engine.columns());
                if (PyErr_CheckSignals() != 0) throw nb::python_error();
            }
        }, "ticket"_a, "help"_a = false,
           nb::sig("def wait(self, ticket: int, help: bool = False) -> tuple[list[tuple[NDArray[np.uint8] | None, NDArray[np.uint8] | None, "
                   "NDArray[np.int64] | None, NDArray[np.uint8] | None]], list[tuple[int, str, str, int, int, int]]]"))
        .def("forget", [](BoundEngine& e, std::uint64_t ticket) {
            nb::gil_scoped_release release;
            e.engine.forget(ticket);
        }, "ticket"_a)
        .def("reads", [](const BoundEngine& e) {
            const auto* reads = e.engine.reads();
            return reads ? told(reads->counts()) : nb::dict();
        }, nb::sig("def reads(self) -> dict[str, Any]"))
        .def("take_reads", [](BoundEngine& e, std::size_t most, int milliseconds) {
            std::vector<fl::RemoteReads::Wanted> wanted;
            {
                nb::gil_scoped_release release;
                wanted = remote_of(e).take(most, milliseconds);
            }
            e.returned->let_go();
            std::vector<std::tuple<std::uint64_t, int, std::uint64_t, std::size_t>> told;
            for (const auto& one : wanted) told.emplace_back(one.ticket, one.file, one.offset, one.size);
            return told;
        }, "most"_a, "milliseconds"_a)
        .def("finish_read", [](BoundEngine& e, std::uint64_t ticket, nb::object data, std::optional<StampTuple> stamp) {
            Buffer buffer(data);
            const auto bytes = buffer.bytes();
            auto lender = Returned::lend(e.returned, std::move(buffer));
            {
                nb::gil_scoped_release release;
                remote_of(e).finish(ticket, bytes, std::move(lender), stamp_of(stamp));
            }
            e.returned->let_go();
        }, "ticket"_a, "data"_a, "stamp"_a.none() = nb::none(),
           nb::sig("def finish_read(self, ticket: int, data: Buffer, stamp: tuple[int, int] | None = None) -> None"))
        .def("fail_read", [](BoundEngine& e, std::uint64_t ticket, std::string what) {
            nb::gil_scoped_release release;
            remote_of(e).fail(ticket, std::move(what));
        }, "ticket"_a, "what"_a)
        .def("wake_reads", [](BoundEngine& e) { remote_of(e).wake(); })
        .def("look_at_blocks", [](BoundEngine& e) {
            nb::gil_scoped_release release;
            if (auto* reads = e.engine.reads()) reads->look_at_blocks();
        })
        .def_prop_ro("blocks_found", [](const BoundEngine& e) {
            const auto* reads = e.engine.reads();
            return reads ? reads->counts().found.load() : 0;
        })
        .def("start", [](BoundEngine& e) {
            nb::gil_scoped_release release;
            e.engine.start();
        })
        .def("set_threads", [](BoundEngine& e, std::size_t threads) {
            nb::gil_scoped_release release;
            e.engine.set_threads(threads);
        }, "threads"_a)
        .def("set_slots", [](BoundEngine& e, std::size_t slots) {
            nb::gil_scoped_release release;
            e.engine.set_slots(slots);
        }, "slots"_a)
        .def("stop", [](BoundEngine& e) {
            {
                nb::gil_scoped_release release;
                e.engine.stop();
            }
            e.returned->let_go();
        })
        .def_prop_ro("usable", [](const BoundEngine& e) { return e.engine.usable(); })
        .def_prop_ro("slot_bytes", [](const BoundEngine& e) { return e.engine.slot_bytes(); })
        .def_prop_ro("slot_columns", [](const BoundEngine& e) {
            std::vector<std::uint64_t> bytes;
            for (std::size_t i = 0; i < e.engine.columns().size(); ++i) bytes.push_back(e.engine.times(i).slot_bytes);
            return bytes;
        })
        .def_prop_ro("slots_made", [](const BoundEngine& e) { return e.engine.slots_made(); })
        .def("usage", [](const BoundEngine& e) {
            const auto used = e.engine.usage();
            nb::dict told;
            told["threads"] = used.threads;
            told["running"] = seconds(used.running);
            told["hired"] = seconds(used.hired);
            told["idle"] = seconds(used.idle);
            told["most_in_one_batch"] = used.most_in_one_batch;
            told["largest_batch"] = used.largest_batch;
            told["kept"] = used.kept;
            return told;
        }, nb::sig("def usage(self) -> dict[str, Any]"))
        .def("times", [](const BoundEngine& e) {
            nb::list columns;
            for (std::size_t i = 0; i < e.engine.columns().size(); ++i) {
                const auto& times = e.engine.times(i);
                nb::dict told;
                told["lookup"] = seconds(times.lookup);
                told["read"] = seconds(times.read);
                told["cpu"] = seconds(times.cpu);
                told["preempted"] = seconds(times.preempted);
                told["blocked"] = seconds(times.blocked);
                told["major_faults"] = times.major_faults.load();
                told["stored_bytes"] = times.stored_bytes.load();
                told["decoded_bytes"] = times.decoded_bytes.load();
                columns.append(told);
            }
            return columns;
        }, nb::sig("def times(self) -> list[dict[str, Any]]"));
}

void bind_reads(nb::module_& m) {
    m.def("has_uring", &fl::has_uring);
}

}  // namespace bind
