// The module itself, and failures as exceptions.
#include "bind.h"

namespace {

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

}  // namespace

NB_MODULE(_native, m) {
    // A module-level reader in a user's program may live until the interpreter is gone; that is no leak of ours.
    nb::set_leak_warnings(false);
    g_failure = PyErr_NewException("fastloader._native.Failure", PyExc_ValueError, nullptr);
    m.attr("Failure") = nb::borrow(g_failure);
    nb::register_exception_translator(translate);
    bind::bind_checksums(m);
    bind::bind_codecs(m);
    bind::bind_tables(m);
    bind::bind_payloads(m);
    bind::bind_images(m);
    bind::bind_texts(m);
    bind::bind_keys(m);
    bind::bind_programs(m);
    bind::bind_sound(m);
    bind::bind_engine(m);
    bind::bind_reads(m);
    bind::bind_planned(m);
    bind::bind_orders(m);
    bind::bind_placement(m);
    bind::bind_resize(m);
    bind::bind_cast(m);
    bind::bind_tones(m);
    bind::bind_geometry(m);
    bind::bind_mix(m);
    bind::bind_random(m);
    bind::bind_formats(m);
    bind::bind_archives(m);
    bind::bind_net(m);
}
