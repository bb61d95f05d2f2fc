// How a batch is prepared and filled: rows are looked up, room is made for them, and tasks fill it.
#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <utility>

#include "job.h"

namespace fl {
namespace {

constexpr std::size_t kTaskBytes = 1 << 20;  // payloads copied a task
constexpr std::size_t kTaskImages = 4;       // images decoded a task
constexpr std::size_t kTaskLookups = 16;     // rows of tables looked up a task, where each is a read of its own
constexpr std::size_t kLooks = 16;           // rows of a batch that tell whether they are

}  // namespace

// Where blocks of tables were never read, a row costs a read: then several threads look rows up. Nothing otherwise.
std::vector<Engine::Task> Engine::split_lookups(const std::shared_ptr<Job>& job) {
    const std::size_t samples = job->rows.size();
    if (threads_a_batch_ == 1 || samples < 2 * kTaskLookups || !is_strange(*job)) return {};
    job->slot = Ring::acquire(ring_);
    std::vector<Found> found(columns_.size());
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        if (columns_[column].kind != ColumnPlan::Kind::rows && !job->known_extents(column))
            found[column].extents.resize(samples);
        try {
            if (const auto size = columns_[column].metadata_size) job->slot->columns[column].metadata.reserve(samples * size);
        } catch (const std::bad_alloc&) {  // told when the batch is prepared
            return {};
        }
    }
    job->found = std::move(found);
    std::vector<Task> tasks;
    for (std::size_t begin = 0; begin < samples; begin += kTaskLookups)
        tasks.push_back({job, columns_.size() + 1, begin, std::min(begin + kTaskLookups, samples)});
    job->looking = tasks.size();
    return tasks;
}

// Whether a good part of the rows lie in blocks that nobody has read, told from some of them.
bool Engine::is_strange(const Job& job) const {
    std::size_t strange = 0;
    for (std::size_t look = 0; look < kLooks; ++look) {
        const auto i = look * job.rows.size() / kLooks;
        const auto row = static_cast<std::uint64_t>(job.rows[i]);
        for (const auto& column : (*job.sources)[job.source(i)]) {
            const auto extent = column.payloads ? column.payloads->place(row) : TableRow{};
            if ((column.metadata && column.metadata->strange(row)) || (extent.table && extent.table->strange(row))) {
                ++strange;
                break;
            }
        }
    }
    return strange * 4 >= kLooks;
}

// Metadata rows and extents of some rows of a batch, in all columns. What is wrong with them is found out again, and
// told, when the batch is prepared.
void Engine::find_rows(Job& job, std::size_t begin, std::size_t end, Stopwatch& watch) {
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        const auto width = columns_[column].metadata_size;
        auto& found = job.found[column];
        const auto source = [&](std::size_t i) -> const ColumnSource& {
            return (*job.sources)[job.source(begin + i)][column];
        };
        const auto row = [&](std::size_t i) { return static_cast<std::uint64_t>(job.rows[begin + i]); };
        try {
            std::array<bool, kTaskLookups> there;
            for (std::size_t i = 0; i < end - begin; ++i)
                if (source(i).metadata) source(i).metadata->prefetch_checksum(row(i));
            for (std::size_t i = 0; i < end - begin; ++i) there[i] = source(i).has_value(row(i));
            if (width)
                gather_rows(end - begin, width,
                            [&](std::size_t i) {
                                return there[i] && source(i).metadata ? TableRow{source(i).metadata, row(i)} : TableRow{};
                            },
                            job.slot->columns[column].metadata.data() + begin * width);
            if (!found.extents.empty())
                gather_rows(end - begin, sizeof(Extent),
                            [&](std::size_t i) {
                                return there[i] && source(i).payloads ? source(i).payloads->place(row(i)) : TableRow{};
                            },
                            reinterpret_cast<std::uint8_t*>(found.extents.data() + begin));
        } catch (const Failure&) {
            found.failed = true;
        }
        times_[column].add(times_[column].lookup, watch.lap());
    }
}

std::vector<Engine::Task> Engine::prepare(const std::shared_ptr<Job>& job, Stopwatch& watch) {
    for (auto& column : job->bytes)
        for (auto& one : column) {
            if (!one.range) continue;
            try {
                one.bytes = job->loan->bytes(one.range - 1);
            } catch (const Failure& failure) {
                one.failure = std::make_shared<Failure>(failure);
            }
        }
    if (!job->slot) job->slot = Ring::acquire(ring_);
    job->located.resize(columns_.size());
    std::vector<Task> tasks;
    const std::size_t samples = job->rows.size();
    for (std::size_t column = 0; column < columns_.size(); ++column) {
        try {
            prepare_column(*job, column);
        } catch (const std::exception& error) {  // memory, most likely: the whole field of this batch is lost
            job->slot->columns[column].valid.assign(samples, 0);
            for (std::size_t i = 0; i < samples; ++i) job->fail(column, i, Failure("memory", error.what()));
            job->located[column].clear();
        }
        times_[column].add(times_[column].lookup, watch.lap());
        const auto& located = job->located[column];
        if (located.empty()) continue;
        const bool image =
            columns_[column].kind == ColumnPlan::Kind::image || columns_[column].kind == ColumnPlan::Kind::program ||
            columns_[column].kind == ColumnPlan::Kind::sound;
        const bool padded = columns_[column].kind == ColumnPlan::Kind::padded;
        const std::size_t least = padded ? job->slot->columns[column].size / samples : 0;
        std::size_t begin = 0, bytes = 0;
        for (std::size_t i = 0; i < samples; ++i) {
            bytes += std::max(least, static_cast<std::size_t>(located[i].extent.raw_size));
            if (i + 1 < samples && (image ? i + 1 - begin < kTaskImages : bytes < kTaskBytes)) continue;
            tasks.push_back({job, column, begin, i + 1});
            begin = i + 1;
            bytes = 0;
        }
    }
    return tasks;
}

// Whether the row has a value; missing ones are marked.
bool Engine::present(Job& job, std::size_t column, std::size_t i, const ColumnSource& source) {
    if (source.has_value(static_cast<std::uint64_t>(job.rows[i]))) return true;
    auto& out = job.slot->columns[column];
    out.valid[i] = 0;
    out.any_missing = true;
    return false;
}

bool ColumnSource::has_value(std::uint64_t row) const {
    if (!validity) return true;
    std::uint8_t bits = 0;
    validity->copy(row / 8, 1, &bits);
    return (bits >> (row % 8)) & 1;
}

bool ColumnSource::tells_shapes(const ColumnPlan& plan) const {
    return !metadata && plan.kind == ColumnPlan::Kind::image;
}

// The shape of an image that nothing but its own bytes tells.
void Engine::tell_shape(const ColumnPlan& plan, const Located& image, std::uint8_t* metadata) {
    thread_local std::vector<std::uint8_t> scratch;
    store(metadata, image_info(plan.image, image.source->load(image.extent, scratch, image.there)));
}

// What a payload must be like before room is made for it.
void Engine::check_payload(const ColumnPlan& plan, const Extent& extent, const std::uint8_t* metadata) {
    const auto bytes = plan.views ? plan.views->first().payload_bytes() : plan.row_bytes;
    if ((plan.kind == ColumnPlan::Kind::fixed || (plan.views && bytes)) && extent.raw_size != bytes)
        throw Failure("size", "the payload has " + std::to_string(extent.raw_size) + " bytes, not " +
                                  std::to_string(bytes));
    if (plan.kind == ColumnPlan::Kind::image) check_claim(plan.image.kind, load<ImageShape>(metadata), extent.raw_size);
    if (plan.elements) element_bytes(plan.elements, extent, metadata);
}

// Metadata rows and extents of all rows at once; throws at the first that is bad.
std::vector<Located> Engine::look_up(Job& job, std::size_t column, std::uint8_t* metadata) {
    const auto& plan = columns_[column];
    const std::size_t samples = job.rows.size();
    const auto source = [&](std::size_t i) -> const ColumnSource& { return (*job.sources)[job.source(i)][column]; };
    const auto row = [&](std::size_t i) { return static_cast<std::uint64_t>(job.rows[i]); };
    auto& valid = job.slot->columns[column].valid;
    for (std::size_t i = 0; i < samples; ++i) present(job, column, i, source(i));
    const bool found = !job.found.empty() && !job.found[column].failed;
    if (metadata && !found)
        gather_rows(samples, plan.metadata_size,
                    [&](std::size_t i) {
                        return valid[i] && source(i).metadata ? TableRow{source(i).metadata, row(i)} : TableRow{};
                    },
                    metadata);
    if (plan.kind == ColumnPlan::Kind::rows) return {};
    auto located = locate_rows(
        samples, [&](std::size_t i) { return valid[i] ? job.payload(column, i) : PayloadRow{}; },
        job.known_extents(column));
    for (std::size_t i = 0; i < samples; ++i) {
        if (!valid[i]) continue;
        auto* const mine = metadata + i * plan.metadata_size;
        if (source(i).tells_shapes(plan)) tell_shape(plan, located[i], mine);
        check_payload(plan, located[i].extent, mine);
    }
    return located;
}

// The same a row at a time, so that each bad one is marked and the others are kept.
std::vector<Located> Engine::look_up_singly(Job& job, std::size_t column, std::uint8_t* metadata) {
    const auto& plan = columns_[column];
    auto& out = job.slot->columns[column];
    const std::size_t samples = job.rows.size();
    out.valid.assign(samples, 1);
    const bool payloads = plan.kind != ColumnPlan::Kind::rows;
    std::vector<Located> located(payloads ? samples : 0);
    for (std::size_t i = 0; i < samples; ++i) {
        const auto& source = (*job.sources)[job.source(i)][column];
        const auto row = static_cast<std::uint64_t>(job.rows[i]);
        std::uint8_t* const mine = metadata ? metadata + i * plan.metadata_size : nullptr;
        if (mine) std::memset(mine, 0, plan.metadata_size);
        try {
            if (!present(job, column, i, source)) continue;
            if (mine && source.metadata) source.metadata->copy(row, 1, mine);
            if (!payloads) continue;
            const auto payload = job.payload(column, i);
            const auto extent = source.payloads->unchecked_extent(row);
            source.payloads->check(extent, payload.of(extent));
            const Located found{source.payloads, extent, payload.of(extent)};
            if (source.tells_shapes(plan)) tell_shape(plan, found, mine);
            check_payload(plan, extent, mine);
            located[i] = found;
        } catch (const Failure& failure) {
            if (mine) std::memset(mine, 0, plan.metadata_size);
            job.fail(column, i, failure);
        }
    }
    return located;
}

void Engine::prepare_column(Job& job, std::size_t column) {
    const auto& plan = columns_[column];
    auto& out = job.slot->columns[column];
    const std::size_t samples = job.rows.size();
    out.valid.assign(samples, 1);
    out.any_missing = false;
    out.size = 0;
    auto* metadata = plan.metadata_size ? out.metadata.reserve(samples * plan.metadata_size) : nullptr;
    std::vector<Located> located;
    try {
        located = look_up(job, column, metadata);
    } catch (const Failure&) {
        located = look_up_singly(job, column, metadata);
    }
    if (plan.kind == ColumnPlan::Kind::rows) return;
    if (plan.elements) {
        const auto element = agree_on_element(job, column, located, metadata);
        if (plan.kind == ColumnPlan::Kind::padded) return prepare_padded(job, column, std::move(located), element);
    }
    std::size_t size = 0;
    if (plan.kind == ColumnPlan::Kind::fixed || plan.kind == ColumnPlan::Kind::program ||
        plan.kind == ColumnPlan::Kind::sound) {
        // What no payload bears out gets no memory: options can claim any shape.
        const bool any = std::any_of(located.begin(), located.end(), [](const Located& one) { return one.source; });
        if (plan.views) out.offsets = plan.views->places(samples);
        size = !any ? 0 : plan.views ? static_cast<std::size_t>(out.offsets.back()) : samples * plan.row_bytes;
        if (!any) located.clear();
    } else {
        out.offsets.assign(samples + 1, 0);
        for (std::size_t i = 0; i < samples; ++i) {
            std::uint64_t mine = located[i].extent.raw_size;
            if (plan.kind == ColumnPlan::Kind::image && located[i].source)
                mine = load<ImageShape>(metadata + i * plan.metadata_size).bytes();
            out.offsets[i + 1] = out.offsets[i] + static_cast<std::int64_t>(mine);
        }
        size = static_cast<std::size_t>(out.offsets[samples]);
    }
    out.data.reserve(std::max<std::size_t>(size, 1));
    out.size = size;
    job.located[column] = std::move(located);
}

// Bytes of one element in this batch. What the first payload has decides; the others must have the same.
std::uint64_t Engine::agree_on_element(Job& job, std::size_t column, std::vector<Located>& located,
                                       const std::uint8_t* metadata) {
    const auto& plan = columns_[column];
    if (plan.elements.stated != Elements::Stated::shape) return plan.elements.bytes;
    const auto row = [&](std::size_t i) { return metadata + i * plan.metadata_size; };
    std::size_t first = 0;
    while (first < located.size() && !located[first].source) ++first;
    if (first == located.size()) return plan.elements.bytes;
    for (std::size_t i = first + 1; i < located.size(); ++i) {
        if (!located[i].source || same_element(row(first), row(i))) continue;
        located[i] = {};
        job.fail(column, i, Failure("shape", "has the shape " + stated_shape(row(i)) + ", and the first of its batch has " +
                                             stated_shape(row(first)) + ": they may differ in their length alone"));
    }
    return element_bytes(plan.elements, located[first].extent, row(first));
}

// Leaves out payloads, the largest first, until the others bear out what the batch claims: rows as long as the longest,
// or where the length was given, rows of one element each, as that alone is the file's word.
void Engine::drop_claims(Job& job, std::size_t column, std::vector<Located>& located, std::uint64_t element) {
    std::uint64_t stored = 0;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < located.size(); ++i) {
        stored += located[i].extent.size;
        if (located[i].extent.raw_size) order.push_back(i);
    }
    const auto larger = [&](std::size_t a, std::size_t b) {
        return located[a].extent.raw_size > located[b].extent.raw_size;
    };
    const bool given = columns_[column].elements.length != 0;
    std::uint64_t longest = 0;
    for (const auto i : order) longest = std::max(longest, located[i].extent.raw_size);
    if (borne_out(located.size(), given ? element : longest, stored)) return;
    std::stable_sort(order.begin(), order.end(), larger);
    for (const auto i : order) {
        const auto extent = located[i].extent;
        if (borne_out(located.size(), given ? element : extent.raw_size, stored)) return;
        stored -= extent.size;
        located[i] = {};
        job.fail(column, i,
                 Failure("size", "claims " + std::to_string(extent.raw_size) + " bytes of " +
                                     std::to_string(extent.size) + " stored ones: more than a batch is padded to"));
    }
}

void Engine::prepare_padded(Job& job, std::size_t column, std::vector<Located> located, std::uint64_t element) {
    const auto& elements = columns_[column].elements;
    auto& out = job.slot->columns[column];
    const std::size_t samples = located.size();
    out.offsets.assign(samples, 0);
    if (!samples) return;
    drop_claims(job, column, located, element);
    std::size_t longest = 0;
    std::uint64_t stored = 0;
    for (std::size_t i = 0; i < samples; ++i) {
        const auto length = located[i].extent.raw_size / element;
        out.offsets[i] = static_cast<std::int64_t>(elements.length ? std::min(length, elements.length) : length);
        if (out.offsets[i] > out.offsets[longest]) longest = i;
        stored += located[i].extent.size;
    }
    // Nothing is there, and an element is so large that nothing is believed: no memory, as all of it would be filling.
    if (!borne_out(samples, element, stored)) return;
    auto width = elements.length ? elements.length : static_cast<std::uint64_t>(out.offsets[longest]);
    std::size_t size = 0;
    bool fits = elements.length || !(width % elements.multiple) ||
                !__builtin_add_overflow(width, elements.multiple - width % elements.multiple, &width);
    fits = fits && !__builtin_mul_overflow(width, element, &size) && !__builtin_mul_overflow(size, samples, &size) &&
           size <= std::numeric_limits<std::size_t>::max() / 4;
    try {
        if (!fits) throw std::bad_alloc();
        out.data.reserve(std::max<std::size_t>(size, 1));
    } catch (const std::bad_alloc&) {
        return job.fail(column, longest, Failure("memory", "there is no memory for a batch padded to the length " +
                                                               std::to_string(width)));
    }
    out.size = size;
    job.located[column] = std::move(located);
}

void Engine::fill_rows(Job& job, std::size_t column, std::size_t begin, std::size_t end) {
    const auto& plan = columns_[column];
    auto& out = job.slot->columns[column];
    const auto& located = job.located[column];
    thread_local std::vector<std::uint8_t> scratch;
    thread_local ProgramRunner runner;
    thread_local SoundRunner sound_runner;
    const bool padded = plan.kind == ColumnPlan::Kind::padded;
    const bool program = plan.kind == ColumnPlan::Kind::program;
    const bool sound = plan.kind == ColumnPlan::Kind::sound;
    const bool equal = padded || sound || plan.kind == ColumnPlan::Kind::fixed;
    const std::size_t row_bytes = padded ? out.size / located.size() : plan.row_bytes;
    const auto room = [&](std::size_t i) {
        const auto from = equal ? i * row_bytes : static_cast<std::size_t>(out.offsets[i]);
        const auto size = equal ? row_bytes : static_cast<std::size_t>(out.offsets[i + 1]) - from;
        return MutableBytes(out.data.data() + from, size);
    };
    const bool as_stored = plan.kind == ColumnPlan::Kind::fixed || plan.kind == ColumnPlan::Kind::ragged;
    if (as_stored && copy_together(std::span(located).subspan(begin, end - begin),
                                   [&](std::size_t i) { return room(begin + i); }))
        return;
    for (std::size_t i = begin; i < end; ++i) {
        if (i + 2 < end && located[i + 2].source)
            located[i + 2].source->prefetch(located[i + 2].extent, located[i + 2].there);
        const auto to = program ? MutableBytes(out.data.data(), out.size) : room(i);
        const auto size = to.size();
        const auto* source = located[i].source;
        const auto blank = [&] {
            if (program) {
                plan.views->blank(to.data(), out.offsets, i);
            } else if (padded) {
                out.offsets[i] = 0;
                fill_items(to, plan.elements.fill);
            } else if (size) {
                std::memset(to.data(), 0, size);
            }
        };
        try {
            if (!source) {
                blank();
            } else if (padded && located[i].extent.raw_size > size) {
                // The checksum is that of all of it.
                const auto whole = source->load(located[i].extent, scratch, located[i].there);
                std::memcpy(to.data(), whole.data(), size);
            } else if (padded) {
                const auto mine = static_cast<std::size_t>(located[i].extent.raw_size);
                source->read(located[i].extent, to.first(mine), located[i].there);
                fill_items(to.subspan(mine), plan.elements.fill);
            } else if (program) {
                const bool known = (*job.sources)[job.source(i)][column].metadata;
                const Bytes metadata(out.metadata.data() + i * plan.metadata_size, known ? plan.metadata_size : 0);
                const auto sample = static_cast<std::uint64_t>(job.samples.empty() ? job.rows[i] : job.samples[i]);
                plan.views->run(runner, source->load(located[i].extent, scratch, located[i].there), metadata, job.epoch,
                                sample, to.data(), out.offsets, i);
            } else if (sound) {
                // Of an array only a part is copied, from where it lies; its checksum is that of all of it.
                const bool as_it_lies = located[i].extent.codec == Codec::none && plan.sound->stored != SoundKind::file;
                const auto payload = as_it_lies ? source->stored(located[i].extent, located[i].there)
                                                : source->load(located[i].extent, scratch, located[i].there);
                const auto sample = static_cast<std::uint64_t>(job.samples.empty() ? job.rows[i] : job.samples[i]);
                sound_runner.run(*plan.sound, payload, out.metadata.data() + i * plan.metadata_size, job.epoch, sample, to);
            } else if (plan.kind == ColumnPlan::Kind::image) {
                const auto shape = load<ImageShape>(out.metadata.data() + i * plan.metadata_size);
                image_decode(plan.image, source->load(located[i].extent, scratch, located[i].there), shape, to);
            } else {
                source->read(located[i].extent, to, located[i].there);
            }
        } catch (const Failure& failure) {
            blank();
            job.fail(column, i, failure);
        } catch (const std::exception& error) {
            blank();
            job.fail(column, i, Failure("memory", error.what()));
        }
    }
}

}  // namespace fl
