// Foreign formats: what would cost too much in Python, sample by sample.
#include "bind.h"

#include "example.h"

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

}  // namespace

void bind_formats(nb::module_& m) {
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
