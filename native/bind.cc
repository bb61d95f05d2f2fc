// The one file that knows Python. It turns buffers into spans, releases the GIL, and turns fl::Failure into
// fastloader._native.Failure(kind, message, position, stored, computed). All outputs are the caller's memory, except
// where the size is only known inside.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "affine.h"
#include "cast.h"
#include "codec.h"
#include "colour.h"
#include "crc32c.h"
#include "engine.h"
#include "geometry.h"
#include "hash.h"
#include "image.h"
#include "jpeg_crop.h"
#include "jpeg_write.h"
#include "keys.h"
#include "mix.h"
#include "mix_draw.h"
#include "payloads.h"
#include "permutation.h"
#include "placement.h"
#include "random.h"
#include "resize.h"
#include "smooth.h"
#include "table.h"
#include "tones.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

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

fl::Codec codec_of(int codec) {
    if (codec < 0 || codec > static_cast<int>(fl::Codec::zstd)) throw nb::value_error("no such compression");
    return static_cast<fl::Codec>(codec);
}

fl::ImageKind kind_of(int kind) {
    if (kind < 0 || kind > static_cast<int>(fl::ImageKind::png)) throw nb::value_error("no such kind of image");
    return static_cast<fl::ImageKind>(kind);
}

nb::bytes to_bytes(const std::vector<std::uint8_t>& data) { return nb::bytes(data.data(), data.size()); }

fl::Bytes part(const Buffer& file, std::uint64_t offset, std::uint64_t size) {
    const auto bytes = file.bytes();
    if (offset > bytes.size() || size > bytes.size() - offset) throw fl::Failure("format", "outside the file");
    return bytes.subspan(offset, size);
}

struct BoundTable {
    BoundTable(nb::object file, std::uint64_t offset, std::uint64_t size, std::uint32_t row_size,
               std::uint32_t block_size, std::uint64_t crcs_offset)
        : file(file), table(make(offset, size, row_size, block_size, crcs_offset)) {}

    fl::Table make(std::uint64_t offset, std::uint64_t size, std::uint32_t row_size, std::uint32_t block_size,
                   std::uint64_t crcs_offset) const {
        if (block_size == 0) throw fl::Failure("format", "a block size of zero");
        const auto rows = part(file, offset, size);
        const auto blocks = size / block_size + (size % block_size != 0);
        return fl::Table(rows, row_size, block_size, part(file, crcs_offset, blocks * 4));
    }

    Buffer file;
    fl::Table table;
};

struct BoundPayloads {
    BoundPayloads(nb::object file, const BoundTable& extents, std::uint64_t begin, std::uint64_t end)
        : file(file), payloads(this->file.bytes(), extents.table, begin, end) {}

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

std::vector<const fl::Table*> tables_of(const std::vector<const BoundTable*>& bound) {
    std::vector<const fl::Table*> tables;
    for (const auto* one : bound) tables.push_back(&one->table);
    return tables;
}

std::vector<const fl::Payloads*> payloads_of(const std::vector<const BoundPayloads*>& bound) {
    std::vector<const fl::Payloads*> payloads;
    for (const auto* one : bound) payloads.push_back(&one->payloads);
    return payloads;
}

std::vector<fl::Located> locate(const std::vector<const BoundPayloads*>& sources, nb::handle which, nb::handle rows) {
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

PyObject* g_failure = nullptr;

void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const fl::Failure& failure) {
        PyObject* arguments = Py_BuildValue("(ssLII)", failure.kind, failure.what(),
                                            static_cast<long long>(failure.position), failure.stored, failure.computed);
        if (!arguments) return;
        PyErr_SetObject(g_failure, arguments);
        Py_DECREF(arguments);
    }
}

using Failures = std::vector<std::tuple<std::uint64_t, std::string, std::string, std::uint32_t, std::uint32_t>>;

void bind_checksums(nb::module_& m) {
    m.def("crc32c", [](nb::object data, std::uint32_t value) {
        Buffer buffer(data);
        nb::gil_scoped_release release;
        return fl::crc32c(buffer.bytes(), value);
    }, "data"_a, "value"_a = 0, nb::sig("def crc32c(data: Buffer, value: int = 0) -> int"));

    m.def("crc32c_variants", [] {
        std::vector<std::string> names;
        for (const auto& variant : fl::crc32c_variants()) names.emplace_back(variant.name);
        return names;
    });

    m.def("copy_crc32c", [](nb::object data, nb::object out, const std::string& variant) {
        Buffer from(data);
        MutableBuffer to(out);
        if (from.bytes().size() != to.bytes().size()) throw nb::value_error("data and out differ in size");
        for (const auto& one : fl::crc32c_variants())
            if (variant == one.name) return one.run(to.bytes().data(), from.bytes().data(), from.bytes().size(), 0);
        throw nb::value_error("no such variant on this CPU");
    }, "data"_a, "out"_a, "variant"_a, nb::sig("def copy_crc32c(data: Buffer, out: Buffer, variant: str) -> int"));

    m.def("block_crcs", [](nb::object data, std::uint32_t block_size) {
        Buffer buffer(data);
        std::vector<std::uint32_t> crcs;
        {
            nb::gil_scoped_release release;
            crcs = fl::block_crcs(buffer.bytes(), block_size);
        }
        return nb::bytes(crcs.data(), crcs.size() * 4);
    }, "data"_a, "block_size"_a, nb::sig("def block_crcs(data: Buffer, block_size: int) -> bytes"));

    m.def("xxh64", [](nb::object data, std::uint64_t seed) { return fl::xxh64(Buffer(data).bytes(), seed); },
          "data"_a, "seed"_a = 0, nb::sig("def xxh64(data: Buffer, seed: int = 0) -> int"));
}

void bind_codecs(nb::module_& m) {
    m.def("compress", [](nb::object data, int codec, int level) {
        Buffer buffer(data);
        const auto with = codec_of(codec);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::compress(buffer.bytes(), with, level);
        }
        return to_bytes(out);
    }, "data"_a, "codec"_a, "level"_a, nb::sig("def compress(data: Buffer, codec: int, level: int) -> bytes"));

    m.def("decompress", [](nb::object data, int codec, nb::object out) {
        Buffer buffer(data);
        MutableBuffer to(out);
        const auto with = codec_of(codec);
        nb::gil_scoped_release release;
        fl::decompress(buffer.bytes(), with, to.bytes());
    }, "data"_a, "codec"_a, "out"_a, nb::sig("def decompress(data: Buffer, codec: int, out: Buffer) -> None"));
}

void bind_tables(nb::module_& m) {
    nb::class_<BoundTable>(m, "Table")
        .def(nb::init<nb::object, std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t>(),
             "file"_a, "offset"_a, "size"_a, "row_size"_a, "block_size"_a, "crcs_offset"_a,
             nb::sig("def __init__(self, file: Buffer, offset: int, size: int, row_size: int, block_size: int, "
                     "crcs_offset: int) -> None"))
        .def_prop_ro("rows", [](const BoundTable& t) { return t.table.rows(); })
        .def_prop_ro("blocks", [](const BoundTable& t) { return t.table.blocks(); })
        .def("row", [](const BoundTable& t, std::uint64_t row, std::uint64_t count) {
            const auto bytes = t.table.at(row, count);
            return nb::bytes(bytes.data(), bytes.size());
        }, "row"_a, "count"_a = 1)
        .def("check", [](const BoundTable& t, std::size_t begin, std::size_t end) {
            std::vector<std::tuple<std::size_t, std::uint32_t, std::uint32_t>> bad;
            nb::gil_scoped_release release;
            for (std::size_t block = begin; block < end && block < t.table.blocks(); ++block) {
                std::uint32_t stored = 0, computed = 0;
                if (!t.table.check_block(block, stored, computed)) bad.emplace_back(block, stored, computed);
            }
            return bad;
        }, "begin"_a, "end"_a);

    const auto take_with = [](auto kernel) {
        return [kernel](const std::vector<const BoundTable*>& tables, nb::object which, nb::object rows,
                        nb::object out) {
            Chosen chosen(which, rows);
            MutableBuffer to(out);
            const auto sources = tables_of(tables);
            nb::gil_scoped_release release;
            kernel(sources, chosen.picks, to.bytes());
        };
    };
    m.def("take", take_with([](const auto& s, const auto& p, auto out) { fl::take(s, p, out); }), "tables"_a,
          "which"_a.none(), "rows"_a, "out"_a,
          nb::sig("def take(tables: list[Table], which: Buffer | None, rows: Buffer, out: Buffer) -> None"));
    m.def("take_bits", take_with([](const auto& s, const auto& p, auto out) { fl::take_bits(s, p, out); }),
          "tables"_a, "which"_a.none(), "rows"_a, "out"_a,
          nb::sig("def take_bits(tables: list[Table], which: Buffer | None, rows: Buffer, out: Buffer) -> None"));
}

void bind_payloads(nb::module_& m) {
    nb::class_<BoundPayloads>(m, "Payloads")
        .def(nb::init<nb::object, const BoundTable&, std::uint64_t, std::uint64_t>(), "file"_a, "extents"_a,
             "data_begin"_a, "data_end"_a, nb::keep_alive<1, 3>(),
             nb::sig("def __init__(self, file: Buffer, extents: Table, data_begin: int, data_end: int) -> None"))
        .def("extent", [](const BoundPayloads& p, std::uint64_t row) {
            const auto extent = p.payloads.extent(row);
            return std::tuple(extent.pointer, extent.size, extent.raw_size, extent.crc, static_cast<int>(extent.codec));
        }, "row"_a)
        .def("locate", [](const BoundPayloads& p, std::uint64_t row) -> std::optional<std::tuple<std::uint64_t, std::uint64_t>> {
            const auto extent = p.payloads.extent(row);
            nb::gil_scoped_release release;
            if (extent.codec != fl::Codec::none) return std::nullopt;
            p.payloads.stored(extent);
            return std::tuple(extent.pointer, extent.size);
        }, "row"_a)
        .def("read", [](const BoundPayloads& p, std::uint64_t row) {
            const auto extent = p.payloads.extent(row);
            auto out = std::make_unique_for_overwrite<std::uint8_t[]>(extent.raw_size);
            {
                nb::gil_scoped_release release;
                p.payloads.read(extent, {out.get(), extent.raw_size});
            }
            return owned_array(std::move(out), extent.raw_size);
        }, "row"_a)
        .def("check", [](const BoundPayloads& p, std::uint64_t begin, std::uint64_t end) {
            Failures failures;
            nb::gil_scoped_release release;
            for (auto& d : fl::check_payloads(p.payloads, begin, std::min(end, p.payloads.rows())))
                failures.emplace_back(d.row, d.kind, std::move(d.message), d.stored, d.computed);
            return failures;
        }, "begin"_a, "end"_a);

    m.def("gather_fixed", [](const std::vector<const BoundPayloads*>& sources, nb::object which, nb::object rows,
                             std::size_t row_bytes, nb::object out) {
        Chosen chosen(which, rows);
        MutableBuffer to(out);
        const auto from = payloads_of(sources);
        nb::gil_scoped_release release;
        fl::gather_fixed(fl::locate(from, chosen.picks), row_bytes, to.bytes());
    }, "sources"_a, "which"_a.none(), "rows"_a, "row_bytes"_a, "out"_a,
       nb::sig("def gather_fixed(sources: list[Payloads], which: Buffer | None, rows: Buffer, row_bytes: int, "
               "out: Buffer) -> None"));

    m.def("gather_ragged", [](const std::vector<const BoundPayloads*>& sources, nb::object which, nb::object rows) {
        const auto located = locate(sources, which, rows);
        return ragged(located.size(), [&](auto offsets) { fl::ragged_offsets(located, offsets); },
                      [&](auto offsets, auto values) { fl::gather_ragged(located, offsets, values); });
    }, "sources"_a, "which"_a.none(), "rows"_a,
       nb::sig("def gather_ragged(sources: list[Payloads], which: Buffer | None, rows: Buffer) -> "
               "tuple[NDArray[np.uint8], NDArray[np.int64]]"));

    // The objects are made while the GIL is held and filled after it is released: nobody else has seen them yet.
    m.def("gather_bytes", [](const std::vector<const BoundPayloads*>& sources, nb::object which, nb::object rows) {
        const auto located = locate(sources, which, rows);
        nb::list list;
        std::vector<std::uint8_t*> places;
        for (const auto& one : located) {
            PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(one.extent.raw_size));
            if (!made) throw nb::python_error();
            places.push_back(reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(made)));
            list.append(nb::steal(made));
        }
        {
            nb::gil_scoped_release release;
            fl::for_each(located, [&](std::size_t i, const fl::Payloads* source, const fl::Extent& extent) {
                if (source) source->read(extent, {places[i], extent.raw_size});
            });
        }
        return list;
    }, "sources"_a, "which"_a.none(), "rows"_a,
       nb::sig("def gather_bytes(sources: list[Payloads], which: Buffer | None, rows: Buffer) -> list[bytes]"));
}

void bind_images(nb::module_& m) {
    m.def("image_info", [](int kind, nb::object data) {
        Buffer buffer(data);
        const auto image = kind_of(kind);
        nb::gil_scoped_release release;
        const auto shape = fl::image_info(image, buffer.bytes());
        return std::tuple(shape.height, shape.width, shape.channels, shape.bits);
    }, "kind"_a, "data"_a, nb::sig("def image_info(kind: int, data: Buffer) -> tuple[int, int, int, int]"));

    m.def("image_decode", [](int kind, nb::object data, nb::object shape, nb::object out) {
        Buffer buffer(data), shapes(shape);
        MutableBuffer to(out);
        const auto wanted = shapes.as<fl::ImageShape>();
        if (wanted.size() != 1) throw nb::value_error("one shape of four uint32");
        const auto image = kind_of(kind);
        nb::gil_scoped_release release;
        fl::image_decode(image, buffer.bytes(), wanted[0], to.bytes());
    }, "kind"_a, "data"_a, "shape"_a, "out"_a,
       nb::sig("def image_decode(kind: int, data: Buffer, shape: Buffer, out: Buffer) -> None"));

    m.def("image_decode_many", [](int kind, const std::vector<const BoundPayloads*>& sources, nb::object which,
                                  nb::object rows, nb::object shapes) {
        Buffer buffer(shapes);
        const auto wanted = buffer.as<fl::ImageShape>();
        const auto located = locate(sources, which, rows);
        const auto images = kind_of(kind);
        return ragged(located.size(), [&](auto offsets) { fl::image_offsets(images, located, wanted, offsets); },
                      [&](auto offsets, auto values) {
                          fl::image_decode_many(images, located, wanted, offsets, values);
                      });
    }, "kind"_a, "sources"_a, "which"_a.none(), "rows"_a, "shapes"_a,
       nb::sig("def image_decode_many(kind: int, sources: list[Payloads], which: Buffer | None, rows: Buffer, "
               "shapes: Buffer) -> tuple[NDArray[np.uint8], NDArray[np.int64]]"));

    m.def("jpeg_encode", [](nb::object pixels, std::uint32_t height, std::uint32_t width, std::uint32_t channels,
                            int quality, int subsampling) {
        Buffer buffer(pixels);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::jpeg_encode(buffer.bytes(), {height, width, channels, 8}, quality, subsampling);
        }
        return to_bytes(out);
    }, "pixels"_a, "height"_a, "width"_a, "channels"_a, "quality"_a, "subsampling"_a,
       nb::sig("def jpeg_encode(pixels: Buffer, height: int, width: int, channels: int, quality: int, "
               "subsampling: int) -> bytes"));

    m.def("jpeg_index", [](nb::object data, std::uint32_t interval) {
        Buffer buffer(data);
        fl::JpegIndexed made;
        {
            nb::gil_scoped_release release;
            made = fl::jpeg_make_index(buffer.bytes(), interval);
        }
        return std::tuple(to_bytes(made.index), std::string(made.why_not ? made.why_not : ""));
    }, "data"_a, "interval"_a, nb::sig("def jpeg_index(data: Buffer, interval: int) -> tuple[bytes, str]"));

    m.def("jpeg_size", [](nb::object payload) { return fl::jpeg_split(Buffer(payload).bytes()).jpeg.size(); },
          "payload"_a, nb::sig("def jpeg_size(payload: Buffer) -> int"));

    m.def("jpeg_baseline", [](nb::object data) -> std::optional<nb::bytes> {
        Buffer buffer(data);
        std::optional<std::vector<std::uint8_t>> made;
        {
            nb::gil_scoped_release release;
            made = fl::jpeg_make_baseline(buffer.bytes());
        }
        return made ? std::optional(to_bytes(*made)) : std::nullopt;
    }, "data"_a, nb::sig("def jpeg_baseline(data: Buffer) -> bytes | None"));

    m.def("jpeg_crop", [](nb::object data, nb::object index, nb::object shape,
                          std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t> box,
                          std::uint32_t shrink, std::uint32_t channels, int route, nb::object out) {
        Buffer jpeg(data), anchors(index), shapes(shape);
        MutableBuffer to(out);
        const auto stored = shapes.as<fl::ImageShape>();
        if (stored.size() != 1) throw nb::value_error("one shape of four uint32");
        if (route < 0 || route > static_cast<int>(fl::JpegRoute::automatic)) throw nb::value_error("no such route");
        const auto [x, y, width, height] = box;
        const fl::JpegRequest request{stored[0], {x, y, width, height}, shrink, channels,
                                      static_cast<fl::JpegRoute>(route)};
        const auto stride = std::size_t{width} * (channels ? channels : stored[0].channels);
        if (stored[0].channels > 4 || channels > 4 || to.bytes().size() != stride * height)
            throw nb::value_error("the output has the wrong size");
        nb::gil_scoped_release release;
        return static_cast<int>(fl::jpeg_decode_box(jpeg.bytes(), anchors.bytes(), request, to.bytes().data(), stride));
    }, "data"_a, "index"_a, "shape"_a, "box"_a, "shrink"_a, "channels"_a, "route"_a, "out"_a,
       nb::sig("def jpeg_crop(data: Buffer, index: Buffer, shape: Buffer, box: tuple[int, int, int, int], shrink: int, "
               "channels: int, route: int, out: Buffer) -> int"));

    m.def("png_encode", [](nb::object pixels, std::uint32_t height, std::uint32_t width, std::uint32_t channels,
                           std::uint32_t bits, int level) {
        Buffer buffer(pixels);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::png_encode(buffer.bytes(), {height, width, channels, bits}, level);
        }
        return to_bytes(out);
    }, "pixels"_a, "height"_a, "width"_a, "channels"_a, "bits"_a, "level"_a,
       nb::sig("def png_encode(pixels: Buffer, height: int, width: int, channels: int, bits: int, level: int) -> "
               "bytes"));
}

void bind_keys(nb::module_& m) {
    nb::class_<BoundKeys>(m, "Keys")
        .def(nb::init<const BoundTable&, const BoundTable&, const BoundTable&>(), "offsets"_a, "bytes"_a, "slots"_a,
             nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
        .def("__len__", [](const BoundKeys& k) { return k.keys.size(); })
        .def("key", [](const BoundKeys& k, std::uint64_t sample) {
            const auto key = k.keys.key(sample);
            return nb::bytes(key.data(), key.size());
        }, "sample"_a)
        .def("find", [](const BoundKeys& k, nb::object key) { return k.keys.find(Buffer(key).bytes()); }, "key"_a,
             nb::sig("def find(self, key: Buffer) -> int | None"))
        .def("check", [](const BoundKeys& k, std::uint64_t begin, std::uint64_t end) {
            Failures failures;
            nb::gil_scoped_release release;
            for (auto sample = begin; sample < std::min(end, k.keys.size()); ++sample) {
                try {
                    if (k.keys.find(k.keys.key(sample)) != sample)
                        failures.emplace_back(sample, "format", "the key index does not find its key", 0, 0);
                } catch (const fl::Failure& failure) {
                    failures.emplace_back(sample, failure.kind, failure.what(), failure.stored, failure.computed);
                }
            }
            return failures;
        }, "begin"_a, "end"_a);

    m.def("lay_slots", [](nb::object hashes, nb::object samples, std::uint64_t homes, std::uint64_t next,
                          std::uint64_t base, nb::object out) {
        Buffer h(hashes), s(samples);
        MutableBuffer o(out);
        nb::gil_scoped_release release;
        return fl::lay_slots(h.as<std::uint64_t>(), s.as<std::uint64_t>(), homes, next, base, o.as<std::uint64_t>());
    }, "hashes"_a, "samples"_a, "homes"_a, "next"_a, "base"_a, "out"_a,
       nb::sig("def lay_slots(hashes: Buffer, samples: Buffer, homes: int, next: int, base: int, out: Buffer) -> int"));
}

// How the engine reads: the mode, memory for it, and the unit of a read.
using IoOptions = std::tuple<int, std::size_t, std::uint64_t>;

fl::ReadOptions read_options(const IoOptions& given) {
    const auto [mode, memory, unit] = given;
    if (mode < 0 || mode > static_cast<int>(fl::ReadMode::populate)) throw nb::value_error("no such way to read");
    if (unit & (unit - 1)) throw nb::value_error("a unit is a power of two");
    return {static_cast<fl::ReadMode>(mode), memory, unit};
}

// Payloads as elements: bytes of one, what metadata states, length, multiple, whether to truncate, the item that fills.
using ElementsTuple = std::tuple<std::size_t, int, std::uint64_t, std::uint64_t, bool, nb::bytes>;
// A step of a program: kind, number of the op, height, width, filter, as many numbers as its kind takes.
using StepTuple = std::tuple<int, std::uint32_t, std::uint32_t, std::uint32_t, int, std::vector<double>>;
// How images are stored, whether seekable, the shape of raw ones, the steps, height, width and channels of the result,
// its element and layout, scale and bias of each channel, the seed.
struct BoundProgram {
    BoundProgram(int stored, bool seekable, std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> raw,
                 const std::vector<StepTuple>& steps,
                 std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> result, int element, int layout,
                 std::array<float, 4> scale, std::array<float, 4> bias, std::uint64_t seed) {
        auto made = std::make_shared<fl::Program>();
        if (stored < 0 || stored > static_cast<int>(fl::StoredKind::raw)) throw nb::value_error("no such kind of image");
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
        made->height = std::get<0>(result);
        made->width = std::get<1>(result);
        made->cast = {static_cast<fl::Element>(element), static_cast<fl::Layout>(layout), std::get<2>(result), scale, bias, false};
        made->seed = seed;
        fl::check_program(*made);
        chain.first = made;
    }

    // Itself with one more stage, so that engines that have it are not changed.
    BoundProgram then(fl::Stage stage) const {
        BoundProgram longer(*this);
        longer.chain.add(std::move(stage));
        return longer;
    }

    fl::Chain chain;
};

// Kind, metadata's size, row's size, kind of image, elements, program.
using PlanTuple = std::tuple<int, std::size_t, std::size_t, int, std::optional<ElementsTuple>, const BoundProgram*>;

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

struct BoundEngine {
    BoundEngine(const std::vector<PlanTuple>& columns, std::size_t threads, std::size_t slots,
                std::size_t threads_a_batch, const IoOptions& io)
        : owned(new fl::Engine(plans(columns), threads, slots, threads_a_batch, read_options(io))), engine(*owned) {}

    static std::vector<fl::ColumnPlan> plans(const std::vector<PlanTuple>& columns) {
        using Kind = fl::ColumnPlan::Kind;
        std::vector<fl::ColumnPlan> plans;
        for (const auto& [kind, metadata_size, row_bytes, image, elements, program] : columns) {
            if (kind < 0 || kind > static_cast<int>(Kind::program)) throw nb::value_error("no such plan");
            const auto plan = static_cast<Kind>(kind);
            if (plan == Kind::image && metadata_size != sizeof(fl::ImageShape))
                throw nb::value_error("an image's metadata is its shape");
            if (elements ? plan != Kind::ragged && plan != Kind::padded : plan == Kind::padded)
                throw nb::value_error("elements are padded or ragged");
            if ((plan == Kind::program) != (program != nullptr)) throw nb::value_error("a program has one plan");
            plans.push_back({plan, metadata_size, row_bytes, kind_of(image), {}, {}});
            if (program) {
                plans.back().chain = std::make_shared<const fl::Chain>(program->chain);
                plans.back().row_bytes = program->chain.row_bytes();
                if (metadata_size != (program->chain.first->stored == fl::StoredKind::raw ? 0 : sizeof(fl::ImageShape)))
                    throw nb::value_error("an image's metadata is its shape");
            }
            if (elements) plans.back().elements = elements_of(*elements, metadata_size);
        }
        return plans;
    }

    std::vector<nb::object> held;  // what the engine points into; outlives it, as members end in reverse order
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
            rows || plan.kind == fl::ColumnPlan::Kind::fixed || plan.kind == fl::ColumnPlan::Kind::program
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

double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

void bind_programs(nb::module_& m) {
    nb::class_<BoundProgram>(m, "Program")
        .def(nb::init<int, bool, std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, const std::vector<StepTuple>&,
                      std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, int, int, std::array<float, 4>,
                      std::array<float, 4>, std::uint64_t>(),
             "stored"_a, "seekable"_a, "raw"_a, "steps"_a, "result"_a, "element"_a, "layout"_a, "scale"_a, "bias"_a,
             "seed"_a)
        .def_prop_ro("row_bytes", [](const BoundProgram& p) { return p.chain.row_bytes(); })
        .def("then", [](const BoundProgram& p, const BoundProgram& next) {
            if (!next.chain.stages.empty()) throw nb::value_error("a program alone");
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
        .def("run", [](const BoundProgram& p, nb::object payload, nb::object shape, std::uint64_t epoch,
                       std::uint64_t sample, nb::object out) {
            Buffer data(payload), shapes(shape);
            MutableBuffer to(out);
            const auto stored = shapes.as<fl::ImageShape>();
            if (stored.size() != 1) throw nb::value_error("one shape of four uint32");
            if (to.bytes().size() != p.chain.row_bytes()) throw nb::value_error("the output has the wrong size");
            nb::gil_scoped_release release;
            thread_local fl::ProgramRunner runner;
            fl::run_chain(p.chain, runner, data.bytes(), stored[0], epoch, sample, to.bytes());
        }, "payload"_a, "shape"_a, "epoch"_a, "sample"_a, "out"_a,
           nb::sig("def run(self, payload: Buffer, shape: Buffer, epoch: int, sample: int, out: Buffer) -> None"));
}

void bind_engine(nb::module_& m) {
    nb::class_<BoundEngine>(m, "Engine")
        .def(nb::init<const std::vector<PlanTuple>&, std::size_t, std::size_t, std::size_t, const IoOptions&>(),
             "columns"_a, "threads"_a, "slots"_a, "threads_a_batch"_a = 0, "io"_a = IoOptions{0, 0, 0})
        .def("add_source", [](BoundEngine& e, nb::list columns,
                              const std::tuple<std::string, std::uint64_t, std::uint64_t>& file) {
            std::vector<fl::ColumnSource> source;
            for (nb::handle one : columns) {
                const auto tables = nb::cast<nb::tuple>(one);
                fl::ColumnSource column;
                if (!tables[0].is_none()) column.metadata = &nb::cast<const BoundTable&>(tables[0]).table;
                if (!tables[1].is_none()) column.validity = &nb::cast<const BoundTable&>(tables[1]).table;
                if (!tables[2].is_none()) column.payloads = &nb::cast<const BoundPayloads&>(tables[2]).payloads;
                const auto& plan = e.engine.columns().at(source.size());
                if ((plan.kind != fl::ColumnPlan::Kind::rows && !column.payloads) ||
                    (column.validity && column.validity->row_size() != 1) ||
                    (plan.metadata_size && (!column.metadata || column.metadata->row_size() != plan.metadata_size)))
                    throw nb::value_error("a source lacks a table its plan needs");
                source.push_back(column);
            }
            e.held.push_back(nb::borrow(columns));
            fl::FileName name{std::get<0>(file), std::get<1>(file), std::get<2>(file), {}};
            for (const auto& column : source)
                if (column.payloads) name.mapped = column.payloads->file();
            return e.engine.add_source(std::move(source), std::move(name));
        }, "columns"_a, "file"_a = std::tuple<std::string, std::uint64_t, std::uint64_t>{},
           nb::sig("def add_source(self, columns: list[tuple[Table | None, Table | None, Payloads | None]], "
                   "file: tuple[str, int, int] = ('', 0, 0)) -> int"))
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
            nb::dict told;
            const auto* reads = e.engine.reads();
            if (!reads) return told;
            const auto& counts = reads->counts();
            told["reads"] = counts.reads.load();
            told["read_bytes"] = counts.bytes.load();
            told["payload_bytes"] = counts.asked.load();
            told["batches_in_memory"] = counts.mapped.load();
            told["given_up"] = counts.given_up.load();
            told["waiting"] = seconds(counts.waiting);
            return told;
        }, nb::sig("def reads(self) -> dict[str, Any]"))
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
            nb::gil_scoped_release release;
            e.engine.stop();
        })
        .def_prop_ro("usable", [](const BoundEngine& e) { return e.engine.usable(); })
        .def_prop_ro("slot_bytes", [](const BoundEngine& e) { return e.engine.slot_bytes(); })
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

void bind_orders(nb::module_& m) {
    m.def("permute", [](std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, nb::object values, nb::object out,
                        bool inverse) {
        Buffer from(values);
        MutableBuffer to(out);
        const auto in = from.as<std::int64_t>();
        const auto results = to.as<std::int64_t>();
        if (in.size() != results.size()) throw nb::value_error("values and out differ in size");
        nb::gil_scoped_release release;
        const fl::Permutation order(n, seed, epoch);
        if (!inverse) return order.at(in, results);
        for (std::size_t i = 0; i < in.size(); ++i)  // a negative value is past any end
            results[i] = static_cast<std::int64_t>(order.position_of(static_cast<std::uint64_t>(in[i])));
    }, "n"_a, "seed"_a, "epoch"_a, "values"_a, "out"_a, "inverse"_a = false,
       nb::sig("def permute(n: int, seed: int, epoch: int, values: Buffer, out: Buffer, inverse: bool = False) -> "
               "None"));
}

void bind_placement(nb::module_& m) {
    m.def("place", [](nb::object sizes, std::size_t fields, std::uint64_t page_size, std::uint64_t limit,
                      std::tuple<std::uint64_t, std::uint64_t, std::uint64_t> cursor, nb::object offsets,
                      nb::object starts) {
        Buffer s(sizes);
        MutableBuffer o(offsets), b(starts);
        fl::Cursor at{std::get<0>(cursor), std::get<1>(cursor), std::get<2>(cursor)};
        const auto placed = fl::place(s.as<std::uint64_t>(), fields, page_size, limit, at, o.as<std::uint64_t>(),
                                      b.as<std::uint64_t>());
        return std::tuple(placed, std::tuple(at.at, at.payload, at.padding));
    }, "sizes"_a, "fields"_a, "page_size"_a, "limit"_a, "cursor"_a, "offsets"_a, "starts"_a,
       nb::sig("def place(sizes: Buffer, fields: int, page_size: int, limit: int, cursor: tuple[int, int, int], "
               "offsets: Buffer, starts: Buffer) -> tuple[int, tuple[int, int, int]]"));

    m.def("assemble", [](nb::list parts, nb::object offsets, std::uint64_t base, nb::object out, nb::object crcs) {
        std::vector<Buffer> held;
        std::vector<fl::Bytes> spans;
        held.reserve(parts.size());
        for (nb::handle one : parts) {
            held.emplace_back(one);
            spans.push_back(held.back().bytes());
        }
        Buffer o(offsets);
        MutableBuffer to(out), sums(crcs);
        nb::gil_scoped_release release;
        fl::assemble(spans, o.as<std::uint64_t>(), base, to.bytes(), sums.as<std::uint32_t>());
    }, "parts"_a, "offsets"_a, "base"_a, "out"_a, "crcs"_a,
       nb::sig("def assemble(parts: list[Buffer], offsets: Buffer, base: int, out: Buffer, crcs: Buffer) -> None"));
}

// Arrays of pixels are given as their bytes and a shape (height, width, channels).
using PixelShape = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;
using PixelSize = std::tuple<std::uint32_t, std::uint32_t>;
using FloatBox = std::tuple<float, float, float, float>;  // left, top, right, bottom

fl::Simd simd_of(const std::string& level) {
    if (level.empty()) return fl::best_simd();
    for (const auto one : fl::simd_levels())
        if (level == fl::name_of(one)) return one;
    throw nb::value_error("no such instructions on this CPU");
}

fl::ResizeSpec resize_spec(const PixelShape& shape, const FloatBox& box, const PixelSize& size, int filter, bool flip) {
    if (filter < 0 || filter > static_cast<int>(fl::Filter::lanczos)) throw nb::value_error("no such filter");
    const auto [height, width, channels] = shape;
    const auto [left, top, right, bottom] = box;
    const auto [out_height, out_width] = size;
    return {height, width, channels, {left, top, right, bottom}, out_height, out_width,
            static_cast<fl::Filter>(filter), flip};
}

void bind_resize(nb::module_& m) {
    m.def("simd_levels", [] {
        std::vector<std::string> names;
        for (const auto level : fl::simd_levels()) names.emplace_back(fl::name_of(level));
        return names;
    });

    m.def("resize_region", [](const PixelShape& shape, const FloatBox& box, const PixelSize& size, int filter) {
        const auto region = fl::resize_region(resize_spec(shape, box, size, filter, false));
        return std::tuple(region.top, region.left, region.bottom, region.right);
    }, "shape"_a, "box"_a, "size"_a, "filter"_a);

    m.def("resize", [](nb::object pixels, const PixelShape& shape, int samples, const FloatBox& box,
                       const PixelSize& size, int filter, bool flip, nb::object out, const std::string& level,
                       bool cropped) {
        const auto spec = resize_spec(shape, box, size, filter, flip);
        const auto simd = simd_of(level);
        Buffer from(pixels);
        MutableBuffer to(out);
        const auto run = [&]<class T>(T) {
            const auto source = from.as<T>();
            const auto result = to.as<T>();
            nb::gil_scoped_release release;
            if constexpr (sizeof(T) == 1)
                fl::resize(spec, source, result, simd, cropped);
            else
                fl::resize(spec, source, result);
        };
        if (cropped && samples != 0) throw nb::value_error("a region alone is taken of 8-bit samples");
        switch (samples) {
            case 0: return run(std::uint8_t{});
            case 1: return run(std::uint16_t{});
            case 2: return run(float{});
            default: throw nb::value_error("no such samples");
        }
    }, "pixels"_a, "shape"_a, "samples"_a, "box"_a, "size"_a, "filter"_a, "flip"_a, "out"_a, "level"_a = "",
       "cropped"_a = false,
       nb::sig("def resize(pixels: Buffer, shape: tuple[int, int, int], samples: int, "
               "box: tuple[float, float, float, float], size: tuple[int, int], filter: int, flip: bool, out: Buffer, "
               "level: str = '', cropped: bool = False) -> None"));
}

void bind_cast(nb::module_& m) {
    m.def("cast", [](nb::object pixels, const PixelShape& shape, int element, int layout,
                     const std::vector<float>& scale, const std::vector<float>& bias, bool flip, nb::object out,
                     const std::string& level) {
        if (element < 0 || element > static_cast<int>(fl::Element::float32)) throw nb::value_error("no such element");
        if (layout < 0 || layout > static_cast<int>(fl::Layout::chw)) throw nb::value_error("no such layout");
        const auto [height, width, channels] = shape;
        fl::CastSpec spec{static_cast<fl::Element>(element), static_cast<fl::Layout>(layout), channels, {}, {}, flip};
        if (scale.size() != channels || bias.size() != channels || channels > spec.scale.size())
            throw nb::value_error("one scale and one bias a channel, for up to four channels");
        std::copy(scale.begin(), scale.end(), spec.scale.begin());
        std::copy(bias.begin(), bias.end(), spec.bias.begin());
        const auto simd = simd_of(level);
        Buffer from(pixels);
        MutableBuffer to(out);
        nb::gil_scoped_release release;
        fl::Cast(spec, simd).image(from.bytes(), height, width, to.bytes());
    }, "pixels"_a, "shape"_a, "element"_a, "layout"_a, "scale"_a, "bias"_a, "flip"_a, "out"_a, "level"_a = "",
       nb::sig("def cast(pixels: Buffer, shape: tuple[int, int, int], element: int, layout: int, scale: list[float], "
               "bias: list[float], flip: bool, out: Buffer, level: str = '') -> None"));
}

fl::Frame frame_of(const PixelShape& shape) { return {std::get<0>(shape), std::get<1>(shape), std::get<2>(shape)}; }

void refuse_overlap(fl::Bytes from, fl::Bytes to) {
    const std::less<const std::uint8_t*> before;
    if (before(from.data(), to.data() + to.size()) && before(to.data(), from.data() + from.size()))
        throw nb::value_error("the output overlaps the input");
}

// An operation on an image: its pixels and shape, what the operation takes, and where the result goes.
template <class... Options, class Kernel>
auto pixel_op(Kernel kernel, bool in_place = true) {
    return [kernel, in_place](nb::object image, const PixelShape& shape, Options... options, nb::object out,
                              const std::string& level) {
        const auto simd = simd_of(level);
        Buffer from(image);
        MutableBuffer to(out);
        if (!in_place) refuse_overlap(from.bytes(), to.bytes());
        nb::gil_scoped_release release;
        kernel(frame_of(shape), from.bytes(), options..., to.bytes(), simd);
    };
}

// Its result is a table of tones that `make` gives for the image.
template <class... Options, class Make>
auto tone_op(Make make) {
    return pixel_op<Options...>([make](const fl::Frame& frame, fl::Bytes image, Options... options,
                                       fl::MutableBytes out, fl::Simd level) {
        fl::check_frame(frame, image.size(), "image");
        fl::apply_tone(make(frame, image, options...), image, out, level);
    });
}

#define FL_PIXEL_SIG(name, options) \
    nb::sig("def " name "(image: Buffer, shape: tuple[int, int, int], " options "out: Buffer, level: str = '') -> None")

void bind_tones(nb::module_& m) {
    m.def("brightness", tone_op<float>([](const fl::Frame&, fl::Bytes, float factor) {
              return fl::brightness_tone(factor);
          }),
          "image"_a, "shape"_a, "factor"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("brightness", "factor: float, "));
    m.def("contrast", tone_op<float>([](const fl::Frame& frame, fl::Bytes image, float factor) {
              return fl::contrast_tone(factor, fl::mean_luma(frame, image));
          }),
          "image"_a, "shape"_a, "factor"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("contrast", "factor: float, "));
    m.def("invert", tone_op<>([](const fl::Frame&, fl::Bytes) { return fl::invert_tone(); }), "image"_a,
          "shape"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("invert", ""));
    m.def("solarize", tone_op<std::uint32_t>([](const fl::Frame&, fl::Bytes, std::uint32_t threshold) {
              return fl::solarize_tone(threshold);
          }),
          "image"_a, "shape"_a, "threshold"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("solarize", "threshold: int, "));
    m.def("posterize", tone_op<std::uint32_t>([](const fl::Frame&, fl::Bytes, std::uint32_t bits) {
              return fl::posterize_tone(bits);
          }),
          "image"_a, "shape"_a, "bits"_a, "out"_a, "level"_a = "", FL_PIXEL_SIG("posterize", "bits: int, "));
    m.def("equalize", pixel_op<>(fl::equalize), "image"_a, "shape"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("equalize", ""));
    m.def("autocontrast", pixel_op<>(fl::autocontrast), "image"_a, "shape"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("autocontrast", ""));
    m.def("grayscale", pixel_op<std::uint32_t>(fl::grayscale), "image"_a, "shape"_a, "channels"_a, "out"_a,
          "level"_a = "", FL_PIXEL_SIG("grayscale", "channels: int, "));
    m.def("saturation", pixel_op<float>(fl::saturate), "image"_a, "shape"_a, "factor"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("saturation", "factor: float, "));
    m.def("hue", pixel_op<std::uint8_t>(fl::shift_hue), "image"_a, "shape"_a, "shift"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("hue", "shift: int, "));
    m.def("sharpness", pixel_op<float>(fl::sharpen, false), "image"_a, "shape"_a, "factor"_a, "out"_a,
          "level"_a = "", FL_PIXEL_SIG("sharpness", "factor: float, "));
    using Two = std::tuple<std::uint32_t, std::uint32_t>;
    m.def("gaussian_blur", pixel_op<const Two&, const std::tuple<double, double>&>(
              [](const fl::Frame& frame, fl::Bytes image, const Two& size, const std::tuple<double, double>& sigma,
                 fl::MutableBytes out, fl::Simd level) {
                  fl::gaussian_blur(frame, image, std::get<1>(size), std::get<0>(size), std::get<1>(sigma),
                                    std::get<0>(sigma), out, level);
              }, false),
          "image"_a, "shape"_a, "size"_a, "sigma"_a, "out"_a, "level"_a = "",
          FL_PIXEL_SIG("gaussian_blur", "size: tuple[int, int], sigma: tuple[float, float], "));
}

fl::Fill fill_of(const std::vector<std::uint8_t>& values, const PixelShape& shape) {
    fl::Fill fill{};
    if (values.size() != std::get<2>(shape) || values.size() > fill.size())
        throw nb::value_error("one value a channel, for up to four channels");
    std::copy(values.begin(), values.end(), fill.begin());
    return fill;
}

void bind_geometry(nb::module_& m) {
    m.def("affine", [](nb::object image, const PixelShape& shape, const std::vector<double>& matrix, bool bilinear,
                       const std::vector<std::uint8_t>& fill, nb::object out, const PixelSize& size,
                       const std::string& level) {
        fl::Matrix numbers;
        if (matrix.size() != numbers.size()) throw nb::value_error("a matrix of six numbers");
        std::copy(matrix.begin(), matrix.end(), numbers.begin());
        const auto filling = fill_of(fill, shape);
        const auto simd = simd_of(level);
        Buffer from(image);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        nb::gil_scoped_release release;
        fl::affine(frame_of(shape), from.bytes(), numbers, bilinear, filling,
                   {std::get<0>(size), std::get<1>(size), std::get<2>(shape)}, to.bytes(), simd);
    }, "image"_a, "shape"_a, "matrix"_a, "bilinear"_a, "fill"_a, "out"_a, "size"_a, "level"_a = "",
       nb::sig("def affine(image: Buffer, shape: tuple[int, int, int], matrix: list[float], bilinear: bool, "
               "fill: list[int], out: Buffer, size: tuple[int, int], level: str = '') -> None"));

    m.def("pad_image", [](nb::object image, const PixelShape& shape, const std::tuple<std::int32_t, std::int32_t>& at,
                          int mode, const std::vector<std::uint8_t>& fill, nb::object out, const PixelSize& size) {
        if (mode < 0 || mode > static_cast<int>(fl::PadMode::symmetric)) throw nb::value_error("no such padding");
        const auto filling = fill_of(fill, shape);
        Buffer from(image);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        nb::gil_scoped_release release;
        fl::pad(frame_of(shape), from.bytes(), std::get<0>(at), std::get<1>(at), static_cast<fl::PadMode>(mode),
                filling, {std::get<0>(size), std::get<1>(size), std::get<2>(shape)}, to.bytes());
    }, "image"_a, "shape"_a, "at"_a, "mode"_a, "fill"_a, "out"_a, "size"_a,
       nb::sig("def pad_image(image: Buffer, shape: tuple[int, int, int], at: tuple[int, int], mode: int, "
               "fill: list[int], out: Buffer, size: tuple[int, int]) -> None"));

    using WholeBox = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
    const auto box_of = [](const WholeBox& box) {
        const auto [top, left, bottom, right] = box;
        return fl::PixelBox{top, left, bottom, right};
    };
    m.def("erase", [box_of](nb::object image, const PixelShape& shape, const WholeBox& box,
                            const std::vector<std::uint8_t>& fill) {
        MutableBuffer to(image);
        fl::erase(frame_of(shape), to.bytes(), box_of(box), fill_of(fill, shape));
    }, "image"_a, "shape"_a, "box"_a, "fill"_a,
       nb::sig("def erase(image: Buffer, shape: tuple[int, int, int], box: tuple[int, int, int, int], "
               "fill: list[int]) -> None"));
    m.def("erase_noise", [box_of](nb::object image, const PixelShape& shape, const WholeBox& box, std::uint64_t seed,
                                  std::uint64_t epoch, std::uint64_t sample, std::uint32_t op) {
        MutableBuffer to(image);
        nb::gil_scoped_release release;
        fl::Random noise(seed, epoch, sample, op);
        fl::erase(frame_of(shape), to.bytes(), box_of(box), noise);
    }, "image"_a, "shape"_a, "box"_a, "seed"_a, "epoch"_a, "sample"_a, "op"_a,
       nb::sig("def erase_noise(image: Buffer, shape: tuple[int, int, int], box: tuple[int, int, int, int], seed: int, "
               "epoch: int, sample: int, op: int) -> None"));
}

void bind_mix(nb::module_& m) {
    m.def("mixup", [](nb::object batch, int element, nb::object partners, nb::object shares, nb::object out) {
        if (element < 0 || element > static_cast<int>(fl::Element::float32)) throw nb::value_error("no such element");
        Buffer from(batch), whom(partners), how(shares);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        const auto with = whom.as<std::int64_t>();
        const auto parts = how.as<float>();
        nb::gil_scoped_release release;
        fl::mixup(static_cast<fl::Element>(element), from.bytes(), with, parts, to.bytes());
    }, "batch"_a, "element"_a, "partners"_a, "shares"_a, "out"_a,
       nb::sig("def mixup(batch: Buffer, element: int, partners: Buffer, shares: Buffer, out: Buffer) -> None"));

    m.def("cutmix", [](nb::object batch, const PixelShape& shape, std::size_t element_size, int layout,
                       nb::object partners, nb::object boxes, nb::object out) {
        if (layout < 0 || layout > static_cast<int>(fl::Layout::chw)) throw nb::value_error("no such layout");
        Buffer from(batch), whom(partners), where(boxes);
        MutableBuffer to(out);
        refuse_overlap(from.bytes(), to.bytes());
        const auto with = whom.as<std::int64_t>();
        const auto places = where.as<fl::PixelBox>();
        nb::gil_scoped_release release;
        fl::cutmix(frame_of(shape), element_size, static_cast<fl::Layout>(layout), from.bytes(), with, places,
                   to.bytes());
    }, "batch"_a, "shape"_a, "element_size"_a, "layout"_a, "partners"_a, "boxes"_a, "out"_a,
       nb::sig("def cutmix(batch: Buffer, shape: tuple[int, int, int], element_size: int, layout: int, "
               "partners: Buffer, boxes: Buffer, out: Buffer) -> None"));

    m.def("draw_mix", [](std::uint64_t seed, std::uint64_t epoch, nb::object samples, std::uint32_t op, double alpha,
                         nb::object out) {
        Buffer numbers(samples);
        MutableBuffer to(out);
        const auto whom = numbers.as<std::int64_t>();
        const auto draws = to.as<fl::MixDraw>();
        nb::gil_scoped_release release;
        fl::draw_mix(seed, epoch, whom, op, alpha, draws);
    }, "seed"_a, "epoch"_a, "samples"_a, "op"_a, "alpha"_a, "out"_a,
       nb::sig("def draw_mix(seed: int, epoch: int, samples: Buffer, op: int, alpha: float, out: Buffer) -> None"));
}

// Fills an array from the beginning of a stream.
template <class T, class Draw>
auto random_op(Draw draw) {
    return [draw](std::uint64_t seed, std::uint64_t epoch, std::uint64_t sample, std::uint32_t op, nb::object out,
                  auto... options) {
        MutableBuffer to(out);
        const auto values = to.as<T>();
        nb::gil_scoped_release release;
        fl::Random random(seed, epoch, sample, op);
        for (auto& value : values) value = draw(random, options...);
    };
}

#define FL_RANDOM_SIG(name, options) \
    nb::sig("def " name "(seed: int, epoch: int, sample: int, op: int, out: Buffer" options ") -> None")

void bind_random(nb::module_& m) {
    m.def("philox", [](const std::tuple<std::uint32_t, std::uint32_t>& key,
                       const std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>& counter) {
        const auto [a, b, c, d] = counter;
        const auto block = fl::philox({std::get<0>(key), std::get<1>(key)}, {a, b, c, d});
        return std::tuple(block[0], block[1], block[2], block[3]);
    }, "key"_a, "counter"_a);
    using Place = std::uint64_t;
    m.def("random_bits", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out) {
        random_op<std::uint32_t>([](fl::Random& r) { return r.bits(); })(seed, epoch, sample, op, out);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, FL_RANDOM_SIG("random_bits", ""));
    m.def("random_uniform", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out) {
        random_op<double>([](fl::Random& r) { return r.uniform(); })(seed, epoch, sample, op, out);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, FL_RANDOM_SIG("random_uniform", ""));
    m.def("random_below", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out, Place bound) {
        random_op<std::uint64_t>([](fl::Random& r, Place b) { return r.below(b); })(seed, epoch, sample, op, out,
                                                                                     bound);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, "bound"_a, FL_RANDOM_SIG("random_below", ", bound: int"));
    m.def("random_normal", [](Place seed, Place epoch, Place sample, std::uint32_t op, nb::object out) {
        random_op<double>([](fl::Random& r) { return r.normal(); })(seed, epoch, sample, op, out);
    }, "seed"_a, "epoch"_a, "sample"_a, "op"_a, "out"_a, FL_RANDOM_SIG("random_normal", ""));
}

}  // namespace

NB_MODULE(_native, m) {
    // A module-level reader in a user's program may live until the interpreter is gone; that is no leak of ours.
    nb::set_leak_warnings(false);
    g_failure = PyErr_NewException("fastloader._native.Failure", PyExc_ValueError, nullptr);
    m.attr("Failure") = nb::borrow(g_failure);
    nb::register_exception_translator(translate);
    bind_checksums(m);
    bind_codecs(m);
    bind_tables(m);
    bind_payloads(m);
    bind_images(m);
    bind_keys(m);
    bind_programs(m);
    bind_engine(m);
    bind_reads(m);
    bind_orders(m);
    bind_placement(m);
    bind_resize(m);
    bind_cast(m);
    bind_tones(m);
    bind_geometry(m);
    bind_mix(m);
    bind_random(m);
}
