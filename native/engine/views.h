// What the images of a field become: one or several views of each, and where these lie in the field's part of a slot.
// That part is made of areas, one behind the other, each with a row for every sample. Views of one size may lie beside
// each other in the rows of one area. The numbers that programs tell have the last area.
#pragma once

#include <vector>

#include "chain.h"

namespace fl {

class Views {
public:
    // `beside`: in the rows of the area of the view before.
    void add(Chain chain, bool beside);

    bool empty() const { return views_.empty(); }
    const Chain& first() const { return views_.front().chain; }
    std::size_t row_bytes() const;  // of a sample in all areas

    // Where each area begins, and where the last ends. Areas begin at multiples of 64 bytes.
    std::vector<std::int64_t> places(std::size_t samples) const;

    // Fills row `i` of all areas; the payload and the metadata row are the sample's. Throws what run_chain does.
    void run(ProgramRunner& runner, Bytes payload, Bytes metadata, std::uint64_t epoch, std::uint64_t sample,
             std::uint8_t* data, std::span<const std::int64_t> places, std::size_t i) const;
    void blank(std::uint8_t* data, std::span<const std::int64_t> places, std::size_t i) const;

private:
    struct View {
        Chain chain;
        std::size_t area = 0;
        std::size_t within = 0;  // bytes of the row that lie before it
    };
    std::vector<std::size_t> rows() const;  // bytes of a row of each area

    std::vector<View> views_;
    std::vector<std::size_t> images_;  // the same, of areas of images
    std::size_t told_ = 0;             // numbers of all chains
};

}  // namespace fl
