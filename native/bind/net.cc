// Connections to servers of objects, as Python sees them: it asks, and one of its threads takes what came.
#include "client.h"

#include <unistd.h>

#include "bind.h"

namespace bind {
namespace {

// The bytes of an answer, as anything that takes a buffer sees them. Their memory is used again when the last one is gone.
struct BoundBody {
    std::shared_ptr<const std::uint8_t> bytes;
    std::size_t size = 0;
};

int body_buffer(PyObject* self, Py_buffer* view, int flags) {
    const auto* body = nb::inst_ptr<BoundBody>(self);
    return PyBuffer_FillInfo(view, self, const_cast<std::uint8_t*>(body->bytes.get()),
                             static_cast<Py_ssize_t>(body->size), 1, flags);
}

PyType_Slot body_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(body_buffer)}, {0, nullptr}};

struct BoundClient {
    // In a forked child there is no thread to end, and who holds the locks is not known: all of it is left as it is.
    ~BoundClient() {
        if (process != getpid()) {
            static_cast<void>(client.release());
            return;
        }
        nb::gil_scoped_release release;
        client.reset();
    }

    fl::net::Client& here() const {
        if (process != getpid()) throw nb::value_error("connections are of the process that made them");
        return *client;
    }

    pid_t process = getpid();
    std::unique_ptr<fl::net::Client> client = std::make_unique<fl::net::Client>();
};

using Addresses = std::vector<std::tuple<std::string, std::uint16_t>>;

std::vector<fl::net::Address> addresses_of(const Addresses& said) {
    std::vector<fl::net::Address> addresses;
    for (const auto& [host, port] : said) addresses.push_back(fl::net::address_of(host, port));
    return addresses;
}

nb::object told(fl::net::Told&& one) {
    nb::object body = nb::none();
    if (one.body) body = nb::cast(BoundBody{std::move(one.body), one.answer.length});
    return nb::make_tuple(one.ticket, one.answer.status, one.answer.wrong, one.unheard, body, one.answer.total,
                          one.answer.etag, one.answer.modified);
}

}  // namespace

void bind_net(nb::module_& m) {
    nb::class_<BoundBody>(m, "NetBody", nb::type_slots(body_slots))
        .def("__len__", [](const BoundBody& b) { return b.size; });
    nb::class_<BoundClient>(m, "NetClient")
        .def(nb::init<>())
        .def("add_server", [](BoundClient& c, const Addresses& addresses) {
            return c.here().add_server(addresses_of(addresses));
        }, "addresses"_a)
        .def("move_server", [](BoundClient& c, std::size_t server, const Addresses& addresses) {
            c.here().move_server(server, addresses_of(addresses));
        }, "server"_a, "addresses"_a)
        .def("ask", [](BoundClient& c, std::size_t server, nb::bytes request, std::uint64_t begin, std::uint64_t size,
                       bool at_most) {
            return c.here().ask(server, {request.c_str(), request.size()}, {begin, size, at_most});
        }, "server"_a, "request"_a, "begin"_a, "size"_a, "at_most"_a = false)
        .def("call_off", [](BoundClient& c, std::uint64_t ticket) { c.here().call_off(ticket); }, "ticket"_a)
        .def("take", [](BoundClient& c, int milliseconds) {
            std::vector<fl::net::Told> taken;
            auto& client = c.here();
            {
                nb::gil_scoped_release release;
                taken = client.take(milliseconds);
            }
            nb::list all;
            for (auto& one : taken) all.append(told(std::move(one)));
            return all;
        }, "milliseconds"_a, nb::sig("def take(self, milliseconds: int) -> list[tuple[int, int, str, bool, Buffer | None, "
                                     "int, str, str]]"))
        .def("wake", [](BoundClient& c) { c.here().wake(); })
        .def("abandon", [](BoundClient& c) {
            if (c.process != getpid()) c.client->abandon();
        })
        .def_prop_ro("connections", [](const BoundClient& c) { return c.here().connections(); })
        .def_prop_ro("opened", [](const BoundClient& c) { return c.here().opened(); })
        .def_prop_ro("idle_bytes", [](const BoundClient& c) { return c.here().idle_bytes(); });
}

}  // namespace bind
