// What the files that know Python share. They turn buffers into spans, release the GIL, and fl::Failure becomes
// fastloader._native.Failure(kind, message, position, stored, computed). All outputs are the caller's memory, except
// where the size is only known inside.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "guard.h"
#include "image.h"
#include "keys.h"
#include "payloads.h"
#include "readahead.h"
#include "table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace bind {

// A held view of any object with the buffer protocol.
class Buffer {
public:
    explicit Buffer(nb::handle object, int flags = PyBUF_SIMPLE) {
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    }
    Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() {
        if (view_.obj) PyBuffer_Release(&view_);
    }
    fl::Bytes bytes() const {
        return {static_cast<const std::uint8_t*>(view_.buf), static_cast<std::size_t>(view_.len)};
    }
    template <class T>
    std::span<const T> as() const {
        if (view_.len % sizeof(T) || reinterpret_cast<std::uintptr_t>(view_.buf) % alignof(T))
            throw nb::value_error("the buffer's size or alignment does not fit its element type");
        return {static_cast<const T*>(view_.buf), static_cast<std::size_t>(view_.len) / sizeof(T)};
    }

private:
    Py_buffer view_{};
};

// Buffers of Python's that were lent to threads without the GIL. These put them here when they are done, and whoever comes
// next from Python lets go of them.
class Returned {
public:
    ~Returned() {
        if (buffers_.empty()) return;
        nb::gil_scoped_acquire acquire;
        buffers_.clear();
    }

    static std::shared_ptr<const void> lend(const std::shared_ptr<Returned>& to, Buffer buffer) {
        return {new Buffer(std::move(buffer)), [to](Buffer* lent) {
                    std::lock_guard lock(to->mutex_);
                    to->buffers_.emplace_back(lent);
                }};
    }

    void let_go() {
        decltype(buffers_) gone;  // ends after the lock: what Python does then is its own business
        std::lock_guard lock(mutex_);
        gone.swap(buffers_);
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Buffer>> buffers_;
};

class MutableBuffer : public Buffer {
public:
    explicit MutableBuffer(nb::handle object) : Buffer(object, PyBUF_WRITABLE) {}
    fl::MutableBytes bytes() const {
        const auto span = Buffer::bytes();
        return {const_cast<std::uint8_t*>(span.data()), span.size()};
    }
    template <class T>
    std::span<T> as() const {
        const auto span = Buffer::as<T>();
        return {const_cast<T*>(span.data()), span.size()};
    }
};

// A kind of image; with kUpright added, images are turned as their EXIF data says.
constexpr int kUpright = 16, kUprightShapes = 32;
inline fl::ImageCoding coding_of(int coding) {
    const int kind = coding & ~kUpright;
    if (kind < 0 || kind > static_cast<int>(fl::ImageKind::labels)) throw nb::value_error("no such kind of image");
    return {static_cast<fl::ImageKind>(kind), (coding & kUpright) != 0};
}

inline nb::bytes to_bytes(const std::vector<std::uint8_t>& data) { return nb::bytes(data.data(), data.size()); }

inline fl::Bytes part(const Buffer& file, std::uint64_t offset, std::uint64_t size) {
    const auto bytes = file.bytes();
    if (offset > bytes.size() || size > bytes.size() - offset) throw fl::Failure("format", "outside the file");
    return bytes.subspan(offset, size);
}

struct BoundTable {
    using List = std::tuple<std::uint32_t, std::uint64_t>;  // its block size, and where its own checksums are

    BoundTable(nb::object file, std::uint64_t offset, std::uint64_t size, std::uint32_t row_size,
               std::uint32_t block_size, std::uint64_t crcs_offset, std::optional<List> list)
        : file(file), table(make(offset, size, row_size, block_size, crcs_offset, list)) {}

    fl::Table make(std::uint64_t offset, std::uint64_t size, std::uint32_t row_size, std::uint32_t block_size,
                   std::uint64_t crcs_offset, std::optional<List> list = std::nullopt) const {
        if (block_size == 0) throw fl::Failure("format", "a block size of zero");
        const auto rows = part(file, offset, size);
        const auto crcs = (size / block_size + (size % block_size != 0)) * 4;
        std::shared_ptr<const fl::Table> listed;
        if (list)
            listed = std::make_shared<fl::Table>(make(crcs_offset, crcs, 4, std::get<0>(*list), std::get<1>(*list)));
        return fl::Table(rows, row_size, block_size, part(file, crcs_offset, crcs), std::move(listed));
    }

    Buffer file;
    fl::Table table;
};

struct BoundDictionary {
    explicit BoundDictionary(nb::object data) : dictionary(Buffer(data).bytes()) {}
    fl::Dictionary dictionary;
};

struct BoundPayloads {
    BoundPayloads(nb::object file, const BoundTable& extents, std::uint64_t begin, std::uint64_t end,
                  const BoundDictionary* dictionary)
        : file(file),
          payloads(this->file.bytes(), extents.table, begin, end, dictionary ? &dictionary->dictionary : nullptr) {}
    BoundPayloads(nb::object file, const BoundTable& extents, fl::Foreign foreign)
        : file(file), payloads(this->file.bytes(), extents.table, 0, this->file.bytes().size(), nullptr, foreign) {}
    BoundPayloads(nb::object file, const fl::Windows& windows) : file(file), payloads(this->file.bytes(), windows) {}

    Buffer file;
    fl::Payloads payloads;
};

struct BoundKeys {
    BoundKeys(const BoundTable& offsets, const BoundTable& bytes, const BoundTable& slots)
        : keys(offsets.table, bytes.table, slots.table) {}
    fl::Keys keys;
};

// The arguments every batch call shares: sources, which source each row comes from (or None), and the rows.
struct Chosen {
    Chosen(nb::handle which, nb::handle rows) : rows_(rows) {
        fl::keep_guard();
        if (!which.is_none()) which_.emplace(which);
        picks.rows = rows_.as<std::int64_t>();
        if (which_) picks.which = which_->as<std::int32_t>();
        if (which_ && picks.which.size() != picks.rows.size())
            throw nb::value_error("'which' and 'rows' have different lengths");
    }
    fl::Picks picks;

private:
    Buffer rows_;
    std::optional<Buffer> which_;
};

inline std::vector<const fl::Table*> tables_of(const std::vector<const BoundTable*>& bound) {
    std::vector<const fl::Table*> tables;
    for (const auto* one : bound) tables.push_back(&one->table);
    return tables;
}

inline std::vector<const fl::Payloads*> payloads_of(const std::vector<const BoundPayloads*>& bound) {
    std::vector<const fl::Payloads*> payloads;
    for (const auto* one : bound) payloads.push_back(&one->payloads);
    return payloads;
}

inline std::vector<fl::Located> locate(const std::vector<const BoundPayloads*>& sources, nb::handle which, nb::handle rows) {
    Chosen chosen(which, rows);
    const auto from = payloads_of(sources);
    nb::gil_scoped_release release;
    return fl::locate(from, chosen.picks);
}

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> owned_array(std::unique_ptr<T[]> data, std::size_t size) {
    T* raw = data.release();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return {raw, {size}, owner};
}

// Values and the offsets between them, in fresh arrays: `measure` fills n + 1 offsets, `fill` the values.
template <class Measure, class Fill>
auto ragged(std::size_t n, Measure measure, Fill fill) {
    std::unique_ptr<std::int64_t[]> offsets;
    std::unique_ptr<std::uint8_t[]> values;
    std::size_t total = 0;
    {
        nb::gil_scoped_release release;
        offsets = std::make_unique<std::int64_t[]>(n + 1);
        const std::span<std::int64_t> places(offsets.get(), n + 1);
        measure(places);
        total = static_cast<std::size_t>(places[n]);
        values = std::make_unique_for_overwrite<std::uint8_t[]>(total);
        fill(std::span<const std::int64_t>(places), fl::MutableBytes(values.get(), total));
    }
    return std::tuple(owned_array(std::move(values), total), owned_array(std::move(offsets), n + 1));
}

// Arrays of pixels are given as their bytes and a shape (height, width, channels).
using PixelShape = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
using PixelSize = std::tuple<std::uint32_t, std::uint32_t>;
using FloatBox = std::tuple<float, float, float, float>;  // left, top, right, bottom

void bind_checksums(nb::module_& m);
void bind_codecs(nb::module_& m);
void bind_tables(nb::module_& m);
void bind_payloads(nb::module_& m);
void bind_images(nb::module_& m);
void bind_texts(nb::module_& m);
void bind_keys(nb::module_& m);
void bind_programs(nb::module_& m);
void bind_sound(nb::module_& m);
void bind_engine(nb::module_& m);
// What was read, as Python is told.
nb::dict told(const fl::ReadCounts& counts);

// Inode and time of a cache's file, in nanoseconds.
using StampTuple = std::tuple<std::uint64_t, std::int64_t>;
inline std::optional<fl::Stamp> stamp_of(const std::optional<StampTuple>& given) {
    if (!given) return std::nullopt;
    return fl::Stamp{std::get<0>(*given), std::get<1>(*given)};
}

void bind_planned(nb::module_& m);
void bind_reads(nb::module_& m);
void bind_orders(nb::module_& m);
void bind_placement(nb::module_& m);
void bind_resize(nb::module_& m);
void bind_cast(nb::module_& m);
void bind_tones(nb::module_& m);
void bind_geometry(nb::module_& m);
void bind_mix(nb::module_& m);
void bind_random(nb::module_& m);
void bind_formats(nb::module_& m);
void bind_archives(nb::module_& m);
void bind_net(nb::module_& m);

}  // namespace bind
