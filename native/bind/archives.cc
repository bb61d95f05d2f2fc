// Archives: files in and out by path.
#include "bind.h"

#include <chrono>

#include "files.h"
#include "lookup.h"

namespace bind {

namespace {

// Text as UTF-8, with the bytes of a file name that are none as they were; what no path can be gives nothing.
class Path {
public:
    explicit Path(nb::handle object) {
        if (PyUnicode_Check(object.ptr())) {
            Py_ssize_t size = 0;
            if (const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size)) {
                bytes = fl::Bytes(reinterpret_cast<const std::uint8_t*>(text), static_cast<std::size_t>(size));
                return;
            }
            PyErr_Clear();
            encoded_ = nb::steal(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "surrogateescape"));
            if (!encoded_.is_valid()) {
                PyErr_Clear();
                return;
            }
            object = encoded_;
        }
        buffer_.emplace(object);
        bytes = buffer_->bytes();
    }
    std::optional<fl::Bytes> bytes;

private:
    nb::object encoded_;
    std::optional<Buffer> buffer_;
};

struct BoundLookup {
    fl::ArchiveLookup lookup;
};

fl::ContentField field_of(nb::handle payloads, nb::handle valid) {
    fl::ContentField field;
    if (!payloads.is_none()) field.payloads = &nb::cast<const BoundPayloads&>(payloads).payloads;
    if (!valid.is_none()) field.valid = &nb::cast<const BoundTable&>(valid).table;
    return field;
}

nb::object empty_bytes(std::size_t size, std::uint8_t*& place) {
    PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
    if (!made) throw nb::python_error();
    place = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(made));
    return nb::steal(made);
}

nb::object shortened(nb::object made, std::size_t size) {
    PyObject* raw = made.release().ptr();
    if (static_cast<std::size_t>(PyBytes_GET_SIZE(raw)) != size && _PyBytes_Resize(&raw, static_cast<Py_ssize_t>(size)))
        throw nb::python_error();
    return nb::steal(raw);
}

}  // namespace

void bind_archives(nb::module_& m) {
    // Lives as long as the list of shards does, and that holds on to their tables.
    nb::class_<BoundLookup>(m, "ArchiveLookup")
        .def("__init__", [](BoundLookup* self, nb::list shards) {
            std::vector<fl::ArchiveShard> made;
            for (nb::handle one : shards) {
                const auto parts = nb::cast<nb::tuple>(one);
                if (parts.size() != 6) throw nb::value_error("six parts a shard");
                made.push_back({&nb::cast<const BoundKeys&>(parts[0]).keys, field_of(parts[1], parts[2]),
                                field_of(parts[3], parts[4]),
                                nb::cast<std::vector<std::pair<std::uint64_t, std::uint64_t>>>(parts[5])});
            }
            new (self) BoundLookup{fl::ArchiveLookup(std::move(made))};
        }, "shards"_a, nb::keep_alive<1, 2>(),
             nb::sig("def __init__(self, shards: list[tuple[Keys, Payloads | None, Table | None, Payloads | None, "
                     "Table | None, list[tuple[int, int]]]]) -> None"))
        .def("find", [](const BoundLookup& b, nb::object key) -> std::optional<std::pair<std::uint32_t, std::uint64_t>> {
            const Path path(key);
            return path.bytes ? b.lookup.find(*path.bytes) : std::nullopt;
        }, "key"_a, nb::sig("def find(self, key: str | Buffer) -> tuple[int, int] | None"))
        .def("get", [](const BoundLookup& b, nb::object key) -> nb::object {
            const Path path(key);
            const auto found = path.bytes ? b.lookup.find(*path.bytes) : std::nullopt;
            if (!found) return nb::none();
            const auto file = b.lookup.locate(found->first, found->second);
            std::uint8_t* place = nullptr;
            auto made = empty_bytes(file.extent.raw_size, place);
            std::size_t size = 0;
            {
                nb::gil_scoped_release release;  // the bytes may be on disk still
                size = b.lookup.read(file, {place, file.extent.raw_size});
            }
            return shortened(std::move(made), size);
        }, "key"_a, nb::sig("def get(self, key: str | Buffer) -> bytes | None"))
        .def("get_many", [](const BoundLookup& b, nb::list keys) {
            std::vector<std::optional<fl::FoundFile>> files;
            std::vector<std::uint8_t*> places(keys.size(), nullptr);
            std::vector<nb::object> made(keys.size());
            for (nb::handle key : keys) {
                const Path path(key);
                const auto found = path.bytes ? b.lookup.find(*path.bytes) : std::nullopt;
                files.push_back(found ? std::optional(b.lookup.locate(found->first, found->second)) : std::nullopt);
                if (files.back()) made[files.size() - 1] = empty_bytes(files.back()->extent.raw_size, places[files.size() - 1]);
            }
            std::vector<std::size_t> sizes(files.size(), 0);
            {
                nb::gil_scoped_release release;
                bool asked = false;
                for (std::size_t i = 0; i < files.size(); ++i) {
                    if (i + 2 < files.size() && files[i + 2]) b.lookup.prefetch(*files[i + 2]);
                    if (!files[i]) continue;
                    const auto began = std::chrono::steady_clock::now();
                    sizes[i] = b.lookup.read(*files[i], {places[i], files[i]->extent.raw_size});
                    // Asking costs as much as reading what is in memory: so only where one was seen to be on disk.
                    if (asked || std::chrono::steady_clock::now() - began < fl::from_disk(files[i]->extent.size)) continue;
                    asked = true;
                    for (std::size_t j = i + 1; j < files.size(); ++j)
                        if (files[j]) b.lookup.will_need(*files[j]);
                }
            }
            nb::list list;
            for (std::size_t i = 0; i < files.size(); ++i)
                list.append(files[i] ? shortened(std::move(made[i]), sizes[i]) : nb::none());
            return list;
        }, "keys"_a, nb::sig("def get_many(self, keys: list[str | bytes]) -> list[bytes | None]"));

    m.def("sort_keys", [](nb::object offsets, nb::object bytes, nb::object out) {
        Buffer o(offsets), b(bytes);
        MutableBuffer to(out);
        nb::gil_scoped_release release;
        fl::sort_keys(o.as<std::uint64_t>(), b.bytes(), to.as<std::uint64_t>());
    }, "offsets"_a, "bytes"_a, "out"_a, nb::sig("def sort_keys(offsets: Buffer, bytes: Buffer, out: Buffer) -> None"));

    m.def("read_files", [](int folder, nb::list names, std::size_t limit) {
        std::vector<std::string> paths;
        for (nb::handle one : names) {
            const Buffer name(one);
            paths.emplace_back(reinterpret_cast<const char*>(name.bytes().data()), name.bytes().size());
        }
        fl::FilesRead read;
        {
            nb::gil_scoped_release release;
            read = fl::read_files(folder, paths, limit);
        }
        auto facts = std::make_unique<std::int64_t[]>(read.facts.size() * 8);
        if (!read.facts.empty()) std::memcpy(facts.get(), read.facts.data(), read.facts.size() * sizeof(fl::FileFacts));
        auto* raw = read.content.release();
        nb::capsule owner(raw, [](void* p) noexcept { std::free(p); });
        nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> content(raw, {read.size}, owner);
        return std::tuple(content, owned_array(std::move(facts), read.facts.size() * 8));
    }, "folder"_a, "names"_a, "limit"_a,
       nb::sig("def read_files(folder: int, names: list[bytes], limit: int) -> "
               "tuple[NDArray[np.uint8], NDArray[np.int64]]"));
}

}  // namespace bind
