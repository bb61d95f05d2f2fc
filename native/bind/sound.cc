// Sounds: decoding, spectrograms, tokens, other rates, and the programs of their pipelines.
#include "bound_sound.h"
#include "flac_seek.h"

namespace bind {

namespace {

// A step: kind, number of the op, as many numbers as its kind takes, a spectrogram where it makes one.
using SoundStepTuple = std::tuple<int, std::uint32_t, std::vector<double>, const BoundMel*>;

BoundSound make_program(int stored, std::uint32_t channels, std::uint32_t sample_rate, std::uint32_t bits,
                        const std::vector<SoundStepTuple>& steps, std::tuple<std::uint64_t, std::uint64_t> result,
                        std::size_t item, bool turned, std::uint64_t seed) {
    auto made = std::make_shared<fl::SoundProgram>();
    if (stored < 0 || stored > static_cast<int>(fl::SoundKind::words)) throw nb::value_error("no such kind of sound");
    made->stored = static_cast<fl::SoundKind>(stored);
    made->channels = channels;
    made->sample_rate = sample_rate;
    made->bits = bits;
    for (const auto& [kind, op, numbers, mel] : steps) {
        if (kind < 0 || kind >= static_cast<int>(fl::SoundStep::kKinds)) throw nb::value_error("no such step");
        made->steps.push_back({static_cast<fl::SoundStep::Kind>(kind), op, numbers, mel ? mel->mel : nullptr});
    }
    made->frames = std::get<0>(result);
    made->width = std::get<1>(result);
    made->item = item;
    made->turned = turned;
    made->seed = seed;
    fl::check_sound_program(*made);
    return {made};
}

BoundMel make_mel(double sample_rate, std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> sizes, std::uint32_t bands,
                  std::tuple<double, double> hertz, bool magnitude, bool center, int pad, bool slaney_norm, bool htk,
                  bool decibels, std::tuple<double, double, double> scale) {
    if (pad < 0 || pad > static_cast<int>(fl::MelSpec::Pad::edge)) throw nb::value_error("no such padding");
    fl::MelSpec spec;
    spec.sample_rate = sample_rate;
    std::tie(spec.n_fft, spec.hop, spec.window) = sizes;
    spec.bands = bands;
    std::tie(spec.fmin, spec.fmax) = hertz;
    spec.magnitude = magnitude;
    spec.center = center;
    spec.pad = static_cast<fl::MelSpec::Pad>(pad);
    spec.slaney_norm = slaney_norm;
    spec.htk = htk;
    spec.decibels = decibels;
    std::tie(spec.reference, spec.least, spec.range) = scale;
    return {std::make_shared<const fl::Mel>(spec)};
}

}  // namespace

void bind_sound(nb::module_& m) {
    m.def("sound_library", [](std::uintptr_t open, std::uintptr_t close, std::uintptr_t seek, std::uintptr_t read,
                              std::uintptr_t describe) {
        fl::set_sndfile({open, close, seek, read, describe});
    }, "open"_a, "close"_a, "seek"_a, "read"_a, "describe"_a);

    m.def("sound_info", [](nb::object data) {
        Buffer file(data);
        fl::SoundInfo info;
        {
            nb::gil_scoped_release release;
            info = fl::sound_info(file.bytes());
        }
        return std::tuple(info.frames, info.sample_rate, info.channels, info.format);
    }, "data"_a, nb::sig("def sound_info(data: Buffer) -> tuple[int, int, int, int]"));

    using Start = std::tuple<std::size_t, std::size_t, std::uint64_t>;
    m.def("flac_start", [](nb::object data, std::uint64_t sample) -> std::optional<Start> {
        Buffer file(data);
        const auto found = fl::flac_start(file.bytes(), sample);
        if (!found) return {};
        return Start{found->head, found->at, found->sample};
    }, "data"_a, "sample"_a, nb::sig("def flac_start(data: Buffer, sample: int) -> tuple[int, int, int] | None"));

    m.def("sound_decode", [](nb::object data, const std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>& info,
                             std::uint64_t begin, std::uint64_t end) {
        Buffer file(data);
        std::unique_ptr<float[]> values;
        std::vector<float> samples;
        {
            nb::gil_scoped_release release;
            const auto [frames, rate, channels] = info;
            fl::sound_decode(file.bytes(), {frames, rate, channels, 0}, begin, end, samples);
            values = std::make_unique_for_overwrite<float[]>(samples.size());
            std::copy(samples.begin(), samples.end(), values.get());
        }
        return owned_array(std::move(values), samples.size());
    }, "data"_a, "info"_a, "begin"_a, "end"_a,
       nb::sig("def sound_decode(data: Buffer, info: tuple[int, int, int], begin: int, end: int) -> NDArray[np.float32]"));

    m.def("pack_tokens", [](nb::object tokens, std::uint32_t codebooks, std::uint32_t bits, nb::object out) {
        Buffer given(tokens);
        MutableBuffer to(out);
        const auto numbers = given.as<std::uint32_t>();
        nb::gil_scoped_release release;
        fl::pack_tokens({codebooks, bits}, numbers, to.bytes());
    }, "tokens"_a, "codebooks"_a, "bits"_a, "out"_a,
       nb::sig("def pack_tokens(tokens: Buffer, codebooks: int, bits: int, out: Buffer) -> None"));

    m.def("unpack_tokens", [](nb::object data, std::uint32_t codebooks, std::uint32_t bits, std::uint64_t first,
                              std::uint64_t count, std::size_t item, nb::object out) {
        Buffer packed(data);
        MutableBuffer to(out);
        nb::gil_scoped_release release;
        fl::unpack_tokens({codebooks, bits}, packed.bytes(), first, count, item, to.bytes());
    }, "data"_a, "codebooks"_a, "bits"_a, "first"_a, "count"_a, "item"_a, "out"_a,
       nb::sig("def unpack_tokens(data: Buffer, codebooks: int, bits: int, first: int, count: int, item: int, "
               "out: Buffer) -> None"));

    m.def("resample_sound", [](nb::object sound, std::uint32_t channels, std::uint32_t from, std::uint32_t to) {
        Buffer given(sound);
        const auto samples = given.as<float>();
        if (channels == 0 || samples.size() % channels) throw nb::value_error("frames of that many channels");
        std::unique_ptr<float[]> values;
        std::size_t size = 0;
        {
            nb::gil_scoped_release release;
            const fl::Resampler way(from, to);
            size = way.length(samples.size() / channels) * channels;
            values = std::make_unique_for_overwrite<float[]>(size);
            way.run(samples, channels, {values.get(), size});
        }
        return owned_array(std::move(values), size);
    }, "sound"_a, "channels"_a, "from_rate"_a, "to_rate"_a,
       nb::sig("def resample_sound(sound: Buffer, channels: int, from_rate: int, to_rate: int) -> NDArray[np.float32]"));

    nb::class_<BoundMel>(m, "Mel")
        .def("__init__", [](BoundMel* self, double sample_rate, std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> sizes,
                            std::uint32_t bands, std::tuple<double, double> hertz, bool magnitude, bool center, int pad,
                            bool slaney_norm, bool htk, bool decibels, std::tuple<double, double, double> scale) {
            new (self) BoundMel(make_mel(sample_rate, sizes, bands, hertz, magnitude, center, pad, slaney_norm, htk, decibels, scale));
        }, "sample_rate"_a, "sizes"_a, "bands"_a, "hertz"_a, "magnitude"_a, "center"_a, "pad"_a, "slaney_norm"_a, "htk"_a,
           "decibels"_a, "scale"_a)
        .def("frames", [](const BoundMel& self, std::size_t samples) { return self.mel->frames(samples); }, "samples"_a)
        .def("run", [](const BoundMel& self, nb::object sound, nb::object out) {
            Buffer given(sound);
            MutableBuffer to(out);
            const auto samples = given.as<float>();
            const auto values = to.as<float>();
            nb::gil_scoped_release release;
            self.mel->run(samples, values);
        }, "sound"_a, "out"_a, nb::sig("def run(self, sound: Buffer, out: Buffer) -> None"));

    nb::class_<BoundSound>(m, "SoundProgram")
        .def("__init__", [](BoundSound* self, int stored, std::uint32_t channels, std::uint32_t sample_rate,
                            std::uint32_t bits, const std::vector<SoundStepTuple>& steps,
                            std::tuple<std::uint64_t, std::uint64_t> result, std::size_t item, bool turned, std::uint64_t seed) {
            new (self) BoundSound(make_program(stored, channels, sample_rate, bits, steps, result, item, turned, seed));
        }, "stored"_a, "channels"_a, "sample_rate"_a, "bits"_a, "steps"_a, "result"_a, "item"_a, "turned"_a, "seed"_a,
           nb::sig("def __init__(self, stored: int, channels: int, sample_rate: int, bits: int, "
                   "steps: list[tuple[int, int, Sequence[float], Mel | None]], result: tuple[int, int], item: int, "
                   "turned: bool, seed: int) -> None"))
        .def_prop_ro("row_bytes", [](const BoundSound& self) { return self.program->row_bytes(); })
        .def("run", [](const BoundSound& self, nb::object payload, nb::object metadata, std::uint64_t epoch,
                       std::uint64_t sample, nb::object out) {
            Buffer data(payload), row(metadata);
            MutableBuffer to(out);
            if (row.bytes().size() != self.program->metadata_bytes()) throw nb::value_error("the metadata row has the wrong size");
            if (to.bytes().size() != self.program->row_bytes()) throw nb::value_error("the output has the wrong size");
            nb::gil_scoped_release release;
            thread_local fl::SoundRunner runner;
            runner.run(*self.program, data.bytes(), row.bytes().data(), epoch, sample, to.bytes());
        }, "payload"_a, "metadata"_a, "epoch"_a, "sample"_a, "out"_a,
           nb::sig("def run(self, payload: Buffer, metadata: Buffer, epoch: int, sample: int, out: Buffer) -> None"));
}

}  // namespace bind
