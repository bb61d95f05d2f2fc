// A batch on its way through the engine: what was asked for, what is known of it, and what came of it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine.h"

namespace fl {

// A payload's stored bytes that were read ahead: where they lie in the file, and the number of their range.
struct Near {
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::size_t range = 0;
    const std::uint8_t* bytes = nullptr;
    std::shared_ptr<Failure> failure;
};

// Rows of a column that tasks have looked up: metadata rows are in the slot. Where one failed, all is done again.
struct Found {
    std::vector<Extent> extents;
    std::atomic<bool> failed{false};
};

struct Engine::Job {
    std::uint64_t ticket = 0;
    std::vector<std::int32_t> which;
    std::vector<std::int64_t> rows;
    std::uint64_t epoch = 0;
    std::vector<std::int64_t> samples;  // empty: the same as rows
    std::shared_ptr<const SourceList> sources;
    std::shared_ptr<Slot> slot;
    std::vector<std::vector<Located>> located;
    std::vector<std::vector<Extent>> extents;  // by column, as far as they were looked up to read ahead
    std::vector<Found> found;            // by column; empty where nobody has looked rows up yet
    std::atomic<std::size_t> looking{0};  // tasks that look up rows
    bool wanted = false;  // a slot may be filled
    bool near = false;    // its bytes were read, or need not be
    std::shared_ptr<ReadAhead::Loan> loan;
    Mirror::Holds holds;  // and what was there already
    std::vector<std::vector<Near>> bytes;  // by column and row; empty where nothing was read
    std::atomic<std::size_t> pending{1};
    std::atomic<std::size_t> threads{0};  // working on it now; goes up under the engine's lock only
    std::mutex mutex;  // guards failures
    std::vector<BatchFailure> failures;
    bool done = false;

    std::size_t source(std::size_t i) const { return which.empty() ? 0 : static_cast<std::size_t>(which[i]); }

    // Extents that were looked up before; null where they were not.
    const Extent* known_extents(std::size_t column) const {
        if (column < extents.size() && !extents[column].empty()) return extents[column].data();
        return found.empty() || found[column].failed || found[column].extents.empty() ? nullptr
                                                                                       : found[column].extents.data();
    }

    // The payload of this row, with the bytes that were read ahead. Throws what went wrong with reading them.
    PayloadRow payload(std::size_t column, std::size_t i) const {
        const PayloadRow row{(*sources)[source(i)][column].payloads, static_cast<std::uint64_t>(rows[i])};
        if (bytes.empty() || bytes[column].empty()) return row;
        const auto& near = bytes[column][i];
        if (near.failure) throw *near.failure;
        if (!near.bytes) return row;
        return {row.source, row.row, Bytes(near.bytes, near.size), near.offset};
    }

    void fail(std::size_t column, std::size_t row, Failure failure) {
        failure.position = static_cast<std::int64_t>(row);
        slot->columns[column].valid[row] = 0;
        std::lock_guard lock(mutex);
        failures.push_back({column, std::move(failure)});
    }
};

}  // namespace fl
