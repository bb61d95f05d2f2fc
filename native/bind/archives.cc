// Archives: files in and out by path.
#include "bind.h"

#include <deque>

#include "asking.h"
#include "files.h"
#include "guard.h"
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

// What is in memory is read with the GIL held up to here: to get it back from others takes longer.
constexpr std::uint64_t kHeld = 64 << 10;
constexpr std::uint64_t kHeldTogether = 1 << 20;
// Of many files, the bytes that are asked for before their turn.
constexpr std::uint64_t kAhead = 32 << 20;
// Single files that are read between two looks at who has the signal.
constexpr std::uint32_t kUnguarded = 256;

struct BoundLookup {
    fl::ArchiveLookup lookup;

    void find(std::span<fl::Sought> sought) const {
        // A system call: a quarter of what a small file in memory costs, so not for each one.
        thread_local std::uint32_t alone = 0;
        if (sought.size() > 1 || alone++ % kUnguarded == 0) fl::keep_guard();
        try {
            const fl::KnownAlone nothing_else;
            return lookup.find(sought);
        } catch (const fl::Unread&) {
        }
        nb::gil_scoped_release release;  // it may be on disk still
        lookup.find(sought);
    }
};

// Many paths as they are looked up; what is none has no bytes. Their objects must stay.
class SoughtPaths {
public:
    explicit SoughtPaths(const nb::list& objects) {
        for (nb::handle one : objects) __builtin_prefetch(one.ptr());
        sought.reserve(objects.size());
        numbers.reserve(objects.size());
        for (std::size_t number = 0; number < objects.size(); ++number) {
            nb::handle one = objects[number];
            fl::Sought path;
            Py_ssize_t size = 0;
            const char* text = PyUnicode_Check(one.ptr()) && PyUnicode_IS_COMPACT_ASCII(one.ptr())
                                   ? PyUnicode_AsUTF8AndSize(one.ptr(), &size)
                                   : nullptr;
            if (text)
                path.key = fl::Bytes(reinterpret_cast<const std::uint8_t*>(text), static_cast<std::size_t>(size));
            else if (const auto bytes = owned_.emplace_back(one).bytes)
                path.key = *bytes;
            else
                continue;
            sought.push_back(path);
            numbers.push_back(number);
        }
    }
    std::vector<fl::Sought> sought;
    std::vector<std::size_t> numbers;  // of their objects

private:
    std::deque<Path> owned_;
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

struct Reading {
    std::size_t number;
    fl::FoundFile file;
    std::uint8_t* place = nullptr;
    std::size_t size = 0;  // what is the file's own of it
};

void read_all(const fl::ArchiveLookup& lookup, std::span<Reading> files) {
    std::size_t asked = 0;
    std::uint64_t ahead = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
        for (; asked < files.size() && (asked <= i || ahead < kAhead); ++asked) {
            ahead += files[asked].file.extent.size;
            if (!files[asked].file.known) lookup.expect(files[asked].file);
        }
        auto& [number, file, place, size] = files[i];
        ahead -= file.extent.size;
        size = lookup.read(file, {place, file.extent.raw_size}, i + 1 < files.size() ? &files[i + 1].file : nullptr);
    }
}

// Their bytes, and the numbers of those that were not found.
std::pair<nb::list, nb::list> get_many(const BoundLookup& bound, const nb::list& keys) {
    SoughtPaths paths(keys);
    bound.find(paths.sought);
    auto made = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(keys.size())));
    if (!made.is_valid()) throw nb::python_error();
    for (std::size_t i = 0; i < keys.size(); ++i)
        PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), nb::none().release().ptr());
    std::vector<Reading> files;
    files.reserve(paths.sought.size());
    std::uint64_t total = 0;
    bool known = true;
    for (std::size_t i = 0; i < paths.sought.size(); ++i) {
        const auto& one = paths.sought[i];
        if (!one.found) continue;
        Reading reading{paths.numbers[i], one.file};
        made[reading.number] = empty_bytes(one.file.extent.raw_size, reading.place);
        files.push_back(reading);
        total += one.file.extent.raw_size;
        known = known && one.file.known;
    }
    if (known && total <= kHeldTogether) {
        read_all(bound.lookup, files);
    } else {
        nb::gil_scoped_release release;
        read_all(bound.lookup, files);
    }
    for (const auto& done : files) {
        if (done.size == done.file.extent.raw_size) continue;
        nb::object whole = made[done.number];
        made[done.number] = nb::none();
        made[done.number] = shortened(std::move(whole), done.size);
    }
    nb::list missing;
    if (files.size() < keys.size())
        for (std::size_t i = 0; i < keys.size(); ++i)
            if (made[i].is_none()) missing.append(i);
    return {made, missing};
}

}  // namespace

void bind_archives(nb::module_& m) {
    // Lives as long as the list of shards does, and that holds on to their tables.
    nb::class_<BoundLookup>(m, "ArchiveLookup")
        .def("__init__", [](BoundLookup* self, nb::list shards) {
            std::vector<fl::ArchiveShard> made;
            for (nb::handle one : shards) {
                const auto parts = nb::cast<nb::tuple>(one);
                if (parts.size() != 7) throw nb::value_error("seven parts a shard");
                const auto* order = parts[6].is_none() ? nullptr : &nb::cast<const BoundTable&>(parts[6]).table;
                if (order && order->row_size() != sizeof(std::uint64_t)) throw nb::value_error("the order has rows of 8 bytes");
                made.push_back({&nb::cast<const BoundKeys&>(parts[0]).keys, field_of(parts[1], parts[2]),
                                field_of(parts[3], parts[4]),
                                nb::cast<std::vector<std::pair<std::uint64_t, std::uint64_t>>>(parts[5]), order});
            }
            new (self) BoundLookup{fl::ArchiveLookup(std::move(made))};
        }, "shards"_a, nb::keep_alive<1, 2>(),
             nb::sig("def __init__(self, shards: list[tuple[Keys, Payloads | None, Table | None, Payloads | None, "
                     "Table | None, list[tuple[int, int]], Table | None]]) -> None"))
        .def("prepare", [](BoundLookup& b) { b.lookup.prepare(); }, nb::call_guard<nb::gil_scoped_release>(),
             nb::sig("def prepare(self) -> None"))
        .def("get", [](const BoundLookup& b, nb::object key) -> nb::object {
            const Path path(key);
            if (!path.bytes) return nb::none();
            fl::Sought one;
            one.key = *path.bytes;
            b.find({&one, 1});
            if (!one.found) return nb::none();
            std::uint8_t* place = nullptr;
            auto made = empty_bytes(one.file.extent.raw_size, place);
            const fl::MutableBytes out(place, one.file.extent.raw_size);
            if (one.file.known && out.size() <= kHeld) return shortened(std::move(made), b.lookup.read(one.file, out));
            std::size_t size = 0;
            {
                nb::gil_scoped_release release;
                fl::keep_guard();
                b.lookup.expect(one.file);
                size = b.lookup.read(one.file, out);
            }
            return shortened(std::move(made), size);
        }, "key"_a, nb::sig("def get(self, key: str | Buffer) -> bytes | None"))
        .def("get_many", &get_many, "keys"_a, nb::sig("def get_many(self, keys: list[str | bytes]) -> "
                                                  "tuple[list[bytes | None], list[int]]"));

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
