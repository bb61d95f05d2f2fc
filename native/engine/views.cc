#include "views.h"

#include <cstring>
#include <numeric>

namespace fl {
namespace {

constexpr std::size_t kAlign = 64;

}  // namespace

void Views::add(Chain chain, bool beside) {
    if (!beside || images_.empty()) images_.push_back(0);
    const auto bytes = chain.row_bytes();
    told_ += chain.told;
    views_.push_back({std::move(chain), images_.size() - 1, images_.back()});
    images_.back() += bytes;
}

std::vector<std::size_t> Views::rows() const {
    auto rows = images_;
    if (told_) rows.push_back(told_ * sizeof(double));
    return rows;
}

std::size_t Views::row_bytes() const {
    const auto all = rows();
    return std::accumulate(all.begin(), all.end(), std::size_t{0});
}

std::vector<std::int64_t> Views::places(std::size_t samples) const {
    std::vector<std::int64_t> places{0};
    std::size_t end = 0;
    for (const auto row : rows()) {
        places.back() = static_cast<std::int64_t>((end + kAlign - 1) / kAlign * kAlign);
        end = static_cast<std::size_t>(places.back()) + samples * row;
        places.push_back(static_cast<std::int64_t>(end));
    }
    return places;
}

void Views::run(ProgramRunner& runner, Bytes payload, Bytes metadata, std::uint64_t epoch, std::uint64_t sample,
                std::uint8_t* data, std::span<const std::int64_t> places, std::size_t i) const {
    std::span<double> told;
    if (told_) told = {reinterpret_cast<double*>(data + places[images_.size()]) + i * told_, told_};
    for (const auto& [chain, area, within] : views_) {
        auto* row = data + places[area] + i * images_[area] + within;
        run_chain(chain, runner, payload, metadata, epoch, sample, {row, chain.row_bytes()}, told.first(chain.told));
        told = told.subspan(chain.told);
    }
}

void Views::blank(std::uint8_t* data, std::span<const std::int64_t> places, std::size_t i) const {
    const auto all = rows();
    for (std::size_t area = 0; area < all.size(); ++area)
        std::memset(data + places[area] + i * all[area], 0, all[area]);
}

}  // namespace fl
