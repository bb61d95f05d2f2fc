// Checksums, compression, tables, payloads, keys, orders, placement.
#include "bind.h"

#include "codec.h"
#include "crc32c.h"
#include "guard.h"
#include "hash.h"
#include "packing.h"
#include "permutation.h"
#include "placement.h"

namespace bind {

namespace {

fl::Codec codec_of(int codec) {
    if (codec < 0 || codec > static_cast<int>(fl::Codec::zstd_dictionary)) throw nb::value_error("no such compression");
    return static_cast<fl::Codec>(codec);
}

using Failures = std::vector<std::tuple<std::uint64_t, std::string, std::string, std::uint32_t, std::uint32_t>>;

}  // namespace

void bind_checksums(nb::module_& m) {
    m.def("crc32c", [](nb::object data, std::uint32_t value) {
        Buffer buffer(data);
        nb::gil_scoped_release release;
        std::uint32_t computed = 0;
        fl::guarded([&] { computed = fl::crc32c(buffer.bytes(), value); });
        return computed;
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
        const auto half = from.bytes().size() / 2;
        const fl::Bytes halves[] = {from.bytes().first(half), from.bytes().subspan(half)};
        fl::Upcoming next(halves);
        for (const auto& one : fl::crc32c_variants())
            if (variant == one.name)
                return one.run(to.bytes().data(), from.bytes().data(), from.bytes().size(), 0, &next);
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
    nb::class_<BoundDictionary>(m, "Dictionary")
        .def(nb::init<nb::object>(), "data"_a, nb::sig("def __init__(self, data: Buffer) -> None"));

    m.def("train_dictionary", [](nb::list samples, std::size_t capacity) {
        std::vector<std::uint8_t> joined;
        std::vector<std::size_t> sizes;
        for (nb::handle one : samples) {
            Buffer buffer(one);
            joined.insert(joined.end(), buffer.bytes().begin(), buffer.bytes().end());
            sizes.push_back(buffer.bytes().size());
        }
        std::vector<std::uint8_t> made;
        {
            nb::gil_scoped_release release;
            made = fl::train_dictionary(joined, sizes, capacity);
        }
        return to_bytes(made);
    }, "samples"_a, "capacity"_a, nb::sig("def train_dictionary(samples: list[Buffer], capacity: int) -> bytes"));

    m.def("compress", [](nb::object data, int codec, int level, const BoundDictionary* dictionary) {
        Buffer buffer(data);
        const auto with = codec_of(codec);
        std::vector<std::uint8_t> out;
        {
            nb::gil_scoped_release release;
            out = fl::compress(buffer.bytes(), with, level, dictionary ? &dictionary->dictionary : nullptr);
        }
        return to_bytes(out);
    }, "data"_a, "codec"_a, "level"_a, "dictionary"_a.none() = nb::none(),
       nb::sig("def compress(data: Buffer, codec: int, level: int, dictionary: Dictionary | None = None) -> bytes"));

    m.def("decompress", [](nb::object data, int codec, nb::object out, const BoundDictionary* dictionary) {
        Buffer buffer(data);
        MutableBuffer to(out);
        const auto with = codec_of(codec);
        nb::gil_scoped_release release;
        fl::decompress(buffer.bytes(), with, to.bytes(), dictionary ? &dictionary->dictionary : nullptr);
    }, "data"_a, "codec"_a, "out"_a, "dictionary"_a.none() = nb::none(),
       nb::sig("def decompress(data: Buffer, codec: int, out: Buffer, dictionary: Dictionary | None = None) -> None"));
}

void bind_tables(nb::module_& m) {
    nb::class_<BoundTable>(m, "Table")
        .def(nb::init<nb::object, std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t,
                      std::optional<BoundTable::List>>(),
             "file"_a, "offset"_a, "size"_a, "row_size"_a, "block_size"_a, "crcs_offset"_a, "list"_a.none() = nb::none(),
             nb::sig("def __init__(self, file: Buffer, offset: int, size: int, row_size: int, block_size: int, "
                     "crcs_offset: int, list: tuple[int, int] | None = None) -> None"))
        .def("read_from", [](BoundTable& t, nb::bytes path, std::uint64_t device, std::uint64_t inode, std::uint64_t offset) {
            t.table.read_from(path.c_str(), device, inode, offset);
        }, "path"_a, "device"_a, "inode"_a, "offset"_a)
        .def_prop_ro("rows", [](const BoundTable& t) { return t.table.rows(); })
        .def_prop_ro("blocks", [](const BoundTable& t) { return t.table.blocks(); })
        .def("row", [](const BoundTable& t, std::uint64_t row, std::uint64_t count) {
            const auto bytes = t.table.at(row, count);
            nb::bytes copied(nullptr, bytes.size());  // filled under a guard: the file may have become shorter
            auto* const out = PyBytes_AS_STRING(copied.ptr());
            fl::guarded([&] { std::memcpy(out, bytes.data(), bytes.size()); });
            return copied;
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
        .def(nb::init<nb::object, const BoundTable&, std::uint64_t, std::uint64_t, const BoundDictionary*>(), "file"_a,
             "extents"_a, "data_begin"_a, "data_end"_a, "dictionary"_a.none() = nb::none(), nb::keep_alive<1, 3>(),
             nb::keep_alive<1, 6>(),
             nb::sig("def __init__(self, file: Buffer, extents: Table, data_begin: int, data_end: int, "
                     "dictionary: Dictionary | None = None) -> None"))
        .def_static("windows", [](nb::object file, std::uint64_t begin, std::uint64_t end, std::uint64_t size,
                                  std::uint64_t step, const BoundTable* items) {
            return new BoundPayloads(file, {begin, end, size, step, items ? &items->table : nullptr});
        }, "file"_a, "begin"_a, "end"_a, "size"_a, "step"_a, "items"_a.none() = nb::none(),
           nb::rv_policy::take_ownership, nb::keep_alive<0, 6>(),
           nb::sig("def windows(file: Buffer, begin: int, end: int, size: int, step: int, items: Table | None = None) -> "
                   "Payloads"))
        .def_static("foreign", [](nb::object file, const BoundTable& extents, bool checked, bool zipped, bool in_memory) {
            return new BoundPayloads(file, extents, fl::Foreign{!checked, zipped, in_memory});
        }, "file"_a, "extents"_a, "checked"_a = false, "zipped"_a = false, "in_memory"_a = false,
           nb::rv_policy::take_ownership, nb::keep_alive<0, 2>(),
           nb::sig("def foreign(file: Buffer, extents: Table, checked: bool = False, zipped: bool = False, "
                   "in_memory: bool = False) -> Payloads"))
        .def_prop_ro("rows", [](const BoundPayloads& p) { return p.payloads.rows(); })
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
            fl::keep_guard();
            const auto extent = p.payloads.extent(row);
            auto out = std::make_unique_for_overwrite<std::uint8_t[]>(extent.raw_size);
            {
                nb::gil_scoped_release release;
                p.payloads.read(extent, {out.get(), extent.raw_size});
            }
            return owned_array(std::move(out), extent.raw_size);
        }, "row"_a)
        .def("check", [](const BoundPayloads& p, std::uint64_t begin, std::uint64_t end) {
            fl::keep_guard();
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

void bind_texts(nb::module_& m) {
    m.def("decode_texts", [](nb::object values, nb::object offsets) {
        Buffer data(values), ends(offsets);
        const auto places = ends.as<std::int64_t>();
        nb::list texts;
        for (std::size_t i = 0; i + 1 < places.size(); ++i) {
            if (places[i] < 0 || places[i + 1] < places[i]) throw nb::value_error("offsets ascend from 0");
            const auto text = part(data, static_cast<std::uint64_t>(places[i]),
                                   static_cast<std::uint64_t>(places[i + 1] - places[i]));
            PyObject* made = PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(text.data()),
                                                  static_cast<Py_ssize_t>(text.size()), "strict");
            if (!made) {
                if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) throw nb::python_error();
                const std::string why = nb::python_error().what();
                fl::Failure failure("decode", "the text is no UTF-8" + (why.find("position") == why.npos
                                        ? "" : ": " + why.substr(why.find("position"))));
                failure.position = static_cast<std::int64_t>(i);
                throw failure;
            }
            texts.append(nb::steal(made));
        }
        return texts;
    }, "values"_a, "offsets"_a, nb::sig("def decode_texts(values: Buffer, offsets: Buffer) -> list[str]"));

    m.def("best_fit", [](nb::object lengths, std::uint64_t room, nb::object out) {
        Buffer given(lengths);
        MutableBuffer to(out);
        nb::gil_scoped_release release;
        return fl::best_fit(given.as<std::int64_t>(), room, to.as<std::int64_t>());
    }, "lengths"_a, "room"_a, "out"_a,
       nb::sig("def best_fit(lengths: Buffer, room: int, out: Buffer) -> int"));

    m.def("unpack_sequences", [](nb::object values, nb::object offsets, nb::object counts, std::uint64_t length,
                                 nb::object pad, nb::object tokens, nb::object positions, nb::object documents,
                                 nb::object ends) {
        Buffer data(values), places(offsets), stated(counts), fill(pad);
        MutableBuffer t(tokens), p(positions), d(documents), e(ends);
        nb::gil_scoped_release release;
        return fl::unpack_sequences(data.bytes(), places.as<std::int64_t>(), stated.as<std::uint32_t>(), length,
                                    fill.bytes(), t.bytes(), p.as<std::int32_t>(), d.as<std::int32_t>(),
                                    e.as<std::int32_t>());
    }, "values"_a, "offsets"_a, "counts"_a, "length"_a, "pad"_a, "tokens"_a, "positions"_a, "documents"_a, "ends"_a,
       nb::sig("def unpack_sequences(values: Buffer, offsets: Buffer, counts: Buffer, length: int, pad: Buffer, "
               "tokens: Buffer, positions: Buffer, documents: Buffer, ends: Buffer) -> int"));
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

}  // namespace bind
