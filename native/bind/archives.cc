// Archives: files in and out by path.
#include "bind.h"

#include <forward_list>

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
// Single files that are read between two looks at who has the signal.
constexpr std::uint32_t kUnguarded = 256;
// After so many lookups that had blocks of tables to check, all of them are checked.
constexpr std::uint32_t kStrange = 32;

struct BoundLookup {
    fl::ArchiveLookup lookup;
    mutable std::uint32_t alone = 0;
    mutable std::uint32_t strange = 0;  // changed by who has the GIL

    // Whether all are found without a wait.
    bool find_seen(std::span<fl::Sought> sought) const {
        // A system call: a quarter of what a small file in memory costs, so not for each one.
        if (sought.size() > 1 || alone++ % kUnguarded == 0) fl::keep_guard();
        return lookup.find_seen(sought);
    }

    void find(std::span<fl::Sought> sought) const {
        if (find_seen(sought)) return;
        try {
            const fl::KnownAlone nothing_else;
            return lookup.find(sought);
        } catch (const fl::Unread&) {
        }
        const bool many = strange < kStrange && (strange += static_cast<std::uint32_t>(sought.size())) >= kStrange;
        nb::gil_scoped_release release;  // it may be on disk still
        if (many) lookup.check_tables();
        lookup.find(sought);
    }
};

// Text of ASCII, which is most of it, as it lies in memory; else null.
const std::uint8_t* ascii(nb::handle object, std::size_t& size) {
    if (!PyUnicode_Check(object.ptr()) || !PyUnicode_IS_COMPACT_ASCII(object.ptr())) return nullptr;
    size = static_cast<std::size_t>(PyUnicode_GET_LENGTH(object.ptr()));
    return static_cast<const std::uint8_t*>(PyUnicode_DATA(object.ptr()));
}

// Many paths as they are looked up; what is none has no bytes. Their objects must stay.
class SoughtPaths {
public:
    explicit SoughtPaths(const nb::list& objects) {
        const auto count = objects.size();
        for (nb::handle one : objects) {
            __builtin_prefetch(one.ptr());
            __builtin_prefetch(reinterpret_cast<const PyASCIIObject*>(one.ptr()) + 1);  // the text, as a rule
        }
        sought.reserve(count);
        numbers.reserve(count);
        for (std::size_t number = 0; number < count; ++number) {
            nb::handle one = PyList_GET_ITEM(objects.ptr(), static_cast<Py_ssize_t>(number));
            fl::Bytes key;
            std::size_t size = 0;
            if (const auto* text = ascii(one, size))
                key = {text, size};
            else if (const auto bytes = owned_.emplace_front(one).bytes)
                key = *bytes;
            else
                continue;
            sought.emplace_back().key = key;
            numbers.push_back(number);
        }
    }
    std::vector<fl::Sought> sought;
    std::vector<std::size_t> numbers;  // of their objects

private:
    std::forward_list<Path> owned_;
};

fl::ContentField field_of(nb::handle payloads, nb::handle valid) {
    fl::ContentField field;
    if (!payloads.is_none()) field.payloads = &nb::cast<const BoundPayloads&>(payloads).payloads;
    if (!valid.is_none()) field.valid = &nb::cast<const BoundTable&>(valid).table;
    return field;
}

// Bytes of which those are filled in that a file has; its size is found when it is read.
PyObject* empty_bytes(fl::Reading& reading) {
    PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(reading.file.extent.raw_size));
    if (!made) throw nb::python_error();
    reading.out = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(made));
    return made;
}

nb::object shortened(nb::object made, const fl::Reading& reading) {
    PyObject* raw = made.release().ptr();
    if (static_cast<std::size_t>(PyBytes_GET_SIZE(raw)) != reading.size &&
        _PyBytes_Resize(&raw, static_cast<Py_ssize_t>(reading.size)))
        throw nb::python_error();
    return nb::steal(raw);
}

bool is_held(const fl::FoundFile& file) { return file.known && file.extent.raw_size <= kHeld; }

nb::object get(const BoundLookup& bound, nb::handle key) {
    fl::Sought one;
    std::size_t size = 0;
    std::optional<Path> path;
    if (const auto* text = ascii(key, size))
        one.key = {text, size};
    else if (path.emplace(key).bytes)
        one.key = *path->bytes;
    else
        return nb::none();
    bound.find({&one, 1});
    if (!one.found) return nb::none();
    fl::Reading reading{one.file};
    auto made = nb::steal(empty_bytes(reading));
    if (is_held(one.file)) {
        bound.lookup.read(reading);
    } else {
        nb::gil_scoped_release release;
        fl::keep_guard();
        bound.lookup.expect(reading.file);
        bound.lookup.read(reading);
    }
    return shortened(std::move(made), reading);
}

// Nearly always it is text of ASCII, and the file was read before. Then it is read here, without a detour through how
// functions are called; all else, and whatever is wrong, is left to `get`.
PyObject* subscript(PyObject* self, PyObject* key) noexcept {
    try {
        fl::Sought one;
        std::size_t size = 0;
        const auto* const text = nb::inst_ready(self) ? ascii(key, size) : nullptr;
        if (text) {
            const auto& bound = *nb::inst_ptr<BoundLookup>(self);
            one.key = {text, size};
            if (bound.find_seen({&one, 1}) && is_held(one.file)) {
                fl::Reading reading{one.file};
                auto made = nb::steal(empty_bytes(reading));
                bound.lookup.read(reading);
                return shortened(std::move(made), reading).release().ptr();
            }
        }
    } catch (...) {
    }
    PyErr_Clear();
    static PyObject* const name = PyUnicode_InternFromString("get");
    return PyObject_CallMethodOneArg(self, name, key);
}

PyType_Slot lookup_slots[] = {{Py_mp_subscript, reinterpret_cast<void*>(subscript)}, {0, nullptr}};

// Their bytes, and the numbers of those that were not found.
std::pair<nb::list, nb::list> get_many(const BoundLookup& bound, const nb::list& keys) {
    SoughtPaths paths(keys);
    bound.find(paths.sought);
    auto made = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(keys.size())));
    if (!made.is_valid()) throw nb::python_error();
    for (std::size_t i = 0; i < keys.size(); ++i)
        PyList_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), nb::none().release().ptr());
    std::vector<fl::Reading> files;
    std::vector<Py_ssize_t> numbers;
    files.reserve(paths.sought.size());
    numbers.reserve(paths.sought.size());
    std::uint64_t total = 0;
    bool known = true;
    for (std::size_t i = 0; i < paths.sought.size(); ++i) {
        const auto& one = paths.sought[i];
        if (!one.found) continue;
        numbers.push_back(static_cast<Py_ssize_t>(paths.numbers[i]));
        PyList_SetItem(made.ptr(), numbers.back(), empty_bytes(files.emplace_back(one.file)));
        total += one.file.extent.raw_size;
        known = known && one.file.known;
    }
    if (known && total <= kHeldTogether) {
        bound.lookup.read(files);
    } else {
        nb::gil_scoped_release release;
        bound.lookup.read(files);
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
        if (files[i].size == files[i].file.extent.raw_size) continue;
        nb::object whole = made[numbers[i]];
        made[numbers[i]] = nb::none();  // what is shortened has one owner
        made[numbers[i]] = shortened(std::move(whole), files[i]);
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
    nb::class_<BoundLookup>(m, "ArchiveLookup", nb::type_slots(lookup_slots))
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
        .def("get", &get, "key"_a, nb::sig("def get(self, key: str | Buffer) -> bytes | None"))
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
