// Foreign formats: what would cost too much in Python, sample by sample.
#include "bind.h"

#include "example.h"
#include "image.h"
#include "tar.h"
#include "unzstd.h"

namespace bind {

namespace {

template <class T>
nb::object array_of(const std::vector<T>& values) {
    auto data = std::make_unique<T[]>(values.size());
    std::copy(values.begin(), values.end(), data.get());
    return nb::cast(owned_array(std::move(data), values.size()));
}

nb::object value_of(const fl::Feature& feature) {
    if (feature.kind == fl::FeatureKind::floats) return array_of(feature.floats);
    if (feature.kind == fl::FeatureKind::integers) return array_of(feature.integers);
    nb::list found;
    for (const auto& one : feature.bytes) found.append(nb::bytes(one.data(), one.size()));
    return found;
}

nb::object only_value_of(const fl::Feature& feature) {
    if (feature.floats.size() == 1) return nb::float_(feature.floats[0]);
    if (feature.integers.size() == 1) return nb::int_(feature.integers[0]);
    if (feature.bytes.size() == 1) return nb::bytes(feature.bytes[0].data(), feature.bytes[0].size());
    return value_of(feature);
}

nb::bytes text_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

nb::dict members_of(const fl::TarMembers& members) {
    nb::dict found;
    found["headers"] = array_of(members.headers);
    found["offsets"] = array_of(members.offsets);
    found["sizes"] = array_of(members.sizes);
    found["times"] = array_of(members.times);
    found["modes"] = array_of(members.modes);
    found["types"] = array_of(members.types);
    found["names"] = text_of(members.names);
    found["name_ends"] = array_of(members.name_ends);
    found["links"] = text_of(members.links);
    found["link_ends"] = array_of(members.link_ends);
    return found;
}

void bind_tar(nb::module_& m) {
    nb::class_<fl::TarScanner>(m, "TarScanner")
        .def(nb::init<std::uint64_t>(), "size"_a = fl::TarScanner::kUnknown)
        .def("feed", [](fl::TarScanner& scanner, nb::object data, std::uint64_t base) {
            Buffer buffer(data);
            nb::gil_scoped_release release;
            scanner.feed(buffer.bytes(), base);
        }, "data"_a, "base"_a, nb::sig("def feed(self, data: Buffer, base: int) -> None"))
        .def("scan", [](fl::TarScanner& scanner, int fd) {
            nb::gil_scoped_release release;
            scanner.scan(fd);
        }, "fd"_a)
        .def_prop_ro("next", &fl::TarScanner::next)
        .def_prop_ro("needed", &fl::TarScanner::needed)
        .def_prop_ro("done", &fl::TarScanner::done)
        .def_prop_ro("count", [](const fl::TarScanner& scanner) { return scanner.members().size(); })
        .def_prop_ro("last", [](const fl::TarScanner& scanner) {
            const auto& found = scanner.members();
            if (!found.size()) throw nb::index_error("there is no member yet");
            const auto i = found.size() - 1;
            const auto name = static_cast<std::size_t>(i ? found.name_ends[i - 1] : 0);
            const auto link = static_cast<std::size_t>(i ? found.link_ends[i - 1] : 0);
            return nb::make_tuple(text_of(found.names.substr(name)), int{found.types[i]}, found.offsets[i], found.sizes[i],
                                  found.modes[i], found.times[i], text_of(found.links.substr(link)));
        }, nb::sig("def last(self) -> tuple[bytes, int, int, int, int, int, bytes]"))
        .def("finish", [](fl::TarScanner& scanner, std::uint64_t size) { return members_of(scanner.finish(size)); },
             "size"_a, nb::sig("def finish(self, size: int) -> dict[str, Any]"));

    m.def("tar_samples", [](nb::object names, nb::object ends, nb::object chosen) {
        Buffer n(names), e(ends), c(chosen);
        fl::TarSamples found;
        {
            nb::gil_scoped_release release;
            found = fl::tar_samples(n.bytes(), e.as<std::int64_t>(), c.as<std::uint8_t>());
        }
        nb::list fields;
        for (const auto& one : found.field_names) fields.append(text_of(one));
        return nb::make_tuple(array_of(found.samples), array_of(found.fields), fields, text_of(found.keys),
                              array_of(found.key_ends));
    }, "names"_a, "ends"_a, "chosen"_a,
       nb::sig("def tar_samples(names: Buffer, ends: Buffer, chosen: Buffer) -> tuple[NDArray[np.int64], "
               "NDArray[np.int32], list[bytes], bytes, NDArray[np.int64]]"));

    // Height, width, channels and bits of each image, as their own bytes tell them.
    m.def("image_shapes", [](int coding, const std::vector<const BoundPayloads*>& sources, nb::object which,
                             nb::object rows, nb::object out) {
        const auto kind = coding_of(coding);
        MutableBuffer to(out);
        const auto located = locate(sources, which, rows);
        const auto shapes = to.as<std::uint32_t>();
        if (shapes.size() != located.size() * 4) throw nb::value_error("four numbers an image");
        nb::gil_scoped_release release;
        std::vector<std::uint8_t> scratch;
        fl::for_each(located, [&](std::size_t i, const fl::Payloads* source, const fl::Extent& extent) {
            fl::ImageShape shape{};
            if (source) shape = fl::image_info(kind, source->load(extent, scratch));
            else shape.bits = 0;
            fl::store(shapes.data() + i * 4, shape);
        });
    }, "coding"_a, "sources"_a, "which"_a.none(), "rows"_a, "out"_a,
       nb::sig("def image_shapes(coding: int, sources: list[Payloads], which: Buffer | None, rows: Buffer, out: Buffer) "
               "-> None"));
}

void bind_zstd(nb::module_& m) {
    nb::class_<fl::Unzstd>(m, "Unzstd")
        .def(nb::init<>())
        .def("feed", [](fl::Unzstd& stream, nb::object data) {
            Buffer buffer(data);
            std::vector<std::uint8_t> out;
            {
                nb::gil_scoped_release release;
                stream.feed(buffer.bytes(), out);
            }
            return to_bytes(out);
        }, "data"_a, nb::sig("def feed(self, data: Buffer) -> bytes"))
        .def_prop_ro("whole", &fl::Unzstd::whole);
}

}  // namespace

void bind_formats(nb::module_& m) {
    bind_tar(m);
    bind_zstd(m);
    m.def("parse_example", [](nb::object data, nb::set singles) {
        Buffer buffer(data);
        nb::dict found;
        for (const auto& feature : fl::parse_example(buffer.bytes())) {
            auto name = nb::steal(PyUnicode_DecodeUTF8(feature.name.data(),
                                                       static_cast<Py_ssize_t>(feature.name.size()), nullptr));
            if (!name.is_valid()) throw nb::python_error();
            found[name] = singles.contains(name) ? only_value_of(feature) : value_of(feature);
        }
        return found;
    }, "data"_a, "singles"_a, nb::sig("def parse_example(data: Buffer, singles: set[str]) -> dict[str, Any]"));
}

}  // namespace bind
