#include "geometry.h"

#include "channels.h"

namespace fl {
namespace {

// Where each position of the output lies in the source; -1 is outside.
std::vector<std::int64_t> positions(std::uint32_t side, std::int64_t offset, std::uint32_t out_side, PadMode mode) {
    std::vector<std::int64_t> found(out_side);
    const std::int64_t n = side, period = mode == PadMode::reflect ? 2 * (n - 1) : 2 * n;
    for (std::int64_t i = 0; i < out_side; ++i) {
        std::int64_t at = i - offset;
        if (at < 0 || at >= n) {
            if (mode == PadMode::constant) {
                at = -1;
            } else if (mode == PadMode::edge || period == 0) {
                at = at < 0 ? 0 : n - 1;
            } else {
                at = (at % period + period) % period;
                if (at >= n) at = period - at - (mode == PadMode::symmetric ? 1 : 0);
            }
        }
        found[static_cast<std::size_t>(i)] = at;
    }
    return found;
}

void check_box(const Frame& frame, std::size_t size, const PixelBox& box) {
    check_frame(frame, size, "image");
    if (box.top > box.bottom || box.left > box.right || box.bottom > frame.height || box.right > frame.width)
        throw Failure("argument", "the box does not lie in the image");
}

}  // namespace

void pad(const Frame& frame, Bytes image, std::int32_t top, std::int32_t left, PadMode mode, const Fill& fill,
         const Frame& to, MutableBytes out) {
    check_pair(frame, image, to, out);
    const auto rows = positions(frame.height, top, to.height, mode);
    const auto columns = positions(frame.width, left, to.width, mode);
    // The columns that show the source as it lies are copied at once; there is no gap between them.
    std::size_t begin = 0, end = 0;
    while (begin < columns.size() && static_cast<std::int64_t>(begin) - left < 0) ++begin;
    for (end = begin; end < columns.size() && static_cast<std::int64_t>(end) - left < frame.width;) ++end;
    with_channels(frame.channels, [&]<std::uint32_t kChannels>() {
        for (std::size_t y = 0; y < to.height; ++y) {
            std::uint8_t* row = out.data() + y * to.row();
            if (rows[y] < 0) {
                fill_rows<kChannels>(row, to.width, fill);
                continue;
            }
            const std::uint8_t* from = image.data() + static_cast<std::size_t>(rows[y]) * frame.row();
            for (std::size_t x = 0; x < to.width; ++x) {
                if (x == begin && begin < end) {
                    std::memcpy(row + x * kChannels, from + static_cast<std::size_t>(columns[x]) * kChannels,
                                (end - begin) * kChannels);
                    x = end - 1;
                } else {
                    copy_pixel<kChannels>(row + x * kChannels,
                                          columns[x] < 0 ? fill.data()
                                                         : from + static_cast<std::size_t>(columns[x]) * kChannels);
                }
            }
        }
    });
}

void erase(const Frame& frame, MutableBytes image, const PixelBox& box, const Fill& fill) {
    check_box(frame, image.size(), box);
    with_channels(frame.channels, [&]<std::uint32_t kChannels>() {
        for (std::size_t y = box.top; y < box.bottom; ++y)
            fill_rows<kChannels>(image.data() + y * frame.row() + box.left * kChannels, box.right - box.left, fill);
    });
}

void erase(const Frame& frame, MutableBytes image, const PixelBox& box, Random& noise) {
    check_box(frame, image.size(), box);
    const std::size_t channels = frame.channels;
    for (std::size_t y = box.top; y < box.bottom; ++y)
        noise.bytes(image.subspan(y * frame.row() + box.left * channels, (box.right - box.left) * channels));
}

}  // namespace fl
