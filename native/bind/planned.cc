// Reads that a plan asks for, as Python sees them: each range a read-only view that keeps its memory.
#include <map>

#include "bind.h"
#include "planned_reads.h"

namespace bind {
namespace {

// Files stay mapped for as long as something that was read of them is looked at.
using Files = std::vector<std::shared_ptr<Buffer>>;

using IoTuple = std::tuple<int, std::size_t, std::uint64_t, bool>;

struct BoundReads {
    explicit BoundReads(const IoTuple& io) : reads(fl::PlannedReads::make(options(io))) {}

    static fl::ReadOptions options(const IoTuple& io) {
        const auto [mode, memory, unit, apart] = io;
        if (mode < 0 || mode > static_cast<int>(fl::ReadMode::remote) ||
            mode == static_cast<int>(fl::ReadMode::populate))
            throw nb::value_error("no such way to read");
        return {static_cast<fl::ReadMode>(mode), memory, unit, apart && unit};
    }

    std::shared_ptr<Returned> returned = std::make_shared<Returned>();
    Files files;  // by number; mapped, or what stands for an object
    std::map<std::uint64_t, std::shared_ptr<const Files>> asked;
    std::shared_ptr<fl::PlannedReads> reads;
};

struct BoundSome {
    std::shared_ptr<const Files> files;
    std::shared_ptr<fl::PlannedReads::Some> some;
};

// One range, as anything that takes a buffer sees it. It is made for every entry that is looked at, and so costs little.
struct BoundRange {
    std::shared_ptr<const Files> files;
    std::shared_ptr<fl::PlannedReads::Some> some;
    fl::Bytes bytes;
};

int range_buffer(PyObject* self, Py_buffer* view, int flags) {
    const auto& bytes = nb::inst_ptr<BoundRange>(self)->bytes;
    return PyBuffer_FillInfo(view, self, const_cast<std::uint8_t*>(bytes.data()), static_cast<Py_ssize_t>(bytes.size()),
                             1, flags);
}

PyType_Slot range_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(range_buffer)}, {0, nullptr}};

}  // namespace

nb::dict told(const fl::ReadCounts& counts) {
    nb::dict said;
    said["by"] = counts.by.load();
    said["reads"] = counts.reads.load();
    said["read_bytes"] = counts.bytes.load();
    said["payload_bytes"] = counts.asked.load();
    said["batches_in_memory"] = counts.mapped.load();
    said["given_up"] = counts.given_up.load();
    said["waiting"] = static_cast<double>(counts.waiting.load()) / 1e9;
    return said;
}

void bind_planned(nb::module_& m) {
    nb::class_<BoundRange>(m, "PlannedRange", nb::type_slots(range_slots));
    nb::class_<BoundSome>(m, "PlannedRanges")
        .def("__len__", [](const BoundSome& s) { return s.some->size(); })
        .def("failed", [](const BoundSome& s) {
            std::vector<std::tuple<std::size_t, std::string>> failed;
            for (std::size_t i = 0; i < s.some->size(); ++i)
                if (const auto* failure = s.some->failure(i)) failed.emplace_back(i, failure->what());
            return failed;
        })
        .def("view", [](const BoundSome& s, std::size_t range) {
            return BoundRange{s.files, s.some, s.some->bytes(range)};
        }, "range"_a, nb::sig("def view(self, range: int) -> Buffer"));
    nb::class_<BoundReads>(m, "PlannedReads")
        .def(nb::init<const IoTuple&>(), "io"_a)
        .def("add_file", [](BoundReads& r, nb::object bytes, const std::tuple<std::string, std::uint64_t, std::uint64_t>& file) {
            auto buffer = std::make_shared<Buffer>(bytes);
            const auto mapped = buffer->bytes();
            r.files.push_back(buffer);
            return r.reads->add_file({std::get<0>(file), std::get<1>(file), std::get<2>(file), mapped, mapped.size()});
        }, "bytes"_a, "file"_a,
           nb::sig("def add_file(self, bytes: Buffer, file: tuple[str, int, int]) -> int"))
        .def("drop_file", [](BoundReads& r, std::size_t file) {
            r.reads->drop_file(file);
            if (file < r.files.size()) r.files[file].reset();
        }, "file"_a)
        .def("submit", [](BoundReads& r, nb::object ranges) {
            Buffer given(ranges);
            const auto numbers = given.as<std::uint64_t>();
            if (numbers.size() % 3) throw nb::value_error("a range has a file, an offset and a size");
            std::vector<fl::PlannedReads::Range> wanted;
            wanted.reserve(numbers.size() / 3);
            for (std::size_t i = 0; i < numbers.size(); i += 3)
                wanted.push_back({static_cast<std::size_t>(numbers[i]), numbers[i + 1], numbers[i + 2]});
            auto files = std::make_shared<Files>();
            for (const auto& range : wanted)
                if (range.file < r.files.size() && (files->empty() || files->back() != r.files[range.file]))
                    files->push_back(r.files[range.file]);
            std::uint64_t ticket = 0;
            {
                nb::gil_scoped_release release;
                ticket = r.reads->submit(std::move(wanted));
            }
            r.asked[ticket] = std::move(files);
            return ticket;
        }, "ranges"_a, nb::sig("def submit(self, ranges: Buffer) -> int"))
        .def("wait", [](BoundReads& r, std::uint64_t ticket) {
            for (;;) {
                std::shared_ptr<fl::PlannedReads::Some> some;
                {
                    nb::gil_scoped_release release;
                    some = r.reads->wait(ticket, 50);
                }
                r.returned->let_go();
                if (some) {
                    const auto files = r.asked.extract(ticket);
                    return BoundSome{files ? files.mapped() : nullptr, some};
                }
                if (PyErr_CheckSignals() != 0) throw nb::python_error();
            }
        }, "ticket"_a)
        .def("forget", [](BoundReads& r, std::uint64_t ticket) {
            {
                nb::gil_scoped_release release;
                r.reads->forget(ticket);
            }
            r.returned->let_go();
            r.asked.erase(ticket);
        }, "ticket"_a)
        .def("reads", [](const BoundReads& r) { return told(r.reads->counts()); },
             nb::sig("def reads(self) -> dict[str, Any]"))
        .def("take_reads", [](BoundReads& r, std::size_t most, int milliseconds) {
            std::vector<fl::RemoteReads::Wanted> wanted;
            {
                nb::gil_scoped_release release;
                wanted = r.reads->remote().take(most, milliseconds);
            }
            r.returned->let_go();
            std::vector<std::tuple<std::uint64_t, int, std::uint64_t, std::size_t>> told;
            for (const auto& one : wanted) told.emplace_back(one.ticket, one.file, one.offset, one.size);
            return told;
        }, "most"_a, "milliseconds"_a)
        .def("finish_read", [](BoundReads& r, std::uint64_t ticket, nb::object data, std::optional<StampTuple> stamp) {
            Buffer buffer(data);
            const auto bytes = buffer.bytes();
            auto lender = Returned::lend(r.returned, std::move(buffer));
            {
                nb::gil_scoped_release release;
                r.reads->remote().finish(ticket, bytes, std::move(lender), stamp_of(stamp));
            }
            r.returned->let_go();
        }, "ticket"_a, "data"_a, "stamp"_a.none() = nb::none(),
           nb::sig("def finish_read(self, ticket: int, data: Buffer, stamp: tuple[int, int] | None = None) -> None"))
        .def("fail_read", [](BoundReads& r, std::uint64_t ticket, std::string what) {
            nb::gil_scoped_release release;
            r.reads->remote().fail(ticket, std::move(what));
        }, "ticket"_a, "what"_a)
        .def("wake_reads", [](BoundReads& r) { r.reads->remote().wake(); });
}

}  // namespace bind
